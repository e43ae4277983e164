"""``with attnlrp(model):`` and ``with cplrp(model):`` — scoped, reversible, audited LRP on module instances.

Nothing that is shared is edited: ``forward`` is set on module instances and deleted on exit, and attention
is switched through transformers' public registries under names of this package.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface

from xai.attribution.families import (
    Family,
    UnsupportedModelError,
    family_of,
    refuse_unusable_configuration,
    refuse_unusable_weights,
)
from xai.attribution.rules import ATTENTION_WRAPPERS, FORWARDS, LINEAR_TYPES, LrpMethod, RuleKind, kind_by_structure

ATTENTION_NAMES: Mapping[LrpMethod, str] = {"attnlrp": "xai_attnlrp", "cplrp": "xai_cplrp"}

_locks: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_locks_guard = threading.Lock()


class AlreadyPatchedError(RuntimeError):
    """The model is inside another LRP context, or something else has replaced a module's forward."""


@dataclass(frozen=True)
class Audit:
    """The rule of every module that needs one: module path → kind, in the model's order."""

    family: str
    rules: Mapping[str, RuleKind]

    @property
    def counts(self) -> Mapping[RuleKind, int]:
        """Number of modules of each kind."""
        return Counter(self.rules.values())


@contextmanager
def attnlrp(model: nn.Module) -> Iterator[Audit]:
    """Within the block, gradient × input of ``model`` is AttnLRP relevance; its outputs do not change.

    The model should be in eval mode: dropout has no rule. Yields what was patched.

    Raises:
        UnsupportedModelError: unknown family, quantised weights, or a module without a rule (named).
        AlreadyPatchedError: the model is already patched.
    """
    with _patched(model, "attnlrp") as audit:
        yield audit


@contextmanager
def cplrp(model: nn.Module) -> Iterator[Audit]:
    """Within the block, gradient × input of ``model`` is CP-LRP relevance; otherwise like :func:`attnlrp`."""
    with _patched(model, "cplrp") as audit:
        yield audit


def audit_model(model: nn.Module, family: Family | None = None) -> Audit:
    """Find the rule of every module of ``model``, or refuse.

    A module is accepted if its family's table gives it a rule, if it is linear or an embedding, or if the
    family lists it as passive. Beside that every module is judged by its structure, which knows nothing of
    the tables: a module that looks like a gated MLP, a norm, an activation or attention must have exactly
    that rule, so that an emptied or outdated table cannot go unnoticed.

    Raises:
        UnsupportedModelError: names every module that is not covered.
    """
    family = family or family_of(model)
    refuse_unusable_weights(model)
    refuse_unusable_configuration(model, family)
    rules, problems = match_rules(model, family)
    if problems:
        named = [f"{name} ({problem})" for name, problem in problems.items()]
        raise UnsupportedModelError(
            f"{len(named)} module(s) of this {family.name} model have no relevance rule: "
            f"{', '.join(named[:8])}{', …' if len(named) > 8 else ''}; "
            "merge adapters into the weights, or add the class to the family's entry in attribution/families.py"
        )
    return Audit(family=family.name, rules=rules)


def match_rules(model: nn.Module, family: Family) -> tuple[dict[str, RuleKind], dict[str, str]]:
    """Path → rule of the modules that get one, and path → class and what it needs of those that are not covered."""
    rules: dict[str, RuleKind] = {}
    problems: dict[str, str] = {}
    for name, module in model.named_modules():
        given, needed = family.kind_of(module), kind_by_structure(module)
        if needed is not None and given is not needed:
            problems[name] = f"{type(module).__name__}, needs a rule for {needed}"
        elif given is not None:
            in_experts = rules.get(name.rpartition(".")[0]) is RuleKind.EXPERTS
            rules[name] = RuleKind.EXPERT_GATE if in_experts and given is RuleKind.ACTIVATION else given
        elif type(module) not in LINEAR_TYPES and type(module).__name__ not in family.passive:
            problems[name] = type(module).__name__
    return rules, problems


@contextmanager
def exclusive(model: nn.Module) -> Iterator[None]:
    """Keep other threads from patching or attributing ``model`` meanwhile; the same thread may enter again."""
    with _locks_guard:
        lock = _locks.setdefault(model, threading.RLock())
    with lock:
        yield


@contextmanager
def _patched(model: nn.Module, method: LrpMethod) -> Iterator[Audit]:
    with ExitStack() as stack:
        stack.enter_context(exclusive(model))
        family = family_of(model)
        refuse_patched(model)
        audit = audit_model(model, family)
        _register_attention()
        stack.enter_context(attention_set_to(model, ATTENTION_NAMES[method]))
        forwards = FORWARDS[method]
        installed: Counter[RuleKind] = Counter()
        for name, kind in audit.rules.items():
            module = model.get_submodule(name)
            if kind is RuleKind.ATTENTION:
                _check_attention(name, module, method)
            elif kind in forwards:
                replace_forward(name, module, partial(forwards[kind], module), stack)
            else:
                continue
            installed[kind] += 1
        if installed != audit.counts:
            missing = sorted(audit.counts.keys() - installed.keys())
            raise UnsupportedModelError(f"{method} has no forward for modules of kind {', '.join(missing)}")
        yield audit


def refuse_patched(model: nn.Module) -> None:
    """Refuse a model inside an LRP block: gradients and attention are not the model's own there.

    Raises:
        AlreadyPatchedError: the model is inside such a block.
    """
    if getattr(model.config, "_attn_implementation", None) in ATTENTION_NAMES.values():
        raise AlreadyPatchedError("the model is already inside an attnlrp or cplrp block; leave that block first")


def replace_forward(name: str, module: nn.Module, forward: Callable[..., Any], stack: ExitStack) -> None:
    """Set ``forward`` on the instance ``module``; closing ``stack`` takes it off again.

    Raises:
        AlreadyPatchedError: the instance has a forward of its own already; ``name`` tells the user which.
    """
    if "forward" in module.__dict__:
        raise AlreadyPatchedError(
            f"module {name} has a forward of its own (an offloading hook, a kernel, or another patch); "
            "remove it, or load the model on one device without offloading"
        )
    stack.callback(module.__dict__.pop, "forward", None)
    module.__dict__["forward"] = forward


@contextmanager
def attention_set_to(model: nn.Module, implementation: str) -> Iterator[None]:
    """Within the block every attention of ``model`` is computed in one way; afterwards as it was, config by config."""
    with ExitStack() as stack:
        for config in reversed(_configs(model)):
            # Setting a parent's implementation sets its children's too; undone in reverse, children come last.
            stack.callback(setattr, config, "_attn_implementation", config._attn_implementation)
        model.set_attn_implementation(implementation)  # type: ignore[operator]
        yield


def _register_attention() -> None:
    functions, masks = AttentionInterface(), AttentionMaskInterface()
    for method, name in ATTENTION_NAMES.items():
        if name not in functions or name not in masks:
            # Without a mask function of the same name transformers would drop the padding mask.
            AttentionMaskInterface.register(name, masks["sdpa"])
            AttentionInterface.register(name, ATTENTION_WRAPPERS[method](functions["sdpa"]))


def _configs(model: nn.Module) -> list[Any]:
    """All configurations that the modules of ``model`` and their sub-configurations use, parents first."""
    found: dict[int, Any] = {}
    pending: list[Any] = [module.config for module in model.modules() if hasattr(module, "config")]
    while pending:
        config = pending.pop(0)
        if id(config) not in found and hasattr(config, "_attn_implementation"):
            found[id(config)] = config
            pending.extend(getattr(config, key) for key in config.sub_configs if getattr(config, key) is not None)
    return list(found.values())


def _check_attention(name: str, module: nn.Module, method: LrpMethod) -> None:
    in_use = getattr(module.config, "_attn_implementation", None)
    if in_use != ATTENTION_NAMES[method]:
        raise UnsupportedModelError(
            f"attention module {name} stayed on {in_use!r} when {ATTENTION_NAMES[method]!r} was asked for; "
            "this version of transformers does not let its attention be replaced"
        )

"""``verify(model)``: the rule of every module, what is not covered, and whether relevance is conserved, in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from xai.attribution.families import (
    Family,
    UnsupportedModelError,
    Vision,
    family_of,
    input_embeddings,
    output_embeddings,
    refuse_unusable_configuration,
    refuse_unusable_weights,
)
from xai.attribution.patching import cplrp, exclusive, match_rules
from xai.attribution.relevance import relevance, target_values
from xai.attribution.rules import LINEAR_TYPES, RuleKind
from xai.attribution.targets import Target

SMALL = 50_000_000
"""Parameters up to which a model is copied in double precision for the exact checks."""
MAX_PATCHES = 256
EXACT = 1e-6
N_TOKENS, N_CANDIDATES = 12, 16
_WITHOUT_RULE = {
    "ModuleList": "container",
    "Sequential": "container",
    "Embedding": "embedding",
    "Identity": "passes on",
    "Dropout": "passes on",
}
"""What else than linear the classes of :data:`LINEAR_TYPES` are."""


@dataclass(frozen=True)
class Check:
    """One comparison of two numbers that should be one.

    Attributes:
        name: what was compared, on which input.
        expected: the target's value, or the relevance that went into a block.
        found: the relevance that arrived, or the value under the rules.
        limit: the largest relative error that is right; ``None`` if the error is reported only, since biases
            take a share of the relevance.
    """

    name: str
    expected: float
    found: float
    limit: float | None = None

    @property
    def error(self) -> float:
        """``(found - expected) / |expected|``."""
        return (self.found - self.expected) / (abs(self.expected) or 1.0)

    @property
    def passed(self) -> bool | None:
        """Whether the error is within the limit (NaN is not); ``None`` without one."""
        return None if self.limit is None else abs(self.error) <= self.limit


@dataclass(frozen=True)
class Verification:
    """What is known of attribution on one model.

    Attributes:
        model_type: of its configuration.
        family: the entry of :mod:`xai.attribution.families` that it belongs to.
        classes: path → class of every module.
        rules: path → rule of the modules that get one.
        passive: paths of the modules that pass relevance unchanged by themselves.
        uncovered: path → class and what it needs, of the modules that stand in the way; with any, no check ran.
        checks: outputs while patched, conservation on the model itself, and the exact checks of a small one.
    """

    model_type: str
    family: str
    classes: Mapping[str, str]
    rules: Mapping[str, RuleKind]
    passive: frozenset[str]
    uncovered: Mapping[str, str]
    checks: tuple[Check, ...] = ()

    @property
    def counts(self) -> Mapping[RuleKind, int]:
        """Number of modules of each kind."""
        return Counter(self.rules.values())

    @property
    def ok(self) -> bool:
        """Every module is covered and no check failed."""
        return not self.uncovered and all(check.passed is not False for check in self.checks)

    def frame(self) -> pd.DataFrame:
        """One row a module: ``module``, ``class``, ``rule``.

        The rule is a kind of :class:`RuleKind`; or ``linear``, ``embedding`` (looked up), ``container`` (of the modules
        below it) or ``passes on``, which need none; or ``none`` where one is missing.
        """
        rows = [(name, class_name, self._rule_of(name)) for name, class_name in self.classes.items()]
        return pd.DataFrame(rows, columns=["module", "class", "rule"])

    def checks_frame(self) -> pd.DataFrame:
        """One row a check: ``check``, ``expected``, ``found``, ``error`` (relative), ``limit``, ``passed``."""
        rows = [(c.name, c.expected, c.found, c.error, c.limit, c.passed) for c in self.checks]
        return pd.DataFrame(rows, columns=["check", "expected", "found", "error", "limit", "passed"])

    def _rule_of(self, name: str) -> str:
        if name in self.uncovered:
            return "none"
        if name in self.rules:
            return str(self.rules[name])
        return _WITHOUT_RULE.get(self.classes[name], "passes on" if name in self.passive else "linear")


def verify(model: nn.Module) -> Verification:
    """Look at every module of ``model``, then explain short random inputs by CP-LRP and see what arrives.

    On the model itself the remainder is reported. A model with at most :data:`SMALL` parameters is also
    copied in double precision, its biases set to zero, where nothing may be missing: neither from input to
    logit nor across any block. The model is left as it was.

    Raises:
        UnsupportedModelError: no family, or weights or settings with which nothing can be explained.
        AlreadyPatchedError: the model is inside an LRP block.
    """
    family = family_of(model)
    refuse_unusable_weights(model)
    refuse_unusable_configuration(model, family)
    rules, uncovered = match_rules(model, family)
    classes = {name: type(module).__name__ for name, module in model.named_modules()}
    linear = {name for name, module in model.named_modules() if type(module) in LINEAR_TYPES}
    config: Any = model.config
    return Verification(
        model_type=str(config.model_type),
        family=family.name,
        classes=MappingProxyType(classes),
        rules=MappingProxyType(rules),
        passive=frozenset(classes.keys() - linear - rules.keys() - uncovered.keys()),
        uncovered=MappingProxyType(uncovered),
        checks=() if uncovered else tuple(_checks(model, family)),
    )


def without_biases(model: nn.Module) -> nn.Module:
    """A copy of ``model`` in double precision and eval mode, its biases zero: CP-LRP conserves there exactly."""
    with exclusive(model):
        copy = deepcopy(model)
    copy = copy.double().eval().requires_grad_(False)
    for name, parameter in copy.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
    config: Any = copy.config
    if getattr(config.get_text_config(), "_experts_implementation", None) not in (None, "eager"):
        copy.set_experts_implementation("eager")  # type: ignore[operator]  # grouped products know no doubles
    return copy


def block_checks(
    model: nn.Module, inputs: Mapping[str, Tensor], blocks: Mapping[str, nn.Module], limit: float | None = None
) -> list[Check]:
    """Relevance into and out of each block by itself, for a patched ``model``; call it inside an LRP block.

    A plain forward shows what each block is called with. Each is then run alone on that, with random
    positive relevance at its output, so that errors of opposite sign cannot hide each other in the blocks
    around.

    Raises:
        UnsupportedModelError: a block was not reached by the forward (named).
    """
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
    with torch.no_grad(), _recording(blocks, calls):
        model(**inputs, use_cache=False)
    missed = [path for path in blocks if path not in calls]
    if missed:
        raise UnsupportedModelError(f"the model's forward never called {', '.join(missed)}; is its path right?")
    return [_block_check(path, block, *calls[path], limit) for path, block in blocks.items()]


def _checks(model: nn.Module, family: Family) -> Iterator[Check]:
    small = sum(parameter.numel() for parameter in model.parameters()) <= SMALL
    copy = without_biases(model) if small else None
    for name, inputs in _probes(model, family):
        yield from _whole_model(model, name, inputs)
        if copy is None:
            continue
        *_, conservation = _whole_model(copy, f"{name}, double precision without biases", inputs)
        yield Check(conservation.name, conservation.expected, conservation.found, EXACT)
        if name == "text" and family.vision is not None:
            continue  # the picture's blocks and the decoder's come with the other probe
        with cplrp(copy):
            dtype = torch.float64
            exact = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs.items()}
            yield from block_checks(copy, exact, family.blocks(copy), EXACT)


def _whole_model(model: nn.Module, name: str, inputs: Mapping[str, Tensor]) -> Iterator[Check]:
    """Whether the rules change the output, and whether its value arrives at the input."""
    last = inputs["input_ids"].shape[1] - 1
    generator = torch.Generator().manual_seed(0)
    n_tokens = output_embeddings(model).weight.shape[0]
    tokens = torch.randint(n_tokens, (N_CANDIDATES,), generator=generator).tolist()
    candidates = [Target("self-check", (last,), (token,)) for token in tokens]
    values = target_values(model, inputs, candidates)
    # A logit far from zero, by which errors can be divided.
    value, target = max(zip(values, candidates, strict=True), key=lambda pair: abs(pair[0]))
    (result,) = relevance(model, inputs, [target], method="cplrp")
    config: Any = model.config
    # The rules attend by sdpa, and another attention kernel rounds elsewhere.
    comparable = config._attn_implementation == "sdpa"
    yield Check(f"outputs, {name}", value, result.value, 1e-5 if comparable else None)
    yield Check(f"conservation, {name}", result.value, result.total)


def _probes(model: nn.Module, family: Family) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Short random inputs, a text and, if the family sees and it is cheap, a picture before a text."""
    device = input_embeddings(model).weight.device
    generator = torch.Generator().manual_seed(0)
    config: Any = model.config
    named = {getattr(config, name) for name in dir(config) if name.endswith(("token_id", "token_index"))}
    special = {token for token in named if isinstance(token, int)}
    n_rows = input_embeddings(model).weight.shape[0]
    drawn = torch.randint(n_rows, (N_TOKENS + len(special) + 64,), generator=generator).tolist()
    words = [token for token in drawn if token not in special][:N_TOKENS]
    yield "text", {"input_ids": torch.tensor([words], device=device)}
    picture = None if family.vision is None else _picture(family.vision, config, generator)
    if family.vision is not None and picture is not None:
        pixels, n_image_tokens = picture
        ids = torch.tensor([[words[0], *[config.image_token_id] * n_image_tokens, *words[1:]]])
        types = (ids == config.image_token_id).long()
        inputs = {"input_ids": ids, family.vision.token_types: types, **pixels}
        yield "image+text", {name: value.to(device) for name, value in inputs.items()}


def _picture(vision: Vision, config: Any, generator: torch.Generator) -> tuple[dict[str, Tensor], int] | None:
    """A random picture in the processor's layout and its number of image tokens; ``None`` if it would be large."""
    sizes, merge = config.vision_config, vision.merge_size(config)
    if vision.grid_input is None:
        shape: tuple[int, ...] = (1, sizes.num_channels, sizes.image_size, sizes.image_size)
        pixels = {"pixel_values": torch.randn(shape, generator=generator)}
    else:
        grid = (1, 2 * merge, 4 * merge)
        shape = (grid[1] * grid[2], sizes.in_channels * sizes.temporal_patch_size * sizes.patch_size**2)
        pixels = {"pixel_values": torch.randn(shape, generator=generator), vision.grid_input: torch.tensor([grid])}
    n_patches = sum(t * h * w for t, h, w in vision.grids(config, pixels))
    return None if n_patches > MAX_PATCHES else (pixels, n_patches // merge**2)


@contextmanager
def _recording(
    blocks: Mapping[str, nn.Module], calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]]
) -> Iterator[None]:
    """Within the block, the last call of each module is kept in ``calls``."""
    with ExitStack() as stack:
        for path, block in blocks.items():

            def keep(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], path: str = path) -> None:
                calls[path] = args, kwargs

            stack.callback(block.register_forward_pre_hook(keep, with_kwargs=True).remove)
        yield


def _block_check(
    path: str, block: nn.Module, args: Iterable[Any], kwargs: Mapping[str, Any], limit: float | None
) -> Check:
    hidden, *rest = args
    leaf = hidden.detach().requires_grad_()
    with torch.enable_grad():
        output = block(leaf, *rest, **kwargs)
    output = output[0] if isinstance(output, tuple) else output
    generator = torch.Generator().manual_seed(0)
    weights = 0.5 + torch.rand(output.shape, generator=generator, dtype=output.dtype).to(output.device)
    gradient = output.detach() * weights
    (input_gradient,) = torch.autograd.grad(output, leaf, gradient)
    entering = (output.detach() * gradient).double().sum()
    leaving = (leaf.detach() * input_gradient).double().sum()
    return Check(path, float(entering), float(leaving), limit)

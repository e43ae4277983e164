"""The registry of attribution methods: what exists, what each needs, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from xai.attribution.families import family_of
from xai.attribution.relevance import Floats, Relevance, relevance, target_values
from xai.attribution.targets import Target

MethodFunction = Callable[..., list[Relevance]]

_METHODS: dict[str, Method] = {}


@dataclass(frozen=True)
class Method:
    """A named way to attribute; call it as ``method(model, inputs, targets, **options)``.

    Attributes:
        name: what users, runs and reports call it.
        function: ``(model, inputs, targets, **options) -> list[Relevance]``, one result a target.
        needs: what it takes from the model, e.g. ``gradients``, ``forwards``.
        sign: ``signed`` (negative speaks against the target) or ``unsigned``.
        source: the publication.
        description: one sentence.
    """

    name: str
    function: MethodFunction
    needs: frozenset[str]
    sign: str
    source: str
    description: str

    def __call__(
        self, model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target], **options: Any
    ) -> list[Relevance]:
        """Attribute ``targets``; see :func:`xai.attribution.relevance.relevance` for inputs and errors."""
        return self.function(model, inputs, targets, **options)


def methods() -> tuple[Method, ...]:
    """All registered methods, in order of registration."""
    return tuple(_METHODS.values())


def get_method(name: str) -> Method:
    """The method called ``name``.

    Raises:
        ValueError: there is none; the message lists those that exist.
    """
    if name not in _METHODS:
        raise ValueError(f"unknown attribution method {name!r}; there are {', '.join(_METHODS)}")
    return _METHODS[name]


def method(
    *, name: str, needs: Sequence[str] = (), sign: str = "signed", source: str = ""
) -> Callable[[MethodFunction], MethodFunction]:
    """Register a function as a method; the first line of its docstring becomes the description.

    Raises:
        ValueError: the name is taken, or the function has no docstring.
    """

    def register(function: MethodFunction) -> MethodFunction:
        if name in _METHODS:
            raise ValueError(f"an attribution method {name!r} is registered already; choose another name")
        lines = (function.__doc__ or "").strip().splitlines()
        if not lines:
            raise ValueError(f"attribution method {name!r} needs a docstring that says what it does")
        _METHODS[name] = Method(name, function, frozenset(needs), sign, source, lines[0])
        return function

    return register


@method(name="attnlrp", needs=["gradients"], source="Achtibat et al. 2024, arXiv:2402.05602")
def attnlrp_relevance(model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target]) -> list[Relevance]:
    """Layer-wise relevance propagation through attention, softmax included; does not conserve exactly."""
    return relevance(model, inputs, targets, method="attnlrp")


@method(name="cplrp", needs=["gradients"], source="Ali et al. 2022, arXiv:2202.07304")
def cplrp_relevance(model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target]) -> list[Relevance]:
    """Layer-wise relevance propagation with attention weights and gates as constants; conserves without biases."""
    return relevance(model, inputs, targets, method="cplrp")


@method(name="gradient_x_input", needs=["gradients"], source="Shrikumar et al. 2016, arXiv:1605.01713")
def gradient_x_input_relevance(
    model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target]
) -> list[Relevance]:
    """Plain gradient times input, no rules: the baseline that LRP must beat."""
    return relevance(model, inputs, targets, method="gradient_x_input")


@method(name="random", needs=["forwards"], source="the floor of any comparison")
def random_relevance(
    model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target], *, seed: int = 0
) -> list[Relevance]:
    """Standard normal noise in the shape of an explanation: what a method without knowledge would score.

    The draw depends on ``seed``, the target and the sequence's length only, never on what ran before.
    """
    values = target_values(model, inputs, targets)
    return [_noise(model, inputs, target, value, seed) for target, value in zip(targets, values, strict=True)]


def _noise(model: nn.Module, inputs: Mapping[str, Tensor], target: Target, value: float, seed: int) -> Relevance:
    config: Any = model.config
    ids = inputs["input_ids"][0].cpu().numpy()
    image_positions = np.flatnonzero(ids == getattr(config, "image_token_id", -1))
    generator = np.random.default_rng([seed, len(ids), *target.positions, *target.token_ids])
    text: Floats = generator.standard_normal(len(ids))
    text[max(target.positions) :] = 0.0
    text[image_positions] = 0.0
    if not len(image_positions):
        return Relevance(target, value, text)
    n_levels = 1
    if family_of(model).deepstack_features is not None:
        n_levels += len(config.vision_config.deepstack_visual_indexes)
    return Relevance(
        target,
        value,
        text,
        image=generator.standard_normal((n_levels, len(image_positions))),
        image_positions=image_positions,
        grid_thw=tuple((int(t), int(h), int(w)) for t, h, w in inputs["image_grid_thw"].tolist()),
        merge_size=int(config.vision_config.spatial_merge_size),
    )

"""The registry of attribution methods: what exists, what each needs, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from xai.attribution.relevance import Relevance
from xai.attribution.targets import Target

MethodFunction = Callable[..., list[Relevance]]

_METHODS: dict[str, Method] = {}


@dataclass(frozen=True)
class Method:
    """A named way to attribute; call it as ``method(model, inputs, targets, **options)``.

    Attributes:
        name: what users, runs and reports call it.
        function: ``(model, inputs, targets, **options) -> list[Relevance]``, one result a target.
        needs: what it takes from the model: ``gradients``, ``attention weights``, ``forwards``.
        baseline: what the absence of an input is taken to be; ``none`` where the method has no such notion.
        sign: ``signed`` (negative speaks against the target) or ``unsigned``.
        source: the publication.
        description: one sentence.
    """

    name: str
    function: MethodFunction
    needs: frozenset[str]
    baseline: str
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
    *, name: str, needs: Sequence[str] = (), baseline: str = "none", sign: str = "signed", source: str = ""
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
        _METHODS[name] = Method(name, function, frozenset(needs), baseline, sign, source, lines[0])
        return function

    return register

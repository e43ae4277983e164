"""The registry of attribution methods: what exists, what each needs, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from xai.attribution.methods.options import Option, options_of, passes_on, plain, split_option
from xai.attribution.relevance import Relevance
from xai.attribution.targets import Target
from xai.registry import Registry

MethodFunction = Callable[..., list[Relevance]]


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
        check: ``check(name, **options)`` refuses options that do not fit each other, by a ValueError. Where the
            function passes unnamed options on, those are the keyword parameters of ``check``.
        max_residual: of a method that promises that its total is what the target gained from the baseline, the largest
            residual, relative to that, which it allows itself; ``None`` without that promise.
    """

    name: str
    function: MethodFunction
    needs: frozenset[str]
    baseline: str
    sign: str
    source: str
    description: str
    check: Callable[..., None] | None = field(default=None, repr=False)
    max_residual: float | None = None

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """What can be set, with defaults."""
        more = options_of(self.check) if self.check is not None and passes_on(self.function) else ()
        return (*options_of(self.function), *more)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse options that the method does not have, values that they do not take, and those that do not fit.

        Raises:
            ValueError: the message lists the options of the method.
        """
        known = {option.name: option for option in self.options}
        for name, value in options.items():
            if name not in known:
                raise ValueError(f"method {self.name} has no option {name!r}; {self._listed()}")
            try:
                known[name].check(value)
            except ValueError as error:
                raise ValueError(f"{error}; {self._listed()}") from None
        if self.check is not None:
            self.check(self.name, **options)

    def parse_options(self, texts: Sequence[str]) -> dict[str, Any]:
        """Options from texts ``NAME=VALUE``, checked; what stands for a value is said by its type.

        Raises:
            ValueError: as :meth:`check_options`, or an option is given twice.
        """
        known = {option.name: option for option in self.options}
        values: dict[str, Any] = {}
        for text in texts:
            try:
                name, value = split_option(text)
                if name in values:
                    raise ValueError(f"option {name} is given twice")
                values[name] = known[name].parse(value) if name in known else value
            except ValueError as error:
                raise ValueError(f"{error}; {self._listed()}") from None
        self.check_options(values)
        return values

    def complete(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """All options by name, in JSON values: those that are given, and the defaults of the others."""
        defaults = {option.name: option.default for option in self.options}
        return {name: plain(value) for name, value in (defaults | dict(options)).items()}

    def _listed(self) -> str:
        listed = [f"{option.name} ({option.values})" for option in self.options]
        return f"{self.name} takes {', '.join(listed) or 'no options'}"

    def __call__(
        self, model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target], **options: Any
    ) -> list[Relevance]:
        """Attribute ``targets``; see :func:`xai.attribution.relevance.relevance` for inputs and errors."""
        return self.function(model, inputs, targets, **options)


_METHODS: Registry[Method] = Registry("an attribution method")


def methods() -> tuple[Method, ...]:
    """All registered methods, in order of registration."""
    return tuple(_METHODS.values())


def get_method(name: str) -> Method:
    """The method called ``name``.

    Raises:
        ValueError: there is none; the message lists those that exist.
    """
    return _METHODS.named(name)


def method(
    *,
    name: str,
    needs: Sequence[str] = (),
    baseline: str = "none",
    sign: str = "signed",
    source: str = "",
    check: Callable[..., None] | None = None,
    max_residual: float | None = None,
) -> Callable[[MethodFunction], MethodFunction]:
    """Register a function as a method; the first line of its docstring becomes the description.

    Its keyword-only parameters with a default are the method's options; annotate them, since the command line reads
    their values by type. The other arguments are the fields of :class:`Method`.

    Raises:
        ValueError: the name is taken, or the function has no docstring.
    """

    def register(function: MethodFunction) -> MethodFunction:
        lines = (function.__doc__ or "").strip().splitlines()
        if not lines:
            raise ValueError(f"attribution method {name!r} needs a docstring that says what it does")
        made = Method(name, function, frozenset(needs), baseline, sign, source, lines[0], check, max_residual)
        _METHODS.add(name, made)
        return function

    return register

"""The options of attribution methods: read off a function's keyword parameters, checked, and parsed from text."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Noise = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Option:
    """One option of a method.

    Attributes:
        name: as it is given, ``method(…, name=value)`` or ``--option name=value``.
        annotation: the type of its values; :data:`typing.Any` takes all.
        default: its value where it is not given.
    """

    name: str
    annotation: Any
    default: object

    @property
    def values(self) -> str:
        """Which values it takes, in words: ``tokens or pixels``, ``int, 1 or more``, …"""
        return _words(self.annotation)

    def check(self, value: object) -> None:
        """Refuse a value of another type or out of range; a number in a text is none.

        Raises:
            ValueError: the message says which values there are.
        """
        try:
            TypeAdapter(self.annotation).validate_python(plain(value), strict=True)
        except ValidationError:
            raise ValueError(self._refusal(value)) from None

    def parse(self, text: str) -> Any:
        """The value that ``text`` stands for: JSON, or a word as it is.

        Raises:
            ValueError: as :meth:`check`.
        """
        adapter = TypeAdapter(self.annotation)
        try:
            return adapter.validate_json(text, strict=True)
        except ValidationError:
            pass
        try:
            return adapter.validate_strings(text)
        except ValidationError:
            raise ValueError(self._refusal(text)) from None

    def _refusal(self, value: object) -> str:
        return f"option {self.name} takes {self.values}, not {value!r}"


def options_of(function: Callable[..., Any]) -> tuple[Option, ...]:
    """The keyword-only parameters of ``function`` that have a default, in its order."""
    hints = get_type_hints(function, include_extras=True)
    found = inspect.signature(function).parameters.values()
    return tuple(
        Option(parameter.name, hints.get(parameter.name, _type_of(parameter.default)), parameter.default)
        for parameter in found
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is not parameter.empty
    )


def passes_on(function: Callable[..., Any]) -> bool:
    """Whether ``function`` takes keyword arguments that it does not name."""
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def split_option(text: str) -> tuple[str, str]:
    """Name and value of ``NAME=VALUE``.

    Raises:
        ValueError: there is no name or no ``=``.
    """
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise ValueError(f"an option is given as NAME=VALUE, not {text!r}")
    return name.strip(), value.strip()


def _type_of(default: object) -> Any:
    """What an option without an annotation takes: values like its default, if that is a plain one."""
    return type(default) if isinstance(default, (bool, int, float, str)) else Any


def plain(value: object) -> object:
    """A value as JSON knows it: arrays, tuples and ranges as lists, numbers of numpy as Python's own."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value


def _words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [bound.ge for field in arguments[1:] for bound in field.metadata if hasattr(bound, "ge")]
        return ", ".join([_words(arguments[0]), *(f"{bound} or more" for bound in bounds)])
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(map(_words, arguments))
    if origin is not None and issubclass(origin, Mapping):
        return f"{{{_words(arguments[0])}: {_words(arguments[1])}}}"
    if origin is not None and issubclass(origin, Sequence):
        return f"[{_words(arguments[0])}, …]"
    plain = {bool: "true or false", type(None): "null", Any: "anything"}
    return plain.get(annotation) or str(getattr(annotation, "__name__", annotation))

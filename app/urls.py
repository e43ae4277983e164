"""States of pages that a URL reproduces: what is as by default is left out, what makes no sense is ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from xai.schema import Record

Params = dict[str, list[str]]
"""Parameters of a URL, each with all its values."""


class UrlState(Record):
    """Base of such states; every field has a default. Parameters of the URL are called ``prefix`` and the field."""

    prefix: ClassVar[str] = ""

    @classmethod
    def from_params(cls, params: Mapping[str, Sequence[str]]) -> Self:
        """The state in a URL's parameters."""
        values: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            given = list(params.get(cls.prefix + name, ()))
            if not given:
                continue
            value: Any = tuple(given) if isinstance(field.default, tuple) else given[0]
            try:
                values[name] = getattr(cls.model_validate({name: value}), name)
            except ValidationError:
                continue
        return cls(**values)

    def to_params(self) -> Params:
        """The parameters that say what is not as by default."""
        params: Params = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.default:
                values = value if isinstance(value, tuple) else (value,)
                params[self.prefix + name] = [_as_text(item) for item in values]
        return params


def _as_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)

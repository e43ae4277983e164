"""JSON as the standard has it: no key twice, no NaN or infinity; Python's own reader lets both through."""

from __future__ import annotations

import json
from typing import Any, NoReturn


class NotStrictError(ValueError):
    """The text is what Python reads as JSON but the standard does not allow."""


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise NotStrictError("a key is given twice")
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise NotStrictError(f"{name} is not JSON")


STRICT = json.JSONDecoder(object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
"""Raises `json.JSONDecodeError` for what is no JSON, `NotStrictError` for what the standard does not allow."""

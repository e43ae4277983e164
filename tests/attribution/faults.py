"""Ways to make a model fail on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def raising(owner: Any, name: str) -> Iterator[None]:
    """Within the block the method ``name`` of the instance ``owner`` raises, and that must come through."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("on purpose")

    owner.__dict__[name] = fail
    try:
        with pytest.raises(ZeroDivisionError):
            yield
    finally:
        del owner.__dict__[name]

"""What is registered under a name and asked for by it: attribution methods, OCR engines, taggers of categories."""

from __future__ import annotations

from typing import TypeVar

Thing = TypeVar("Thing")


class Registry(dict[str, Thing]):
    """Things by name, in the order of their registration.

    Args:
        kind: what one of them is, with its article, for messages: ``"an OCR engine"``.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def add(self, name: str, thing: Thing) -> None:
        """Register a thing.

        Raises:
            ValueError: the name is taken.
        """
        if name in self:
            raise ValueError(f"{self._kind} {name!r} is registered already; choose another name")
        self[name] = thing

    def named(self, name: str) -> Thing:
        """The thing of that name.

        Raises:
            ValueError: there is none; the message lists those that there are.
        """
        if name not in self:
            raise ValueError(f"unknown {self._kind.partition(' ')[2]} {name!r}; there are {', '.join(self)}")
        return self[name]

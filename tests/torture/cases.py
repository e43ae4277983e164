"""What a hostile record is, what is to become of it, and how the documentation's table says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

EXPLAINED = "explained"


@dataclass(frozen=True)
class Case:
    """One hostile record.

    Attributes:
        id: of the record; of a picture its file's name.
        what: what it is, as the documentation has it.
        content: how its picture is drawn (a function of path and picture), its text, or its line or row.
        reason: how the reason of its failure goes, or a part of it; ``""`` if it is explained.
        flag: what the documentation says of an explanation with a flag.
        same_as: the id of the record that has the same relevance.
        whole: whether it fails before any mode, so that there is one failure for all of them.
    """

    id: str
    what: str
    content: Any = None
    reason: str = ""
    flag: str = ""
    same_as: str = ""
    whole: bool = False

    @property
    def outcome(self) -> str:
        """The cell of the table."""
        return f"refused: “{self.reason.strip().rstrip(':')} …”" if self.reason else self.flag or EXPLAINED


def table(head: str, cases: Iterable[Case]) -> str:
    """The cases as the rows of a Markdown table."""
    rows = "".join(f"| {case.what} | {case.outcome} |\n" for case in cases)
    return f"| {head} | outcome |\n| --- | --- |\n{rows}"

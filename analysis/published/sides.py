"""Answers that take one of two sides and name categories below it: what AHA-Memes and M³ have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from xai.analysis.detection.answered import Answers
from xai.analysis.detection.labelsets import LabelSets
from xai.tasks import Task

NEITHER = -1
"""The side of an answer that takes none."""


class Type(NamedTuple):
    """A label below a side: of which side and category it is, and whether it excludes the others of its side."""

    side: str
    category: str
    alone: bool = False


@dataclass(frozen=True)
class Layout:
    """The two sides of a task, the first positive, and what the labels below them are.

    Labels that answers write alike are one category: the two ``Other`` of AHA-Memes.
    """

    sides: tuple[str, str]
    types: Mapping[str, Type]

    @classmethod
    def of(cls, task: Task) -> Layout:
        """The layout of a task: its labels without ancestors are the sides.

        Raises:
            ValueError: it has not two of them.
        """
        sides = [label.name for label in task.labels if not label.ancestors]
        if len(sides) != 2:
            raise ValueError(f"task {task.name!r} has {len(sides)} labels without ancestors; its scores need two")
        below = [label for label in task.labels if label.ancestors]
        types = {label.name: Type(label.ancestors[0], label.spelling, label.alone) for label in below}
        return cls((sides[0], sides[1]), types)

    @property
    def categories(self) -> tuple[str, ...]:
        """Every category once, in the order of the labels."""
        return tuple(dict.fromkeys(one.category for one in self.types.values()))

    def sides_in(self, names: Sequence[str], sets: np.ndarray) -> np.ndarray:
        """Which sides are named, bool ``(n, 2)``, by label sets ``(n, n_labels)`` over ``names``."""
        return sets[:, [names.index(side) for side in self.sides]]

    def types_in(self, names: Sequence[str], sets: np.ndarray, *, side: str, alone: bool | None = None) -> np.ndarray:
        """Which labels below a side are named, bool ``(n, n_labels_there)``; only those that exclude others, or not."""
        columns = [
            names.index(name) for name, one in self.types.items() if one.side == side and alone in (None, one.alone)
        ]
        return sets[:, columns]

    def categories_in(self, names: Sequence[str], sets: np.ndarray) -> np.ndarray:
        """Which categories are named, bool ``(n, n_categories)``."""
        columns = [
            [names.index(name) for name, one in self.types.items() if one.category == category]
            for category in self.categories
        ]
        return np.stack([sets[:, column].any(axis=1) for column in columns], axis=1)


@dataclass(frozen=True, eq=False)
class TwoSided:
    """The answers of one mode to the memes whose gold labels name one side.

    Attributes:
        ids: of the memes.
        sets: gold and predicted label sets over the labels of the task.
        unparsed: which answers could not be parsed and so have no labels, bool ``(n,)``.
        passed_over: how many memes are not among them, by reason.
    """

    mode: str
    layout: Layout
    ids: tuple[str, ...]
    sets: LabelSets
    unparsed: np.ndarray
    passed_over: Mapping[str, int]

    @classmethod
    def of(cls, mode: str, answers: Answers, layout: Layout) -> TwoSided:
        """The memes of a mode whose gold labels name one side; the others are counted.

        Raises:
            ValueError: there is none.
        """
        side = side_of(layout.sides_in(answers.sets.names, answers.sets.gold))
        kept = np.flatnonzero(side != NEITHER)
        if not len(kept):
            one, other = layout.sides
            raise ValueError(f"no gold labels in mode {mode!r} name either {one} or {other}; add it to their 'labels'")
        passed_over = {
            "gold_without_one_side": len(side) - len(kept),
            "without_gold": answers.n_without_gold,
            "failed": answers.n_failed,
        }
        ids = tuple(answers.ids[row] for row in kept)
        return cls(mode, layout, ids, answers.sets.of(kept), answers.unparsed[kept], passed_over)

    def __len__(self) -> int:
        return len(self.ids)

    def of_rows(self, rows: Sequence[int]) -> TwoSided:
        """Some of the memes, in that order."""
        at = np.asarray(rows, dtype=np.intp)
        ids = tuple(self.ids[row] for row in at)
        return replace(self, ids=ids, sets=self.sets.of(at), unparsed=self.unparsed[at])

    @cached_property
    def gold_side(self) -> np.ndarray:
        """The side that gold is on, 0 or 1, ``(n,)``."""
        return side_of(self.layout.sides_in(self.sets.names, self.sets.gold))

    @cached_property
    def named(self) -> np.ndarray:
        """Which sides the answers name, bool ``(n, 2)``."""
        return self.layout.sides_in(self.sets.names, self.sets.predicted)

    @cached_property
    def side(self) -> np.ndarray:
        """The side that an answer takes, 0 or 1; :data:`NEITHER` for one that names none or both, ``(n,)``."""
        return side_of(self.named)

    @cached_property
    def gold_categories(self) -> np.ndarray:
        """Bool ``(n, n_categories)``."""
        return self.layout.categories_in(self.sets.names, self.sets.gold)

    @cached_property
    def categories(self) -> np.ndarray:
        """Those that the answers name, on whatever side, bool ``(n, n_categories)``."""
        return self.layout.categories_in(self.sets.names, self.sets.predicted)

    def counted(self) -> dict[str, Any]:
        """What was scored and what not, as the row of a table."""
        n_named = self.named.sum(axis=1)
        return {
            "mode": self.mode,
            "scored": len(self),
            "unparsed": int(self.unparsed.sum()),
            "names_no_side": int(((n_named == 0) & ~self.unparsed).sum()),
            "names_both_sides": int((n_named == 2).sum()),
            **self.passed_over,
        }


COUNTED = (
    "unparsed: answers that could not be read; they claim nothing and are right nowhere, as are answers that name no "
    "side, or both. gold without one side: gold labels name none of the two, or both; those memes, those without gold "
    "labels and those that failed before they had an answer are not scored."
)
"""What the columns of :meth:`TwoSided.counted` are."""


def side_of(named: np.ndarray) -> np.ndarray:
    """Which of two sides is named, bool ``(n, 2)``: 0 or 1, or :data:`NEITHER` where none is, or both are."""
    return np.where(named.sum(axis=1) == 1, named.argmax(axis=1), NEITHER)

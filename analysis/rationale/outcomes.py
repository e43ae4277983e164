"""Whether an answer was right: its labels against the gold labels, meme by meme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xai.tasks import Task

LOW_F1 = 0.5
"""Answers with a hierarchical F1 below this are looked at apart."""


class Outcome(NamedTuple):
    """``right``: exactly the gold labels; ``f1``: hierarchical F1 of this one answer, 0 to 1; ``None`` without gold."""

    right: bool | None
    f1: float | None


class Judge:
    """Judges answers by a task's tree; "none of these" counts as the empty set on both sides, as in ``xai score``.

    A gold label that the task does not have makes the outcome unknown; ``unknown`` collects such labels. Without a
    task every outcome is unknown.
    """

    def __init__(self, task: Task | None) -> None:
        self.unknown: set[str] = set()
        self._task = task
        self._known: dict[tuple[frozenset[str], frozenset[str]], tuple[Outcome, frozenset[str]]] = {}

    def outcome(self, gold: Sequence[str] | None, labels: Sequence[str]) -> Outcome:
        """What an answer came to; the order of labels does not matter."""
        if gold is None or self._task is None:
            return Outcome(None, None)
        key = frozenset(gold), frozenset(labels)
        if key not in self._known:
            self._known[key] = _judge(self._task, *key)
        outcome, unknown = self._known[key]
        self.unknown |= unknown
        return outcome


def _judge(task: Task, gold: frozenset[str], labels: frozenset[str]) -> tuple[Outcome, frozenset[str]]:
    """The outcome, and the gold labels that the task does not have."""
    matched = {label: task.match_label(label) for label in gold}
    wanted = {found for found in matched.values() if found is not None}
    if None in matched.values():
        return Outcome(None, None), frozenset(label for label, found in matched.items() if found is None)
    none = {task.none_label}
    ours, theirs = task.expand(labels - none), task.expand(wanted - none)
    n = len(ours) + len(theirs)
    return Outcome(labels - none == wanted - none, 2 * len(ours & theirs) / n if n else 1.0), frozenset()

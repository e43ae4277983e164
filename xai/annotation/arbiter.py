"""Decides from the answers of the panel: accepted where they are aligned, excluded where hopeless, else for people.

With n annotators, A_i the set of labels of annotator i, and the *side* of an answer the topmost labels of its labels in
the task's tree (of M3: Hate or Normal):

- *unanimous*: all n answers were read, name labels and are the same set: accepted with it;
- *largely aligned*: more than n/2 answers have the same side, the mean Jaccard |A∩B|/|A∪B| over all pairs of answers is
  at least ``aligned_jaccard``, and the mean confidence of those of that side at least ``aligned_confidence``: accepted
  with the labels that more than n/2 annotators gave;
- *hopeless*: no answer could be read; or there are two or more, their mean Jaccard is below ``hopeless_jaccard``, and
  their mean confidence below ``hopeless_confidence``: excluded;
- everything else goes to people, and so do labels of a majority that contradict each other by the task's own rules.

An answer whose labels are all unknown to the task counts as not read. Where a task does not ask for a confidence, the
confidences are not looked at, and no disagreement is hopeless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Literal, NamedTuple

from xai.annotation.settings import Rules
from xai.schema import Record
from xai.tasks import Task

VERSION = "1"
Verdict = Literal["accepted", "people", "excluded"]
Rule = Literal["unanimous", "aligned", "hopeless", "open"]


class Answer(NamedTuple):
    """What one annotator said: its labels, empty where nothing could be read, and how sure it says it is."""

    labels: frozenset[str]
    confidence: float | None = None


class Ruling(Record):
    """What the arbiter decided, by which rule, why, and the figures that it looked at."""

    verdict: Verdict
    rule: Rule
    why: str
    labels: tuple[str, ...] = ()
    n_read: int
    mean_jaccard: float | None = None
    mean_confidence: float | None = None


class _Side(NamedTuple):
    """The side with most answers: what it is, how many they are, and how sure they are on average."""

    name: frozenset[str]
    n: int
    confidence: float | None


def arbitrate(answers: Sequence[Answer], task: Task, rules: Rules) -> Ruling:
    """The ruling on one record; ``answers`` has an entry for every annotator, also for those that could not be read."""
    n = len(answers)
    read = [answer for answer in answers if answer.labels]
    jaccard = _mean([len(a.labels & b.labels) / len(a.labels | b.labels) for a, b in combinations(read, 2)])
    confidence = _mean([answer.confidence for answer in read if answer.confidence is not None])
    figures = {"n_read": len(read), "mean_jaccard": jaccard, "mean_confidence": confidence}

    def ruling(verdict: Verdict, rule: Rule, why: str, labels: frozenset[str] = frozenset()) -> Ruling:
        ordered = tuple(name for name in task.label_names if name in labels)
        return Ruling.model_validate({"verdict": verdict, "rule": rule, "why": why, "labels": ordered, **figures})

    if not read:
        return ruling("excluded", "hopeless", f"none of {n} answers could be read")
    labels = _of_majority(read, n)
    if odd := task.contradictions([name for name in task.label_names if name in labels]):
        return ruling("people", "open", f"more than half gave labels that contradict each other: {odd[0]}")
    if len(read) == n and len({answer.labels for answer in read}) == 1:
        return ruling("accepted", "unanimous", f"all {n} annotators gave the same labels", read[0].labels)
    side = _largest_side(read, task)
    missing = _missing(side, n, jaccard, rules, task.answer.confidence is not None)
    if not missing and labels:
        why = f"{side.n} of {n} agree on {_named(side.name)}; mean Jaccard {jaccard:.2f}{_sure(side.confidence)}"
        return ruling("accepted", "aligned", why, labels)
    if jaccard is not None and confidence is not None and _is_hopeless(jaccard, confidence, rules):
        return ruling("excluded", "hopeless", f"no agreement: mean Jaccard {jaccard:.2f}{_sure(confidence)}")
    return ruling("people", "open", missing or f"no label was given by more than half of {n} annotators")


def side_of(labels: frozenset[str], task: Task) -> frozenset[str]:
    """The topmost labels, or groups of labels, that a set of labels lies under."""
    return frozenset(next(iter(task.ancestors(label)), label) for label in labels)


def _largest_side(read: Sequence[Answer], task: Task) -> _Side:
    sides = [side_of(answer.labels, task) for answer in read]
    (name, n), *_ = Counter(sides).most_common()
    of_side = [answer.confidence for answer, side in zip(read, sides, strict=True) if side == name]
    return _Side(name, n, _mean([value for value in of_side if value is not None]))


def _missing(side: _Side, n: int, jaccard: float | None, rules: Rules, asks_confidence: bool) -> str:
    """What is wanting for a record to count as largely aligned; empty where nothing is."""
    if 2 * side.n <= n:
        return f"no more than {side.n} of {n} agree on {_named(side.name)}"
    if jaccard is None:
        return f"only 1 of {n} answers could be read"
    if jaccard < rules.aligned_jaccard:
        return f"mean Jaccard {jaccard:.2f}; {rules.aligned_jaccard:.2f} is asked for"
    if asks_confidence and side.confidence is None:
        return "no answer says how sure it is"
    if asks_confidence and side.confidence is not None and side.confidence < rules.aligned_confidence:
        return f"mean confidence {side.confidence:.2f}; {rules.aligned_confidence:.2f} is asked for"
    return ""


def _is_hopeless(jaccard: float, confidence: float, rules: Rules) -> bool:
    return jaccard < rules.hopeless_jaccard and confidence < rules.hopeless_confidence


def _of_majority(read: Sequence[Answer], n: int) -> frozenset[str]:
    counts = Counter(label for answer in read for label in answer.labels)
    return frozenset(label for label, given in counts.items() if 2 * given > n)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _named(labels: frozenset[str]) -> str:
    return ", ".join(sorted(labels))


def _sure(confidence: float | None) -> str:
    return "" if confidence is None else f", mean confidence {confidence:.2f}"

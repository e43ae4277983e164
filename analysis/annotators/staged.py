"""Annotations in stages: which labels are of which stage, whole combinations, and the gold that most annotators give.

A label of the first stage names something, ``"Voter"``; a label of a later one says something of it, and is the pair
``"Voter: in-group"``. An annotator who gave a pair gave its name, too, whether or not it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import NamedTuple

from xai.analysis.annotators.annotations import Annotations, Labels
from xai.datasets import read_memes
from xai.schema import Meme
from xai.tasks import Task

BETWEEN = ": "
"""Stands between what a pair is of and what it says of it."""
COMBINED = "whole combinations"
"""The facet of names with one label of every later stage, ``"Voter: in-group: winner"``."""


@dataclass(frozen=True)
class Staging:
    """The inventories of a staged task, ``stages[stage]``, names first; the labels of a task alone are one stage.

    ``exclusive`` are the stages in which a name has one label at most.
    """

    stages: Mapping[str, Sequence[str]]
    exclusive: frozenset[str] = frozenset()

    @property
    def names(self) -> str:
        """The stage whose labels the pairs of the others are of."""
        return next(iter(self.stages))

    @property
    def later(self) -> dict[str, Sequence[str]]:
        """The stages of pairs."""
        return {stage: labels for stage, labels in self.stages.items() if stage != self.names}

    def completed(self, labels: Iterable[str]) -> Labels:
        """The labels with the names that their pairs presuppose."""
        given = frozenset(labels)
        return given | {name_of(pair) for pair in given & self._pairs}

    def facets(self, labels: Iterable[str]) -> dict[str, Labels]:
        """The labels by stage, and, where there are several later stages, by :data:`COMBINED`.

        A name that lacks a label of some later stage is in no combination.
        """
        given = self.completed(labels)
        found = {stage: given & frozenset(inventory) for stage, inventory in self.stages.items()}
        if len(self.later) > 1:
            found[COMBINED] = frozenset(self._combined(found))
        return found

    @cached_property
    def _pairs(self) -> frozenset[str]:
        return frozenset(pair for inventory in self.later.values() for pair in inventory)

    def _combined(self, found: Mapping[str, Labels]) -> Iterator[str]:
        for name in found[self.names]:
            values = [[value_of(pair) for pair in found[stage] if name_of(pair) == name] for stage in self.later]
            yield from (BETWEEN.join((name, *one)) for one in product(*values))


class Gold(NamedTuple):
    """What most annotators gave an item: ``labels``, ``None`` where fewer than two annotated it.

    ``undecided`` are the later stages, ``"Voter: viewpoints"``, of names in ``labels`` for which no label had the
    votes, or two that exclude each other had equally many.
    """

    item: str
    labels: tuple[str, ...] | None
    undecided: tuple[str, ...]
    n_annotators: int


def staging_of(tasks: Sequence[Task], annotations: Annotations) -> Staging:
    """The stages of a task; one stage of the labels that were given, without a task."""
    if len(tasks) < 2:
        return Staging({"labels": tasks[0].label_names if tasks else annotations.labels})
    stages = {task.name.rpartition("/")[2]: task for task in tasks}
    exclusive = {stage for stage, task in stages.items() if all(label.alone for label in task.labels)}
    return Staging({stage: task.label_names for stage, task in stages.items()}, frozenset(exclusive))


def name_of(pair: str) -> str:
    """What a pair is of."""
    return pair.rpartition(BETWEEN)[0]


def value_of(pair: str) -> str:
    """What a pair says of it."""
    return pair.rpartition(BETWEEN)[2]


def facet_annotations(annotations: Annotations, staging: Staging) -> dict[str, Annotations]:
    """The annotations of every facet of :meth:`Staging.facets`, without later ones that nobody used."""
    split = [[None if one is None else staging.facets(one) for one in row] for row in annotations.sets]
    facets = [*staging.stages, *([COMBINED] if len(staging.later) > 1 else [])]
    found = {facet: _of_facet(annotations, split, facet, staging) for facet in facets}
    return {facet: one for facet, one in found.items() if one.labels or facet == staging.names}


def majority_gold(annotations: Annotations, staging: Staging, *, votes: int | None = None) -> list[Gold]:
    """The labels that at least ``votes`` annotators gave, by default more than half of those who annotated the item.

    Of pairs, only those of names that have the votes themselves count. Of labels that exclude each other, the one with
    the most votes stands, and none where two have equally many.

    Raises:
        ValueError: ``votes`` is below 1 or above the number of annotators.
    """
    n = len(annotations.annotators)
    if votes is not None and not 1 <= votes <= n:
        raise ValueError(f"{votes} votes of {n} annotators; give a number from 1 to {n}")
    rows = zip(annotations.items, zip(*annotations.sets, strict=True), strict=True)
    return [_gold(item, [one for one in row if one is not None], staging, votes) for item, row in rows]


def gold_memes(gold: Sequence[Gold], dataset: Path | None = None) -> list[Meme]:
    """The items as memes with their gold labels, or the memes of a dataset with those of the items of their ids.

    What is undecided, and how many annotated the item, become metadata.

    Raises:
        ValueError: the dataset cannot be read, or has no meme of an item.
    """
    if dataset is None:
        return [_labelled(Meme(id=one.item), one) for one in gold]
    found = {one.item: one for one in gold}
    memes = {meme.id: meme for meme in read_memes(dataset) if isinstance(meme, Meme)}
    missing = [item for item in found if item not in memes]
    if missing:
        more = f", nor {len(missing) - 1} other{'s' * (len(missing) > 2)}" if len(missing) > 1 else ""
        raise ValueError(
            f"{dataset.name!r} has no meme {missing[0]!r}, which was annotated{more}; give the whole dataset"
        )
    return [_labelled(memes[item], one) for item, one in found.items()]


def _labelled(meme: Meme, gold: Gold) -> Meme:
    about = {"annotators": gold.n_annotators} | ({"undecided": list(gold.undecided)} if gold.undecided else {})
    return meme.model_copy(update={"labels": gold.labels, "metadata": {**meme.metadata, **about}})


def _of_facet(
    annotations: Annotations, split: Sequence[Sequence[Mapping[str, Labels] | None]], facet: str, staging: Staging
) -> Annotations:
    sets = tuple(tuple(None if one is None else one[facet] for one in row) for row in split)
    used = {label for row in sets for one in row for label in one or ()}
    inventory = staging.stages.get(facet)
    labels = sorted(used) if inventory is None else [label for label in inventory if label in used]
    return replace(annotations, labels=tuple(labels), sets=sets)


def _gold(item: str, given: Sequence[Labels], staging: Staging, votes: int | None) -> Gold:
    if len(given) < 2:
        return Gold(item, None, (), len(given))
    needed = votes or len(given) // 2 + 1
    complete = [staging.completed(one) for one in given]
    counts = {
        label: sum(label in one for one in complete) for inventory in staging.stages.values() for label in inventory
    }
    names = [name for name in staging.stages[staging.names] if counts[name] >= needed]
    labels, undecided = list(names), []
    for stage, inventory in staging.later.items():
        for name in names:
            passed = {pair: counts[pair] for pair in inventory if name_of(pair) == name and counts[pair] >= needed}
            kept = _most(passed) if stage in staging.exclusive else list(passed)
            labels += kept
            undecided += [] if kept else [f"{name}{BETWEEN}{stage}"]
    return Gold(item, tuple(labels), tuple(undecided), len(given))


def _most(counts: Mapping[str, int]) -> list[str]:
    """The label with the most votes; none where two share that number."""
    best = [label for label, n in counts.items() if n == max(counts.values())]
    return best if len(best) == 1 else []

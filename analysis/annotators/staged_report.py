"""How far annotators agree on a staged task: one report with a row a stage and one for whole combinations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from xai.analysis.annotators.annotations import Annotations
from xai.analysis.annotators.multilabel import PER_ITEM, fleiss_kappas, pooled_cohen_kappa, set_agreement
from xai.analysis.annotators.report import Occurrence, annotator_report, with_intervals
from xai.analysis.annotators.staged import COMBINED, Gold, Staging, facet_annotations
from xai.analysis.report import Report, Section, Table
from xai.analysis.statistics import LEVEL, N_DRAWS, Interval, Statistic, weighted_mean

_OF_PAIRS = ("cohen_kappa", "jaccard", "exact_match")
_OF_ALL = ("fleiss_kappa", "perfect_agreement")
MOST_DETAILED = 150
"""Labels up to which a stage has every coefficient: what chance gives takes a minute for 350 labels, and the kappa of a
label that is given twice says nothing."""
_NOTE = (
    "The kappas are of label presence: every pair of item and label that somebody used is a subject, rated present or "
    "absent. Fleiss' kappa and perfect agreement, the share of items to which all annotators gave the same set, are of "
    "the items that all annotated; Cohen's kappa and jaccard, the mean of |A∩B|/|A∪B| (1 where both are empty), are "
    "means over pairs of annotators, each of the items that both annotated. "
    f"In brackets: {LEVEL:.0%} bootstrap intervals over items."
)


def agreement_report(
    annotations: Annotations,
    staging: Staging,
    *,
    min_count: int = 5,
    occurrence: Occurrence = "both",
    groups: Mapping[str, Collection[str]] | None = None,
    n_draws: int = N_DRAWS,
    seed: int = 0,
    files: Sequence[str] = (),
) -> Report:
    """Of a task with one stage :func:`annotator_report`; of one with several, agreement by stage and on whole
    combinations, and :func:`annotator_report` of the first stage and of others with up to :data:`MOST_DETAILED` labels
    in use.

    Tables of several stages: ``facets``, ``facet_pairs``; those of a stage alone end in its number, ``measures_1``.

    Args:
        groups: of classes of a task with one stage; as min_count, occurrence and the rest for :func:`annotator_report`.

    Raises:
        ValueError: no two annotators share an item.
    """

    def detailed(one: Annotations) -> Report:
        return annotator_report(
            one,
            min_count=min_count,
            occurrence=occurrence,
            groups=None if staging.later else groups,
            n_draws=n_draws,
            seed=seed,
            files=files,
        )

    if not staging.later:
        return detailed(annotations)
    facets = facet_annotations(annotations, staging)
    details = {
        stage: detailed(facets[stage])
        for stage in staging.stages
        if stage == staging.names or (stage in facets and len(facets[stage].labels) <= MOST_DETAILED)
    }
    found = {facet: _Found(one, n_draws, seed) for facet, one in facets.items()}
    facts = {name: value for name, value in details[staging.names].facts.items() if name != "classes"}
    return Report(
        title="Annotator agreement by stage",
        facts={**facts, "labels used": {facet: len(one.labels) for facet, one in facets.items()}},
        headline=("facets",),
        sections=(
            Section(
                title="Agreement by stage",
                text=_text(staging),
                tables=(
                    Table.of(
                        "facets", "Agreement", pd.DataFrame([found[facet].row(facet) for facet in facets]), note=_NOTE
                    ),
                    Table.of(
                        "facet_pairs",
                        "Every two annotators",
                        pd.DataFrame([row for facet in facets for row in found[facet].pair_rows(facet)]),
                    ),
                ),
            ),
            *_numbered(staging, details),
        ),
    )


def with_gold(report: Report, gold: Sequence[Gold], votes: int | None) -> Report:
    """The report with what became of the items when gold was derived from their annotations."""
    sections, headline = (*report.sections, gold_section(gold, votes)), (*report.headline, "gold_counts")
    return report.model_copy(update={"sections": sections, "headline": headline})


def gold_section(gold: Sequence[Gold], votes: int | None) -> Section:
    """How many items have gold labels, and where it is undecided; ``votes`` as for :func:`majority_gold`."""
    known = [one for one in gold if one.labels is not None]
    counts = {
        "items": len(gold),
        "with gold": len(known),
        "too few annotators": len(gold) - len(known),
        "gold without labels": sum(one.labels == () for one in known),
        "labels": sum(len(one.labels or ()) for one in known),
        "with something undecided": sum(bool(one.undecided) for one in known),
    }
    needed = "more than half of those who annotated the item" if votes is None else f"at least {votes} annotators"
    undecided = [{"item": one.item, "undecided": "; ".join(one.undecided)} for one in known if one.undecided]
    return Section(
        title="Gold",
        text=f"A label is gold if {needed} gave it. Pairs are so of names that are gold themselves. Where no label of "
        "a stage has the votes for such a name, or two that exclude each other have equally many, none is given, and "
        "the stage is undecided there: people decide, not the order of the labels.",
        tables=(
            Table.of("gold_counts", "Gold derived", pd.DataFrame([counts])),
            Table.of("undecided", "Undecided", pd.DataFrame(undecided, columns=["item", "undecided"]), n_shown=20),
        ),
    )


class _Found:
    """The coefficients of one facet with their intervals, all from the same samples of items."""

    def __init__(self, annotations: Annotations, n_draws: int, seed: int) -> None:
        self.annotations = annotations
        self.complete = np.flatnonzero(annotations.known.all(axis=0))
        places = combinations(range(len(annotations.annotators)), 2)
        self.pairs = [
            (a, b, np.flatnonzero(annotations.known[a] & annotations.known[b]))
            for a, b in places
            if (annotations.known[a] & annotations.known[b]).any()
        ]
        of_pairs = [_of_pair(annotations, a, b, items) for a, b, items in self.pairs]
        of_all = _of_all(annotations.given[:, self.complete], self.complete)

        def statistic(weights: np.ndarray) -> np.ndarray:
            pairs = np.stack([one(weights) for one in of_pairs], axis=1)
            parts = (of_all(weights), pairs.mean(axis=1), pairs.reshape(len(weights), -1))
            return np.concatenate(parts, axis=1)

        self.values = with_intervals(statistic, len(annotations.items), n_draws, seed)

    def row(self, facet: str) -> dict[str, object]:
        """The means over pairs, and what is of all annotators."""
        values = dict(zip((*_OF_ALL, *_OF_PAIRS), self.values, strict=False))
        row: dict[str, object] = {
            "facet": facet,
            "items": len(self.complete),
            "labels_used": len(self.annotations.labels),
        }
        return row | _columns(values, ("fleiss_kappa", "cohen_kappa", "jaccard", "perfect_agreement"))

    def pair_rows(self, facet: str) -> list[dict[str, object]]:
        """A row a pair of annotators."""
        rows, rest = [], self.values[len(_OF_ALL) + len(_OF_PAIRS) :]
        for place, (a, b, items) in enumerate(self.pairs):
            values = dict(zip(_OF_PAIRS, rest[place * len(_OF_PAIRS) :], strict=False))
            names = {"first": self.annotations.annotators[a], "second": self.annotations.annotators[b]}
            rows.append({"facet": facet, **names, "items": len(items), **_columns(values, _OF_PAIRS)})
        return rows


def _columns(values: Mapping[str, Interval], names: Sequence[str]) -> dict[str, object]:
    return {column: value for name in names for column, value in values[name].columns(name).items()}


def _of_pair(annotations: Annotations, a: int, b: int, items: np.ndarray) -> Statistic:
    """Of two annotators what :data:`_OF_PAIRS` names, ``(n_samples, 3)``."""
    first, second = annotations.given[a, items], annotations.given[b, items]
    kappa = pooled_cohen_kappa(first, second)
    sets = weighted_mean(set_agreement(first, second)[:, [PER_ITEM.index("jaccard"), PER_ITEM.index("exact")]])
    return lambda weights: np.concatenate([kappa(weights[:, items])[:, :, 2], sets(weights[:, items])], axis=1)


def _of_all(given: np.ndarray, items: np.ndarray) -> Statistic:
    """Of all annotators what :data:`_OF_ALL` names, ``(n_samples, 2)``; NaN where no item has them all."""
    if not len(items):
        return lambda weights: np.full((len(weights), len(_OF_ALL)), np.nan)
    kappa = fleiss_kappas(given)
    same = weighted_mean((given == given[0]).all(axis=(0, 2)))
    return lambda weights: np.concatenate([kappa(weights[:, items])[:, 0, 2:], same(weights[:, items])], axis=1)


def _numbered(staging: Staging, details: Mapping[str, Report]) -> list[Section]:
    """The sections of the stages, named and numbered by stage."""
    return [
        section.model_copy(update={"title": f"{stage.capitalize()}: {section.title.lower()}"}).numbered(number)
        for number, stage in enumerate(staging.stages, start=1)
        if stage in details
        for section in details[stage].sections
    ]


def _text(staging: Staging) -> str:
    stages = ", ".join(staging.stages)
    text = f"The stages {stages}, each with the labels of its own. A pair counts as the same only with the same name."
    return (
        f"{text} {COMBINED.capitalize()} are of a name and one label of every later stage." if staging.later else text
    )

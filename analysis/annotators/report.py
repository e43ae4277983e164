"""How far annotators agree who give an item any number of labels: one report of all coefficients, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import JsonValue

from xai.analysis.annotators.annotations import Annotations
from xai.analysis.annotators.multilabel import (
    PER_ITEM,
    augmented_kappa,
    bootstrapped_agreement,
    cohen_kappas,
    fleiss_kappas,
    jaccard,
    krippendorff_alpha,
    masi,
    set_agreement,
)
from xai.analysis.report import Chart, Report, Section, Series, Table
from xai.analysis.statistics import LEVEL, N_DRAWS, Interval, Statistic, bootstrap, weighted_mean

Occurrence = Literal["both", "either", "none"]
"""Which classes the mean of Cohen's kappa is over: those that both, or either, of two annotators gave often enough."""

OF_PAIRS = ("match", "precision", "recall", "F1", "augmented kappa", "mean Cohen's kappa", "Jaccard", "exact match")
"""The measures of two annotators; with more, their mean over pairs is reported."""
OF_ALL = ("Fleiss' kappa, label presence", "Krippendorff's alpha, MASI", "Krippendorff's alpha, Jaccard")

_FOUND = ("observed", "expected", "adjusted")
_NOTE = (
    "adjusted = (observed - expected) / (1 - expected): 1 is perfect agreement, 0 agreement as by chance. "
    "Of the sets A of the first and B of the second annotator, means over items: match, whether they meet; precision, "
    "|A∩B|/|B|; recall, |A∩B|/|A|; F1; Jaccard, |A∩B|/|A∪B|; exact match. Expected values of the first four are of "
    "label counts and labels drawn from each annotator's own frequencies."
)


@dataclass(frozen=True)
class _Pair:
    """Two annotators and the items that both annotated."""

    names: tuple[str, str]
    items: np.ndarray
    first: np.ndarray
    second: np.ndarray
    in_mean: np.ndarray


@dataclass(frozen=True)
class _Results:
    """Intervals of observed, expected and adjusted: of every pair the measures and then the classes; of all annotators
    the measures; and of the adjusted alone, by class."""

    pairs: list[list[list[Interval]]]
    measures: list[list[Interval]]
    cohen: list[Interval]
    fleiss: list[Interval]


def annotator_report(
    annotations: Annotations,
    *,
    min_count: int = 5,
    occurrence: Occurrence = "both",
    groups: Mapping[str, Collection[str]] | None = None,
    n_draws: int = N_DRAWS,
    seed: int = 0,
    files: Sequence[str] = (),
) -> Report:
    """Every coefficient of agreement of :mod:`xai.analysis.annotators.multilabel`, with bootstrap intervals over items.

    Coefficients of two annotators are of the items that both annotated; of several annotators, their mean over pairs
    is reported, and every pair. Fleiss' kappa is of the items that all annotated, Krippendorff's alpha of those that
    at least two did.

    Tables: ``measures``, ``classes``, ``annotators``; of more than two annotators also ``pairs`` and ``class_pairs``;
    with groups also ``groups``.
    Where a coefficient is not defined, since nothing but agreement could be expected, it is ``None``.

    Args:
        min_count: how often an annotator must have given a class for the mean of Cohen's kappa.
        occurrence: whether both annotators, either, or none must have.
        groups: names of groups of classes, of whose kappas the mean is reported for every pair, rare classes included.
        n_draws: bootstrap samples; 0 for no intervals.
        files: names of the files, for the report.

    Raises:
        ValueError: no two annotators share an item.
    """
    pairs = _pairs(annotations, min_count, occurrence)
    if not pairs:
        raise ValueError("no two annotators labelled the same item; check that they name the items alike")
    complete = np.asarray(annotations.known.all(axis=0))
    results = _results(annotations, pairs, complete, n_draws, seed)
    classes = _classes(annotations, pairs, results)
    tables, class_tables = [_measures(results, len(pairs), _item_counts(annotations, pairs, complete))], [classes]
    if len(annotations.annotators) > 2:
        tables.append(_pair_table(pairs, results))
        class_tables.append(_class_table(annotations.labels, pairs, results))
    if groups:
        class_tables.append(_group_table(annotations, pairs, groups, n_draws, seed))
    return Report(
        title="Annotator agreement",
        facts={"files": list(files), **_facts(annotations, min_count, occurrence, n_draws, seed)},
        headline=(*(table.name for table in tables), *(("groups",) if groups else ())),
        sections=(
            Section(title="Agreement", tables=tuple(tables)),
            Section(title="Classes", tables=tuple(class_tables), charts=(_chart(classes),)),
            Section(title="Annotations", tables=(_annotator_table(annotations),)),
        ),
    )


def _pairs(annotations: Annotations, min_count: int, occurrence: Occurrence) -> list[_Pair]:
    pairs = []
    for a, b in combinations(range(len(annotations.annotators)), 2):
        items = np.flatnonzero(annotations.known[a] & annotations.known[b])
        first, second = annotations.given[a, items], annotations.given[b, items]
        often = [given.sum(axis=0) >= min_count for given in (first, second)]
        in_mean = {"both": often[0] & often[1], "either": often[0] | often[1], "none": np.full(len(often[0]), True)}
        names = annotations.annotators[a], annotations.annotators[b]
        if len(items):
            pairs.append(_Pair(names, items, first, second, in_mean[occurrence]))
    return pairs


def _results(
    annotations: Annotations, pairs: Sequence[_Pair], complete: np.ndarray, n_draws: int, seed: int
) -> _Results:
    """All coefficients from the same samples of items."""
    of_pairs = [_of_pair(pair) for pair in pairs]
    of_all = [krippendorff_alpha(annotations.given, annotations.known, distance) for distance in (masi, jaccard)]
    fleiss = _at(np.flatnonzero(complete), fleiss_kappas(annotations.given[:, complete])) if complete.any() else None
    n_labels = len(annotations.labels)

    def statistic(weights: np.ndarray) -> np.ndarray:
        found = np.stack([of_pair(weights) for of_pair in of_pairs], axis=1)
        measures, cohen = np.split(_mean(found, axis=1), [len(OF_PAIRS)], axis=1)
        presence = np.full((len(weights), 1 + n_labels, 3), np.nan) if fleiss is None else fleiss(weights)
        parts = [found, measures, presence[:, :1], *(alpha(weights) for alpha in of_all), cohen, presence[:, 1:]]
        return np.concatenate([part.reshape(len(weights), -1) for part in parts], axis=1)

    intervals = with_intervals(statistic, len(annotations.items), n_draws, seed)
    triples = iter([intervals[at : at + 3] for at in range(0, len(intervals), 3)])
    return _Results(
        pairs=[list(islice(triples, len(OF_PAIRS) + n_labels)) for _ in pairs],
        measures=list(islice(triples, len(OF_PAIRS) + len(OF_ALL))),
        cohen=[triple[2] for triple in islice(triples, n_labels)],
        fleiss=[triple[2] for triple in triples],
    )


def with_intervals(statistic: Statistic, n: int, n_draws: int, seed: int) -> list[Interval]:
    """The values of a statistic of ``n`` items, with bootstrap intervals if there are draws, else with unknown ones."""
    if n_draws:
        return bootstrap(statistic, n, n_draws=n_draws, seed=seed)
    return [Interval(float(value), np.nan, np.nan) for value in statistic(np.ones((1, n)))[0]]


def _of_pair(pair: _Pair) -> Statistic:
    """The measures of :data:`OF_PAIRS` and Cohen's kappa of every class, ``(n_samples, 8 + n_labels, 3)``."""
    bootstrapped, augmented = bootstrapped_agreement(pair.first, pair.second), augmented_kappa(pair.first, pair.second)
    cohen = cohen_kappas(pair.first, pair.second)
    plain = weighted_mean(
        set_agreement(pair.first, pair.second)[:, [PER_ITEM.index("jaccard"), PER_ITEM.index("exact")]]
    )

    def statistic(weights: np.ndarray) -> np.ndarray:
        classes = cohen(weights)
        mean = _mean(classes[:, pair.in_mean], axis=1)[:, None]
        mean[:, :, :2] = np.nan
        observed = np.full((len(weights), 2, 3), np.nan)
        observed[:, :, 0] = plain(weights)
        return np.concatenate([bootstrapped(weights), augmented(weights), mean, observed, classes], axis=1)

    return _at(pair.items, statistic)


def _at(items: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]) -> Statistic:
    """A statistic of some items as one of all."""
    return lambda weights: statistic(weights[:, items])


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """The mean of what is not NaN; NaN where nothing is left."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0).sum(axis) / known.sum(axis))


def _measures(results: _Results, n_pairs: int, n_items: Sequence[int]) -> Table:
    names = [f"{name} (mean of {n_pairs} pairs)" if n_pairs > 1 else name for name in OF_PAIRS]
    rows = [
        {"measure": name, **_spread(found), "items": n}
        for name, found, n in zip((*names, *OF_ALL), results.measures, n_items, strict=True)
    ]
    note = f"{_NOTE} Means of pairs are of the pairs' own values, of the adjusted as well." if n_pairs > 1 else _NOTE
    return Table.of("measures", "Coefficients", pd.DataFrame(rows), note=note)


def _spread(found: Sequence[Interval]) -> dict[str, float]:
    columns = {}
    for name, interval in zip(_FOUND, found, strict=True):
        columns[name] = interval.value
        if name != "expected":
            columns |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return columns


def _item_counts(annotations: Annotations, pairs: Sequence[_Pair], complete: np.ndarray) -> list[int]:
    """How many items each measure is of: of pairs, those that any two share."""
    by_pairs = len(np.unique(np.concatenate([pair.items for pair in pairs])))
    return [by_pairs] * len(OF_PAIRS) + [int(complete.sum()), *[int((annotations.known.sum(axis=0) >= 2).sum())] * 2]


def _pair_table(pairs: Sequence[_Pair], results: _Results) -> Table:
    rows = [
        {"first": pair.names[0], "second": pair.names[1], "measure": name, **_spread(found), "items": len(pair.items)}
        for pair, of_pair in zip(pairs, results.pairs, strict=True)
        for name, found in zip(OF_PAIRS, of_pair[: len(OF_PAIRS)], strict=True)
    ]
    return Table.of("pairs", "Every two annotators", pd.DataFrame(rows))


def _class_table(labels: Sequence[str], pairs: Sequence[_Pair], results: _Results) -> Table:
    """Cohen's kappa of every class and pair, a row a class."""
    rows = []
    for place, label in enumerate(labels):
        row: dict[str, str | float] = {"class": label}
        for pair, of_pair in zip(pairs, results.pairs, strict=True):
            kappa, name = of_pair[len(OF_PAIRS) + place][2], " and ".join(pair.names)
            row |= kappa.columns(name)
        rows.append(row)
    return Table.of("class_pairs", "Cohen's kappa of every two annotators", pd.DataFrame(rows))


def _group_table(
    annotations: Annotations, pairs: Sequence[_Pair], groups: Mapping[str, Collection[str]], n_draws: int, seed: int
) -> Table:
    """The mean kappa of groups of classes, for every two annotators and over them, a row each."""
    inside = [np.array([label in group for label in annotations.labels]) for group in groups.values()]
    cohen = [_at(pair.items, cohen_kappas(pair.first, pair.second)) for pair in pairs]

    def statistic(weights: np.ndarray) -> np.ndarray:
        kappas = np.stack([of_pair(weights)[:, :, 2] for of_pair in cohen], axis=1)
        means = np.stack([_mean(kappas[:, :, there], axis=2) for there in inside], axis=1)
        return np.concatenate([means, _mean(means, axis=2)[:, :, None]], axis=2).reshape(len(weights), -1)

    found = iter(with_intervals(statistic, len(annotations.items), n_draws, seed))
    names = [(*pair.names, len(pair.items)) for pair in pairs]
    shared = len(np.unique(np.concatenate([pair.items for pair in pairs])))
    rows = []
    for group, there in zip(groups, inside, strict=True):
        for first, second, n_items in [*names, ("mean of pairs", "", shared)]:
            row = {"group": group, "first": first, "second": second, "classes": int(there.sum()), "items": n_items}
            rows.append(row | next(found).columns("kappa"))
    frame = pd.DataFrame(rows)
    note = (
        "kappa: the mean of Cohen's kappa over the classes of the group that somebody gave (classes), each of all "
        "items that both annotated; those of which nothing but agreement could be expected are left out."
    )
    frame = frame if len(pairs) > 1 else frame[frame["first"] != "mean of pairs"]
    return Table.of("groups", "Mean of Cohen's kappa over groups of classes", frame, note=note)


def _classes(annotations: Annotations, pairs: Sequence[_Pair], results: _Results) -> Table:
    counts = annotations.given.sum(axis=1)
    rows = []
    for place, label in enumerate(annotations.labels):
        cohen, fleiss = results.cohen[place], results.fleiss[place]
        n_pairs = sum(bool(pair.in_mean[place]) for pair in pairs)
        given_by = zip(annotations.annotators, counts[:, place], strict=True)
        row = {"class": label, **{f"by {name}": int(n) for name, n in given_by}}
        row |= {"in_mean": bool(n_pairs)} if len(pairs) == 1 else {"pairs_in_mean": n_pairs}
        row |= cohen.columns("cohen") | fleiss.columns("fleiss")
        rows.append(row)
    note = (
        "by …: how often the annotator gave the class. in mean: whether, or in how many pairs, it counts in the mean "
        "of Cohen's kappa. A class that was given rarely has a kappa that says little: its interval says how little."
    )
    frame = pd.DataFrame(rows).sort_values("cohen", ascending=False, kind="stable")
    return Table.of("classes", "Kappa of every class", frame, note=note)


def _chart(classes: Table) -> Chart:
    frame = classes.frame.dropna(subset=["cohen"])
    column = {name: tuple(frame[name]) for name in ("class", "cohen", "cohen_low", "cohen_high")}
    has_interval = not frame["cohen_low"].isna().any()
    series = Series(
        name="Cohen's kappa",
        x=column["class"],
        y=column["cohen"],
        low=column["cohen_low"] if has_interval else None,
        high=column["cohen_high"] if has_interval else None,
    )
    note = f"Error bars: {LEVEL:.0%} bootstrap intervals over items." if has_interval else ""
    return Chart(
        name="kappas", title="Cohen's kappa of every class", kind="points", x_label="class", y_label="kappa",
        series=(series,), note=note,
    )  # fmt: skip


def _annotator_table(annotations: Annotations) -> Table:
    rows = []
    for name, given, known in zip(annotations.annotators, annotations.given, annotations.known, strict=True):
        sizes = given.sum(axis=1)[known]
        row = {"annotator": name, "annotated": int(known.sum()), "missing": int((~known).sum())}
        row |= {"without labels": int((sizes == 0).sum()), "labels": int(sizes.sum())}
        rows.append(row | {"labels an item": float(sizes.mean()) if len(sizes) else np.nan})
    return Table.of("annotators", "Annotations in the files", pd.DataFrame(rows))


def _facts(
    annotations: Annotations, min_count: int, occurrence: Occurrence, n_draws: int, seed: int
) -> dict[str, JsonValue]:
    often = {"both": "both annotators", "either": "either annotator"}
    classes = (
        "all classes" if occurrence == "none" else f"classes that {often[occurrence]} gave {min_count} times or more"
    )
    interval = f"{LEVEL:.0%} percentile bootstrap over items, {n_draws} samples, seed {seed}" if n_draws else "none"
    return {
        "annotators": list(annotations.annotators),
        "items": len(annotations.items),
        "annotations missing": int((~annotations.known).sum()),
        "classes": len(annotations.labels),
        "mean of Cohen's kappa over": classes,
        "intervals": interval,
        "expected match, precision, recall, F1": (
            "computed, not simulated: label counts and then different labels, drawn one after the other from each "
            "annotator's own frequencies (Marchal et al., 2022); of first order in the label frequencies of a "
            "bootstrap sample"
        ),
        "augmented kappa": "Rosenberg and Binkowski (2004), each of an item's k labels counting 1/k",
        "Fleiss' kappa": "of label presence, on items that all annotated",
        "Krippendorff's alpha": "observed and expected are 1 minus mean distances; on items with 2 annotations or more",
        "both sets empty": "agreement in full",
    }

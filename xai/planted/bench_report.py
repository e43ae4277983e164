"""Puts what :mod:`xai.planted.bench` measured into a report: one table of all methods, and what it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from pydantic import JsonValue

from xai.analysis.faithfulness.curves import MEASURES
from xai.analysis.faithfulness.ground_truth import CHANCE, both_found, ground_truth_section, summary
from xai.analysis.report import Chart, Report, Section, Series, Table
from xai.analysis.statistics import mean_interval
from xai.planted.bench import CURVE_MEASURES, Bench

COSTS = ("ms", "forwards", "whole_forwards", "backwards")
SHORT = {
    "points_at_word": "word",
    "points_at_icon": "icon",
    "finds_both": "both",
    "icon_mass": "mass",
    "comprehensiveness@20": "compr",
    "area_between": "area",
    **dict.fromkeys(("sufficiency@20", *COSTS[1:]), ""),
}
"""Heads of columns in a terminal of 80 columns, and what it has no room for."""


def bench_report(
    planted: Bench, facts: Mapping[str, JsonValue], pretrained: Bench | None = None, more: Iterable[Section] = ()
) -> Report:
    """The report of ``xai bench-methods``; its headline is the table of methods."""
    title = f"Methods on planted memes ({_numbers(planted.truth)})"
    methods = Table.of("methods", title, methods_table(planted), note=_NOTE, short=SHORT)
    sections = [Section(title="Methods", text=_TEXT, tables=(methods,)), ground_truth_section(planted.truth)]
    headline = ["methods"]
    if len(planted.curves):
        sections.append(_curves_section(planted))
    if pretrained is not None:
        trained = costs_and_curves(pretrained)
        table = Table.of("methods_pretrained", "Methods on a trained decoder", trained, short=SHORT)
        sections.append(Section(title="A decoder that was really trained", text=_PRETRAINED, tables=(table,)))
        headline.append("methods_pretrained")
    return Report(title="Attribution methods", facts=facts, headline=tuple(headline), sections=(*sections, *more))


def methods_table(measured: Bench) -> pd.DataFrame:
    """One row a mode and method, and one for chance, with the figures that tell methods apart.

    Columns: mode, method, points_at_word, points_at_icon, finds_both, icon_mass, and those of :func:`costs_and_curves`
    without the intervals of the curves, which stand there.
    """
    found = _found(measured.truth)
    rest = costs_and_curves(measured)
    intervals = [f"{name}_{end}" for name in CURVE_MEASURES for end in ("low", "high") if name in rest]
    rest = rest.drop(columns=["n", *intervals])
    return found.merge(rest, on=["mode", "method"], how="left").astype({"ms": "Int64"})


def costs_and_curves(measured: Bench) -> pd.DataFrame:
    """One row a mode and method: mean figures of the curves with intervals over memes, and the means of the costs.

    ``ms`` is for one explanation; forwards and backwards are for all labels of a meme, which share them.
    """
    rows = []
    for (mode, method), costs in measured.costs.groupby(["mode", "method"], sort=False):
        row: dict[str, object] = {"mode": mode, "method": method, "n": len(costs)}
        if len(measured.curves):
            of_method = measured.curves[(measured.curves["method"] == method) & (measured.curves["mode"] == mode)]
            row |= _curve_means(of_method)
        row["ms"] = round(1000 * costs["seconds"].sum() / costs["n_explanations"].sum())
        rows.append(row | {name: costs[name].mean() for name in COSTS[1:]})
    return pd.DataFrame(rows)


def _numbers(truth: pd.DataFrame) -> str:
    """How many labels of each kind every method explained."""
    labels = truth.drop_duplicates(["meme_id", "mode", "label"])
    counts = labels["kind"].value_counts(sort=False)
    named = {"word": "a word", "icon": "an icon", "both": "both together"}
    return "labels caused by " + ", ".join(f"{what}: {counts[kind]}" for kind, what in named.items() if kind in counts)


def _found(truth: pd.DataFrame) -> pd.DataFrame:
    """Pointing by kind of cause, side by side; kinds that a mode cannot show have no column."""
    by_kind = summary(truth, by=("kind",))
    wanted = [("word", "words", "pointing", "points_at_word"), ("icon", "cells", "pointing", "points_at_icon")]
    parts = [_part(by_kind, *one) for one in wanted]
    both = both_found(truth) if (truth["kind"] == "both").any() else None
    if both is not None:
        parts.append(_renamed(both, "both", "finds_both"))
    parts.append(_part(by_kind, "icon", "cells", "mass", "icon_mass"))
    table = by_kind[["mode", "method"]].drop_duplicates()
    for part in parts:
        if len(part):
            table = table.merge(part, on=["mode", "method"], how="left")
    return table


def _part(by_kind: pd.DataFrame, kind: str, units: str, measure: str, name: str) -> pd.DataFrame:
    return _renamed(by_kind[(by_kind["kind"] == kind) & (by_kind["units"] == units)], measure, name)


def _renamed(frame: pd.DataFrame, measure: str, name: str) -> pd.DataFrame:
    columns = {measure: name, f"{measure}_low": f"{name}_low", f"{measure}_high": f"{name}_high"}
    return frame[["mode", "method", *columns]].rename(columns=columns)


def _curve_means(rows: pd.DataFrame) -> dict[str, float]:
    """The mean over memes of the mean over a meme's labels."""
    means = rows.groupby("meme_id", sort=False)[list(CURVE_MEASURES)].mean()
    columns: dict[str, float] = {}
    for name in CURVE_MEASURES:
        interval = mean_interval(means[name].to_numpy())
        columns |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return columns


def _curves_section(measured: Bench) -> Section:
    table = costs_and_curves(measured).drop(columns=list(COSTS))
    says = "; ".join(f"{name}: {MEASURES[name].says}, {MEASURES[name].better} is better" for name in CURVE_MEASURES)
    chart = _cost_chart(methods_table(measured))
    tables = (Table.of("curves", "What the model loses without the units", table, note=f"{says}. {_CURVES}"),)
    return Section(title="Faithfulness to the model, and cost", text=_CURVES_TEXT, tables=tables, charts=(chart,))


def _cost_chart(table: pd.DataFrame) -> Chart:
    known = table[(table["method"] != CHANCE) & table["area_between"].notna()]
    return Chart(
        name="cost",
        title="What faithfulness costs",
        kind="points",
        x_label="milliseconds for one explanation (logarithm to the base of 10)",
        y_label="area between the curves",
        series=tuple(
            Series(name=f"{method} ({mode})", x=(float(np.log10(ms)),), y=(float(area),))
            for method, mode, ms, area in known[["method", "mode", "ms", "area_between"]].to_numpy().tolist()
        ),
    )


def in_order(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The wanted methods, each once, in the order of the registry; all where none is named.

    Raises:
        ValueError: a name is unknown.
    """
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown attribution method {unknown[0]!r}; there are {', '.join(known)}")
    return [name for name in known if name in names or not names]


_TEXT = (
    "Every method explains the same labels of the same memes, with its default options. Labels have a cause that is "
    "known, so that the left part says which method is right; the curves ask the model itself; the rest is the price."
)
_NOTE = (
    "points at word: of labels caused by a word, the share whose word with most relevance is of the cause; a tie with "
    "another word is no hit. points at icon: the same of cells that touch the icon. finds both: of labels caused by a "
    "word and an icon together, both. icon mass: share of the positive relevance of the picture on the icon's cells. "
    "ms: for one explanation. forwards: sequences through the decoder for all labels of a meme; whole forwards: their "
    "tokens over those of one whole input, since cached prefixes are not run again; backwards likewise. One forward "
    "more asks whether the model would have given the answer itself, where a method computes attention in another way "
    "or the answer was given from outside."
)
_CURVES_TEXT = (
    "Words and cells in one ranking, signed. A word is replaced by neutral tokens, a cell by the mean of the picture's "
    "image tokens. The score is the probability of the label's tokens."
)
_CURVES = "Means over memes of the mean over a meme's labels; 95 % bootstrap intervals over memes."
_PRETRAINED = (
    "SmolLM2-135M-Instruct in mode text: captions that name a country, an answer that names its capital, and the "
    "capital explained. No truth is planted there, so only curves and costs are shown; words are replaced by neutral "
    "tokens, and the score is the probability of the capital's tokens. Columns as in the table of methods."
)

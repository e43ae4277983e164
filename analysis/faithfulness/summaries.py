"""Tables of what was measured: rationale against relevance, leaderboards, paired comparisons, checks of orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from xai.analysis.faithfulness.curves import MEASURES, Better
from xai.analysis.faithfulness.one_input import GRID, RANDOM, RATIONALE, REVERSED, TRUTH
from xai.analysis.faithfulness.rescoring import Scale
from xai.analysis.statistics import compare_paired, holm, mean_interval

ALPHA = 0.01
"""A difference is called one when its corrected p value is below."""
SAME = "not distinguishable"
LESS, MORE = "rationale matters less", "rationale matters more"
LEADERS = ("area_between", "comprehensiveness@20", "sufficiency@20", "flip_top_1")
"""Measures of the leaderboard and of the paired comparisons."""
_WHERE = ["source", "mode"]


def headline(rationales: pd.DataFrame, scale: Scale) -> pd.DataFrame:
    """What a label loses without the words that the rationale names, and without as many that relevance names.

    Columns: source, mode, method, target, n (memes); loss_rationale, loss_relevance and loss_random with their
    intervals; flip_rationale and flip_relevance, shares of memes; difference (rationale less relevance), p (paired
    permutation test, two-sided, Holm-corrected over the labels of one source, mode and method), effect (rank-biserial),
    verdict. Higher losses mean that the words mattered more.
    """
    groups = ["source", "mode", "method", "target"]
    rows = [
        _headline_row(dict(zip(groups, key, strict=True)), part, scale) for key, part in _groups(rationales, groups)
    ]
    frame = pd.DataFrame(rows)
    if not len(frame):
        return frame
    for _, part in frame.groupby(groups[:3], sort=False):
        frame.loc[part.index, "p"] = holm(part["p"].tolist())
    frame["verdict"] = [_verdict(*pair) for pair in zip(frame["p"].tolist(), frame["difference"].tolist(), strict=True)]
    return frame


def leaderboard(curves: pd.DataFrame, scale: Scale) -> pd.DataFrame:
    """Means over memes with intervals, one row a source, mode and method; the best area between the curves first.

    Columns: source, mode, method, n (memes), and each of :data:`LEADERS` with ``_low`` and ``_high``. The random order
    is averaged over its draws, and a meme over its targets.
    """
    rows = []
    for key, part in _groups(curves, [*_WHERE, "method"]):
        row: dict[str, Any] = dict(zip([*_WHERE, "method"], key, strict=True))
        values = by_meme(part, scale)
        row["n"] = len(values)
        for name in LEADERS:
            row |= _interval(name, values[name].to_numpy())
        rows.append(row)
    frame = pd.DataFrame(rows)
    return frame if not len(frame) else _ordered(frame)


def comparisons(curves: pd.DataFrame, scale: Scale, measure: str = LEADERS[0]) -> pd.DataFrame:
    """Every pair of methods of one source and mode on the memes and targets that both have, by one measure.

    Columns: source, mode, first, second, n, difference (first less second) with its interval, p (paired permutation
    test, Holm-corrected over all pairs of the source and mode), effect (rank-biserial), verdict.
    """
    rows: list[dict[str, Any]] = []
    for key, part in _groups(curves[~curves["method"].str.endswith(REVERSED)], _WHERE):
        column = f"{measure}:{scale}"
        tables = {
            str(name): one.groupby(["meme_id", "target"])[column].mean()
            for name, one in part.groupby("method", sort=True)
        }
        found: list[dict[str, Any]] = []
        for first, second in combinations(_by_mean(tables, measure), 2):
            both = pd.concat([tables[first], tables[second]], axis=1, join="inner")
            paired = both.groupby(level="meme_id").mean().to_numpy()
            one = compare_paired(paired[:, 0], paired[:, 1])
            names = dict(zip(_WHERE, key, strict=True)) | {"first": first, "second": second, "n": one.n}
            figures = {"difference": one.difference, "difference_low": one.low, "difference_high": one.high}
            found.append(names | figures | {"p": one.p, "effect": one.effect})
        rows += _judged(found, higher_is_better=MEASURES[measure].better == "higher")
    return pd.DataFrame(rows)


def _judged(pairs: list[dict[str, Any]], *, higher_is_better: bool) -> list[dict[str, Any]]:
    """The pairs with p corrected for their number, and a verdict."""
    rows = []
    for row, p in zip(pairs, holm([row["p"] for row in pairs]), strict=True):
        better = row["first"] if (row["difference"] > 0) == higher_is_better else row["second"]
        rows.append(row | {"p": p, "verdict": f"{better} is better" if p < ALPHA else SAME})
    return rows


def order_checks(curves: pd.DataFrame, scale: Scale) -> pd.DataFrame:
    """Every measure for relevance, the random order with its band, and the reversed order.

    Columns: source, mode, method, measure, better, n (memes), relevance with its interval over memes, random with the
    band in which 90 % of the draws' means lie (``random_low``, ``random_high``), reversed.
    """
    rows = []
    for key, part in _groups(curves, _WHERE):
        random = part[part["method"] == RANDOM]
        for method in _explained(part):
            own, turned = part[part["method"] == method], part[part["method"] == f"{method} {REVERSED}"]
            values, other = by_meme(own, scale), by_meme(turned, scale)
            draws = [by_meme(one, scale) for _, one in random.groupby("draw")]
            for name, measure in MEASURES.items():
                means = [float(draw[name].mean()) for draw in draws]
                row = dict(zip(_WHERE, key, strict=True)) | {
                    "method": method,
                    "measure": name,
                    "better": measure.better,
                }
                row |= {"n": len(values)} | _interval("relevance", values[name].to_numpy())
                low, high = np.quantile(means, [0.05, 0.95]).tolist()
                row |= {
                    "random": float(np.mean(means)),
                    "random_low": low,
                    "random_high": high,
                    "reversed": float(other[name].mean()),
                }
                rows.append(row)
    return pd.DataFrame(rows)


ROBUSTNESS: Mapping[str, Better] = {
    "infidelity": "lower",
    "max_sensitivity": "lower",
    "jpeg": "higher",
    "typo": "higher",
}


def robustness_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over memes with intervals of :data:`ROBUSTNESS`, one row a source, mode and method."""
    found = []
    for key, part in _groups(rows, [*_WHERE, "method"]):
        values = part.groupby("meme_id")[list(ROBUSTNESS)].mean()
        row: dict[str, Any] = dict(zip([*_WHERE, "method"], key, strict=True)) | {"n": len(values)}
        for name in ROBUSTNESS:
            row |= _interval(name, values[name].to_numpy(dtype=float))
        found.append(row)
    return pd.DataFrame(found)


class Band(NamedTuple):
    """A curve at :data:`GRID` with a band around it."""

    mean: list[float]
    low: list[float]
    high: list[float]


def mean_curves(curves: pd.DataFrame, scale: Scale, side: str) -> dict[str, Band]:
    """Method → mean over memes of ``morf`` or ``lerf``.

    Of the random order the band is that in which 90 % of the draws' means lie; of others the bootstrap interval.
    """
    found = {}
    for method, part in curves.groupby("method", sort=True):
        if method == RANDOM:
            means = np.array([_mean_curve(one, scale, side).mean(axis=0) for _, one in part.groupby("draw")])
            low, high = np.quantile(means, [0.05, 0.95], axis=0)
            found[str(method)] = Band(means.mean(axis=0).tolist(), low.tolist(), high.tolist())
        elif not str(method).endswith(f" {REVERSED}"):
            table = _mean_curve(part, scale, side)
            bands = [mean_interval(table[:, index], n_draws=200) for index in range(len(GRID))]
            found[str(method)] = Band(*(list(column) for column in zip(*bands, strict=True)))
    return found


def by_meme(part: pd.DataFrame, scale: Scale) -> pd.DataFrame:
    """One row a meme: the mean of every measure over its targets and draws, on one scale; indexed by meme_id."""
    names = {f"{name}:{scale}": name for name in MEASURES}
    table: pd.DataFrame = part.groupby("meme_id")[list(names)].mean().rename(columns=names)
    return table


def _headline_row(names: dict[str, object], part: pd.DataFrame, scale: Scale) -> dict[str, object]:
    paired = part.groupby("meme_id").mean(numeric_only=True)
    row = names | {"n": len(paired)}
    for who in ("rationale", "relevance", "random"):
        row |= _interval(f"loss_{who}", paired[f"{who}:{scale}"].to_numpy())
    for who in ("rationale", "relevance"):
        row[f"flip_{who}"] = float(paired[f"{who}:flip"].mean())
    one = compare_paired(paired[f"rationale:{scale}"].to_numpy(), paired[f"relevance:{scale}"].to_numpy())
    return row | {"difference": one.difference, "p": one.p, "effect": one.effect}


def _verdict(p: float, difference: float) -> str:
    if p >= ALPHA:
        return SAME
    return LESS if difference < 0 else MORE


def _interval(name: str, values: np.ndarray) -> dict[str, float]:
    """The mean with its interval, of which one meme says nothing."""
    found = mean_interval(values)
    if np.count_nonzero(~np.isnan(values)) < 2:
        found = found._replace(low=float("nan"), high=float("nan"))
    return found.columns(name)


def _groups(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    if len(frame):
        yield from frame.groupby(list(names), sort=True)


def _explained(part: pd.DataFrame) -> list[str]:
    return sorted({str(name) for name in part["method"]} - {RANDOM, RATIONALE, TRUTH} - _turned(part))


def _turned(part: pd.DataFrame) -> set[str]:
    return {str(name) for name in part["method"] if str(name).endswith(f" {REVERSED}")}


def _by_mean(tables: dict[str, pd.Series], measure: str) -> list[str]:
    worse_first = MEASURES[measure].better == "lower"
    return sorted(tables, key=lambda name: float(tables[name].mean()), reverse=not worse_first)


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values([*_WHERE, LEADERS[0]], ascending=[True, True, False], ignore_index=True)


def _mean_curve(part: pd.DataFrame, scale: Scale, side: str) -> np.ndarray:
    """``(n_memes, len(GRID))``: a meme's curves averaged over its targets."""
    table = pd.DataFrame(part[f"{side}:{scale}"].tolist(), index=part["meme_id"])
    return np.asarray(table.groupby(level=0).mean())

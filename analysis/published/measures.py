"""The measures that published scores are made of, as functions of sums over memes: two sides, categories, means.

Where a ratio has nothing below its line it is 0, as scikit-learn has it with ``zero_division=0``, and macro means are
over all sides or categories that there are, whether or not they occur. An answer without a label claims nothing and is
right nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from xai.analysis.detection.scores import Additive, prf
from xai.analysis.statistics import N_DRAWS, Interval, bootstrap

BINARY = ("accuracy", "macro_f1", "precision", "recall", "f1")
"""The measures of :func:`binary_measures`; the last three are of the first side."""
CATEGORIES = (
    "micro_precision", "micro_recall", "micro_f1",
    "macro_precision", "macro_recall", "macro_f1",
    "hamming_loss", "subset_accuracy",
)  # fmt: skip
"""The measures of :func:`category_measures`."""


def binary_measures(gold: np.ndarray, predicted: np.ndarray) -> Additive:
    """The measures of :data:`BINARY` of one of two sides a meme.

    Args:
        gold: 0 or 1, ``(n,)``; side 0 is positive.
        predicted: 0, 1, or -1 for an answer that takes no side, which is wrong whatever gold says: it lowers accuracy,
            and the recall and F1 of the side that gold is on. It is no claim, so that precisions are as without it.
    """
    sides = np.arange(2)
    given, claimed = gold[:, None] == sides, predicted[:, None] == sides

    def of_totals(totals: np.ndarray, n: np.ndarray) -> np.ndarray:
        shared, claims, there = np.split(totals, 3, axis=1)
        precision, recall, f1 = prf(shared, claims, there, of_nothing=0.0)
        columns = [shared.sum(axis=1) / n, f1.mean(axis=1), precision[:, 0], recall[:, 0], f1[:, 0]]
        return np.stack(columns, axis=1)

    columns = np.hstack([given & claimed, claimed, given]).astype(float)
    return Additive(_index("binary", BINARY), columns, of_totals)


def category_measures(gold: np.ndarray, predicted: np.ndarray, counted: np.ndarray | None = None) -> Additive:
    """The measures of :data:`CATEGORIES` of sets of categories; NaN where no meme is counted.

    Args:
        gold, predicted: bool ``(n, n_categories)``.
        counted: which memes count, bool ``(n,)``; all by default.
    """
    n_categories = gold.shape[1]
    count = np.ones(len(gold), dtype=bool) if counted is None else counted
    wrong = (gold != predicted).mean(axis=1)
    parts = [gold & predicted, predicted, gold, wrong[:, None], (wrong == 0)[:, None], np.ones((len(gold), 1))]
    columns = np.hstack(parts).astype(float) * count[:, None]

    def of_totals(totals: np.ndarray, n: np.ndarray) -> np.ndarray:
        shared, claims, there = np.split(totals[:, : 3 * n_categories], 3, axis=1)
        micro = prf(shared.sum(axis=1), claims.sum(axis=1), there.sum(axis=1), of_nothing=0.0)
        macro = [values.mean(axis=1) for values in prf(shared, claims, there, of_nothing=0.0)]
        n_counted = totals[:, -1]
        with np.errstate(invalid="ignore"):
            rates = totals[:, -3:-1] / n_counted[:, None]
        values = np.stack([*micro, *macro, *rates.T], axis=1)
        return np.where(n_counted[:, None] > 0, values, np.nan)

    return Additive(_index("categories", CATEGORIES), columns, of_totals)


def mean_measures(kind: str, values: Mapping[str, np.ndarray]) -> Additive:
    """The mean of each of some values ``(n,)`` over the memes where it is not NaN."""
    table = np.stack(list(values.values()), axis=1)
    known = ~np.isnan(table)

    def of_totals(totals: np.ndarray, n: np.ndarray) -> np.ndarray:
        summed, there = np.split(totals, 2, axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray(summed / there)

    columns = np.hstack([np.where(known, table, 0.0), known])
    return Additive(_index(kind, list(values)), columns, of_totals)


def together(parts: Sequence[Additive]) -> Additive:
    """The measures of several kinds of the same memes."""
    ends = np.cumsum([part.columns.shape[1] for part in parts])[:-1]

    def of_totals(totals: np.ndarray, n: np.ndarray) -> np.ndarray:
        pieces = np.split(totals, ends, axis=1)
        return np.hstack([part.of_totals(piece, n) for part, piece in zip(parts, pieces, strict=True)])

    index = parts[0].index
    for part in parts[1:]:
        index = index.append(part.index)
    return Additive(index, np.hstack([part.columns for part in parts]), of_totals)


def measured(measures: Additive, *, n_draws: int = N_DRAWS, seed: int = 0) -> dict[tuple[str, str], Interval]:
    """Every measure with its bootstrap interval over memes, by kind and name."""
    found = bootstrap(measures.statistic, len(measures), n_draws=n_draws, seed=seed)
    return {(kind, name): interval for (kind, name, _), interval in zip(measures.index, found, strict=True)}


def columns_of(found: Mapping[tuple[str, str], Interval], shown: Mapping[tuple[str, str], str]) -> dict[str, float]:
    """Measures as the columns of a table, each with its interval; ``shown`` has their names there."""
    return {name: value for key, title in shown.items() for name, value in found[key].columns(title).items()}


def _index(kind: str, names: Sequence[str]) -> pd.MultiIndex:
    return pd.MultiIndex.from_tuples([(kind, name, "") for name in names], names=["kind", "measure", "name"])

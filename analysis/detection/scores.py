"""How well a run detects: hierarchical and flat precision, recall and F1, with intervals over memes.

Every measure is a function of sums over memes (:class:`Additive`), so that a bootstrap sample, a swap of two answers
and the data themselves go through the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from xai.analysis.detection.labelsets import Expand, LabelSets, NoneLabel, label_sets
from xai.analysis.statistics import N_DRAWS, bootstrap

Kind = Literal["hierarchical", "flat"]
"""Whether label sets are extended by the ancestors of their labels before they are compared."""

OVERALL = (
    "micro_precision", "micro_recall", "micro_f1",
    "macro_precision", "macro_recall", "macro_f1",
    "sample_precision", "sample_recall", "sample_f1",
    "subset_accuracy", "hamming_loss",
)  # fmt: skip
"""The measures of whole sets. All lie between 0 and 1; higher is better but for the Hamming loss."""
EACH = ("precision", "recall", "f1")
"""The measures of every node or label."""

_RATES = 5
"""Columns of :class:`Additive` that are rates of one meme: precision, recall, F1, whether exact, Hamming loss."""


@dataclass(frozen=True)
class PRF:
    """Precision, recall and F1, each between 0 and 1; higher is better."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, eq=False)
class Scores:
    """Agreement of predicted with gold label sets, both extended by their ancestors; see :func:`set_measures`.

    ``per_node`` has one row a node that occurs in gold or prediction: node, gold, predicted, shared (counts),
    precision, recall, f1.
    """

    n: int
    micro: PRF
    macro: PRF
    sample: PRF
    per_node: pd.DataFrame
    none_label: NoneLabel


@dataclass(frozen=True, eq=False)
class Additive:
    """Measures that are functions of sums over memes.

    Attributes:
        index: kind, measure and name (of a node or label, or empty) of each measure.
        columns: what each meme adds, ``(n, n_columns)``.
        of_totals: sums over memes ``(n_draws, n_columns)`` and numbers of memes ``(n_draws,)`` to values
            ``(n_draws, n_measures)``.
    """

    index: pd.MultiIndex
    columns: np.ndarray
    of_totals: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def __len__(self) -> int:
        return len(self.columns)

    def statistic(self, weights: np.ndarray) -> np.ndarray:
        """The measures when meme i counts ``weights[draw, i]`` times: what :func:`bootstrap` takes."""
        return self.of_totals(weights @ self.columns, weights.sum(axis=1))

    def values(self) -> pd.Series:
        """The measures of the data themselves."""
        return pd.Series(self.of_totals(self.columns.sum(axis=0)[None], np.array([len(self)]))[0], self.index)


def hierarchical_scores(
    gold: Sequence[Iterable[str]],
    predicted: Sequence[Iterable[str]],
    expand: Expand,
    *,
    none: str | None = None,
    none_label: NoneLabel = "kept",
) -> Scores:
    """Scores label sets after extending each by the ancestors of its labels (Kiritchenko et al., 2006).

    Args:
        gold: one label set an item.
        predicted: one label set an item, in the same order.
        expand: gives the labels together with all their ancestors, the root left out.
        none: the label that says that no other applies.
        none_label: what becomes of it before anything is counted.

    Raises:
        ValueError: the two differ in length, or there is nothing to score.
    """
    sets = label_sets(gold, predicted).under(none_label, none).expanded(expand)
    values = point_values(sets)
    overall = dict(zip(OVERALL, map(float, values), strict=False))
    micro, macro, sample = (PRF(*(overall[f"{mean}_{name}"] for name in EACH)) for mean in ("micro", "macro", "sample"))
    return Scores(len(sets), micro, macro, sample, _per_node(sets, values[len(OVERALL) :]), none_label)


def measures(sets: LabelSets, nodes: LabelSets) -> Additive:
    """All measures of label sets, hierarchical ones of ``nodes`` first, then flat ones of ``sets``."""
    parts = [set_measures("hierarchical", nodes), set_measures("flat", sets)]
    split = parts[0].columns.shape[1]

    def of_totals(totals: np.ndarray, n: np.ndarray) -> np.ndarray:
        return np.hstack([parts[0].of_totals(totals[:, :split], n), parts[1].of_totals(totals[:, split:], n)])

    index = parts[0].index.append(parts[1].index)
    return Additive(index, np.hstack([part.columns for part in parts]), of_totals)


def set_measures(kind: Kind, sets: LabelSets) -> Additive:
    """The measures of :data:`OVERALL`, then those of :data:`EACH` for every name.

    Micro pools all names of all memes. Macro is the mean over the names that occur in gold or prediction, NaN if
    none does; of F1, it is the mean of the F1s. Sample is the mean over memes. Where neither side has a name,
    precision, recall and F1 of the memes are 1: nothing was there and nothing was claimed. Where only one side has
    some, F1 is 0. A name that does not occur has NaN. The Hamming loss is the share of all (meme, name) decisions
    that are wrong.
    """
    index = measure_index(kind, sets.names)
    columns = np.hstack([part.astype(float) for part in _pieces(sets)])
    return Additive(index, columns, lambda totals, n: _values(totals, n, len(sets.names)))


def measure_index(kind: Kind, names: Sequence[str]) -> pd.MultiIndex:
    """Kind, measure and name of the values of :func:`set_measures`, in their order."""
    keys = [(kind, measure, "") for measure in OVERALL] + [(kind, each, name) for each in EACH for name in names]
    return pd.MultiIndex.from_tuples(keys, names=["kind", "measure", "name"])


def point_values(sets: LabelSets) -> np.ndarray:
    """The values of :func:`set_measures` without what every meme adds: for many draws of many memes."""
    totals = np.concatenate([part.sum(axis=0, dtype=float) for part in _pieces(sets)])
    return np.asarray(_values(totals[None], np.array([len(sets)]), len(sets.names))[0])


def intervals(measured: Additive, *, n_draws: int = N_DRAWS, seed: int = 0) -> pd.DataFrame:
    """Every measure with its bootstrap interval over memes: kind, measure, name, value, low, high."""
    found = bootstrap(measured.statistic, len(measured), n_draws=n_draws, seed=seed)
    return pd.DataFrame(found, columns=["value", "low", "high"], index=measured.index).reset_index()


def exact(sets: LabelSets) -> np.ndarray:
    """Whether each meme's predicted set is its gold set, bool ``(n,)``."""
    same: np.ndarray = (sets.gold == sets.predicted).all(axis=1)
    return same


def _pieces(sets: LabelSets) -> tuple[np.ndarray, ...]:
    """What each meme adds: shared, predicted and gold names, then its own rates."""
    shared = sets.gold & sets.predicted
    n_names = len(sets.names)
    counts = [_row_sums(part) for part in (shared, sets.predicted, sets.gold)]
    wrong = (counts[1] + counts[2] - 2 * counts[0]) / max(n_names, 1)
    rates = np.stack([*prf(*counts, of_nothing=1.0), exact(sets).astype(float), wrong], axis=1)
    return shared, sets.predicted, sets.gold, rates


def _row_sums(matrix: np.ndarray) -> np.ndarray:
    return np.asarray(matrix.sum(axis=1, dtype=float))


def _values(totals: np.ndarray, n: np.ndarray, n_names: int) -> np.ndarray:
    shared, predicted, gold = (totals[:, part * n_names : (part + 1) * n_names] for part in range(3))
    rates = totals[:, 3 * n_names : 3 * n_names + _RATES] / n[:, None]
    micro = prf(shared.sum(axis=1), predicted.sum(axis=1), gold.sum(axis=1), of_nothing=1.0)
    each = prf(shared, predicted, gold, of_nothing=np.nan)
    macro = [_mean_of_known(values) for values in each]
    return np.hstack([np.stack([*micro, *macro], axis=1), rates, *each])


def _mean_of_known(values: np.ndarray) -> np.ndarray:
    """The mean of each row over what is not NaN; NaN where nothing is left."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0).sum(axis=1) / known.sum(axis=1))


def prf(
    shared: np.ndarray, predicted: np.ndarray, gold: np.ndarray, *, of_nothing: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall, F1; ``of_nothing`` where there is neither gold nor prediction."""
    nothing = predicted + gold == 0

    def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
        value = np.where(nothing, of_nothing, 0.0)
        return np.asarray(np.divide(part, whole, out=value, where=whole > 0))

    return ratio(shared, predicted), ratio(shared, gold), ratio(2 * shared, predicted + gold)


def _per_node(sets: LabelSets, each: np.ndarray) -> pd.DataFrame:
    counts = {
        "gold": sets.gold.sum(axis=0),
        "predicted": sets.predicted.sum(axis=0),
        "shared": (sets.gold & sets.predicted).sum(axis=0),
    }
    rates = dict(zip(EACH, each.reshape(len(EACH), len(sets.names)), strict=True))
    frame = pd.DataFrame({"node": sets.names, **counts, **rates})
    return frame[frame["gold"] + frame["predicted"] > 0].reset_index(drop=True)

"""IRON-Meme's measures of one stage: micro and two macros, what random labels score, and how F1 goes with frequency."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from xai.analysis.detection.labelsets import LabelSets
from xai.analysis.detection.scores import EACH, OVERALL, Additive, set_measures
from xai.analysis.statistics import LEVEL, Interval, bootstrap
from xai.tasks.task import PAIR

MEANS = ("micro", "macro", "macro_all")
"""Over which labels: all decisions pooled; the mean over labels in gold or answers; that over the whole inventory."""
MEASURES = tuple(f"{mean}_{measure}" for mean in MEANS for measure in EACH)
N_RANDOM = 1000
_N_MEANS = 2 * len(EACH)
"""Micro and macro precision, recall and F1 come first among those of :data:`OVERALL`."""
_STREAM = 41


def stage_measures(sets: LabelSets) -> Additive:
    """:data:`MEASURES` of all labels, then F1 of every label, as functions of sums over memes.

    Micro and macro are those of :func:`set_measures`; of ``macro_all``, a label that is neither in gold nor in answers
    counts 0, as it does for scikit-learn's ``average="macro"`` over the whole inventory with ``zero_division=0``.
    """
    flat, n = set_measures("flat", sets), len(sets.names)

    def of_totals(totals: np.ndarray, n_memes: np.ndarray) -> np.ndarray:
        values = flat.of_totals(totals, n_memes)
        each = values[:, len(OVERALL) :].reshape(len(values), len(EACH), n)
        return np.hstack([values[:, :_N_MEANS], np.nansum(each, axis=2) / n, each[:, EACH.index("f1")]])

    keys = [(measure, "") for measure in MEASURES] + [("f1", name) for name in sets.names]
    return Additive(pd.MultiIndex.from_tuples(keys, names=["measure", "name"]), flat.columns, of_totals)


def random_scores(
    sets: LabelSets, *, given_names: bool = False, n_draws: int = N_RANDOM, seed: int = 0
) -> dict[str, Interval]:
    """What labels drawn at random with their gold frequency score: mean of the draws, and the middle 95 % of them.

    Every label is drawn for every meme with the share of memes whose gold has it, independently of the others
    (scikit-learn's stratified dummy classifier on each label). With ``given_names``, the gold names of a meme are
    known, and for each of them every value is drawn with the share of all (meme, name) of the gold that have it: what
    a stage is to be held against that was given them. Values that exclude each other are drawn independently, too, so
    that their number varies from draw to draw, and what is expected of each label does not change.

    How often a label is drawn rightly and wrongly over all memes are two binomial counts, which is what is drawn.

    Raises:
        ValueError: ``given_names`` of labels that are no pairs.
    """
    measured = stage_measures(sets)
    gold = sets.gold.sum(axis=0)
    n, share = _names_given(sets) if given_names else (np.full(len(gold), len(sets)), gold / len(sets))
    rng = np.random.default_rng((seed, _STREAM))
    right = rng.binomial(gold, share, size=(n_draws, len(gold)))
    wrong = rng.binomial(n - gold, share, size=(n_draws, len(gold)))
    rates = np.zeros((n_draws, measured.columns.shape[1] - 3 * len(gold)))
    totals = np.hstack([right, right + wrong, np.broadcast_to(gold, right.shape), rates])
    values = measured.of_totals(totals, np.full(n_draws, len(sets)))[:, : len(MEASURES)]
    return {name: _middle(column) for name, column in zip(MEASURES, values.T, strict=True)}


def _middle(values: np.ndarray) -> Interval:
    """The mean and the ends of the middle 95 % of what is not NaN."""
    known = values[~np.isnan(values)]
    if not len(known):
        return Interval(np.nan, np.nan, np.nan)
    low, high = np.percentile(known, [100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2])
    return Interval(float(known.mean()), float(low), float(high))


def frequency_and_f1(sets: LabelSets, *, n_draws: int = 1000, seed: int = 0) -> tuple[Interval, pd.DataFrame]:
    """Spearman's correlation of how many memes have a label in gold with its F1, over the labels that gold has.

    Returns:
        the correlation with its percentile bootstrap interval over labels, NaN where frequencies or F1s are all the
        same; and label, frequency (memes), f1.
    """
    f1 = stage_measures(sets).values().xs("f1", level="measure")
    frame = pd.DataFrame({"label": sets.names, "frequency": sets.gold.sum(axis=0), "f1": f1.to_numpy()})
    frame = frame[frame["frequency"] > 0].reset_index(drop=True)
    pair = frame[["frequency", "f1"]].to_numpy(dtype=float)
    if len(frame) < 2:
        return Interval(np.nan, np.nan, np.nan), frame
    return bootstrap(lambda weights: _spearman(pair, weights), len(frame), n_draws=n_draws, seed=seed)[0], frame


def _spearman(pair: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of the rows of ``pair`` ``(n, 2)`` as often as each sample has them, ``(n_draws, 1)``; NaN for constants."""
    ranks = (rankdata(np.repeat(pair, count.astype(int), axis=0), axis=0) for count in weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.array([[np.corrcoef(one, rowvar=False)[0, 1]] for one in ranks])


def _names_given(sets: LabelSets) -> tuple[np.ndarray, np.ndarray]:
    """For every pair, how many memes' gold has its name, and the share of its value over all names, ``(n_labels,)``."""
    if not all(PAIR in name for name in sets.names):
        raise ValueError("names can be given to a stage of pairs alone; its labels are no pairs")
    split = [name.rpartition(PAIR)[::2] for name in sets.names]
    names, values = (np.unique(column, return_inverse=True)[1] for column in zip(*split, strict=True))
    with_name = [sets.gold[:, names == name].any(axis=1).sum() for name in range(names.max() + 1)]
    with_value = np.bincount(values, weights=sets.gold.sum(axis=0))
    return np.array(with_name)[names], (with_value / max(sum(with_name), 1))[values]

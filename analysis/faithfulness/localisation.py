"""How well relevance finds units that are known to be the cause, each measure with what chance would reach.

Every measure takes relevance ``(n,)`` or any other shape, and the truth of that shape: true at the units of the cause.
Signed relevance is taken as it is: what speaks against the target comes last. None of them changes when relevance is
multiplied by a positive number or when units change places together with their truth.

*Chance* is the mean over all orders of the same values, so it depends on the numbers of units alone.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

__all__ = [
    "auroc",
    "average_precision",
    "chance_average_precision",
    "mass_accuracy",
    "pointing_hit",
    "rank_accuracy",
    "share_of_units",
]


def pointing_hit(relevance: np.ndarray, truth: np.ndarray) -> bool:
    """Pointing game (Zhang et al. 2018, doi:10.1007/s11263-017-1059-x): the unit with most relevance is of the cause.

    A tie with a unit outside is no hit, so that a map of one value for all hits nothing. Chance: the share of units.

    Raises:
        ValueError: see :func:`share_of_units`.
    """
    values, inside = _checked(relevance, truth)
    return bool(values[inside].max() > values[~inside].max(initial=-np.inf))


def mass_accuracy(relevance: np.ndarray, truth: np.ndarray) -> float:
    """Relevance mass accuracy (Arras et al. 2022, doi:10.1016/j.inffus.2021.11.008): share of the positive relevance.

    Between 0 and 1, more is better. A map without positive relevance puts none on the cause, and has 0: it is not left
    out. Chance, where there is any positive relevance: the share of units.

    Raises:
        ValueError: see :func:`share_of_units`.
    """
    values, inside = _checked(relevance, truth)
    positive = np.clip(values, 0, None)
    total = positive.sum()
    return float(positive[inside].sum() / total) if total > 0 else 0.0


def rank_accuracy(relevance: np.ndarray, truth: np.ndarray) -> float:
    """Relevance rank accuracy (Arras et al. 2022): of the k units with most relevance, the share that is of the cause.

    k is the number of units of the cause. Among units of equal relevance those of the cause come last, so that a tie
    is no hit. Chance: the share of units.

    Raises:
        ValueError: see :func:`share_of_units`.
    """
    values, inside = _checked(relevance, truth)
    order = np.lexsort((inside, -values))
    return float(inside[order[: inside.sum()]].mean())


def auroc(relevance: np.ndarray, truth: np.ndarray) -> float:
    """The probability that a unit of the cause has more relevance than one outside (Mann & Whitney, 1947).

    A tie counts one half, as usual. Chance: 0.5. NaN where all units are of the cause.

    Raises:
        ValueError: see :func:`share_of_units`.
    """
    values, inside = _checked(relevance, truth)
    n_inside, n_outside = int(inside.sum()), int((~inside).sum())
    if not n_outside:
        return float("nan")
    ranks = stats.rankdata(values)
    return float((ranks[inside].sum() - n_inside * (n_inside + 1) / 2) / (n_inside * n_outside))


def average_precision(relevance: np.ndarray, truth: np.ndarray) -> float:
    """Precision averaged over the recall that each threshold adds; units of equal relevance pass one threshold.

    The step-wise sum without interpolation, as in scikit-learn. Chance: :func:`chance_average_precision`.

    Raises:
        ValueError: see :func:`share_of_units`.
    """
    values, inside = _checked(relevance, truth)
    order = np.argsort(-values, kind="stable")
    hits = np.cumsum(inside[order])
    last_of_its_value = np.append(np.diff(values[order]) != 0, True)
    found = hits[last_of_its_value]
    precision = found / (np.flatnonzero(last_of_its_value) + 1)
    return float((np.diff(found, prepend=0) * precision).sum() / inside.sum())


def share_of_units(truth: np.ndarray) -> float:
    """What chance reaches in pointing, mass accuracy and rank accuracy: units of the cause over all units.

    Raises:
        ValueError: no unit is of the cause; or, in the measures, relevance of another shape or not finite.
    """
    inside = np.asarray(truth, dtype=bool)
    if not inside.any():
        raise ValueError("no unit is of the cause, so there is nothing to find; leave this explanation out")
    return float(inside.mean())


def chance_average_precision(n_units: int, n_cause: int) -> float:
    """The mean average precision over all orders of ``n_units`` different values, ``n_cause`` of them of the cause.

    At rank i there is a unit of the cause with probability K/n, and then (i - 1)(K - 1)/(n - 1) others are expected
    before it; the sum of the precisions at those ranks over K. A little above K/n, above all for few units.
    """
    if not 0 < n_cause <= n_units:
        raise ValueError(f"{n_cause} of {n_units} units cannot be the cause; there must be at least one")
    ranks = np.arange(1, n_units + 1)
    before = (ranks - 1) * (n_cause - 1) / max(1, n_units - 1)
    return float(((1 + before) / ranks).mean())


def _checked(relevance: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both flat."""
    values, inside = np.asarray(relevance, dtype=np.float64), np.asarray(truth, dtype=bool)
    if values.shape != inside.shape:
        raise ValueError(f"relevance has shape {values.shape} and the truth {inside.shape}; give one for each unit")
    if not np.isfinite(values).all():
        raise ValueError("relevance holds NaN or infinite values, which have no order; such a map is a failed record")
    share_of_units(inside)
    return values.ravel(), inside.ravel()

"""Uncertainty over memes: bootstrap intervals, paired tests, correction for many tests, effect sizes.

A statistic is given as a function of *weights*: ``(n_draws, n) -> (n_draws, n_statistics)``. A bootstrap sample of n
memes is the vector of how often each was drawn, so that a statistic which adds over memes is one matrix product for
all draws. :func:`weighted_mean` makes such a function of values; ratios of sums are written in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

Statistic = Callable[[np.ndarray], np.ndarray]
"""Of weights ``(n_draws, n)`` to values ``(n_draws, n_statistics)``."""

LEVEL = 0.95
N_DRAWS = 1000
_NAN = float("nan")
_BLOCK = 2_000_000
"""Weights held at once, so that 66,000 memes need no more memory than 1,000."""


class Interval(NamedTuple):
    """A value and its interval; ``low`` and ``high`` are NaN where it cannot be said."""

    value: float
    low: float
    high: float

    def columns(self, name: str) -> dict[str, float]:
        """As the columns of a table, which shows them in one: ``NAME``, ``NAME_low``, ``NAME_high``."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


class Comparison(NamedTuple):
    """Two paired samples: mean difference (first minus second) and its interval, p value, and effect size.

    ``effect`` is the matched-pairs rank-biserial correlation (Kerby, 2014), -1 to 1: the share of rank sum in favour
    of the first minus that in favour of the second. ``p`` is two-sided. ``n`` pairs had both values.
    """

    n: int
    difference: float
    low: float
    high: float
    p: float
    effect: float


def bootstrap(
    statistic: Statistic, n: int, *, n_draws: int = N_DRAWS, seed: int = 0, level: float = LEVEL
) -> list[Interval]:
    """Percentile bootstrap over ``n`` memes (Efron & Tibshirani, 1993), one interval a statistic.

    Draws in which a statistic is NaN (a label that no drawn meme has) are left out of its interval.

    Raises:
        ValueError: there is nothing to draw from.
    """
    if n < 1:
        raise ValueError("a bootstrap needs at least 1 meme")
    values = statistic(np.ones((1, n)))[0]
    rng, drawn = np.random.default_rng(seed), []
    for start in range(0, n_draws, step := max(1, _BLOCK // n)):
        drawn.append(statistic(_weights(rng, min(step, n_draws - start), n)))
    tails = [100 * (1 - level) / 2, 100 * (1 + level) / 2]
    bounds = [_percentiles(column, tails) for column in np.concatenate(drawn).T]
    return [Interval(float(value), *bound) for value, bound in zip(values, bounds, strict=True)]


def weighted_mean(values: np.ndarray) -> Statistic:
    """The mean of each column of ``(n,)`` or ``(n, n_statistics)`` over the memes where it is not NaN."""
    table = np.asarray(values, dtype=float)
    table = table[:, None] if table.ndim == 1 else table
    known = ~np.isnan(table)
    filled, counts = np.where(known, table, 0.0), known.astype(float)

    def mean(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.asarray((weights @ filled) / (weights @ counts))

    return mean


def mean_interval(values: Sequence[float] | np.ndarray, *, n_draws: int = N_DRAWS, seed: int = 0) -> Interval:
    """The mean of what is not NaN, with its bootstrap interval; all NaN where nothing is left."""
    known = np.asarray(values, dtype=float)
    known = known[~np.isnan(known)]
    if not len(known):
        return Interval(_NAN, _NAN, _NAN)
    return bootstrap(weighted_mean(known), len(known), n_draws=n_draws, seed=seed)[0]


def compare_paired(
    first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray, *, n_draws: int = 10_000, seed: int = 0
) -> Comparison:
    """A paired sign-flip permutation test of the mean difference, over pairs where neither is NaN.

    With all differences 0, or no pair, ``p`` is 1: nothing speaks for a difference.

    Raises:
        ValueError: the two differ in length.
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} and {len(b)} values; a paired comparison needs the same memes on both sides")
    differences = a - b
    differences = differences[~np.isnan(differences)]
    if not len(differences):
        return Comparison(0, _NAN, _NAN, _NAN, 1.0, _NAN)
    interval = mean_interval(differences, seed=seed)
    return Comparison(
        len(differences), *interval, _sign_flip_p(differences, n_draws, seed), _rank_biserial(differences)
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """p values corrected for their number (Holm, 1979), in the same order."""
    if len(p_values) < 2:  # statsmodels collects garbage at every call, which takes longer than all the rest
        return [float(p) for p in p_values]
    corrected: np.ndarray = multipletests(p_values, method="holm")[1]
    return [float(p) for p in corrected]


def _weights(rng: np.random.Generator, n_draws: int, n: int) -> np.ndarray:
    """How often each of n memes is in each of so many samples of n, ``(n_draws, n)``."""
    drawn = rng.integers(0, n, size=(n_draws, n)) + n * np.arange(n_draws)[:, None]
    return np.bincount(drawn.ravel(), minlength=n_draws * n).reshape(n_draws, n).astype(float)


def _percentiles(values: np.ndarray, tails: list[float]) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    if not len(known):
        return _NAN, _NAN
    low, high = np.percentile(known, tails)
    return float(low), float(high)


def _sign_flip_p(differences: np.ndarray, n_draws: int, seed: int) -> float:
    """Two-sided; exact over all signs where there are fewer of them than draws."""
    size = np.abs(differences)
    observed, scale = abs(differences.sum()), size.sum()
    if scale == 0:
        return 1.0
    n = len(differences)
    exact = 2**n <= n_draws
    reached, drawn, rng = 0, 0, np.random.default_rng(seed)
    total = 2**n if exact else n_draws
    for start in range(0, total, step := max(1, _BLOCK // n)):
        rows = np.arange(start, min(start + step, total))
        signs = (rows[:, None] >> np.arange(n) & 1 if exact else rng.integers(0, 2, (len(rows), n))) * 2 - 1
        reached += int(np.count_nonzero(np.abs(signs @ size) >= observed - 1e-12 * scale))
        drawn += len(rows)
    return reached / drawn if exact else (reached + 1) / (drawn + 1)


def _rank_biserial(differences: np.ndarray) -> float:
    moved = differences[differences != 0]
    if not len(moved):
        return 0.0
    ranks = stats.rankdata(np.abs(moved))
    return float((ranks[moved > 0].sum() - ranks[moved < 0].sum()) / ranks.sum())

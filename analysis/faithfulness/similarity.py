"""How alike two maps of the same units are: by the order of the units, and by structure where they lie on a grid."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import stats

WINDOW = 3
"""Cells per side of the window of :func:`structural_similarity`; the usual 7 or 11 pixels are wider than the grids."""
_K1, _K2 = 0.01, 0.03


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation of signed values, -1 to 1; equal values share their mean rank.

    NaN where it is not defined: fewer than 3 units, of which any order is as good, or a map of one value for all.

    Raises:
        ValueError: the maps differ in shape, or are not finite.
    """
    a, b = _checked(first, second)
    if a.size < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(stats.spearmanr(a.ravel(), b.ravel()).statistic)


def structural_similarity(first: np.ndarray, second: np.ndarray) -> float:
    """Structural similarity (Wang et al. 2004, doi:10.1109/TIP.2003.819861) of two grids, -1 to 1.

    The mean over all windows of 3 × 3 cells that lie inside, evenly weighted, with unbiased variances. Each map is
    divided by its largest absolute value and moved from [-1, 1] to [0, 1], the range that the constants are for: of
    values with signs the formula would find a map and its negative alike, since two negative factors make a positive.
    A positive factor changes nothing; zero relevance is the same grey in all maps.

    NaN where a side has fewer than 3 cells, or a map is zero everywhere.

    Raises:
        ValueError: the maps differ in shape, are no grids, or are not finite.
    """
    a, b = _checked(first, second)
    if a.ndim != 2:
        raise ValueError(f"structural similarity is of grids (grid_h, grid_w), not of shape {a.shape}")
    if min(a.shape) < WINDOW or not a.any() or not b.any():
        return float("nan")
    x, y = (sliding_window_view(_grey(grid), (WINDOW, WINDOW)).reshape(-1, WINDOW**2) for grid in (a, b))
    mean_x, mean_y = x.mean(axis=1), y.mean(axis=1)
    covariance = ((x - mean_x[:, None]) * (y - mean_y[:, None])).sum(axis=1) / (WINDOW**2 - 1)
    spread = x.var(axis=1, ddof=1) + y.var(axis=1, ddof=1)
    luminance = (2 * mean_x * mean_y + _K1**2) / (mean_x**2 + mean_y**2 + _K1**2)
    structure = (2 * covariance + _K2**2) / (spread + _K2**2)
    return float((luminance * structure).mean())


def _grey(grid: np.ndarray) -> np.ndarray:
    return np.asarray((grid / np.abs(grid).max() + 1) / 2)


def _checked(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"maps of shapes {a.shape} and {b.shape} have no common units")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("a map holds NaN or infinite values; explain again in a wider dtype")
    return a, b

"""Two answers to the same memes compared: differences of measures, their intervals, and a paired permutation test."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from xai.analysis.detection.scores import Additive
from xai.analysis.statistics import N_DRAWS, bootstrap

N_SWAPS = 10_000
_BLOCK = 4_000_000
"""Swaps held at once."""
_REAL = np.float32
"""Of swaps and what they move: half the time, and sums of counts are exact up to 2**24."""
_TIE = 1e-6
"""Differences that are as good as the same; a mean of rates comes out of such sums right to 1e-7."""


def compare(
    first: Additive, second: Additive, *, n_swaps: int = N_SWAPS, n_draws: int = N_DRAWS, seed: int = 0
) -> pd.DataFrame:
    """Every measure of two answers to each of the same memes, in the same order.

    Returns:
        kind, measure, name, first, second, difference (first minus second) with its paired bootstrap interval over
        memes (difference_low, difference_high), and the p value of :func:`swap_test`.

    Raises:
        ValueError: the two are not of as many memes and the same measures.
    """
    if first.columns.shape != second.columns.shape or not first.index.equals(second.index):
        raise ValueError(f"{len(first)} and {len(second)} memes; a comparison needs the same memes and labels twice")
    one, other = first.values(), second.values()
    drawn = bootstrap(
        lambda weights: first.statistic(weights) - second.statistic(weights), len(first), n_draws=n_draws, seed=seed
    )
    frame = pd.DataFrame(drawn, columns=["difference", "difference_low", "difference_high"], index=first.index)
    frame.insert(0, "first", one)
    frame.insert(1, "second", other)
    frame["p"] = swap_test(first, second, n_swaps=n_swaps, seed=seed)
    return frame.reset_index()


def swap_test(first: Additive, second: Additive, *, n_swaps: int = N_SWAPS, seed: int = 0) -> np.ndarray:
    """Two-sided p values of a paired permutation test: were it all one whose answer is whose?

    The two answers of each meme change places with probability 1/2, and the measures are computed anew (approximate
    randomisation; Yeh, 2000); p is the share of such differences at least as large as the observed one. Memes with
    like answers change nothing and are passed over. With few memes all swaps are tried and p is exact; else the data
    themselves count as one draw. NaN where a measure is not defined for both.
    """
    n = np.array([len(first)])
    one, other = first.columns.sum(axis=0), second.columns.sum(axis=0)
    moves = second.columns - first.columns
    # Labels are nodes, too, and gold is often the same on both sides: many columns are there more than once.
    moves, column = _distinct_columns(moves[moves.any(axis=1)].astype(_REAL))
    observed = np.abs(first.of_totals(one[None], n) - second.of_totals(other[None], n))[0]
    exact = 2 ** len(moves) <= n_swaps
    reached, total = np.zeros(len(observed)), 0
    for swaps in _swaps(len(moves), n_swaps, seed, exact=exact):
        moved, n_memes = (swaps @ moves)[:, column], np.full(len(swaps), len(first))
        differences = first.of_totals(one + moved, n_memes) - second.of_totals(other - moved, n_memes)
        # What a swap leaves without a value speaks for no difference.
        reached += (~(np.abs(differences) < observed - _TIE)).sum(axis=0)
        total += len(swaps)
    p = reached / total if exact else (reached + 1) / (total + 1)
    return np.asarray(np.where(np.isnan(observed), np.nan, p))


def _distinct_columns(matrix: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """The columns that differ, and which of them each column is."""
    seen: dict[bytes, int] = {}
    column = [seen.setdefault(values.tobytes(), len(seen)) for values in matrix.T]
    return matrix[:, [column.index(number) for number in range(len(seen))]], column


def _swaps(n: int, n_swaps: int, seed: int, *, exact: bool) -> Iterator[np.ndarray]:
    """Blocks of swaps, 0 or 1 ``(n_in_block, n)``: all there are, or drawn ones."""
    rng = np.random.default_rng(seed)
    total = 2**n if exact else n_swaps
    for start in range(0, total, step := max(1, _BLOCK // max(n, 1))):
        rows = np.arange(start, min(start + step, total))
        if exact:
            yield (rows[:, None] >> np.arange(n) & 1).astype(_REAL)
        else:
            eights = rng.integers(0, 256, (len(rows), -(-n // 8)), dtype=np.uint8)
            yield np.unpackbits(eights, axis=1, count=n).astype(_REAL)

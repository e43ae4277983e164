"""Measures of how two rankings, or a ranking and a set, agree, and what chance alone would give."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from operator import itemgetter

import numpy as np

from xai.analysis.statistics import Statistic

RBO_P = 0.8
"""Persistence of rank-biased overlap: the first five ranks carry 86 % of its weight, as many as words are compared."""

_NAN = float("nan")


def rank_biased_overlap(a: Sequence[Hashable], b: Sequence[Hashable], p: float = RBO_P) -> float:
    """How far two rankings agree, the top counting most, 0 to 1; the extrapolated form for lists of any two lengths.

    RBO_EXT of Webber, Moffat & Zobel, "A similarity measure for indefinite rankings" (2010), equation 32: the
    agreement at the depth that both lists reach is taken to go on. Hence a list of one word agrees fully with a
    longer one that begins with it. A list without items shares nothing (0); two of them say nothing (NaN).

    Args:
        a, b: distinct items, best first.
        p: persistence, 0 < p < 1; the smaller, the more the top counts.

    Raises:
        ValueError: p is out of range, or an item stands twice in a list.
    """
    if not 0 < p < 1:
        raise ValueError(f"p must lie between 0 and 1, not {p}")
    if len(set(a)) < len(a) or len(set(b)) < len(b):
        raise ValueError("a ranking names each item once; remove the repeated ones")
    short, long = sorted((a, b), key=len)
    if not short:
        return _NAN if not long else 0.0
    s, overlaps = len(short), _overlaps(short, long)
    at_short = overlaps[s - 1]
    total = 0.0
    for depth, overlap in enumerate(overlaps, start=1):
        beyond = at_short * (depth - s) / s if depth > s else 0.0
        total += (overlap + beyond) / depth * p**depth
    rest = (overlaps[-1] - at_short) / len(long) + at_short / s
    return min(1.0, (1 - p) / p * total + rest * p ** len(long))


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> float:
    """Kendall's tau-b of two paired lists of values, -1 to 1; NaN for fewer than 2 pairs, or one value throughout.

    Kendall, "The treatment of ties in ranking problems" (1945).

    Raises:
        ValueError: the two differ in length.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values; tau needs pairs")
    concordance = untied_a = untied_b = 0
    for i in range(len(a)):
        for j in range(i):
            in_a, in_b = (a[i] > a[j]) - (a[i] < a[j]), (b[i] > b[j]) - (b[i] < b[j])
            concordance += in_a * in_b
            untied_a += in_a != 0
            untied_b += in_b != 0
    return concordance / math.sqrt(untied_a * untied_b) if untied_a and untied_b else _NAN


def auroc(values: Sequence[float], relevant: Sequence[bool]) -> float:
    """Probability that a relevant item has a higher value than another one, ties half, 0 to 1; chance gives 0.5.

    NaN where all or none are relevant.

    Raises:
        ValueError: the two differ in length.
    """
    blocks = _blocks(values, relevant)
    n_relevant = sum(hits for hits, _ in blocks)
    n_others = len(values) - n_relevant
    below, won = n_others, 0.0
    for hits, size in blocks:
        below -= size - hits
        won += hits * (below + (size - hits) / 2)
    return won / (n_relevant * n_others) if n_relevant and n_others else _NAN


def average_precision(values: Sequence[float], relevant: Sequence[bool]) -> float:
    """Mean precision at the relevant items, by falling value, 0 to 1; items of one value are taken in together.

    As scikit-learn's ``average_precision_score``, but NaN where none is relevant. Chance gives about the share of
    relevant items.

    Raises:
        ValueError: the two differ in length.
    """
    found = seen = 0
    total = 0.0
    for hits, size in _blocks(values, relevant):
        found, seen = found + hits, seen + size
        total += hits * found / seen
    return total / found if found else _NAN


def expected_overlap(n_words: int, n_present: int, k: int) -> float:
    """Words that k drawn blindly from n share with ``n_present`` of them, on average: k · n_present / n."""
    return k * n_present / n_words if n_words else 0.0


def expected_jaccard(n_words: int, n_present: int, k: int, n_named: int) -> float:
    """The mean Jaccard of k words drawn blindly from a text and the words that a rationale names.

    The overlap i is hypergeometric, and Jaccard is i / (k + n_named - i).

    Args:
        n_words: distinct words of the text that can be drawn.
        n_present: how many of them the rationale names.
        k: words drawn, at most ``n_words``.
        n_named: words that the rationale names, with those that the text does not have.

    Raises:
        ValueError: the counts contradict each other.
    """
    if not (0 <= n_present <= n_words and 0 <= k <= n_words and n_present <= n_named):
        raise ValueError(f"{k} of {n_words} words, {n_present} of {n_named} named ones among them, cannot be")
    if not k + n_named:
        return _NAN
    ways = math.comb(n_words, k)
    overlaps = range(max(0, k + n_present - n_words), min(k, n_present) + 1)
    counts = ((i, math.comb(n_present, i) * math.comb(n_words - n_present, k - i)) for i in overlaps)
    return sum(i / (k + n_named - i) * (count / ways) for i, count in counts)


def weighted_auroc(values: np.ndarray, relevant: np.ndarray, owner: np.ndarray | None = None) -> Statistic:
    """:func:`auroc` as a function of weights, for :func:`xai.analysis.statistics.bootstrap`.

    Args:
        values, relevant: ``(n_items,)``.
        owner: the index of the weight of each item, where several items are of one meme; one each without it.
    """
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(values[order]) != 0])
    hits, of = np.asarray(relevant, dtype=bool)[order], order if owner is None else owner[order]

    def statistic(weights: np.ndarray) -> np.ndarray:
        drawn = weights[:, of]
        ours = np.add.reduceat(drawn * hits, starts, axis=1)
        others = np.add.reduceat(drawn * ~hits, starts, axis=1)
        below = np.cumsum(others, axis=1) - others
        pairs = ours.sum(axis=1) * others.sum(axis=1)
        won = (ours * (below + others / 2)).sum(axis=1)
        shares: np.ndarray = np.divide(won, pairs, out=np.full(len(won), np.nan), where=pairs > 0)
        return shares[:, None]

    return statistic


def _overlaps(short: Sequence[Hashable], long: Sequence[Hashable]) -> list[int]:
    """Shared items of the two lists down to each depth of the longer one."""
    seen_short: set[Hashable] = set()
    seen_long: set[Hashable] = set()
    overlaps, shared = [], 0
    for depth, item in enumerate(long):
        seen_long.add(item)
        if depth < len(short):
            other = short[depth]
            seen_short.add(other)
            shared += other in seen_long
            shared += item in seen_short and item != other
        else:
            shared += item in seen_short
        overlaps.append(shared)
    return overlaps


def _blocks(values: Sequence[float], relevant: Sequence[bool]) -> list[tuple[int, int]]:
    """(relevant items, items) of each value, from the highest value down."""
    if len(values) != len(relevant):
        raise ValueError(f"{len(values)} values for {len(relevant)} items; give one each")
    blocks: list[tuple[int, int]] = []
    last: float | None = None
    for value, hit in sorted(zip(values, relevant, strict=True), key=itemgetter(0), reverse=True):
        if value == last:
            hits, size = blocks[-1]
            blocks[-1] = (hits + bool(hit), size + 1)
        else:
            blocks.append((int(bool(hit)), 1))
        last = value
    return blocks

"""Coefficients of agreement between annotators that give an item any number of labels.

Each coefficient is a function of weights ``(n_samples, n_items)``, how often each item is in each sample, so that
:func:`xai.analysis.statistics.bootstrap` gives its interval. It returns ``(n_samples, …, 3)``: observed agreement o,
expected agreement e, and the coefficient (o - e) / (1 - e), which is 1 for perfect agreement, 0 for agreement as by
chance, and NaN where nothing else than agreement could be expected (e = 1). Labels that were given are bool matrices
``(n_items, n_labels)``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
from scipy.sparse import csr_array

from xai.analysis.annotators import chance
from xai.analysis.statistics import Statistic

Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Of every set ``(n, n_labels)`` to every other ``(m, n_labels)``, ``(n, m)``, 0 to 1."""


PER_ITEM = (*chance.MEASURES, "jaccard", "exact")
"""The columns of :func:`set_agreement`."""
_ROWS = 500
"""Rows of distances that are computed at once."""


def set_agreement(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """How far two annotators agree on each item, ``(n_items, 6)``, 0 to 1, in the order of :data:`PER_ITEM`.

    With A and B the sets of the first and the second: whether they meet; |A∩B|/|B|; |A∩B|/|A|; 2|A∩B|/(|A|+|B|);
    |A∩B|/|A∪B|; whether they are the same. Where both sets are empty all are 1, and where one is, all are 0.
    """
    shared, a, b = (first & second).sum(1), first.sum(1), second.sum(1)
    values = [
        shared > 0,
        *(shared / np.maximum(n, 1) for n in (b, a)),
        2 * shared / np.maximum(a + b, 1),
        shared / np.maximum(a + b - shared, 1),
        (shared == a) & (shared == b),
    ]
    table = np.stack([np.asarray(value, dtype=float) for value in values], axis=1)
    table[a + b == 0] = 1
    return table


def bootstrapped_agreement(first: np.ndarray, second: np.ndarray) -> Statistic:
    """Match, precision, recall and F1 against chance, ``(n_samples, 4, 3)``.

    Expected is what :mod:`xai.analysis.annotators.chance` says of the habits of the two. For samples of the items it is
    exact in the numbers of labels, and of first order in the frequencies of the labels.
    """
    observed = set_agreement(first, second)[:, :4]
    a, b = chance.habits(first), chance.habits(second)
    table = chance.agreement_by_size(a.labels, b.labels, len(a.sizes) - 1, len(b.sizes) - 1)
    slopes = np.zeros((0, 4))

    def statistic(weights: np.ndarray) -> np.ndarray:
        nonlocal slopes
        in_a, in_b = chance.habits(first, weights), chance.habits(second, weights)
        expected = np.einsum("sa,mab,sb->sm", in_a.sizes, table, in_b.sizes, optimize=True)
        change = np.concatenate([in_a.labels - a.labels, in_b.labels - b.labels], axis=1)
        if np.abs(change).max(initial=0) > 1e-12:  # all items at once do not need the slopes, which take a while
            slopes = slopes if len(slopes) else chance.expected_slopes(a, b)
            expected = np.clip(expected + change @ slopes, 0, 1)
        return adjusted(_means(weights, observed), expected)

    return statistic


def augmented_kappa(first: np.ndarray, second: np.ndarray) -> Statistic:
    """Cohen's kappa of labels that share an item, ``(n_samples, 1, 3)``.

    Rosenberg and Binkowski (2004, "Augmenting the kappa statistic to determine interannotator reliability for
    multiply labeled data points"), with equal weights: each of the k labels that an annotator gives an item counts
    1/k there, so that every annotation weighs 1. Then, over n items and labels l,

        o = 1/n Σ_i Σ_l a_il b_il = 1/n Σ_i |A_i ∩ B_i| / (|A_i| |B_i|)
        e = Σ_l (1/n Σ_i a_il) (1/n Σ_i b_il)
        kappa = (o - e) / (1 - e)

    With one label an item this is Cohen's kappa. With more, o stays below 1 even where both give the same: two equal
    sets of k labels count 1/k. An empty set counts as a label of its own.
    """
    a, b = _shares(first), _shares(second)
    agreement = (a * b).sum(1, keepdims=True)

    def statistic(weights: np.ndarray) -> np.ndarray:
        expected = (_means(weights, a) * _means(weights, b)).sum(1, keepdims=True)
        return adjusted(_means(weights, agreement), expected)

    return statistic


def cohen_kappas(first: np.ndarray, second: np.ndarray) -> Statistic:
    """Cohen's (1960) kappa of every label, given or not, ``(n_samples, n_labels, 3)``."""
    same = first == second

    def statistic(weights: np.ndarray) -> np.ndarray:
        a, b = _means(weights, first), _means(weights, second)
        return adjusted(_means(weights, same), a * b + (1 - a) * (1 - b))

    return statistic


def pooled_cohen_kappa(first: np.ndarray, second: np.ndarray) -> Statistic:
    """Cohen's (1960) kappa of label presence, ``(n_samples, 1, 3)``: every pair of item and label is a subject."""

    def statistic(weights: np.ndarray) -> np.ndarray:
        a, b, observed = (_means(weights, x).mean(1, keepdims=True) for x in (first, second, first == second))
        return adjusted(observed, a * b + (1 - a) * (1 - b))

    return statistic


def fleiss_kappas(given: np.ndarray) -> Statistic:
    """Fleiss' (1971) kappa of label presence, ``(n_samples, 1 + n_labels, 3)``: all labels pooled, then each.

    Pooled, every pair of item and label is a subject that each annotator rates as present or absent. With two
    annotators, Fleiss' kappa is Scott's pi.

    Args:
        given: ``(n_annotators, n_items, n_labels)``; every annotator labelled every item.
    """
    n, present = len(given), given.sum(axis=0)
    same = (present**2 + (n - present) ** 2 - n) / (n * (n - 1))

    def statistic(weights: np.ndarray) -> np.ndarray:
        observed, share = _means(weights, same), _means(weights, present / n)
        observed, share = (np.concatenate([x.mean(1, keepdims=True), x], axis=1) for x in (observed, share))
        return adjusted(observed, share**2 + (1 - share) ** 2)

    return statistic


def krippendorff_alpha(given: np.ndarray, known: np.ndarray, distance: Distance) -> Statistic:
    """Krippendorff's (1980) alpha of label sets, ``(n_samples, 1, 3)``, with o and e 1 minus mean distances.

    Items with fewer than two annotations do not count, others as they are: annotations may be missing.

    Args:
        given: ``(n_annotators, n_items, n_labels)``.
        known: whether an annotator annotated an item, ``(n_annotators, n_items)``.
        distance: :func:`masi` or :func:`jaccard`.
    """
    per_item = known.sum(axis=0)
    counted = known & (per_item >= 2)
    sets, index = np.unique(given[counted], axis=0, return_inverse=True)
    blocks = np.array_split(sets, len(sets) // _ROWS + 1)
    apart = np.concatenate([distance(block, sets) for block in blocks])
    which = np.zeros(known.shape, dtype=int)
    which[counted] = index
    counts = csr_array((np.ones(counted.sum()), (counted.nonzero()[1], index)), shape=(known.shape[1], len(sets)))
    pairs = combinations(range(len(known)), 2)
    summed = sum((apart[which[a], which[b]] * (counted[a] & counted[b]) for a, b in pairs), np.zeros(known.shape[1]))
    disagreement = 2 * summed / np.maximum(per_item - 1, 1)

    def statistic(weights: np.ndarray) -> np.ndarray:
        of_sets = weights @ counts
        n = of_sets.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            observed = (weights @ disagreement) / n
            expected = ((of_sets @ apart) * of_sets).sum(axis=1) / (n * (n - 1))
        return adjusted(1 - observed[:, None], 1 - expected[:, None])

    return statistic


def jaccard(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """1 - |A∩B|/|A∪B|, and 0 where both are empty."""
    shared, a, b = _sizes(first, second)
    union = a + b - shared
    return np.asarray(np.where(union > 0, 1 - shared / np.maximum(union, 1), 0.0))


def masi(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Passonneau's (2006) distance for measuring agreement on set-valued items, and 0 where both are empty.

    1 minus Jaccard's similarity times 1 for equal sets, 2/3 where one holds the other, 1/3 where they meet otherwise.
    """
    shared, a, b = _sizes(first, second)
    alike = np.select([shared == np.maximum(a, b), shared == np.minimum(a, b)], [1, 2 / 3], 1 / 3)
    return np.asarray(1 - (1 - jaccard(first, second)) * alike)


def adjusted(observed: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Observed, expected, and (o - e) / (1 - e), stacked on a last axis."""
    left = np.where(expected < 1 - 1e-12, 1 - expected, np.nan)
    more = np.where(np.abs(observed - expected) < 1e-12, 0.0, observed - expected)
    return np.stack([observed, expected, more / left], axis=-1)


def _means(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Means over items of ``(n_items, k)`` in each sample, ``(n_samples, k)``."""
    with np.errstate(invalid="ignore"):
        return np.asarray(weights @ values.astype(float) / weights.sum(1, keepdims=True))


def _shares(given: np.ndarray) -> np.ndarray:
    """1/k for each of the k labels of an item; the last column is the empty set."""
    empty = ~given.any(axis=1, keepdims=True)
    extended = np.concatenate([given, empty], axis=1)
    return np.asarray(extended / extended.sum(1, keepdims=True))


def _sizes(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """|A∩B| of every two sets, |A| and |B|, of shapes that broadcast."""
    a, b = first.astype(float), second.astype(float)
    return a @ b.T, a.sum(axis=1)[:, None], b.sum(axis=1)

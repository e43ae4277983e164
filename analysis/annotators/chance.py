"""What agreement of label sets is expected by chance: each annotator draws how many labels, and then which, at random.

The chance model is that of Marchal, Scholman, Yung and Demberg (2022, "Establishing annotation quality in multi-label
annotations"): for an item an annotator draws a number of labels as often as it gave so many, and then so many
different labels one after the other, each with a probability in proportion to how often it gave that label. They
simulate it; here the expected values are computed.

Drawing k different labels one after the other is the same as waiting for the first k of independent clocks, where that
of label l rings at a time that is exponential with rate p_l (Efraimidis & Spirakis, 2006). Given the times, labels are
independent, so that what remains is an integral over one time, or two for what joins two annotators.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MEASURES = ("match", "precision", "recall", "f1")
"""Of two label sets A and B: 1 where they meet; |A∩B|/|B|; |A∩B|/|A|; 2|A∩B|/(|A|+|B|).

All are 1 where both sets are empty, and 0 where one is.
"""

FINE, COARSE = 0.4, 0.7
"""Steps of the trapezoid rule, for 8 digits and for 3. The integrands are analytic and die out doubly exponentially, so
that it converges fast."""
_CHANGE = 1e-3
"""Relative step of derivatives that are taken by differences."""


class Habits(NamedTuple):
    """How an annotator labels, whatever the item: ``sizes[k]`` is the share of its items with k labels, ``labels[l]``
    the share of label l in all labels that it gave. Shapes ``(max_size + 1,)`` and ``(n_labels,)``, or both with a
    leading axis of samples."""

    sizes: np.ndarray
    labels: np.ndarray


def habits(given: np.ndarray, weights: np.ndarray | None = None) -> Habits:
    """The habits of an annotator that gave the labels ``(n_items, n_labels)``, bool.

    With ``weights`` ``(n_samples, n_items)``, whole numbers, those of each sample of items. Who gave no label at all
    has label shares of 0.
    """
    count = np.ones((1, len(given))) if weights is None else weights
    sizes = given.sum(axis=1)
    by_size = count @ (sizes[:, None] == np.arange(sizes.max(initial=0) + 1)).astype(float)
    by_label = count @ given.astype(float)
    with np.errstate(invalid="ignore"):
        found = Habits(
            by_size / by_size.sum(1, keepdims=True), by_label / np.maximum(by_label.sum(1, keepdims=True), 1)
        )
    return Habits(found.sizes[0], found.labels[0]) if weights is None else found


def expected_agreement(first: Habits, second: Habits) -> np.ndarray:
    """The expected value of every measure of :data:`MEASURES`, ``(4,)``, exact to about 1e-8."""
    table = agreement_by_size(first.labels, second.labels, len(first.sizes) - 1, len(second.sizes) - 1)
    return np.asarray(np.einsum("a,mab,b->m", first.sizes, table, second.sizes))


def agreement_by_size(p: np.ndarray, q: np.ndarray, max_a: int, max_b: int, *, step: float = FINE) -> np.ndarray:
    """Expected measures of a set of a labels drawn by ``p`` and one of b drawn by ``q``, ``(4, max_a + 1, max_b + 1)``.

    A set can have no more labels than have a share; the values of larger ones mean nothing.
    """
    shared = _inclusion(p, max_a, step).T @ _inclusion(q, max_b, step)
    a, b = np.arange(max_a + 1.0)[:, None], np.arange(max_b + 1.0)[None, :]
    apart = _disjoint(p, q, max_a, max_b, step)
    table = np.stack([1 - apart, *(shared / np.maximum(n, 1) for n in (b, a)), 2 * shared / np.maximum(a + b, 1)])
    table[:, 0, :] = table[:, :, 0] = 0
    table[:, 0, 0] = 1
    return np.asarray(np.clip(table, 0, 1))


def expected_slopes(first: Habits, second: Habits) -> np.ndarray:
    """Derivatives of :func:`expected_agreement` by the label shares of the first, then of the second annotator.

    Shape ``(2 * n_labels, 4)``, to about three digits.
    """
    of_match = _match_slopes(first, second).reshape(-1, 1)
    of_first = _shared_slopes(first, second)
    of_second = _shared_slopes(second, first)[:, [1, 0, 2]]
    return np.concatenate([of_match, np.concatenate([of_first, of_second])], axis=1)


def _shared_slopes(first: Habits, second: Habits) -> np.ndarray:
    """Derivatives of precision, recall and F1 by the label shares of the first, ``(n_labels, 3)``, by differences."""
    max_a, max_b = len(first.sizes) - 1, len(second.sizes) - 1
    a, b = np.arange(max_a + 1.0)[:, None], np.arange(max_b + 1.0)[None, :]
    by_size = np.stack([first.sizes[:, None] * second.sizes / np.maximum(n, 1) for n in (b, a, (a + b) / 2)])
    of_first = np.einsum("mab,lb->mla", by_size, _inclusion(second.labels, max_b, COARSE))
    at = _inclusion(first.labels, max_a, COARSE)
    slopes = np.zeros((len(first.labels), 3))
    for label in np.flatnonzero(first.labels):
        moved = first.labels.copy()
        moved[label] *= 1 + _CHANGE
        change = _inclusion(moved, max_a, COARSE) - at
        slopes[label] = np.einsum("mla,la->m", of_first, change) / (moved[label] - first.labels[label])
    return slopes


def _inclusion(p: np.ndarray, max_size: int, step: float) -> np.ndarray:
    """The probability that label l is among the first k drawn, ``(n_labels, max_size + 1)``.

    It rings at t while fewer than k of the others have; their number is Poisson-binomial.
    """
    t, dt = _times(p, step)
    others = np.where(np.eye(len(p), dtype=bool), 0.0, p)
    rung = np.zeros((len(p), max_size, len(t)))
    rung[:, :1] = 1
    for rates in others.T:
        waits = np.exp(-np.multiply.outer(rates, t))[:, None]
        new = rung * waits
        new[:, 1:] += rung[:, :-1] * (1 - waits)
        rung = new
    rings = p[:, None] * np.exp(-np.multiply.outer(p, t)) * dt
    probability = np.einsum("lkt,lt->lk", rung, rings).cumsum(axis=1)
    return np.concatenate([np.zeros((len(p), 1)), probability], axis=1)


def _disjoint(p: np.ndarray, q: np.ndarray, max_a: int, max_b: int, step: float) -> np.ndarray:
    """The probability that no label is among the first a drawn by ``p`` and the first b drawn by ``q``, for every a, b.

    A set is the first a where one of it rings at s, the rest of it did before and no other label did. ``found`` holds
    the sum over all pairs of disjoint sets among the labels so far: its axes are whether the label that rings at s is
    there, the same for the other annotator at t, the sizes of the two sets, s and t.
    """
    (s, ds), (t, dt) = _times(p, step), _times(q, step)
    found = _nothing_found(max_a, max_b, len(s), len(t))
    for rate_a, rate_b in zip(p, q, strict=True):
        found = _with_label(found, _states(rate_a, s), _states(rate_b, t))
    apart = np.asarray(np.einsum("abst,s,t->ab", found[1, 1], ds, dt))
    apart[0, :] = apart[:, 0] = 1
    return apart


def _match_slopes(first: Habits, second: Habits) -> np.ndarray:
    """Derivatives of the expected match by the label shares of both, ``(2, n_labels)``: one pass to and one back."""
    (s, ds), (t, dt) = (_times(one.labels, COARSE) for one in (first, second))
    rates = list(zip(first.labels, second.labels, strict=True))
    found = [_nothing_found(len(first.sizes) - 1, len(second.sizes) - 1, len(s), len(t))]
    for rate_a, rate_b in rates[:-1]:
        found.append(_with_label(found[-1], _states(rate_a, s), _states(rate_b, t)))
    back = np.zeros_like(found[0])
    weights = np.multiply.outer(np.multiply.outer(first.sizes[1:], second.sizes[1:]), np.multiply.outer(ds, dt))
    back[1, 1, 1:, 1:] = -weights
    slopes = np.zeros((2, len(rates)))
    for label in reversed(range(len(rates))):
        (rate_a, rate_b), before = rates[label], found.pop()
        a, b = _states(rate_a, s), _states(rate_b, t)
        slopes[0, label] = (back * _with_label(before, _state_slopes(rate_a, s), b)).sum()
        slopes[1, label] = (back * _with_label(before, a, _state_slopes(rate_b, t))).sum()
        back = _transposed(back, a, b)
    return slopes


class _States(NamedTuple):
    """The factors of a label that has not rung at a time, that has, and that rings then; ``(n_nodes,)`` each."""

    waits: np.ndarray
    rung: np.ndarray
    rings: np.ndarray


def _states(rate: float, t: np.ndarray) -> _States:
    waits = np.exp(-rate * t)
    return _States(waits, 1 - waits, rate * waits)


def _state_slopes(rate: float, t: np.ndarray) -> _States:
    waits = np.exp(-rate * t)
    return _States(-t * waits, t * waits, (1 - rate * t) * waits)


def _nothing_found(max_a: int, max_b: int, n_s: int, n_t: int) -> np.ndarray:
    found = np.zeros((2, 2, max_a + 1, max_b + 1, n_s, n_t))
    found[0, 0, 0, 0] = 1
    return found


def _with_label(found: np.ndarray, a: _States, b: _States) -> np.ndarray:
    """One label more: it is in neither set, in the first, or in the second, never in both."""
    in_neither = found * a.waits[:, None]
    in_first, in_second = np.zeros_like(found), np.zeros_like(found)
    in_first[:, :, 1:] = found[:, :, :-1] * a.rung[:, None]
    in_first[1, :, 1:] += found[0, :, :-1] * a.rings[:, None]
    in_second[:, :, :, 1:] = in_neither[:, :, :, :-1] * b.rung
    in_second[:, 1, :, 1:] += in_neither[:, 0, :, :-1] * b.rings
    return np.asarray((in_neither + in_first) * b.waits + in_second)


def _transposed(back: np.ndarray, a: _States, b: _States) -> np.ndarray:
    """:func:`_with_label` as a matrix, transposed: from the weights of its result to those of what it was given."""
    of_neither, of_first = back * b.waits, back * b.waits
    of_neither[:, :, :, :-1] += back[:, :, :, 1:] * b.rung
    of_neither[:, 0, :, :-1] += back[:, 1, :, 1:] * b.rings
    given = of_neither * a.waits[:, None]
    given[:, :, :-1] += of_first[:, :, 1:] * a.rung[:, None]
    given[0, :, :-1] += of_first[1, :, 1:] * a.rings[:, None]
    return np.asarray(given)


def _times(p: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of an integral over the time from 0 on, ``(n_nodes,)`` each (Takahasi & Mori, 1974)."""
    slowest = p[p > 0].min(initial=1.0)
    w = np.arange(-3.4, np.log(25 / slowest) + step, step)
    t = np.exp(w - np.exp(-w))
    return t, t * (1 + np.exp(-w)) * step

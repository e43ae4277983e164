"""Expected agreement: computed integrals against sums over every order of drawing, and against drawing itself."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from xai.analysis.annotators.chance import Habits, agreement_by_size, expected_agreement, expected_slopes, habits
from xai.analysis.annotators.multilabel import set_agreement

SHARES = [
    (np.array([0.5, 0.3, 0.1, 0.08, 0.02]), np.array([0.05, 0.15, 0.4, 0.3, 0.1])),
    (np.array([0.9, 0.05, 0.03, 0.02, 0.0]), np.array([0.2, 0.2, 0.2, 0.2, 0.2])),
    (np.array([0.999, 0.0005, 0.0003, 0.0001, 0.0001]), np.array([0.25, 0.0, 0.25, 0.25, 0.25])),
]


def sets_in_order(shares: np.ndarray, size: int) -> Counter[tuple[bool, ...]]:
    """The probability of every set of so many labels: the sum over all orders in which it can be drawn."""
    found: Counter[tuple[bool, ...]] = Counter()
    for order in permutations(np.flatnonzero(shares), size):
        probability, left = 1.0, shares.sum()
        for label in order:
            probability *= shares[label] / left
            left -= shares[label]
        found[tuple(np.isin(np.arange(len(shares)), order).tolist())] += probability
    return found


@pytest.mark.parametrize(("p", "q"), SHARES)
def test_the_expected_values_are_the_sums_over_every_order_of_drawing(p: np.ndarray, q: np.ndarray) -> None:
    computed = agreement_by_size(p, q, 4, 4)
    for a in range(5):
        for b in range(5):
            first, second = sets_in_order(p, a), sets_in_order(q, b)
            pairs = [(x, y, px * py) for x, px in first.items() for y, py in second.items()]
            values = set_agreement(np.array([x for x, _, _ in pairs]), np.array([y for _, y, _ in pairs]))
            summed = np.array([weight for _, _, weight in pairs]) @ values[:, :4]
            assert computed[:, a, b] == pytest.approx(summed, abs=1e-7)


def test_with_one_label_each_it_is_the_chance_that_two_draws_are_the_same() -> None:
    p, q = SHARES[0]
    one = np.array([0.0, 1.0])
    assert expected_agreement(Habits(one, p), Habits(one, q)) == pytest.approx([p @ q] * 4, abs=1e-8)


def test_empty_sets_agree_with_each_other_alone() -> None:
    p, q = SHARES[0]
    expected = expected_agreement(Habits(np.array([0.3, 0.0, 0.7]), p), Habits(np.array([0.2, 0.8]), q))
    both_filled = agreement_by_size(p, q, 2, 1)[:, 2, 1]
    assert expected == pytest.approx(0.3 * 0.2 + 0.7 * 0.8 * both_filled)


def test_who_gives_every_label_always_meets_the_other() -> None:
    p, q = SHARES[0]
    every, two = np.eye(6)[5], np.eye(6)[2]
    assert expected_agreement(Habits(every, p), Habits(two, q)) == pytest.approx([1, 1, 2 / 5, 4 / 7], abs=1e-7)


def test_swapping_the_annotators_swaps_precision_and_recall() -> None:
    p, q = SHARES[0]
    first, second = Habits(np.array([0.1, 0.5, 0.4]), p), Habits(np.array([0.2, 0.2, 0.3, 0.3]), q)
    there, back = expected_agreement(first, second), expected_agreement(second, first)
    assert there == pytest.approx(back[[0, 2, 1, 3]], abs=1e-8)


def test_drawing_comes_to_the_same_within_its_error() -> None:
    rng = np.random.default_rng(3)
    given = rng.random((2, 60, 12)) < np.linspace(0.02, 0.4, 12)
    given[:, :, 0] = True
    drawn = np.zeros((2, 5_000, 12), dtype=bool)
    for annotator in range(2):
        sizes, shares = given[annotator].sum(1), given[annotator].sum(0) / given[annotator].sum()
        for item, n in enumerate(rng.choice(sizes, size=5_000)):
            drawn[annotator, item, rng.choice(12, size=n, replace=False, p=shares)] = True
    values = set_agreement(*drawn)[:, :4]
    error = values.std(axis=0) / np.sqrt(len(values))
    computed = expected_agreement(habits(given[0]), habits(given[1]))
    assert np.all(np.abs(values.mean(axis=0) - computed) < 4 * error)
    assert np.all(error < 0.008)


def test_the_slopes_are_those_of_the_expected_values() -> None:
    p, q = SHARES[0]
    pair = [Habits(np.array([0.1, 0.4, 0.3, 0.2]), p), Habits(np.array([0.2, 0.5, 0.3]), q)]
    slopes = expected_slopes(*pair).reshape(2, len(p), 4)
    for annotator in range(2):
        for label in range(len(p)):
            ends = []
            for change in (-1e-5, 1e-5):
                moved = pair[annotator].labels.copy()
                moved[label] += change
                there = list(pair)
                there[annotator] = Habits(pair[annotator].sizes, moved)
                ends.append(expected_agreement(*there))
            assert slopes[annotator, label] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=0.05, abs=0.005)

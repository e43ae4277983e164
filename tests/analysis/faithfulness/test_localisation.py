"""Measures of localisation equal values worked out by hand, scikit-learn's, and the mean over all orders."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from xai.analysis.faithfulness.localisation import (
    auroc,
    average_precision,
    chance_average_precision,
    mass_accuracy,
    pointing_hit,
    rank_accuracy,
    share_of_units,
)

MEASURES = (pointing_hit, mass_accuracy, rank_accuracy, auroc, average_precision)
BY_SHARE = (pointing_hit, mass_accuracy, rank_accuracy)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Relevance with ties, and a truth that holds of some units and not of others."""
    n = draw(st.integers(2, 12))
    relevance = np.array(draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n)), dtype=float)
    truth = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    assume(0 < truth.sum() < n)
    return relevance, truth


def test_values_worked_out_by_hand() -> None:
    relevance, truth = np.array([5.0, -9.0, 3.0, 2.0, 0.0]), np.array([1, 0, 0, 1, 0], dtype=bool)
    assert pointing_hit(relevance, truth)
    assert mass_accuracy(relevance, truth) == pytest.approx(7 / 10)
    assert rank_accuracy(relevance, truth) == 1 / 2
    # The cause is ahead of the rest in 5 of 6 pairs; it stands at ranks 1 and 3.
    assert auroc(relevance, truth) == pytest.approx(5 / 6)
    assert average_precision(relevance, truth) == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert share_of_units(truth) == 2 / 5


def test_what_speaks_against_the_target_is_not_what_causes_it() -> None:
    relevance, truth = np.array([-7.0, 1.0, 2.0]), np.array([True, False, False])
    assert [float(measure(relevance, truth)) for measure in MEASURES] == [0, 0, 0, 0, pytest.approx(1 / 3)]
    # An all-negative map is ranked like any other; only its mass, which is none, is nowhere.
    relevance = np.array([-1.0, -2.0, -3.0])
    assert [float(measure(relevance, truth)) for measure in MEASURES] == [1, 0, 1, 1, 1]


def test_a_map_of_one_value_finds_nothing() -> None:
    truth = np.array([True, True, False, False])
    for value in (0.0, 2.0):
        relevance = np.full(4, value)
        assert not pointing_hit(relevance, truth)
        assert rank_accuracy(relevance, truth) == 0
        assert auroc(relevance, truth) == 0.5
        assert average_precision(relevance, truth) == 0.5
        assert mass_accuracy(relevance, truth) == (0.5 if value else 0.0)


def test_a_tie_with_a_unit_outside_is_no_hit_and_one_inside_is() -> None:
    relevance = np.array([4.0, 4.0, 1.0])
    assert not pointing_hit(relevance, np.array([True, False, False]))
    assert rank_accuracy(relevance, np.array([True, False, False])) == 0
    assert pointing_hit(relevance, np.array([True, True, False]))
    assert rank_accuracy(relevance, np.array([True, False, True])) == 1 / 2


def test_a_grid_is_a_row_of_cells() -> None:
    relevance, truth = np.array([[1.0, 8.0], [0.0, 3.0]]), np.array([[False, True], [False, False]])
    assert [measure(relevance, truth) for measure in MEASURES] == [
        measure(relevance.ravel(), truth.ravel()) for measure in MEASURES
    ]


@given(cases())
def test_areas_equal_those_of_scikit_learn(case: tuple[np.ndarray, np.ndarray]) -> None:
    relevance, truth = case
    assert auroc(relevance, truth) == pytest.approx(roc_auc_score(truth, relevance))
    assert average_precision(relevance, truth) == pytest.approx(average_precision_score(truth, relevance))


@pytest.mark.parametrize("measure", MEASURES)
@given(case=cases(), factor=st.floats(1e-6, 1e6), order=st.randoms(use_true_random=False))
def test_neither_scale_nor_order_matters_and_values_are_shares(
    measure: object, case: tuple[np.ndarray, np.ndarray], factor: float, order: object
) -> None:
    relevance, truth = case
    value = float(measure(relevance, truth))  # type: ignore[operator]
    places = list(range(len(truth)))
    order.shuffle(places)  # type: ignore[attr-defined]
    assert measure(factor * relevance[places], truth[places]) == pytest.approx(value)  # type: ignore[operator]
    assert 0 <= value <= 1
    perfect = np.where(truth, 1.0, 0.0)
    assert measure(perfect, truth) == 1  # type: ignore[operator]


@pytest.mark.parametrize(("n_units", "n_cause"), [(2, 1), (5, 1), (5, 2), (6, 3), (4, 4), (1, 1)])
def test_chance_is_the_mean_over_all_orders(n_units: int, n_cause: int) -> None:
    truth = np.arange(n_units) < n_cause
    orders = [np.array(order, dtype=float) for order in permutations(range(-1, n_units - 1))]
    if n_units > 1 and n_cause < n_units:
        assert np.mean([auroc(order, truth) for order in orders]) == pytest.approx(0.5)
    positive = n_units > 2
    for measure in BY_SHARE if positive else (pointing_hit, rank_accuracy):
        assert np.mean([measure(order, truth) for order in orders]) == pytest.approx(share_of_units(truth))
    found = np.mean([average_precision(order, truth) for order in orders])
    assert found == pytest.approx(chance_average_precision(n_units, n_cause))


def test_what_cannot_be_measured_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="nothing to find"):
        pointing_hit(np.ones(3), np.zeros(3, dtype=bool))
    with pytest.raises(ValueError, match="one for each unit"):
        auroc(np.ones(3), np.ones(2, dtype=bool))
    with pytest.raises(ValueError, match="NaN"):
        mass_accuracy(np.array([1.0, np.nan]), np.array([True, False]))
    with pytest.raises(ValueError, match="at least one"):
        chance_average_precision(3, 0)
    assert np.isnan(auroc(np.ones(2), np.ones(2, dtype=bool)))

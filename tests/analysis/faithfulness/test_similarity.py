"""Rank correlation equals scipy's, structural similarity the formula by hand and scikit-image's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from xai.analysis.faithfulness.similarity import rank_correlation, structural_similarity

A = np.array([[0.1, 0.5, -0.2, 0.0], [0.9, 1.0, 0.3, -0.4], [0.2, 0.4, 0.0, 0.1], [0.0, -0.6, 0.7, 0.3]])
B = np.array([[0.3, 0.4, -0.1, 0.2], [0.5, 1.0, 0.1, -0.5], [0.0, 0.6, 0.2, 0.2], [-0.3, -0.2, 0.8, 0.0]])

GRIDS = arrays(float, (4, 5), elements=st.floats(-5, 5).map(lambda value: round(value, 2)))


def test_rank_correlation_by_hand() -> None:
    # d = 0, 1, 1, 0: 1 - 6 * 2 / (4 * 15).
    assert rank_correlation(np.array([1.0, 2, 3, 4]), np.array([-9.0, 0, -3, 7])) == pytest.approx(0.8)
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([9.0, 4, -1])) == pytest.approx(-1)


def test_structural_similarity_of_one_window_is_the_formula() -> None:
    a = np.array([[1.0, -1, 1], [-1, 1, -1], [1, -1, 1]])
    b = np.array([[2.0, 2, 2], [0, 0, 0], [0, 0, 0]])
    # On the grey scale a is 1 (five times) and 0, b is 1 (three times) and 1/2.
    mean_a, mean_b = 5 / 9, 2 / 3
    variance_a, variance_b, covariance = 20 / 9 / 8, 1 / 2 / 8, (2 + 1 / 2 * 3 - 9 * mean_a * mean_b) / 8
    luminance = (2 * mean_a * mean_b + 1e-4) / (mean_a**2 + mean_b**2 + 1e-4)
    structure = (2 * covariance + 9e-4) / (variance_a + variance_b + 9e-4)
    assert structural_similarity(a, b) == pytest.approx(luminance * structure)


def test_structural_similarity_is_that_of_scikit_image() -> None:
    # skimage.metrics.structural_similarity 0.26 of the maps on the grey scale, win_size=3, data_range=1.
    assert structural_similarity(A, B) == pytest.approx(0.8771652568731962, abs=1e-12)
    assert structural_similarity(A, -A) == pytest.approx(-0.8450928765901553, abs=1e-12)


@given(GRIDS, GRIDS, st.floats(1e-3, 1e3))
def test_a_positive_factor_changes_nothing_and_values_are_bounded(a: np.ndarray, b: np.ndarray, factor: float) -> None:
    for measure in (rank_correlation, structural_similarity):
        value = measure(a, b)
        assert np.isnan(value) or -1 - 1e-9 <= value <= 1 + 1e-9
        assert measure(factor * a, b) == pytest.approx(value, nan_ok=True)
        assert measure(b, a) == pytest.approx(value, nan_ok=True)
        assert np.isnan(measure(a, a)) or measure(a, a) == pytest.approx(1)


def test_a_map_and_its_negative_are_not_alike() -> None:
    assert rank_correlation(A, -A) == pytest.approx(-1)
    assert structural_similarity(A, -A) < 0


def test_what_is_not_defined_is_nan_and_what_does_not_fit_is_refused() -> None:
    assert np.isnan(rank_correlation(np.array([1.0, 2]), np.array([2.0, 1])))
    assert np.isnan(rank_correlation(np.ones(4), np.arange(4.0)))
    assert np.isnan(structural_similarity(np.ones((2, 9)), np.ones((2, 9))))
    assert np.isnan(structural_similarity(np.zeros((3, 3)), A[:3, :3]))
    with pytest.raises(ValueError, match="no common units"):
        rank_correlation(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="of grids"):
        structural_similarity(np.ones(9), np.ones(9))
    with pytest.raises(ValueError, match="wider dtype"):
        rank_correlation(np.array([1.0, np.nan, 2]), np.ones(3))

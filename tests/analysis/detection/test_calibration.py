"""Calibration errors equal values worked out by hand and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from statsmodels.stats.proportion import proportion_confint

from xai.analysis.detection.calibration import Calibration, calibration, sequence_confidence


def calibrated(confidence: object, right: object, **options: int) -> Calibration:
    found = calibration(confidence, right, **({"n_draws": 50} | options))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_ece_is_the_weighted_gap_of_bins() -> None:
    found = calibrated([0.9, 0.7, 0.2, 0.4], [True, False, False, True], n_bins=2)
    # Two bins: confidences 0.2, 0.4 (one right of two) and 0.7, 0.9 (one right of two).
    assert found.ece.value == pytest.approx(0.5 * abs(0.5 - 0.3) + 0.5 * abs(0.5 - 0.8))
    assert found.brier.value == pytest.approx((0.01 + 0.49 + 0.04 + 0.36) / 4)
    assert (found.n, found.n_unknown, found.n_bins, found.accuracy) == (4, 0, 2, 0.5)
    assert found.bins["n"].tolist() == [2, 2]
    assert found.bins["confidence"].tolist() == pytest.approx([0.3, 0.8])


def test_brier_and_bins_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    said = rng.random(500)
    right = rng.random(500) < said**2
    found = calibrated(said, right)
    assert found.brier.value == pytest.approx(brier_score_loss(right, said))
    accuracy, confidence = calibration_curve(right, said, n_bins=10)
    assert found.bins["accuracy"].tolist() == pytest.approx(accuracy)
    assert found.bins["confidence"].tolist() == pytest.approx(confidence)
    assert found.ece.value == pytest.approx((np.abs(accuracy - confidence) * found.bins["n"]).sum() / 500)
    assert found.ece.low <= found.ece.value <= found.ece.high
    first = found.bins.iloc[0]
    theirs = proportion_confint(right[said < 0.1].sum(), (said < 0.1).sum(), method="wilson")
    assert (first["accuracy_low"], first["accuracy_high"]) == pytest.approx(theirs)


def test_an_edge_belongs_to_the_bin_above_but_1_to_the_last() -> None:
    found = calibrated([0.0, 0.57, 0.29, 1.0], [True] * 4, n_bins=100)
    assert np.flatnonzero(found.bins["n"]).tolist() == [0, 29, 57, 99]
    assert np.isnan(found.bins["accuracy"][1])


def test_answers_without_a_confidence_are_counted_and_left_out() -> None:
    found = calibrated([None, 1.0], [False, True])
    assert (found.n, found.n_unknown, found.accuracy, found.ece.value) == (1, 1, 1.0, 0.0)
    assert calibration([None, None], [True, False]) is None


def test_what_is_no_confidence_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        calibration([85.0], [True])
    with pytest.raises(ValueError, match="2 confidences of 1 answers"):
        calibration([0.1, 0.2], [True])
    with pytest.raises(ValueError, match="at least 1"):
        calibration([0.1], [True], n_bins=0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=20), st.integers(1, 12))
def test_errors_do_not_depend_on_the_order_or_number_of_copies(pairs: list[tuple[float, bool]], n_bins: int) -> None:
    said, right = zip(*pairs, strict=True)
    found = calibrated(said, right, n_bins=n_bins)
    again = calibrated(said[::-1] * 2, right[::-1] * 2, n_bins=n_bins)
    for one, other in ((found.ece, again.ece), (found.brier, again.brier)):
        assert 0 <= one.value <= 1
        assert one.value == pytest.approx(other.value)
    # One bin sees only the gap of the means, which no finer bins can make smaller.
    assert found.ece.value >= abs(found.accuracy - found.confidence) - 1e-12


def test_sequence_confidence_is_the_geometric_mean_of_the_probabilities_of_tokens() -> None:
    log = [np.log(0.5) + np.log(0.125), None, 0.0]
    assert sequence_confidence(log, [2, 3, 0])[0] == pytest.approx(0.25)
    assert np.isnan(sequence_confidence(log, [2, 3, 0])[1:]).all()

"""Intervals, paired tests and corrections equal scipy's and values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from xai.analysis.statistics import bootstrap, compare_paired, holm, mean_interval, weighted_mean

DIFFERENCES = [0.3, -0.1, 0.4, 0.2, 0.0, 0.6, -0.2, 0.5]


def test_the_interval_of_a_mean_is_that_of_scipys_percentile_bootstrap() -> None:
    values = np.random.default_rng(1).normal(2.0, 1.0, 300)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=20_000, rng=0).confidence_interval
    ours = mean_interval(values, n_draws=20_000)
    assert ours.value == pytest.approx(values.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.005)


def test_a_ratio_of_sums_is_drawn_as_a_ratio() -> None:
    hits, n = np.array([1.0, 0, 2, 0]), np.array([1.0, 4, 2, 1])
    (interval,) = bootstrap(lambda weights: ((weights @ hits) / (weights @ n))[:, None], 4)
    assert interval.value == pytest.approx(3 / 8)
    assert interval.low < 3 / 8 < interval.high


def test_the_same_seed_gives_the_same_interval_however_many_draws_fit_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.arange(50.0)
    whole = mean_interval(values, n_draws=200)
    monkeypatch.setattr("xai.analysis.statistics._BLOCK", 50 * 7)
    assert mean_interval(values, n_draws=200) == whole


def test_what_is_not_known_is_left_out_of_a_mean() -> None:
    mean = weighted_mean(np.array([[1.0, np.nan], [3.0, 5.0]]))
    assert mean(np.array([[1.0, 1.0], [3.0, 1.0]])).tolist() == [[2.0, 5.0], [1.5, 5.0]]
    assert np.isnan(mean_interval([np.nan, np.nan])).all()


def test_an_exact_sign_flip_test_is_scipys_permutation_test() -> None:
    first = np.array(DIFFERENCES)
    theirs = stats.permutation_test(
        (first, np.zeros(8)), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf
    )
    ours = compare_paired(first, np.zeros(8))
    assert ours.p == pytest.approx(theirs.pvalue)
    assert ours.difference == pytest.approx(first.mean())


def test_a_drawn_sign_flip_test_is_near_the_exact_one() -> None:
    exact, drawn = (compare_paired(DIFFERENCES, [0.0] * 8, n_draws=n).p for n in (256, 255))
    assert drawn == pytest.approx(exact, abs=0.08)
    assert compare_paired(np.full(60, 0.5), np.zeros(60), n_draws=999).p == pytest.approx(1 / 1000)


def test_the_effect_is_the_difference_of_rank_sums() -> None:
    # Ranks of 0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.6 without the zero; -0.1 has rank 1 and -0.2 rank 2.5.
    assert compare_paired(DIFFERENCES, [0.0] * 8).effect == pytest.approx((28 - 3.5 - 3.5) / 28)


def test_no_difference_is_no_evidence() -> None:
    same = compare_paired([1.0, 2.0], [1.0, 2.0])
    assert (same.p, same.effect, same.difference) == (1.0, 0.0, 0.0)
    assert compare_paired([np.nan], [1.0]).n == 0


def test_pairs_need_as_many_values_on_both_sides() -> None:
    with pytest.raises(ValueError, match="same memes on both sides"):
        compare_paired([1.0], [1.0, 2.0])


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_never_goes_down() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.integers(0, 3))
def test_swapping_the_two_turns_the_sign_and_keeps_p(values: list[float], seed: int) -> None:
    zeros = [0.0] * len(values)
    one, other = compare_paired(values, zeros, seed=seed), compare_paired(zeros, values, seed=seed)
    assert one.p == pytest.approx(other.p)
    assert one.effect == pytest.approx(-other.effect)
    assert one.difference == pytest.approx(-other.difference)

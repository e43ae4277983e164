"""Rank measures against values worked out by hand, scikit-learn, SciPy, and counting."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from xai.analysis.rationale.rankings import (
    RBO_P,
    auroc,
    average_precision,
    expected_jaccard,
    expected_overlap,
    kendall_tau,
    rank_biased_overlap,
    weighted_auroc,
)
from xai.analysis.statistics import bootstrap

LISTS = st.permutations("abcdefgh").flatmap(lambda items: st.integers(0, 8).map(lambda n: items[:n]))
ITEMS = st.lists(st.tuples(st.integers(-3, 3).map(float), st.booleans()), min_size=1, max_size=12)


def infinite_overlap(a: list[str], b: list[str], p: float) -> float:
    """RBO by its definition (an infinite sum) of lists of one length, whose agreement then stays as it is."""
    agreements = [len(set(a[:depth]) & set(b[:depth])) / depth for depth in range(1, len(a) + 1)]
    agreements += [agreements[-1]] * 3000
    return (1 - p) * sum(agreement * p**depth for depth, agreement in enumerate(agreements))


def test_rank_biased_overlap_by_hand() -> None:
    # p = 1/2: agreement 0 at depth 1 and 1 at depth 2: 1/2 / 1/2 * (0 + 1/4) + 1 * 1/4.
    assert rank_biased_overlap("ab", "ba", 0.5) == pytest.approx(0.5)
    # Lists of two lengths; the value is that of the PyPI package rbo 0.1.3.
    assert rank_biased_overlap("abcdefg", "gb", 0.9) == pytest.approx(0.5259201428571428)


@given(st.permutations("abcdefgh"), st.permutations("abcdefgh"), st.integers(1, 8), st.sampled_from([0.5, 0.8, 0.95]))
def test_rank_biased_overlap_is_its_infinite_sum(a: list[str], b: list[str], n: int, p: float) -> None:
    assert rank_biased_overlap(a[:n], b[:n], p) == pytest.approx(infinite_overlap(a[:n], b[:n], p), abs=1e-12)


@given(LISTS, LISTS)
def test_rank_biased_overlap_is_symmetric_bounded_and_full_for_equal_lists(a: list[str], b: list[str]) -> None:
    value = rank_biased_overlap(a, b)
    if not a and not b:
        assert math.isnan(value)
        return
    assert 0 <= value <= 1
    assert value == pytest.approx(rank_biased_overlap(b, a))
    assert not a or rank_biased_overlap(a, a) == pytest.approx(1)
    assert set(a) & set(b) or value == 0


def test_a_short_rationale_that_begins_as_the_relevance_does_agrees_fully() -> None:
    assert rank_biased_overlap("abcdefgh", "a") == pytest.approx(1)
    assert rank_biased_overlap("abcdefgh", "h") < 0.2


def test_the_first_five_ranks_carry_86_percent_of_the_weight() -> None:
    # Lists that agree fully down to depth 5 and on nothing below it, at infinite depth (Webber et al., equation 21).
    p, d = RBO_P, 5
    tail = math.log(1 / (1 - p)) - sum(p**i / i for i in range(1, d))
    assert 1 - p ** (d - 1) + (1 - p) / p * d * tail == pytest.approx(0.86, abs=0.005)


@pytest.mark.parametrize(("a", "p", "message"), [("ab", 1.0, "between 0 and 1"), ("aa", 0.8, "each item once")])
def test_what_is_no_ranking_is_refused(a: str, p: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank_biased_overlap(a, "ab", p)


def test_kendall_by_hand() -> None:
    # Six pairs, one of them discordant: (5 - 1) / 6.
    assert kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=10))
def test_kendall_is_scipys(pairs: list[tuple[int, int]]) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    expected = stats.kendalltau(a, b).statistic if len(pairs) > 1 else float("nan")
    assert kendall_tau(a, b) == pytest.approx(expected, nan_ok=True)


def test_auroc_and_average_precision_by_hand() -> None:
    values, relevant = [4.0, 3.0, 2.0, 1.0], [True, False, True, False]
    assert auroc(values, relevant) == pytest.approx(3 / 4)
    assert average_precision(values, relevant) == pytest.approx((1 + 2 / 3) / 2)


@given(ITEMS)
def test_auroc_and_average_precision_are_scikit_learns(items: list[tuple[float, bool]]) -> None:
    values, relevant = [v for v, _ in items], [r for _, r in items]
    if any(relevant) and not all(relevant):
        assert auroc(values, relevant) == pytest.approx(roc_auc_score(relevant, values))
        assert auroc(values[::-1], relevant[::-1]) == pytest.approx(auroc(values, relevant))
    else:
        assert math.isnan(auroc(values, relevant))
    if any(relevant):
        assert average_precision(values, relevant) == pytest.approx(average_precision_score(relevant, values))
    else:
        assert math.isnan(average_precision(values, relevant))


@given(ITEMS, st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_weights_count_an_item_as_often_as_if_it_stood_there_so_often(
    items: list[tuple[float, bool]], weights: list[int]
) -> None:
    values, relevant = np.array([v for v, _ in items]), np.array([r for _, r in items])
    times = np.array(weights[: len(items)])
    repeated = auroc(np.repeat(values, times).tolist(), np.repeat(relevant, times).tolist())
    (found,) = weighted_auroc(values, relevant)(times[None].astype(float))[0]
    assert found == pytest.approx(repeated, nan_ok=True)


def test_the_interval_of_an_auroc_is_over_owners() -> None:
    values, relevant, owner = (
        np.array([3.0, 1.0, 2.0, 0.0]),
        np.array([True, False, True, False]),
        np.array([0, 0, 1, 1]),
    )
    interval = bootstrap(weighted_auroc(values, relevant, owner), 2)[0]
    # Either owner twice: its relevant item wins. Both: all four pairs are won.
    assert tuple(interval) == (1, 1, 1)


@pytest.mark.parametrize(
    ("n", "present", "k", "named"), [(6, 2, 2, 3), (5, 5, 3, 5), (7, 0, 3, 2), (8, 3, 0, 3), (4, 3, 3, 4)]
)
def test_chance_is_the_mean_over_all_draws(n: int, present: int, k: int, named: int) -> None:
    rationale = set(range(present)) | {f"invented {i}" for i in range(named - present)}
    draws = [set(draw) for draw in combinations(range(n), k)]
    jaccards = [len(draw & rationale) / len(draw | rationale) for draw in draws]
    assert expected_jaccard(n, present, k, named) == pytest.approx(np.mean(jaccards))
    assert expected_overlap(n, present, k) == pytest.approx(np.mean([len(draw & rationale) for draw in draws]))


def test_counts_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        expected_jaccard(3, 4, 2, 4)

"""Differences, their intervals and the swap test equal brute force and scipy's permutation test."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from scipy import stats

from xai.analysis.detection.comparison import compare, swap_test
from xai.analysis.detection.labelsets import LabelSets
from xai.analysis.detection.scores import exact

from .labelled import NAMES, drawn_sets, matrices, measured


def two_answers(n: int, seed: int = 0) -> tuple[LabelSets, LabelSets]:
    """Two answers to the same memes, the second worse."""
    first, noise = drawn_sets(seed, n), drawn_sets(seed + 1, n)
    return first, LabelSets(NAMES, first.gold, np.where(noise.predicted, first.predicted, noise.gold))


def by_measure(frame: pd.DataFrame, kind: str, measure: str) -> pd.Series:
    return frame.set_index(["kind", "measure", "name"]).loc[(kind, measure, "")]


def test_few_memes_have_an_exact_p_that_brute_force_gives() -> None:
    first, second = two_answers(7)
    found = by_measure(compare(measured(first), measured(second)), "hierarchical", "micro_f1")
    differences = []
    for swapped in product([False, True], repeat=7):
        turn = np.array(swapped)[:, None]
        one = LabelSets(NAMES, first.gold, np.where(turn, second.predicted, first.predicted))
        other = LabelSets(NAMES, first.gold, np.where(turn, first.predicted, second.predicted))
        micro = [measured(sets).values()["hierarchical", "micro_f1", ""] for sets in (one, other)]
        differences.append(micro[0] - micro[1])
    assert found["difference"] == pytest.approx(differences[0])
    assert found["p"] == pytest.approx(np.mean(np.abs(differences) >= abs(differences[0]) - 1e-12))


def test_p_of_subset_accuracy_is_scipys() -> None:
    first, second = two_answers(12)
    theirs = stats.permutation_test(
        (exact(first).astype(float), exact(second).astype(float)),
        lambda x, y: np.mean(x) - np.mean(y),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=False,
    )
    found = by_measure(compare(measured(first), measured(second), n_swaps=5000), "flat", "subset_accuracy")
    assert found["p"] == pytest.approx(theirs.pvalue, abs=0.02)
    assert found["difference"] == pytest.approx(theirs.statistic)


def test_drawn_swaps_are_near_all_swaps() -> None:
    first, second = (measured(sets) for sets in two_answers(20))
    n_exact = 2 ** int((first.columns != second.columns).any(axis=1).sum())
    exact_p, drawn_p = (swap_test(first, second, n_swaps=n) for n in (n_exact, n_exact - 1))
    np.testing.assert_allclose(drawn_p, exact_p, atol=0.05)
    assert not np.array_equal(exact_p, drawn_p, equal_nan=True)


def test_an_answer_that_is_always_right_beats_one_that_is_always_wrong() -> None:
    gold = np.eye(4, dtype=bool)[np.arange(60) % 4]
    right, wrong = LabelSets(NAMES, gold, gold), LabelSets(NAMES, gold, np.roll(gold, 1, axis=1))
    found = by_measure(compare(measured(right), measured(wrong), n_swaps=999), "flat", "micro_f1")
    assert found["p"] == pytest.approx(1 / 1000)
    assert (found["difference"], found["difference_low"], found["difference_high"]) == (1, 1, 1)


def test_a_constant_lead_has_an_interval_that_leaves_out_0() -> None:
    first, second = two_answers(200)
    found = by_measure(compare(measured(first), measured(second), n_swaps=200), "flat", "micro_f1")
    assert 0 < found["difference_low"] < found["difference"] < found["difference_high"]
    assert found["difference"] == pytest.approx(found["first"] - found["second"])
    # A pair is drawn as a pair: two answers that are the same differ by nothing in every draw.
    same = by_measure(compare(measured(first), measured(first), n_swaps=200), "flat", "micro_f1")
    assert (same["difference_low"], same["difference_high"], same["p"]) == (0, 0, 1)


@settings(max_examples=25, deadline=None)
@given(matrices(5))
def test_exchanging_the_two_turns_the_sign_and_keeps_p(sets: LabelSets) -> None:
    mirrored = LabelSets(NAMES, sets.gold, sets.predicted[:, ::-1])
    first, second = measured(sets), measured(mirrored)
    one, other = compare(first, second, n_draws=5), compare(second, first, n_draws=5)
    np.testing.assert_allclose(one["difference"], -other["difference"])
    np.testing.assert_allclose(one["p"], other["p"])
    turned = compare(*(measured(one.of(range(len(sets))[::-1])) for one in (sets, mirrored)), n_draws=5)
    np.testing.assert_allclose(turned["p"], one["p"])


def test_different_memes_or_labels_are_not_compared() -> None:
    first, second = two_answers(5)
    with pytest.raises(ValueError, match="5 and 4 memes"):
        compare(measured(first), measured(second.of(range(4))))

"""Coefficients of agreement: values worked out by hand, other libraries, and what must hold of any annotations."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.metrics.agreement import AnnotationTask
from nltk.metrics.distance import jaccard_distance, masi_distance
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

from xai.analysis.annotators.chance import expected_agreement, habits
from xai.analysis.annotators.multilabel import (
    PER_ITEM,
    Distance,
    augmented_kappa,
    bootstrapped_agreement,
    cohen_kappas,
    fleiss_kappas,
    jaccard,
    krippendorff_alpha,
    masi,
    set_agreement,
)
from xai.analysis.statistics import Statistic

LABELS = "abcd"
label_sets = st.frozensets(st.sampled_from(LABELS), max_size=4)
pairs_of_sets = st.lists(st.tuples(label_sets, label_sets), min_size=2, max_size=12)


def matrix(sets: list[str] | list[frozenset[str]]) -> np.ndarray:
    return np.array([[label in found for label in LABELS] for found in sets], dtype=bool)


def value(statistic: Statistic, n: int) -> np.ndarray:
    return statistic(np.ones((1, n)))[0]


def random_sets(seed: int, n: int, share: float = 0.35) -> list[frozenset[str]]:
    drawn = np.random.default_rng(seed).random((n, len(LABELS))) < share
    return [frozenset(label for label, there in zip(LABELS, row, strict=True) if there) for row in drawn]


def test_the_measures_of_an_item_are_those_of_its_two_sets() -> None:
    first = matrix(["a", "abc", "ab", "a", "", ""])
    second = matrix(["a", "a", "bcd", "b", "b", ""])
    expected = {
        "match": [1, 1, 1, 0, 0, 1],
        "precision": [1, 1, 1 / 3, 0, 0, 1],
        "recall": [1, 1 / 3, 1 / 2, 0, 0, 1],
        "f1": [1, 1 / 2, 2 / 5, 0, 0, 1],
        "jaccard": [1, 1 / 3, 1 / 4, 0, 0, 1],
        "exact": [1, 0, 0, 0, 0, 1],
    }
    found = dict(zip(PER_ITEM, set_agreement(first, second).T, strict=True))
    for name, values in expected.items():
        assert found[name] == pytest.approx(values), name


def test_augmented_kappa_worked_out_by_hand() -> None:
    first, second = matrix(["a", "ab"]), matrix(["a", "b"])
    # o = (1 + 1/2) / 2; the first gives a 3/4 and b 1/4 of its weight, the second each 1/2.
    assert value(augmented_kappa(first, second), 2)[0] == pytest.approx([3 / 4, 1 / 2, 1 / 2])


def test_augmented_kappa_of_single_labels_is_cohens_kappa() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 4, 50)
    second = np.where(rng.random(50) < 0.5, first, rng.integers(0, 4, 50))
    ours = value(augmented_kappa(np.eye(4, dtype=bool)[first], np.eye(4, dtype=bool)[second]), 50)[0, 2]
    assert ours == pytest.approx(cohen_kappa_score(first, second))


def test_equal_sets_of_two_labels_count_half_in_augmented_kappa() -> None:
    both = matrix(["ab", "cd"])
    assert value(augmented_kappa(both, both), 2)[0] == pytest.approx([1 / 2, 1 / 4, 1 / 3])


@given(pairs_of_sets)
def test_cohens_kappa_of_every_label_is_scikit_learns(pairs: list[tuple[frozenset[str], frozenset[str]]]) -> None:
    first, second = (matrix(list(sets)) for sets in zip(*pairs, strict=True))
    ours = value(cohen_kappas(first, second), len(pairs))[:, 2]
    for label in range(len(LABELS)):
        a, b = first[:, label], second[:, label]
        if len({*a, *b}) == 1:  # only one answer: chance agrees in full, and kappa is not defined
            assert np.isnan(ours[label])
        else:
            assert ours[label] == pytest.approx(cohen_kappa_score(a, b), abs=1e-12)


@pytest.mark.parametrize("n_annotators", [2, 3, 5])
def test_fleiss_kappa_is_statsmodels_for_every_label_and_for_all_together(n_annotators: int) -> None:
    given = np.stack([matrix(random_sets(seed, 40)) for seed in range(n_annotators)])
    found = value(fleiss_kappas(given), 40)[:, 2]
    ratings = given.transpose(1, 2, 0).astype(int)
    subjects = [ratings.reshape(-1, n_annotators), *(ratings[:, label] for label in range(len(LABELS)))]
    assert found == pytest.approx([fleiss_kappa(aggregate_raters(rows)[0]) for rows in subjects])


@pytest.mark.parametrize(("ours", "theirs"), [(masi, masi_distance), (jaccard, jaccard_distance)])
def test_alpha_is_nltks_also_where_annotations_are_missing(ours: Distance, theirs: Any) -> None:
    sets = np.array([[labels or frozenset("a") for labels in random_sets(seed, 30)] for seed in range(3)], dtype=object)
    known = np.random.default_rng(1).random((3, 30)) > 0.2
    assert (known.sum(axis=0) == 1).any()
    triples = [(c, i, sets[c, i]) for c, i in zip(*known.nonzero(), strict=True)]
    given = np.stack([matrix(row.tolist()) for row in sets]) & known[:, :, None]
    found = value(krippendorff_alpha(given, known, ours), 30)[0]
    assert found[2] == pytest.approx(AnnotationTask(triples, distance=theirs).alpha())
    assert found[2] == pytest.approx((found[0] - found[1]) / (1 - found[1]))


@pytest.mark.parametrize(("ours", "theirs"), [(masi, masi_distance), (jaccard, jaccard_distance)])
def test_the_distance_of_any_two_sets_is_nltks_and_0_of_two_empty_ones(ours: Distance, theirs: Any) -> None:
    every = [frozenset(labels) for size in range(5) for labels in combinations(LABELS, size)]
    table = ours(matrix(every), matrix(every))
    assert table[0, 0] == 0
    for i, a in enumerate(every):
        for j, b in enumerate(every):
            assert i == j == 0 or table[i, j] == pytest.approx(theirs(a, b)), (a, b)


def statistics(first: list[frozenset[str]], second: list[frozenset[str]]) -> dict[str, Statistic]:
    a, b = matrix(first), matrix(second)
    return {
        "augmented kappa": augmented_kappa(a, b),
        "Cohen's kappa": cohen_kappas(a, b),
        "Fleiss' kappa": fleiss_kappas(np.stack([a, b])),
        "alpha": krippendorff_alpha(np.stack([a, b]), np.full((2, len(a)), True), masi),
        "bootstrapped": bootstrapped_agreement(a, b),
    }


@pytest.mark.parametrize("name", ["augmented kappa", "Cohen's kappa", "Fleiss' kappa", "alpha"])
def test_a_weight_counts_an_item_as_often(name: str) -> None:
    first, second = random_sets(0, 25), random_sets(1, 25)
    weights = np.random.default_rng(2).integers(0, 4, 25)
    repeated = [np.repeat(np.array(sets, dtype=object), weights).tolist() for sets in (first, second)]
    weighted = statistics(first, second)[name](weights[None].astype(float))[0]
    assert weighted == pytest.approx(value(statistics(*repeated)[name], len(repeated[0])))


def test_the_expected_values_of_a_sample_of_items_are_those_of_the_sample_to_first_order() -> None:
    first, second = matrix(random_sets(0, 150)), matrix(random_sets(1, 150))
    statistic = bootstrapped_agreement(first, second)
    base = value(statistic, 150)
    rng = np.random.default_rng(2)
    for _ in range(5):
        drawn = rng.integers(0, 150, 150)
        found = statistic(np.bincount(drawn, minlength=150)[None].astype(float))[0]
        exact = expected_agreement(habits(first[drawn]), habits(second[drawn]))
        assert found[:, 0] == pytest.approx(set_agreement(first[drawn], second[drawn])[:, :4].mean(axis=0))
        assert found[:, 1] == pytest.approx(exact, abs=0.003)
        assert np.abs(found[:, 1] - exact).max() < 0.3 * np.abs(base[:, 1] - exact).max()


@settings(deadline=None, max_examples=25)
@given(pairs_of_sets)
@example([(frozenset({"a"}), frozenset({"a"}))] * 2)
def test_no_coefficient_leaves_its_bounds(pairs: list[tuple[frozenset[str], frozenset[str]]]) -> None:
    first, second = (list(sets) for sets in zip(*pairs, strict=True))
    for name, statistic in statistics(first, second).items():
        observed, expected, coefficient = np.moveaxis(value(statistic, len(pairs)), -1, 0)
        assert np.all((observed >= 0) & (observed <= 1 + 1e-9)), name
        assert np.all((np.isnan(expected)) | ((expected >= -1e-9) & (expected <= 1 + 1e-9))), name
        assert np.all(np.isnan(coefficient) | (coefficient <= 1 + 1e-9)), name


@settings(deadline=None, max_examples=25)
@given(pairs_of_sets, st.randoms(use_true_random=False))
def test_neither_the_order_of_items_nor_that_of_the_annotators_matters(
    pairs: list[tuple[frozenset[str], frozenset[str]]], random: object
) -> None:
    first, second = (list(sets) for sets in zip(*pairs, strict=True))
    turned = [(b, a) for a, b in pairs]
    random.shuffle(turned)  # type: ignore[attr-defined]
    there, back = statistics(first, second), statistics(*(list(sets) for sets in zip(*turned, strict=True)))
    for name, statistic in there.items():
        order = [0, 2, 1, 3] if name == "bootstrapped" else slice(None)  # precision and recall change places
        assert value(statistic, len(pairs)) == pytest.approx(
            value(back[name], len(pairs))[order], abs=1e-7, nan_ok=True
        ), name


@settings(deadline=None, max_examples=25)
@given(pairs_of_sets)
def test_every_item_twice_changes_nothing_but_alphas_correction_for_few_annotations(
    pairs: list[tuple[frozenset[str], frozenset[str]]],
) -> None:
    first, second = (list(sets) for sets in zip(*pairs, strict=True))
    once, twice = statistics(first, second), statistics(first * 2, second * 2)
    n = 2 * len(pairs)
    for name, statistic in once.items():
        before, after = value(statistic, len(pairs)), value(twice[name], n)
        if name == "alpha":
            # Expected disagreement is over pairs of different annotations: (n - 1) of n, then (2n - 1) of 2n.
            before[:, 1] = 1 - (1 - before[:, 1]) * 2 * (n - 1) / (2 * n - 1)
            before[:, 2] = 1 - (1 - before[:, 2]) * (2 * n - 1) / (2 * (n - 1))
        assert after == pytest.approx(before, abs=1e-7, nan_ok=True), name


def test_annotators_who_agree_in_full_have_coefficients_of_1() -> None:
    sets = random_sets(4, 30)
    for name, statistic in statistics(sets, sets).items():
        if name != "augmented kappa":  # where sets share an item's weight, equal ones count less than 1
            assert value(statistic, 30)[..., 2] == pytest.approx(1), name


def test_annotators_who_label_at_random_have_coefficients_near_0() -> None:
    first, second = random_sets(5, 4000), random_sets(6, 4000)
    for name, statistic in statistics(first, second).items():
        assert np.abs(value(statistic, 4000)[..., 2]).max() < 0.06, name

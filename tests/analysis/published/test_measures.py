"""Binary and category measures are those of scikit-learn, with answers that claim nothing, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from xai.analysis.published.measures import binary_measures, category_measures, mean_measures, measured, together
from xai.analysis.published.sides import side_of

SIDES = st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from([0, 1, -1])), min_size=1, max_size=12)
ROWS = st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=8)


def values(measures: object) -> dict[str, float]:
    return {name: float(value) for (_, name, _), value in measures.values().items()}  # type: ignore[attr-defined]


def test_binary_measures_by_hand() -> None:
    # Of 3 positive one is found, one called negative and one unparsed; of 2 negative one is found.
    found = values(binary_measures(np.array([0, 0, 0, 1, 1]), np.array([0, 1, -1, 1, 0])))
    assert found["accuracy"] == 2 / 5
    assert (found["precision"], found["recall"]) == pytest.approx((1 / 2, 1 / 3))
    assert found["f1"] == pytest.approx(2 / 5)
    assert found["macro_f1"] == pytest.approx((2 / 5 + 2 / 4) / 2)


@settings(max_examples=200, deadline=None)
@given(SIDES)
def test_binary_measures_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    gold, predicted = np.array(pairs).T
    found = values(binary_measures(gold, predicted))
    rates = metrics.precision_recall_fscore_support(gold, predicted, labels=[0], average=None, zero_division=0)
    assert [found[name] for name in ("precision", "recall", "f1")] == pytest.approx([rate[0] for rate in rates[:3]])
    macro = metrics.f1_score(gold, predicted, labels=[0, 1], average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(macro)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(gold, predicted))


@settings(max_examples=200, deadline=None)
@given(ROWS)
def test_category_measures_are_those_of_scikit_learn(rows: list[list[bool]]) -> None:
    both = np.array(rows)
    gold, predicted, counted = both[:, :3], both[:, 3:6], both[:, 6]
    found = values(category_measures(gold, predicted, counted))
    if not counted.any():
        assert np.isnan(list(found.values())).all()
        return
    gold, predicted = gold[counted], predicted[counted]
    for mean in ("micro", "macro"):
        rates = metrics.precision_recall_fscore_support(gold, predicted, average=mean, zero_division=0)[:3]
        assert [found[f"{mean}_{name}"] for name in ("precision", "recall", "f1")] == pytest.approx(rates)
    assert found["hamming_loss"] == pytest.approx(metrics.hamming_loss(gold, predicted))
    assert found["subset_accuracy"] == pytest.approx(metrics.accuracy_score(gold, predicted))


def test_a_category_that_never_occurs_counts_0_in_the_macro_mean() -> None:
    gold = np.array([[True, False, False]])
    assert values(category_measures(gold, gold))["macro_f1"] == pytest.approx(1 / 3)


def test_a_mean_is_over_what_is_known_and_measures_stand_side_by_side() -> None:
    means = mean_measures("texts", {"a": np.array([1.0, np.nan, 0.0]), "b": np.full(3, np.nan)})
    both = together([binary_measures(np.array([0, 1, 1]), np.array([0, 1, 0])), means])
    found = {(kind, name): value for (kind, name, _), value in both.values().items()}
    assert found["texts", "a"] == 0.5
    assert np.isnan(found["texts", "b"])
    assert found["binary", "accuracy"] == pytest.approx(2 / 3)


def test_intervals_are_of_samples_of_memes_and_hold_the_value() -> None:
    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    interval = measured(binary_measures(gold, predicted), n_draws=500, seed=1)["binary", "accuracy"]
    share = interval.value
    assert share == np.mean(gold == predicted)
    width = 2 * 1.96 * np.sqrt(share * (1 - share) / 200)
    assert interval.high - interval.low == pytest.approx(width, rel=0.15)


def test_an_answer_takes_a_side_only_if_it_names_one_alone() -> None:
    assert side_of(np.array([[1, 0], [0, 1], [1, 1], [0, 0]], dtype=bool)).tolist() == [0, 1, -1, -1]

"""Hierarchical and flat measures equal values worked out by hand and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from xai.analysis.detection.labelsets import LabelSets, label_sets
from xai.analysis.detection.scores import (
    PRF,
    Additive,
    hierarchical_scores,
    intervals,
    measures,
    point_values,
    set_measures,
)

from .labelled import GOLD, NAMES, PREDICTED, drawn_sets, expand, matrices, measured


def test_ancestors_give_partial_credit() -> None:
    scores = hierarchical_scores(GOLD, PREDICTED, expand, none="none", none_label="kept")
    assert scores.n == 4
    assert scores.micro == PRF(pytest.approx(5 / 6), pytest.approx(5 / 7), pytest.approx(10 / 13))
    assert scores.macro == PRF(pytest.approx(4 / 5), pytest.approx(3 / 5), pytest.approx(2 / 3))
    assert scores.sample.f1 == pytest.approx((0.5 + 1 + 0.8 + 1) / 4)
    assert scores.sample.recall == pytest.approx((0.5 + 1 + 2 / 3 + 1) / 4)
    nodes = scores.per_node.set_index("node")
    assert nodes.loc["a1", ["gold", "predicted", "shared"]].tolist() == [2, 1, 1]
    assert nodes["f1"].to_dict() == pytest.approx({"A": 1, "B": 2 / 3, "a1": 2 / 3, "a2": 0, "none": 1})


def test_the_none_label_can_count_as_no_label() -> None:
    scores = hierarchical_scores(GOLD, PREDICTED, expand, none="none", none_label="empty on both sides")
    assert scores.none_label == "empty on both sides"
    assert scores.micro.f1 == pytest.approx(8 / 11)
    assert scores.macro.f1 == pytest.approx(7 / 12)
    assert scores.sample.f1 == pytest.approx((0.5 + 1 + 0.8 + 1) / 4)


def test_the_none_label_can_count_as_no_label_in_gold_only_so_that_answering_it_is_wrong() -> None:
    scores = hierarchical_scores(GOLD, PREDICTED, expand, none="none", none_label="empty in gold only")
    assert scores.micro.f1 == pytest.approx(8 / 12)
    assert scores.macro.f1 == pytest.approx(7 / 15)
    assert scores.sample.f1 == pytest.approx((0.5 + 1 + 0.8 + 0) / 4)


def test_flat_measures_know_no_ancestors() -> None:
    values = set_measures("flat", label_sets(GOLD, PREDICTED)).values().xs("flat")
    assert values["micro_f1", ""] == pytest.approx(2 * 3 / (4 + 5))
    assert values["macro_f1", ""] == pytest.approx((2 / 3 + 2 / 3 + 0 + 1) / 4)
    assert values["subset_accuracy", ""] == pytest.approx(2 / 4)
    assert values["hamming_loss", ""] == pytest.approx(3 / 16)
    assert values["recall", "B"] == pytest.approx(1 / 2)


def test_nothing_there_and_nothing_claimed_is_right() -> None:
    scores = hierarchical_scores([set()], [set()], expand)
    assert scores.micro == scores.sample == PRF(1, 1, 1)
    assert np.isnan(scores.macro.f1)
    assert scores.per_node.empty


@pytest.mark.parametrize(("gold", "predicted"), [({"B"}, set()), (set(), {"B"})])
def test_claiming_without_cause_or_missing_all_scores_nothing(gold: set[str], predicted: set[str]) -> None:
    scores = hierarchical_scores([gold], [predicted], expand)
    assert scores.micro == scores.macro == scores.sample == PRF(0, 0, 0)


def test_sets_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(ValueError, match="1 gold and 0 predicted"):
        hierarchical_scores([set()], [], expand)
    with pytest.raises(ValueError, match="at least 1"):
        hierarchical_scores([], [], expand)
    with pytest.raises(ValueError, match="'c' is no label of the inventory: B, a1, a2, none"):
        label_sets([{"c"}], [set()], NAMES)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["hierarchical", "flat"])
def test_measures_are_those_of_scikit_learn(kind: str, seed: int) -> None:
    flat = drawn_sets(seed)
    sets = flat.expanded(expand) if kind == "hierarchical" else flat
    gold, predicted = sets.gold.astype(int), sets.predicted.astype(int)
    values = measured(flat).values().xs(kind)
    for mean in ("micro", "macro"):
        theirs = metrics.precision_recall_fscore_support(gold, predicted, average=mean, zero_division=0)[:3]
        assert [values[f"{mean}_{name}", ""] for name in ("precision", "recall", "f1")] == pytest.approx(theirs)
    assert values["sample_f1", ""] == pytest.approx(
        metrics.f1_score(gold, predicted, average="samples", zero_division=1)
    )
    assert values["subset_accuracy", ""] == pytest.approx(metrics.accuracy_score(gold, predicted))
    assert values["hamming_loss", ""] == pytest.approx(metrics.hamming_loss(gold, predicted))
    assert values["f1"].to_list() == pytest.approx(metrics.f1_score(gold, predicted, average=None))


@settings(max_examples=30, deadline=None)
@given(matrices(), st.data())
def test_a_meme_that_is_drawn_twice_counts_as_two_memes(sets: LabelSets, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 3), min_size=len(sets), max_size=len(sets)).filter(any))
    drawn = sets.of(np.repeat(np.arange(len(sets)), weights))
    ours = measured(sets).statistic(np.array([weights], dtype=float))[0]
    np.testing.assert_allclose(ours, np.concatenate([point_values(drawn.expanded(expand)), point_values(drawn)]))


@settings(max_examples=30, deadline=None)
@given(matrices())
def test_measures_lie_between_0_and_1_whatever_the_order_of_memes_and_however_often_all_are_there(
    sets: LabelSets,
) -> None:
    values = measured(sets).values()
    known = values.dropna()
    assert ((known >= 0) & (known <= 1)).all()
    n = len(sets)
    for rows in (np.arange(n)[::-1], np.tile(np.arange(n), 3)):
        np.testing.assert_allclose(measured(sets.of(rows)).values(), values, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(matrices())
def test_exchanging_gold_and_answers_exchanges_precision_and_recall_and_keeps_f1(sets: LabelSets) -> None:
    one, other = measured(sets).values(), measured(LabelSets(NAMES, sets.predicted, sets.gold)).values()
    for measure in ("micro_f1", "macro_f1", "sample_f1", "subset_accuracy", "hamming_loss", "f1"):
        np.testing.assert_allclose(one.xs(measure, level="measure"), other.xs(measure, level="measure"))
    for mean in ("micro_", "macro_", "sample_", ""):
        precision = one.xs(f"{mean}precision", level="measure")
        np.testing.assert_allclose(precision, other.xs(f"{mean}recall", level="measure"))


@settings(max_examples=30, deadline=None)
@given(matrices())
def test_without_ancestors_hierarchical_measures_are_the_flat_ones(sets: LabelSets) -> None:
    values = measures(sets, sets.expanded(frozenset)).values()
    np.testing.assert_allclose(values.xs("hierarchical"), values.xs("flat"))


def test_intervals_are_around_the_values_and_the_same_for_the_same_seed() -> None:
    additive: Additive = measured(drawn_sets(0))
    frame = intervals(additive, n_draws=200)
    assert frame["value"].to_numpy() == pytest.approx(additive.values().to_numpy())
    micro = frame[(frame["kind"] == "hierarchical") & (frame["measure"] == "micro_f1")].iloc[0]
    assert micro["low"] < micro["value"] < micro["high"]
    assert frame.equals(intervals(additive, n_draws=200))


def test_the_interval_of_micro_f1_is_that_of_memes_drawn_one_by_one() -> None:
    sets = drawn_sets(1)
    rng, f1s = np.random.default_rng(7), []
    for _ in range(2000):
        drawn = sets.of(rng.integers(0, len(sets), len(sets)))
        f1s.append(metrics.f1_score(drawn.gold, drawn.predicted, average="micro"))
    frame = intervals(set_measures("flat", sets), n_draws=2000).set_index("measure").loc["micro_f1"]
    assert [frame["low"], frame["high"]] == pytest.approx(np.percentile(f1s, [2.5, 97.5]), abs=0.01)

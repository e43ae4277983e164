"""Baselines score what they must: worked out by hand, and near what chance gives in expectation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from xai.analysis.detection.baselines import baseline_scores, label_frequencies
from xai.analysis.detection.labelsets import NONE_LABELS, NoneLabel, indicator
from xai.analysis.detection.scores import hierarchical_scores

from .labelled import GOLD, NAMES, drawn_sets, expand

MATRIX = indicator(GOLD, NAMES)


def scores(none_label: NoneLabel = "empty on both sides", **options: object) -> pd.DataFrame:
    frame = baseline_scores(MATRIX, NAMES, expand, none="none", none_label=none_label, **options)  # type: ignore[arg-type]
    return frame.set_index(["kind", "measure", "baseline"])


def test_all_labels_is_every_label_but_that_for_none() -> None:
    found = scores()
    # Nodes A, B, a1, a2 for each of 4 memes; gold has A, a1 twice and B twice.
    assert found["mean"]["hierarchical", "micro_f1", "all labels"] == pytest.approx(2 * 6 / (16 + 6))
    assert found["mean"]["flat", "subset_accuracy", "all labels"] == 0
    assert found["answer"]["flat", "micro_f1", "all labels"] == "B, a1, a2"


def test_the_most_frequent_label_is_among_those_that_count_and_the_first_of_equals() -> None:
    found = scores()
    assert found["answer"]["flat", "micro_f1", "most frequent label"] == "B"
    assert found["mean"]["flat", "micro_f1", "most frequent label"] == pytest.approx(2 * 2 / (4 + 4))
    mostly_none = baseline_scores(
        indicator([{"none"}, {"none"}, {"a1"}], NAMES), NAMES, expand, none="none", none_label="kept"
    )
    assert set(mostly_none[mostly_none["baseline"] == "most frequent label"]["answer"]) == {"none"}


def test_the_most_frequent_set_may_be_empty() -> None:
    gold = indicator([{"none"}, set(), {"a1"}], NAMES)
    frame = baseline_scores(gold, NAMES, expand, none="none", none_label="empty on both sides")
    found = frame[frame["baseline"] == "most frequent set"].set_index(["kind", "measure"])
    assert set(found["answer"]) == {"no label"}
    assert found["mean"]["flat", "subset_accuracy"] == pytest.approx(2 / 3)
    assert found["mean"]["hierarchical", "micro_f1"] == 0


@pytest.mark.parametrize("none_label", NONE_LABELS)
def test_fixed_baselines_score_what_such_answers_score(none_label: NoneLabel) -> None:
    found = scores(none_label)
    answers = [NAMES[:-1]] * 4
    ours = hierarchical_scores(GOLD, answers, expand, none="none", none_label=none_label)
    assert found["mean"]["hierarchical", "macro_f1", "all labels"] == pytest.approx(ours.macro.f1)
    assert found["sd"]["hierarchical", "macro_f1", "all labels"] == 0


def test_a_label_of_frequency_1_is_always_drawn_and_one_that_is_missing_never() -> None:
    found = scores(frequencies={"a1": 1.0})
    ours = hierarchical_scores(GOLD, [{"a1"}] * 4, expand, none="none", none_label="empty on both sides")
    assert found["mean"]["hierarchical", "micro_f1", "weighted random"] == pytest.approx(ours.micro.f1)
    assert found["sd"]["hierarchical", "micro_f1", "weighted random"] == 0
    assert found["answer"]["flat", "micro_f1", "most frequent label"] == "a1"


def test_weighted_random_has_the_f1_that_independent_labels_have() -> None:
    sets = drawn_sets(0, n=4000)  # drawn with the seed of the baseline, which must not draw the same again
    frame = baseline_scores(sets.gold, NAMES, expand, n_draws=40).set_index(["kind", "measure", "baseline"])
    p = sets.gold.mean(axis=0)
    # Of n memes, n p² share a label by chance, and 2 n p have it on one side or the other.
    assert frame["mean"]["flat", "micro_f1", "weighted random"] == pytest.approx((p**2).sum() / p.sum(), abs=0.005)
    assert frame["mean"]["flat", "macro_f1", "weighted random"] == pytest.approx(p.mean(), abs=0.005)


def test_the_same_seed_draws_the_same() -> None:
    assert scores(seed=3).equals(scores(seed=3))
    assert not scores(seed=3).equals(scores(seed=4))


def test_frequencies_are_shares_of_sets() -> None:
    assert label_frequencies(GOLD, NAMES) == {"B": 0.5, "a1": 0.5, "a2": 0.0, "none": 0.25}
    with pytest.raises(ValueError, match="no meme has known labels"):
        label_frequencies([], NAMES)


def test_what_are_no_frequencies_is_refused() -> None:
    with pytest.raises(ValueError, match="name c, which are no labels"):
        scores(frequencies={"c": 0.1})
    with pytest.raises(ValueError, match="between 0 and 1"):
        scores(frequencies={"B": 12})
    with pytest.raises(ValueError, match="at least 2 times"):
        scores(n_draws=1)


def test_the_order_of_memes_changes_no_fixed_baseline() -> None:
    sets = drawn_sets(2)
    one, other = (baseline_scores(gold, NAMES, expand, none="none") for gold in (sets.gold, sets.gold[::-1]))
    fixed = one["baseline"] != "weighted random"
    np.testing.assert_allclose(one["mean"][fixed], other["mean"][fixed])

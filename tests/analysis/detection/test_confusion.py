"""Confusion counts equal values worked out by hand and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn import metrics

from xai.analysis.detection.confusion import confusion, label_errors, substitutions
from xai.analysis.detection.labelsets import LabelSets, label_sets

from .labelled import GOLD, NAMES, PREDICTED, drawn_sets, matrices

SETS = label_sets(GOLD, PREDICTED)


def test_a_cell_counts_memes_with_the_gold_and_the_predicted_label() -> None:
    counts = confusion(SETS)
    assert list(counts.index) == list(counts.columns) == list(NAMES)
    assert counts.to_numpy().tolist() == [
        [1, 1, 0, 0],  # B: found once; beside a1 once
        [0, 1, 1, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 1],
    ]


def test_without_the_none_label_its_row_and_column_are_gone() -> None:
    counts = confusion(SETS.under("empty on both sides", "none"))
    assert counts.shape == (3, 3)
    assert (counts == confusion(SETS).loc[list(NAMES[:3]), list(NAMES[:3])]).all(axis=None)


def test_with_one_label_a_meme_it_is_the_confusion_matrix() -> None:
    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(0, 4, (2, 50))
    sets = LabelSets(NAMES, np.eye(4, dtype=bool)[gold], np.eye(4, dtype=bool)[predicted])
    assert confusion(sets).to_numpy().tolist() == metrics.confusion_matrix(gold, predicted).tolist()
    wrong = substitutions(sets).set_index(["missed", "claimed"])["memes"]
    assert wrong.sum() == (gold != predicted).sum()


def test_errors_are_those_of_scikit_learn() -> None:
    sets = drawn_sets(3)
    (_, wrong), (missed, right) = metrics.multilabel_confusion_matrix(sets.gold, sets.predicted).transpose(1, 2, 0)
    errors = label_errors(sets)
    assert errors[["wrong", "missed", "right"]].to_numpy().T.tolist() == [
        wrong.tolist(),
        missed.tolist(),
        right.tolist(),
    ]


def test_over_prediction_is_positive_and_a_label_without_gold_has_no_ratio() -> None:
    errors = label_errors(SETS).set_index("label")
    assert errors["over"].to_dict() == {"B": -1, "a1": -1, "a2": 1, "none": 0}
    assert errors["ratio"]["B"] == pytest.approx(0.5)
    assert np.isnan(errors["ratio"]["a2"])


def test_a_substitution_is_one_label_missed_and_another_claimed_wrongly() -> None:
    assert substitutions(SETS).to_numpy().tolist() == [["a1", "a2", 1]]


@settings(max_examples=30, deadline=None)
@given(matrices())
def test_exchanging_the_sides_turns_the_matrix_and_the_diagonal_are_labels_found(sets: LabelSets) -> None:
    counts, other = confusion(sets), confusion(LabelSets(NAMES, sets.predicted, sets.gold))
    np.testing.assert_array_equal(counts.to_numpy().T, other.to_numpy())
    assert np.diag(counts).tolist() == label_errors(sets)["right"].tolist()

"""Single answers are judged as the scores of a run judge them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xai.analysis.detection.scores import hierarchical_scores
from xai.analysis.rationale.outcomes import Judge, Outcome
from xai.tasks import load_task

TASK = load_task("ukrmeme")
SETS = st.sets(st.sampled_from([*TASK.label_names[:6], TASK.none_label]), max_size=4).map(sorted)


@given(SETS, SETS)
def test_f1_is_that_of_the_scores_of_a_run(gold: list[str], labels: list[str]) -> None:
    expected = hierarchical_scores(
        [gold], [labels], TASK.expand, none=TASK.none_label, none_label="empty on both sides"
    ).micro.f1
    found = Judge(TASK).outcome(gold, labels)
    assert found.f1 == pytest.approx(expected)
    assert not found.right or found.f1 == 1


def test_right_is_exactly_the_gold_labels_by_whatever_name() -> None:
    judge = Judge(TASK)
    assert judge.outcome(["Loaded words"], ["Loaded Language"]) == Outcome(True, 1.0)
    assert judge.outcome(["NO_PROPAGANDA"], []) == Outcome(True, 1.0)
    # Smears and Doubt share both ancestors: 2 of 3 and 3 nodes.
    assert judge.outcome(["Smears"], ["Doubt"]) == Outcome(False, pytest.approx(4 / 6))


def test_without_gold_labels_or_with_unknown_ones_nothing_is_said() -> None:
    judge = Judge(TASK)
    assert judge.outcome(None, ["Doubt"]) == judge.outcome(["Sarcasm"], ["Doubt"]) == Outcome(None, None)
    assert judge.unknown == {"Sarcasm"}

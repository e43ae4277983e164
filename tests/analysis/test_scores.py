"""Hierarchical scores equal values worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from xai.analysis.scores import PRF, hierarchical_scores, score_run
from xai.schema import Meme, Mode, Prediction
from xai.store import RunWriter, open_run

PARENT = {"a1": "A", "a2": "A"}
GOLD = [{"a1"}, {"B"}, {"a1", "B"}, {"none"}]
PREDICTED = [{"a2"}, {"B"}, {"a1"}, {"none"}]


def expand(labels: Iterable[str]) -> frozenset[str]:
    return frozenset(node for label in labels for node in (label, PARENT.get(label, label)))


def test_ancestors_give_partial_credit() -> None:
    scores = hierarchical_scores(GOLD, PREDICTED, expand, none="none", none_label="kept")
    assert scores.n == 4
    assert scores.micro == PRF(pytest.approx(5 / 6), pytest.approx(5 / 7), pytest.approx(10 / 13))
    assert scores.macro_f1 == pytest.approx(2 / 3)
    assert scores.sample_f1 == pytest.approx((0.5 + 1 + 0.8 + 1) / 4)
    nodes = scores.per_node.set_index("node")
    assert nodes.loc["a1", ["gold", "predicted", "shared"]].tolist() == [2, 1, 1]
    assert nodes["f1"].to_dict() == pytest.approx({"A": 1, "B": 2 / 3, "a1": 2 / 3, "a2": 0, "none": 1})


def test_the_none_label_can_count_as_no_label() -> None:
    scores = hierarchical_scores(GOLD, PREDICTED, expand, none="none", none_label="empty on both sides")
    assert scores.none_label == "empty on both sides"
    assert scores.micro.f1 == pytest.approx(8 / 11)
    assert scores.macro_f1 == pytest.approx(7 / 12)
    assert scores.sample_f1 == pytest.approx((0.5 + 1 + 0.8 + 1) / 4)


def test_nothing_there_and_nothing_claimed_is_right() -> None:
    scores = hierarchical_scores([set()], [set()], expand)
    assert scores.micro == PRF(1, 1, 1)
    assert scores.sample_f1 == 1
    assert scores.per_node.empty


@pytest.mark.parametrize(("gold", "predicted"), [({"B"}, set()), (set(), {"B"})])
def test_claiming_without_cause_or_missing_all_scores_nothing(gold: set[str], predicted: set[str]) -> None:
    scores = hierarchical_scores([gold], [predicted], expand)
    assert scores.micro == PRF(0, 0, 0)
    assert scores.macro_f1 == scores.sample_f1 == 0


def test_sets_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(ValueError, match="1 gold and 0 predicted"):
        hierarchical_scores([set()], [], expand)
    with pytest.raises(ValueError, match="at least 1"):
        hierarchical_scores([], [], expand)


def test_a_run_is_scored_by_mode_over_memes_with_known_labels(tmp_path: Path) -> None:
    records: list[tuple[str, Mode, tuple[str, ...] | None, tuple[str, ...]]] = [
        ("m1", "text", ("smears",), ("Doubt",)),
        ("m2", "text", ("NO_PROPAGANDA",), ("NO_PROPAGANDA",)),
        ("m3", "text", None, ("Doubt",)),
        ("m1", "image", ("Smears",), ("Smears",)),
    ]
    with RunWriter(tmp_path / "run", {"task": "ukrmeme"}) as writer:
        for identifier, mode, gold, labels in records:
            answer = Prediction(meme_id=identifier, mode=mode, generated_ids=(), text="", labels=labels)
            writer.add(answer, meme=Meme(id=identifier, labels=gold))
    scores = score_run(open_run(tmp_path / "run"))
    assert {mode: s.n for mode, s in scores.items()} == {"text": 2, "image": 1}
    # Smears and Doubt share Ethos and Ad Hominem: two of three nodes.
    assert scores["text"].micro.f1 == pytest.approx(2 / 3)
    assert scores["image"].micro.f1 == 1

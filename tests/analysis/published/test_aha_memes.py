"""AHA-Memes is scored by side and by ten categories, unparsed answers are errors, and contradictions are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

from xai.analysis.published.aha_answers import at_random, errors_by_length, majority, measures_of
from xai.analysis.published.aha_memes import judged_modes, sections
from xai.analysis.published.registry import Scoring
from xai.analysis.published.report import score_report
from xai.analysis.published.sides import Layout
from xai.analysis.report import Report, Table, read_report, write_report
from xai.tasks import load_task

from .answered import Row, fast, run_of

H, N = "Hateful", "Not-Hateful"
OTHER_H, OTHER_N = "Other (hateful)", "Other (not hateful)"
ROWS = [
    Row((H, "Mocking"), (H, "Mocking")),
    Row((H, "Mocking", "Slurs"), (H, "Slurs", "Contempt")),
    Row((H, OTHER_H), (N, OTHER_N)),
    Row((N, "Humor"), (N, "Humor", "Sarcasm")),
    Row((N, "Sarcasm"), (H, "Mocking")),
    Row((N, OTHER_N), None),
]
TEN = (
    "Mocking", "Incitement", "Dehumanization", "Slurs", "Contempt", "Inferiority", "Exclusion", "Other", "Humor",
    "Sarcasm",
)  # fmt: skip


def tables(path: Path, rows: list[Row]) -> dict[str, Table]:
    found = sections(run_of(path, "aha-memes", {"image+text": rows}), Scoring(fast("aha-memes")))
    return {table.name: table for section in found.sections for table in section.tables}


def test_both_others_are_one_of_ten_categories() -> None:
    layout = Layout.of(load_task("aha-memes"))
    assert layout.sides == (H, N)
    assert layout.categories == TEN


def test_scores_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    found = tables(tmp_path / "run", ROWS)["aha_scores"].frame.iloc[0]
    assert (found["memes"], found["unparsed"]) == (6, 1)
    assert found["accuracy"] == 3 / 6
    assert found["recall_hateful"] == 2 / 3
    # Hateful: 2 right of 3 claimed and 3 gold. Not-Hateful: 1 right of 2 claimed and 3 gold.
    assert found["binary_macro_f1"] == pytest.approx((4 / 6 + 2 / 5) / 2)
    # Mocking 1 right of 2 and 2, Slurs 1 of 1 and 1, Other 1 of 1 and 2 (its sides are one), Humor 1 of 1 and 1,
    # Sarcasm 0 of 1 and 1, Contempt 0 of 1 and 0; the other four never occur and count 0.
    assert found["fine_macro_f1"] == pytest.approx((2 / 4 + 1 + 2 / 3 + 1) / 10)
    assert found["fine_micro_f1"] == pytest.approx(2 * 4 / (7 + 7))


def test_scores_are_those_of_scikit_learn_on_drawn_answers(tmp_path: Path) -> None:
    rng, names = np.random.default_rng(4), load_task("aha-memes").label_names
    below = {H: names[1:9], N: names[10:]}

    def drawn() -> tuple[str, ...]:
        side = (H, N)[rng.integers(2)]
        types = [name for name in below[side] if rng.random() < 0.3]
        return (side, *types)

    rows = [Row(drawn(), drawn() if rng.random() < 0.9 else None) for _ in range(60)]
    found = tables(tmp_path / "run", rows)["aha_scores"].frame.iloc[0]
    gold, answers = [row.gold[0] for row in rows if row.gold], [(row.labels or ("none",))[0] for row in rows]
    assert found["binary_macro_f1"] == pytest.approx(metrics.f1_score(gold, answers, labels=[H, N], average="macro"))
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(gold, answers))
    assert found["recall_hateful"] == pytest.approx(metrics.recall_score(gold, answers, labels=[H], average="macro"))

    def matrix(sets: list[tuple[str, ...]]) -> np.ndarray:
        plain = [{name.partition(" (")[0] for name in labels} for labels in sets]
        return np.array([[category in one for category in TEN] for one in plain])

    y, said = matrix([row.gold or () for row in rows]), matrix([row.labels or () for row in rows])
    for mean in ("macro", "micro"):
        expected = metrics.f1_score(y, said, average=mean, zero_division=0)
        assert found[f"fine_{mean}_f1"] == pytest.approx(expected)


def test_an_unparsed_answer_is_wrong_on_whatever_side_gold_is(tmp_path: Path) -> None:
    for name, gold in (("h", (H, "Slurs")), ("n", (N, "Humor"))):
        found = tables(tmp_path / name, [Row(gold, None)])
        scores = found["aha_scores"].frame.iloc[0]
        assert scores[["accuracy", "binary_macro_f1", "fine_macro_f1", "fine_micro_f1"]].tolist() == [0, 0, 0, 0]
        assert found["aha_lengths"].frame["wrong"].sum() == 1


def test_majority_answers_the_commoner_side_with_its_commonest_category(tmp_path: Path) -> None:
    rows = [Row((N, "Humor"), ())] * 3 + [Row((H, "Slurs"), ())] * 2 + [Row((N, "Sarcasm"), ())]
    found = tables(tmp_path / "run", rows)["aha_baselines"].frame.set_index("baseline").loc["majority"]
    assert found["answer"] == "Not-Hateful, Humor"
    assert found["accuracy"] == 4 / 6
    assert found["binary_macro_f1"] == pytest.approx((2 * 4 / (6 + 4)) / 2)
    assert found["fine_macro_f1"] == pytest.approx((2 * 3 / (6 + 3)) / 10)
    assert found["fine_micro_f1"] == pytest.approx(2 * 3 / (6 + 6))
    assert found["accuracy_sd"] == 0


def test_random_answers_a_side_by_a_coin_and_one_of_its_categories(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "aha-memes", {"text": [Row((H, "Slurs"), ())] * 4000})
    judged = judged_modes(run, fast("aha-memes"))["text"]
    answered = at_random(judged, np.random.default_rng(0))
    assert np.mean(answered.side == 0) == pytest.approx(0.5, abs=0.03)
    assert (answered.categories.sum(axis=1) == 1).all()
    share = dict(zip(judged.layout.categories, answered.categories.mean(axis=0), strict=True))
    assert share["Slurs"] == pytest.approx(0.5 / 8, abs=0.015)
    assert share["Humor"] == pytest.approx(0.5 / 3, abs=0.025)
    assert share["Other"] == pytest.approx(0.5 / 8 + 0.5 / 3, abs=0.03)
    most, _ = majority(judged)
    assert measures_of(judged, most).values()["binary", "accuracy", ""] == 1


def test_contradictions_are_counted_and_scored_as_they_stand(tmp_path: Path) -> None:
    rows = [
        Row((H, "Slurs"), (H, "Humor")),
        Row((H, "Slurs"), (H, OTHER_H, "Slurs")),
        Row((H, "Slurs"), ("Slurs",)),
        Row((H, "Slurs"), (H, N)),
        Row((H, "Slurs"), (H, "Slurs")),
        Row((H, "Slurs"), None),
    ]
    found = tables(tmp_path / "run", rows)
    assert found["aha_inconsistent"].frame.iloc[0].to_dict() == {
        "mode": "image+text", "answers": 6, "types_of_the_other_side": 1, "Other_beside_others_of_its_side": 1,
        "types_without_a_side": 1, "both_sides": 1, "any_of_these": 4,
    }  # fmt: skip
    counted = found["aha_counted"].frame.iloc[0]
    assert counted[["unparsed", "names_no_side", "names_both_sides"]].tolist() == [1, 1, 1]
    # Right are the sides of the first, the second and the fifth.
    assert found["aha_scores"].frame["accuracy"][0] == 3 / 6


def test_gold_that_names_no_side_or_both_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = [Row((H, N), (H,)), Row((), (H,)), Row((H, "Slurs"), (H, "Slurs")), Row(None, (H,))]
    found = tables(tmp_path / "run", rows)
    counted = found["aha_counted"].frame.iloc[0]
    assert counted[["scored", "gold_without_one_side", "without_gold"]].tolist() == [1, 2, 1]
    with pytest.raises(ValueError, match="no gold labels in mode 'image\\+text' name either Hateful or Not-Hateful"):
        tables(tmp_path / "other", rows[:2])


def test_errors_are_counted_by_the_length_of_the_caption(tmp_path: Path) -> None:
    lengths = [20, 21, 60, 61, 120, 121, 500]
    right = [False, True, False, True, True, False, False]
    rows = [Row((H,), (H,) if ok else (N,), "س" * n) for n, ok in zip(lengths, right, strict=True)]
    run = run_of(tmp_path / "run", "aha-memes", {"text": rows})
    judged = judged_modes(run, fast("aha-memes"))["text"]
    found = errors_by_length(judged, [row.text for row in rows]).set_index("characters")
    assert found["memes"].to_dict() == {"up to 20": 1, "21–60": 2, "61–120": 2, "over 120": 2}
    assert found["error_rate"].tolist() == [1, 0.5, 0, 1]
    assert found["in_paper"].tolist() == [False, True, True, True]
    # Wilson's interval of 1 of 2, by its formula with z = 1.96.
    assert found.loc["21–60", "error_rate_low"] == pytest.approx(0.0945, abs=1e-3)
    assert "in_paper" in tables(tmp_path / "other", rows)["aha_lengths"].columns


def test_counts_of_labels_keep_both_others_apart(tmp_path: Path) -> None:
    frame = tables(tmp_path / "run", ROWS)["aha_labels"].frame.set_index("label")
    assert frame.loc[[H, OTHER_H, OTHER_N, "Sarcasm"], "over"].tolist() == [0, -1, 0, 0]
    assert frame.loc["Mocking", ["gold", "predicted"]].tolist() == [2, 2]


def of_report(report: Report, table: str) -> pd.DataFrame:
    return report.table(table).frame


def test_the_report_of_a_run_has_the_published_scores_and_compares_runs(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", "aha-memes", {"image+text": ROWS})
    better = [row._replace(labels=row.gold) for row in ROWS]
    other = run_of(tmp_path / "b", "aha-memes", {"image+text": better})
    report = score_report(run, fast("aha-memes"), against=[other])
    assert {"aha_scores", "aha_baselines", "aha_against", "by_mode"} <= set(report.headline)
    compared = of_report(report, "aha_against").set_index("measure")
    assert compared.loc["accuracy", ["of_first", "of_second"]].tolist() == [0.5, 1]
    # Three memes speak, all for the second: 2 of 2³ swaps are as far.
    assert compared.loc["accuracy", "p"] == pytest.approx(2 / 8)
    paths = write_report(report, tmp_path, "score")
    assert read_report(paths["json"]) == report
    assert "Error rate by caption length" in paths["html"].read_text(encoding="utf-8")


def test_baselines_are_given_once_for_modes_with_the_same_memes(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", "aha-memes", {"text": ROWS, "image+text": ROWS, "image": ROWS[:3]})
    found = of_report(score_report(run, fast("aha-memes")), "aha_baselines")
    assert found["modes"].unique().tolist() == ["text, image+text", "image"]

"""The report of a run's detection says what is in the run, how it was counted, and how two runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from xai.analysis.detection.report import detection_report
from xai.analysis.detection.scored import Settings, frequencies_of, task_of_run
from xai.analysis.report import Report, read_report, write_report
from xai.schema import Failure, Meme, Mode, Prediction
from xai.store import Run, RunWriter, open_run
from xai.tasks import load_task

UKRMEME = load_task("ukrmeme")
Labels = tuple[str, ...] | None
NONE = ("NO_PROPAGANDA",)


def run_of(
    path: Path,
    answers: Mapping[Mode, Sequence[tuple[str, Labels, tuple[str, ...]]]],
    failed: int = 0,
    task: str = "ukrmeme",
    **fields: Any,
) -> Run:
    """A run of (meme, gold, answer) by mode."""
    with RunWriter(path, {"task": task}) as writer:
        for mode, rows in answers.items():
            for identifier, gold, labels in rows:
                answer = Prediction(
                    meme_id=identifier, mode=mode, generated_ids=(1, 2), text="", labels=labels, **fields
                )
                writer.add(answer, meme=Meme(id=identifier, labels=gold))
        for number in range(failed):
            writer.add(None, failures=[Failure(meme_id=f"f{number}", mode="text", stage="read", reason="broken")])
    return open_run(path)


def fast(**options: Any) -> Settings:
    return Settings(UKRMEME, **({"n_draws": 50, "n_swaps": 64} | options))


def rows(report: Report, table: str, **where: str) -> pd.DataFrame:
    frame = report.table(table).frame
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


TEXT = [
    ("m1", ("smears",), ("Doubt",)),
    ("m2", NONE, NONE),
    ("m3", None, ("Doubt",)),
]
IMAGE = [("m1", ("Smears",), ("Smears",)), ("m4", ("Doubt",), ())]


def test_a_run_is_scored_by_mode_over_memes_with_known_labels(tmp_path: Path) -> None:
    report = detection_report(run_of(tmp_path / "run", {"text": TEXT, "image": IMAGE}, failed=2), fast())
    found = report.table("by_mode").frame.set_index("mode")
    assert found["memes"].to_dict() == {"text": 2, "image": 2}
    # Smears and Doubt share Ethos and Ad Hominem: two of three nodes.
    assert found["micro_f1"]["text"] == pytest.approx(2 / 3)
    # Smears found with its ancestors, Doubt with the same missed: 3 of 3 predicted, 3 of 6 gold.
    assert found["micro_f1"]["image"] == pytest.approx(2 * 3 / (3 + 6))
    counts = rows(report, "counts", mode="text").iloc[0]
    assert (counts["scored"], counts["without_gold"], counts["failed"]) == (2, 1, 2)


def test_conventions_are_named_and_change_the_score(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"text": TEXT})
    micro = {}
    for convention in ("kept", "empty on both sides", "empty in gold only"):
        report = detection_report(run, fast(none_label=convention))
        micro[convention] = report.table("by_mode").frame["micro_f1"][0]
        assert convention in report.table("by_mode").title
        assert report.facts["label for none"] == f"NO_PROPAGANDA: {convention}"
    # Two shared nodes of three and three; with the label kept one more is right, in gold only one more is wrong.
    assert micro == pytest.approx(
        {"kept": 2 * 3 / 8, "empty on both sides": 2 * 2 / 6, "empty in gold only": 2 * 2 / 7}
    )


def test_an_answer_that_cannot_be_parsed_counts_as_one_without_labels_and_is_counted(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"text": [("m1", ("Doubt",), ()), ("m2", NONE, ())]}, parse="unparsed")
    report = detection_report(run, fast())
    assert rows(report, "counts")[["unparsed", "unparsed_but_right"]].iloc[0].tolist() == [2, 1]
    assert rows(report, "flat")["subset_accuracy"][0] == 0.5


def test_an_answer_that_cannot_be_read_is_no_meme_that_failed_before_it_had_one(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", {"task": "ukrmeme"}) as writer:
        for name, failed in (("m1", True), ("m2", False)):
            answer = Prediction(meme_id=name, mode="text", generated_ids=(1,), text="?", parse="unparsed")
            failures = [Failure(meme_id=name, mode="text", stage="predict", reason="not to be read")] if failed else []
            writer.add(answer, failures=failures, meme=Meme(id=name, labels=("Doubt",)))
        writer.add(None, failures=[Failure(meme_id="m3", mode="text", stage="predict", reason="out of memory")])
        writer.add(None, failures=[Failure(meme_id="m4", stage="read", reason="broken")])
    counts = rows(detection_report(open_run(tmp_path / "run"), fast()), "counts").iloc[0]
    assert (counts["scored"], counts["unparsed"], counts["failed"]) == (2, 2, 2)


def test_confusion_has_the_label_for_none_and_leaves_it_out(tmp_path: Path) -> None:
    report = detection_report(run_of(tmp_path / "run", {"text": [*TEXT, ("m5", ("Doubt",), NONE)]}), fast())
    heatmaps = {chart.name: chart for section in report.sections for chart in section.charts}
    kept, without = heatmaps["confusion_with_none_text"], heatmaps["confusion_without_none_text"]
    assert kept.rows == ("Doubt", "Smears", "NO_PROPAGANDA")
    assert kept.values == ((0, 0, 1), (1, 0, 0), (0, 0, 1))
    assert without.values == ((0, 0), (1, 0))
    over = rows(report, "over_prediction").set_index("label")
    assert over["over"].to_dict() == {
        "Doubt": 0, "Smears": -1, "NO_PROPAGANDA": 1, "all with NO_PROPAGANDA": 0, "all without NO_PROPAGANDA": -1,
    }  # fmt: skip


def test_confidences_are_judged_by_whether_the_whole_label_set_is_right(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"text": TEXT}, confidence=0.9, log_probability=2 * np.log(0.25))
    found = detection_report(run, fast(n_bins=5)).table("calibration").frame.set_index("confidence")
    assert found["accuracy"].tolist() == [0.5, 0.5]
    assert found["ece"].to_dict() == pytest.approx({"verbalised": 0.4, "sequence": 0.25})
    assert found["bins"].tolist() == [5, 5]


def test_a_run_without_confidences_says_so(tmp_path: Path) -> None:
    report = detection_report(run_of(tmp_path / "run", {"text": TEXT}), fast())
    (section,) = [section for section in report.sections if section.title == "Calibration"]
    assert not section.tables
    assert "No answer in text has a verbalised confidence. No answer in text has a sequence" in section.text


def test_two_runs_are_compared_on_the_memes_that_both_have(tmp_path: Path) -> None:
    first = run_of(tmp_path / "uk", {"text": [(f"m{i}", ("Doubt",), ("Doubt",)) for i in range(6)]})
    answers = [(f"m{i}", ("Doubt",) if i else ("Smears",), ("Smears",)) for i in range(4)]
    second = run_of(tmp_path / "en", {"text": [*answers, ("x", ("Doubt",), ())]})
    report = detection_report(first, fast(), against=[second])
    overlap = rows(report, "against_overlap").iloc[0].to_dict()
    assert overlap == {
        "first": "uk text", "second": "en text", "memes": 4, "only_first": 2, "only_second": 1, "other_gold": 1,
    }  # fmt: skip
    accuracy = rows(report, "against", measure="flat subset accuracy").iloc[0]
    assert (accuracy["first"], accuracy["second"], accuracy["difference"]) == (1, 0.25, 0.75)
    # Three memes speak, all for the first: 2 of 2³ swaps are as far.
    assert accuracy["p"] == accuracy["p_holm"] == pytest.approx(2 / 8)
    assert "Gold labels of 1 paired memes differ" in report.sections[-1].text


def test_every_two_modes_of_a_run_are_compared_with_p_corrected_for_their_number(tmp_path: Path) -> None:
    gold = [(f"m{i}", ("Doubt",)) for i in range(6)]
    right = [(name, labels, labels) for name, labels in gold]
    wrong = [(name, labels, NONE) for name, labels in gold]
    run = run_of(tmp_path / "run", {"text": right, "image": wrong, "image+text": right})
    found = rows(detection_report(run, fast()), "modes", measure="hierarchical micro F1")
    assert found["modes"].tolist() == ["text and image", "text and image+text", "image and image+text"]
    assert found["p"].tolist() == pytest.approx([2 / 64, 1, 2 / 64])
    assert found["p_holm"].tolist() == pytest.approx([6 / 64, 1, 6 / 64])


def test_runs_with_one_mode_each_are_compared_across_modes(tmp_path: Path) -> None:
    text, image = run_of(tmp_path / "a", {"text": TEXT}), run_of(tmp_path / "b", {"image": IMAGE})
    report = detection_report(text, fast(), against=[image])
    assert set(rows(report, "against")["modes"]) == {"text and image"}
    assert rows(report, "against_overlap")["memes"].tolist() == [1]


def test_p_is_corrected_for_all_runs_that_one_is_compared_with(tmp_path: Path) -> None:
    gold = [(f"m{i}", ("Doubt",)) for i in range(6)]
    right = [(name, labels, labels) for name, labels in gold]
    wrong = [(name, labels, NONE) for name, labels in gold]
    run, near, far = (
        run_of(tmp_path / name, {"text": answers}) for name, answers in zip("abc", (right, right, wrong), strict=True)
    )
    report = detection_report(run, fast(), against=[near, far])
    found = rows(report, "against", measure="hierarchical micro F1")
    assert found["second_run"].tolist() == ["b", "c"]
    assert found["p"].tolist() == pytest.approx([1, 2 / 64])
    assert found["p_holm"].tolist() == pytest.approx([1, 4 / 64])
    assert rows(report, "against_overlap")["second"].tolist() == ["b text", "c text"]
    assert [facts["name"] for facts in report.facts["against"]] == ["b", "c"]


def test_runs_that_cannot_be_compared_say_why(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"text": TEXT})
    with pytest.raises(ValueError, match="no scored meme in common"):
        detection_report(run, fast(), against=[run_of(tmp_path / "a", {"text": [("x", NONE, NONE)]})])
    both = run_of(tmp_path / "b", {"image": IMAGE, "image+text": IMAGE})
    with pytest.raises(ValueError, match="'run' has the modes text and 'b' image, image"):
        detection_report(run, fast(), against=[both])
    with pytest.raises(ValueError, match="compare runs of one task"):
        detection_report(run, fast(), against=[run_of(tmp_path / "c", {"text": TEXT}, task="other")])


def test_frequencies_may_come_from_another_dataset(tmp_path: Path) -> None:
    data = tmp_path / "train.jsonl"
    data.write_text('{"id": "1", "labels": ["smears"]}\n{"id": "2", "labels": []}\n{"id": "3"}\n', encoding="utf-8")
    frequencies = frequencies_of(data, UKRMEME)
    assert frequencies.source == "train.jsonl (2 memes)"
    assert {label for label, share in frequencies.shares.items() if share} == {"Smears"}
    report = detection_report(run_of(tmp_path / "run", {"text": TEXT}), fast(frequencies=frequencies))
    assert rows(report, "baselines", baseline="most frequent label")["answer"].tolist() == ["Smears"]
    assert report.facts["baseline frequencies"] == "train.jsonl (2 memes)"


def test_a_task_that_does_not_ship_is_given_by_its_file(tmp_path: Path) -> None:
    task = tmp_path / "own.yaml"
    content = {
        "name": "own", "version": "1", "none_label": "none", "labels": [{"name": "rude"}, {"name": "none"}],
        "prompts": {"full": {"en": {"modes": {"image": "Look."}}}},
    }  # fmt: skip
    task.write_text(yaml.safe_dump(content), encoding="utf-8")
    run = run_of(tmp_path / "run", {"image": [("m1", ("rude",), ("rude",))]}, task="own")
    with pytest.raises(ValueError, match="'own', which does not ship; give its file"):
        task_of_run(run)
    report = detection_report(run, Settings(task_of_run(run, task), n_draws=20))
    assert report.table("by_mode").frame["micro_f1"].tolist() == [1.0]
    with pytest.raises(ValueError, match="not 'own' version 1"):
        task_of_run(run_of(tmp_path / "other", {"text": TEXT}), task)


def test_a_run_without_gold_labels_cannot_be_scored(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="add a 'labels' column"):
        detection_report(run_of(tmp_path / "run", {"text": [("m3", None, ("Doubt",))]}), fast())


def test_a_gold_label_that_the_task_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'Sarcasm' is no label"):
        detection_report(run_of(tmp_path / "run", {"text": [("m1", ("Sarcasm",), ())]}), fast())


def test_the_report_is_written_whole_with_all_its_figures(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"text": TEXT, "image": IMAGE}, confidence=0.5, log_probability=-1.0)
    report = detection_report(run, fast())
    paths = write_report(report, run.reports, "score")
    assert read_report(paths["json"]) == report
    page = paths["html"].read_text(encoding="utf-8")
    for name in ("F1 of every label", "Memes with each label", "Confusion", "Reliability", "of the baselines"):
        assert name in page
    assert page.count("<svg") == sum(len(section.charts) for section in report.sections)


def test_the_same_run_gives_the_same_report(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"text": TEXT, "image": IMAGE})
    assert detection_report(run, fast()) == detection_report(run, fast())
    other = detection_report(run, fast(seed=1))
    assert (
        other.table("by_mode")
        .frame["micro_f1"]
        .equals(detection_report(run, fast()).table("by_mode").frame["micro_f1"])
    )

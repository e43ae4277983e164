"""A run is measured once, in a random order, as far as the budget goes; the report and the command show it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from xai.analysis.faithfulness.measuring import (
    Budget,
    Measured,
    measure_run,
    parts_folder,
    read_measured,
    sampled_keys,
)
from xai.analysis.faithfulness.one_input import RANDOM, TRUTH, Settings
from xai.analysis.faithfulness.report import Subject, faithfulness_report, joined, unmet
from xai.analysis.faithfulness.summaries import SAME, by_meme, comparisons
from xai.analysis.report import read_report
from xai.cli import app
from xai.cli.faithfulness import BROWSERS, printed
from xai.models import VisionLanguageModel
from xai.pipeline import explain_dataset
from xai.planted.truth import planted_memes, write_memes_with_pictures
from xai.store import Run, open_run

SETTINGS = Settings(units="words", n_draws=2)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(model: VisionLanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs ``a`` (attnlrp) and ``b`` (gradient_x_input) of six memes in mode text."""
    path = tmp_path_factory.mktemp("runs")
    dataset = write_memes_with_pictures(path / "memes", planted_memes(6, 900_001))
    for name, method in (("a", "attnlrp"), ("b", "gradient_x_input")):
        explain_dataset(model, dataset, path / name, modes=("text",), method=method)
    return path


@pytest.fixture(scope="module")
def measured(folder: Path, model: VisionLanguageModel) -> Measured:
    return measure_run(open_run(folder / "a"), model, SETTINGS)


def subjects(folder: Path, model: VisionLanguageModel) -> list[Subject]:
    runs = [open_run(folder / name) for name in ("a", "b")]
    return [Subject(run, measure_run(run, model, SETTINGS), SETTINGS.perturbation.describe(model)) for run in runs]


def test_every_label_of_every_meme_has_its_orders(measured: Measured) -> None:
    table = measured.curves
    assert set(table["method"]) == {"attnlrp", "attnlrp reversed", RANDOM, TRUTH, "rationale"}
    assert "NO_PROPAGANDA" not in set(table["target"])
    per_target = table[table["method"] == RANDOM].groupby(["meme_id", "target"]).size()
    assert set(per_target) == {2}
    assert len(measured.failures) == 0


def test_the_reversed_order_has_the_curves_of_the_order_the_other_way_round(measured: Measured) -> None:
    table = measured.curves.set_index("method")
    own, turned = table.loc["attnlrp"], table.loc["attnlrp reversed"]
    assert own["morf:logit"].tolist() == turned["lerf:logit"].tolist()
    assert own["deletion_auc:logit"].tolist() == turned["insertion_auc:logit"].tolist()


def test_what_was_measured_is_not_measured_again(
    folder: Path, model: VisionLanguageModel, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.model, "forward", None)
    again = measure_run(open_run(folder / "a"), model, SETTINGS)
    pd.testing.assert_frame_equal(again.curves, measured.curves)
    assert again.n_forwards == measured.n_forwards


def test_a_measurement_that_was_stopped_ends_as_one_that_was_not(
    folder: Path, model: VisionLanguageModel, measured: Measured
) -> None:
    run = open_run(folder / "b")
    part = measure_run(run, model, SETTINGS, budget=Budget(forwards=1))
    assert len(set(part.curves["meme_id"])) == 1
    whole = measure_run(run, model, SETTINGS)
    keys = ["meme_id", "target", "draw"]
    tables = [
        one.curves[one.curves["method"] == RANDOM].set_index(keys).sort_index().select_dtypes("float")
        for one in (whole, measured)
    ]
    pd.testing.assert_frame_equal(*tables, rtol=1e-4, atol=1e-4)


def test_an_interrupt_loses_nothing_that_was_measured(model: VisionLanguageModel, folder: Path) -> None:
    run, settings = open_run(folder / "a"), Settings(units="words", n_draws=1)

    def interrupt(done: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_run(run, model, settings, on_progress=interrupt)
    assert len(list(parts_folder(run, settings).glob("part-*.parquet"))) == 1
    assert len(measure_run(run, model, settings).failures) == 0


def test_a_larger_budget_measures_the_same_sample_and_more(folder: Path) -> None:
    run = open_run(folder / "a")
    keys = sampled_keys(run, SETTINGS)
    assert keys == sampled_keys(run, SETTINGS)
    assert keys != sorted(keys)
    assert sorted(keys) == sorted(run.predictions().select("meme_id", "mode").fetchall())


def test_other_settings_have_a_folder_of_their_own(folder: Path) -> None:
    run = open_run(folder / "a")
    assert parts_folder(run, SETTINGS) != parts_folder(run, Settings(units="words", n_draws=2, words="delete"))


def test_a_meme_whose_picture_is_gone_is_a_failure_with_its_reason(model: VisionLanguageModel, tmp_path: Path) -> None:
    dataset = write_memes_with_pictures(tmp_path / "memes", planted_memes(2, 900_001))
    explain_dataset(model, dataset, tmp_path / "run", modes=("image",))
    run, picture = open_run(tmp_path / "run"), tmp_path / "memes/images/planted-900001-0.png"
    hidden = picture.rename(tmp_path / "hidden.png")
    settings = Settings(units="cells", n_draws=1)
    assert "does not exist" in measure_run(run, model, settings).failures["reason"].item()
    hidden.rename(picture)
    assert len(measure_run(run, model, settings).failures) == 0


@pytest.mark.parametrize(
    ("text", "budget"), [("90s", Budget(90)), ("1.5m", Budget(90)), ("2h", Budget(7200)), ("50f", Budget(forwards=50))]
)
def test_a_budget_is_seconds_or_forwards(text: str, budget: Budget) -> None:
    assert Budget.parse(text) == budget


@pytest.mark.parametrize("text", ["", "10", "m", "1.5f", "10 parsecs"])
def test_a_budget_that_reads_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="90s, 10m, 2h or 5000f"):
        Budget.parse(text)


def test_another_model_than_that_of_the_run_is_refused(
    folder: Path, model: VisionLanguageModel, tmp_path: Path
) -> None:
    from dataclasses import replace

    with pytest.raises(ValueError, match="has other weights"):
        measure_run(open_run(folder / "a"), replace(model, fingerprint="0" * 16), SETTINGS)


def test_runs_of_one_dataset_share_what_does_not_depend_on_the_method(folder: Path, model: VisionLanguageModel) -> None:
    curves, _, _ = joined(subjects(folder, model))
    assert {"attnlrp", "gradient_x_input"} <= set(curves["method"])
    counts = curves[curves["method"] == RANDOM].groupby(["meme_id", "target", "draw"]).size()
    assert set(counts) == {1}


def test_two_runs_of_one_method_are_told_apart_by_their_names(folder: Path, model: VisionLanguageModel) -> None:
    first = subjects(folder, model)[0]
    curves, _, _ = joined([first, Subject(_renamed(first.run, folder), first.measured, {})])
    assert {"attnlrp (a)", "attnlrp (copy)"} <= set(curves["method"])


def _renamed(run: Run, folder: Path) -> Run:
    import shutil

    shutil.copytree(run.path, folder / "copy", dirs_exist_ok=True)
    return open_run(folder / "copy")


def test_methods_that_cannot_be_told_apart_are_called_so(folder: Path, model: VisionLanguageModel) -> None:
    curves, _, _ = joined(subjects(folder, model)[:1])
    own = curves[curves["method"] == "attnlrp"]
    twin = own.assign(method="twin")
    table = comparisons(pd.concat([own, twin]), "probability")
    assert table["verdict"].tolist() == [SAME]
    assert table["p"].tolist() == [1.0]


def test_the_report_says_its_direction_with_every_measure_and_shows_the_memes(
    folder: Path, model: VisionLanguageModel
) -> None:
    found = subjects(folder, model)
    report = faithfulness_report(found, SETTINGS)
    heads = report.table("leaderboard").columns
    assert {"area_between ↑", "comprehensiveness@20 ↑", "sufficiency@20 ↓", "flip_top_1 ↑"} <= set(heads)
    assert all(str(row[3]).endswith(("↑", "↓")) for row in report.table("order_checks").rows)
    assert report.facts["perturbation"]["neutral_token"]["text"] == "…"  # type: ignore[index,call-overload]
    pictures = [picture for section in report.sections for picture in section.pictures]
    assert pictures
    assert {"worst", "best"} == {picture.caption.split(":")[0] for picture in pictures}
    for row in report.table("order_checks").frame.to_dict("records"):
        expected = by_meme(found[0].measured.curves.query("method == 'attnlrp'"), "probability")
        if row["method"] == "attnlrp":
            assert row["relevance"] == pytest.approx(expected[row["measure"].split(" ")[0]].mean())


def test_a_requirement_that_does_not_hold_is_named_with_its_figure(folder: Path, model: VisionLanguageModel) -> None:
    report = faithfulness_report(subjects(folder, model), SETTINGS, pictures=False)
    assert unmet(report, ["comprehensiveness@20>=0.3", "deletion_auc <= 0.9"]) == [
        reason for reason in unmet(report, ["comprehensiveness@20>=0.3"]) if "gradient" in reason
    ]
    (reason, *_) = unmet(report, ["comprehensiveness@20>=1.5"])
    assert reason.startswith("comprehensiveness@20 is ")
    assert "not >= 1.5 for memes.jsonl, text, attnlrp" in reason
    with pytest.raises(ValueError, match="measures are deletion_auc"):
        unmet(report, ["accuracy>=1"])


def test_the_command_writes_the_report_and_fails_where_a_requirement_does(folder: Path) -> None:
    common = ["faithfulness", str(folder / "a"), "--units", "words", "--draws", "2", "--device", "cpu"]
    done = CliRunner().invoke(app, [*common, "--require", "comprehensiveness@20>=0.3", "--json"])
    assert done.exit_code == 0, done.output
    report = read_report(folder / "a/reports/faithfulness.json")
    assert json.loads(done.stdout)["title"] == report.title
    page = (folder / "a/reports/faithfulness.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<details" in page
    failed = CliRunner().invoke(app, [*common, "--no-pictures", "--require", "area_between>=2"])
    assert failed.exit_code == 1
    assert "area_between is" in failed.output


def test_robustness_is_measured_where_it_is_asked_for(folder: Path, model: VisionLanguageModel) -> None:
    run, settings = open_run(folder / "a"), Settings(units="words", n_draws=1, robustness=True)
    found = measure_run(run, model, settings, budget=Budget(forwards=1))
    report = faithfulness_report([Subject(run, found, {})], settings, pictures=False)
    (row,) = report.table("robustness").frame.to_dict("records")
    assert 0 <= row["infidelity ↓"] <= 1
    assert row["max_sensitivity ↓"] > 0
    assert row["jpeg ↑"] is None
    assert -1 <= row["typo ↑"] <= 1


def test_the_stored_figures_are_read_without_the_model(folder: Path, measured: Measured) -> None:
    pd.testing.assert_frame_equal(read_measured(open_run(folder / "a"), SETTINGS).curves, measured.curves)


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="needs Chromium or Chrome")
def test_a_page_is_printed_beside_itself(tmp_path: Path) -> None:
    page = tmp_path / "faithfulness.html"
    page.write_text("<!doctype html><title>t</title><p>one page", encoding="utf-8")
    path = printed(page)
    assert path == tmp_path / "faithfulness.pdf"
    assert path.read_bytes().startswith(b"%PDF")


def test_without_a_browser_the_page_is_named_as_what_to_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="print the HTML page from any browser instead"):
        printed(tmp_path / "faithfulness.html")

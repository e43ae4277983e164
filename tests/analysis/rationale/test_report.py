"""The report of `xai analyze` says what its tables of memes say, for every run, mode, method, label and outcome."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.benchmarks.generated import generate_run
from xai.analysis.rationale.agreement import AgreementTables, agreement_tables
from xai.analysis.rationale.report import LOW, RIGHT, WRONG, agreement_report, grouped
from xai.analysis.report import Chart, Heatmap, Report, Section, Table, write_report
from xai.analysis.statistics import mean_interval
from xai.store import Run, open_run

N = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return generate_run(tmp_path_factory.mktemp("generated") / "run", N)


@pytest.fixture(scope="module")
def tables(run: Run) -> AgreementTables:
    return agreement_tables(run)


@pytest.fixture(scope="module")
def report(run: Run, tables: AgreementTables) -> Report:
    return agreement_report({"one": run}, {"one": tables}, pooling="sum", n_draws=200)


def test_means_and_intervals_are_over_the_memes_where_a_measure_is_defined(
    report: Report, tables: AgreementTables
) -> None:
    (row,) = report.table("agreement").frame.to_dict("records")
    expected = mean_interval(tables.memes["jaccard"].to_numpy(), n_draws=200)
    assert (row["run"], row["mode"], row["method"], row["n"]) == ("one", "image+text", "attnlrp", N)
    assert (row["jaccard"], row["jaccard_low"], row["jaccard_high"]) == pytest.approx(tuple(expected))
    (ranks,) = report.table("rank_agreement").frame.to_dict("records")
    assert ranks["kendall_tau"] == pytest.approx(np.nanmean(tables.memes["kendall_tau"]))


def test_relevance_that_follows_the_rationale_agrees_more_than_chance(report: Report) -> None:
    (row,) = report.table("agreement").frame.to_dict("records")
    assert row["excess_low"] > 0
    assert row["jaccard"] == pytest.approx(row["jaccard_chance"] + row["excess"])


def test_every_label_has_a_row_of_the_memes_whose_answer_gives_it(report: Report, run: Run) -> None:
    frame = report.table("by_label").frame.set_index("target")
    answered = [label for (labels,) in run.predictions().select("labels").fetchall() for label in labels]
    assert frame["n"].to_dict() == pd.Series(answered).value_counts().to_dict()
    assert "of the whole answer, not of a label" in report.table("by_label").note


def test_right_wrong_and_low_predictions_are_apart(report: Report, tables: AgreementTables) -> None:
    frame = report.table("by_outcome").frame.set_index("prediction")
    right = tables.memes["right"].astype(bool)
    assert frame["n"].to_dict() == {
        RIGHT: right.sum(), WRONG: (~right).sum(), LOW: (tables.memes["f1"] < 0.5).sum(),
    }  # fmt: skip
    assert frame.loc[WRONG, "jaccard"] == pytest.approx(tables.memes["jaccard"][~right].mean())


def test_the_histograms_are_shares_of_memes(report: Report) -> None:
    charts = {chart.name: chart for section in report.sections for chart in section.charts}
    histogram, by_label = charts["jaccard_histogram"], charts["jaccard_by_label_1"]
    assert isinstance(histogram, Chart)
    assert isinstance(by_label, Heatmap)
    assert sum(y or 0 for y in histogram.series[0].y) == pytest.approx(1)
    assert [sum(value or 0 for value in row) for row in by_label.values] == [pytest.approx(1)] * len(by_label.rows)
    assert by_label.rows == tuple(report.table("by_label").frame["target"])


def test_a_jaccard_at_the_edge_of_a_bin_belongs_to_it(run: Run, tables: AgreementTables) -> None:
    values = [3 / 5, 0.3, 0.7, 1.0]
    memes = tables.memes.head(4).assign(jaccard=values)
    found = agreement_report({"one": run}, {"one": AgreementTables(memes, tables.labels)}, pooling="sum", n_draws=2)
    (chart,) = [chart for chart in found.sections[0].charts if isinstance(chart, Chart)]
    assert [x for x, y in zip(chart.series[0].x, chart.series[0].y, strict=True) if y] == [0.3, 0.6, 0.7, 0.9]


def test_invented_words_are_counted(report: Report, tables: AgreementTables) -> None:
    (row,) = report.table("invented").frame.to_dict("records")
    assert row["invented_words"] == tables.memes["n_invented"].sum() > 0
    assert row["memes_with_one"] == (tables.memes["n_invented"] > 0).sum()
    assert row["share"] == pytest.approx(row["invented_words"] / row["named_words"])
    assert len(report.table("words_invented").rows) == row["distinct"]


def test_the_picture_is_compared_where_the_record_has_regions(report: Report, tables: AgreementTables) -> None:
    (row,) = report.table("picture").frame.to_dict("records")
    assert row["n"] == N
    assert row["image_mass"] == pytest.approx(tables.memes["image_mass"].mean())
    # Its relevance is random, so that the regions get their share of the area.
    assert row["image_excess_low"] < 0 < row["image_excess_high"]
    section = next(part for part in report.sections if part.title == "The picture")
    assert f"Answers name {2 * N} things in the pictures, of which the record has a region for {N}" in section.text


def test_several_runs_stand_side_by_side(run: Run, tables: AgreementTables, tmp_path: Path) -> None:
    other = generate_run(tmp_path / "other", 20, seed=1)
    both = {"one": tables, "two": agreement_tables(other)}
    report = agreement_report({"one": run, "two": other}, both, pooling="sum", n_draws=20)
    assert report.table("agreement").frame[["run", "n"]].to_numpy().tolist() == [["one", N], ["two", 20]]
    histogram = next(c for s in report.sections for c in s.charts if isinstance(c, Chart))
    assert [series.name for series in histogram.series] == ["one", "two"]
    assert report.facts["runs"]["two"]["dataset"] == "generated-20"  # type: ignore[index,call-overload]


def test_a_section_of_others_comes_last_and_all_is_written(run: Run, tables: AgreementTables, tmp_path: Path) -> None:
    section = Section(title="More", tables=(Table.of("more", "More", pd.DataFrame({"x": [1]})),))
    report = agreement_report({"one": run}, {"one": tables}, pooling="sum", n_draws=2, sections=[section])
    assert report.sections[-1] == section
    paths = write_report(report, tmp_path, "analyze")
    assert "Agreement of the whole ranking of words" in paths["html"].read_text(encoding="utf-8")


def test_a_run_without_gold_labels_regions_or_labels_of_their_own_leaves_these_parts_out(
    run: Run, tables: AgreementTables
) -> None:
    bare = tables.memes.assign(right=None, f1=np.nan, image_area=np.nan)
    report = agreement_report(
        {"one": run}, {"one": AgreementTables(bare, tables.labels.head(0))}, pooling="sum", n_draws=2
    )
    assert [section.title for section in report.sections] == [
        "Relevance words and rationale words", "Most frequent words",
    ]  # fmt: skip


def test_processes_that_share_a_run_find_the_same(
    run: Run, tables: AgreementTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xai.analysis.rationale.agreement._SHARE", 1)
    shared = agreement_tables(run, workers=2)
    pd.testing.assert_frame_equal(shared.memes, tables.memes)
    pd.testing.assert_frame_equal(shared.labels, tables.labels)


def test_nothing_to_analyse_is_said(run: Run, tables: AgreementTables) -> None:
    empty = AgreementTables(tables.memes.head(0), tables.labels)
    with pytest.raises(ValueError, match="no explanation of all labels together"):
        agreement_report({"one": run}, {"one": empty}, pooling="sum")


def test_means_of_groups_by_hand() -> None:
    frame = pd.DataFrame({"mode": ["a", "a", "a", "b"], "jaccard": [0.0, 1.0, np.nan, 0.25]})
    found = grouped(frame, ["mode"], ["jaccard"], "jaccard")
    assert found[["mode", "n", "jaccard"]].to_numpy().tolist() == [["a", 2, 0.5], ["b", 1, 0.25]]
    assert (found.loc[0, "jaccard_low"], found.loc[0, "jaccard_high"]) == (0, 1)
    assert found.loc[1, ["jaccard_low", "jaccard_high"]].isna().all()


def test_a_generated_run_is_as_large_as_it_was_asked_to_be_and_the_same_again(run: Run, tmp_path: Path) -> None:
    assert run.info["counts"]["predictions"] == len(open_run(run.path).predictions()) == N
    again = generate_run(tmp_path / "again", N)
    assert again.explanations().df().equals(run.explanations().df())

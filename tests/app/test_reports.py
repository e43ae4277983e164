"""Pages on a run with the reports of `xai score`, `xai analyze` and `xai faithfulness`: they show what is stored."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from tests.app.test_pages import page_script, texts
from xai.analysis.categories import get_tagger
from xai.analysis.faithfulness.stored import GRID, curve_chart, measure_table
from xai.analysis.report import read_report
from xai.app.filters import Filter
from xai.app.library import Key, Library
from xai.app.settings import Settings


@pytest.fixture(scope="module")
def library(reported: Path) -> Library:
    return Library([reported])


@pytest.fixture
def published(reported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(runs=(reported,), cache=tmp_path / "cache", auditor="ann")
    monkeypatch.setenv("XAI_APP_SETTINGS", settings.model_dump_json())


def opened(name: str, **params: str) -> AppTest:
    tester = AppTest.from_function(page_script, default_timeout=120, args=(name,))
    for key, value in params.items():
        tester.query_params[key] = value
    tester.run()
    assert not tester.exception, tester.exception
    return tester


def charts(tester: AppTest) -> dict[str, dict[str, object]]:
    """What Plotly is told, by the title of the figure."""
    specs = [json.loads(element.proto.spec) for element in tester.get("plotly_chart")]
    return {spec["layout"]["title"]["text"]: spec for spec in specs}


def bars(spec: dict[str, object]) -> dict[str, dict[str, float]]:
    """Of lying bars: the value of every name, by the name of the colour."""
    return {bar["name"]: dict(zip(bar["y"], bar["x"], strict=True)) for bar in spec["data"]}  # type: ignore[attr-defined]


def test_the_agreement_of_the_index_is_that_of_the_real_table(library: Library, reported: Path) -> None:
    table = pd.read_parquet(reported / "reports" / "agreement.parquet").set_index(["meme_id", "mode"])
    rows = library.page(Filter(), start=0, size=100)
    assert len(rows) == len(table) == 8
    for row in rows.itertuples():
        stored = table.loc[(row.meme_id, row.mode)]
        assert row.jaccard == pytest.approx(stored.jaccard, nan_ok=True)
        assert row.f1 == pytest.approx(stored.f1)
        assert row.n_invented == stored.n_invented


def test_categories_are_those_that_the_tagger_gives_and_name_it(library: Library, reported: Path) -> None:
    table = pd.read_parquet(reported / "reports" / "categories.parquet")
    tagger = get_tagger("rules")
    assert set(table["tagger"]) == {"rules"}
    assert set(table["tagger_version"]) == {tagger.version}
    agreement = pd.read_parquet(reported / "reports" / "agreement.parquet").set_index(["meme_id", "mode", "method"])
    for key, words in table.groupby(["meme_id", "mode", "method"]):
        row = agreement.loc[key]
        found = library.categories(Key("run", *key))
        assert found is not None
        assert set(found.category) == set(words.word) == {*row.relevance_words, *row.rationale_words}
        assert set(words.word[words.group == "shared"]) == set(row.shared)


def test_a_filter_by_category_lists_the_memes_with_such_a_word_on_that_side(library: Library, reported: Path) -> None:
    table = pd.read_parquet(reported / "reports" / "categories.parquet")
    assert len(table) > 0
    for (category, side), words in table.groupby(["category", "group"]):
        rows = library.page(Filter(category=(category,), side=side), start=0, size=100)
        assert set(zip(rows.meme_id, rows["mode"], strict=True)) == set(zip(words.meme_id, words["mode"], strict=True))
    everywhere = library.page(Filter(category=("Content",)), start=0, size=100)
    content = table[table.category == "Content"]
    assert len(everywhere) == len(content[["meme_id", "mode", "method"]].drop_duplicates())


def test_a_filter_by_share_and_by_gold_label(library: Library) -> None:
    every = library.query("SELECT meme_id, mode, part_image, gold FROM memes")
    for least in (0.0, 0.1, 0.3):
        rows = library.page(Filter(share="image", least=least), start=0, size=100)
        assert len(rows) == (every.part_image >= least).sum()
    label = every.gold.iloc[0][0]
    rows = library.page(Filter(gold=(label,)), start=0, size=100)
    assert len(rows) == sum(label in gold for gold in every.gold) > 0


@pytest.mark.usefixtures("published")
def test_the_overview_shows_the_figures_of_the_reports(reported: Path) -> None:
    tester = opened("overview")
    table = pd.read_parquet(reported / "reports" / "agreement.parquet")
    table = table[table["mode"] == "image+text"]
    values = {metric.label: metric.value for metric in tester.metric}
    assert values["Hierarchical F1"] == f"{table.f1.mean():.2f}"
    assert values["Mean agreement"] == f"{table.jaccard.mean():.2f}"
    words = pd.read_parquet(reported / "reports" / "categories.parquet")
    words = words[words["mode"] == "image+text"]
    shown = bars(charts(tester)["Categories of words by side"])
    for side, group in words.groupby("group"):
        percent = 100 * group.category.value_counts(normalize=True)
        drawn = shown[f"{side} ({len(group)})"]
        assert {name: value for name, value in drawn.items() if value} == pytest.approx(percent.to_dict())
    outcomes = bars(charts(tester)["Answers against the gold labels"])["memes"]
    assert outcomes == {"right": table.right.sum(), "wrong": len(table) - table.right.sum()}
    for name in ("score", "analyze"):
        title = read_report(reported / "reports" / f"{name}.json").title
        assert any(title in expander.label for expander in tester.expander)


@pytest.mark.usefixtures("published")
def test_the_page_of_a_meme_shows_its_curve_with_score_and_directions(library: Library) -> None:
    tester = opened("meme", run="run", meme="sample-02", mode="image+text", target="Bandwagon")
    spec = charts(tester)["What Bandwagon loses without parts of the meme"]
    assert spec["layout"]["yaxis"]["title"]["text"] == "probability of the target"  # type: ignore[index]
    lines = {line["name"]: line["y"] for line in spec["data"] if line.get("name")}  # type: ignore[attr-defined]
    found = library.curves(Key("run", "sample-02", "image+text", "attnlrp"))
    assert found is not None
    (own,) = [row for row in found.rows if row["method"] == "attnlrp" and row["target"] == "Bandwagon"]
    assert list(lines["attnlrp, most relevant first ↓"]) == own["morf:probability"]
    assert list(lines["attnlrp, least relevant first ↑"]) == own["lerf:probability"]
    assert "words are taken away by putting a neutral token" in texts(tester)
    assert "lower is better" in texts(tester)


@pytest.mark.usefixtures("published")
def test_words_on_the_page_of_a_meme_have_their_category_behind_them(library: Library) -> None:
    found = library.categories(Key("run", "sample-02", "image+text", "attnlrp"))
    assert found is not None
    shown = texts(opened("meme", run="run", meme="sample-02", mode="image+text"))
    for word, category in found.category.items():
        assert f'{word}<span class="xai-kind">{category}</span>' in shown
    assert "its category, by rules" in shown


@pytest.mark.usefixtures("published")
def test_the_page_of_faithfulness_shows_every_chart_and_the_headline_of_its_report(reported: Path) -> None:
    report = read_report(reported / "reports" / "faithfulness.json")
    tester = opened("faithfulness")
    wanted = {chart.title for section in report.sections for chart in section.charts}
    assert wanted
    assert wanted <= set(charts(tester))
    board = report.table("leaderboard")
    assert any(f"**{board.title}**" == markdown.value for markdown in tester.markdown)


@pytest.mark.usefixtures("published")
def test_a_meme_that_was_not_measured_names_the_command(library: Library) -> None:
    measured = library.curves(Key("run", "sample-02", "image+text", "attnlrp"))
    assert measured is not None
    assert library.curves(Key("run", "no such meme", "text", "attnlrp")) is None
    assert curve_chart(measured.rows, "attnlrp", "Doubt") is None
    assert measure_table(measured.rows, "another method", "Bandwagon") is None


def test_a_curve_is_the_mean_over_draws_with_the_middle_half_around_it() -> None:
    falling, late = [1 - x for x in GRID], [1.0] * 20 + [0.0]
    rows = [_row("random order", draw, curve) for draw, curve in enumerate((falling, late))]
    chart = curve_chart([*rows, _row("attnlrp", 0, falling)], "attnlrp", "A")
    assert chart is not None
    random = chart.series[0]
    assert random.name.startswith("random order")
    assert (random.y[10], random.low, random.high) != (None, None, None)
    assert random.y[10] == pytest.approx((0.5 + 1.0) / 2)
    assert random.low is not None
    assert random.low[10] == pytest.approx(0.5 + 0.25 * 0.5)  # the first quartile of 0.5 and 1
    assert chart.series[-1].low is None


def test_measures_of_a_meme_say_which_way_is_better_and_what_chance_gives() -> None:
    rows = [_row("attnlrp", 0, list(GRID)), _row("random order", 0, list(GRID)), _row("random order", 1, list(GRID))]
    rows[1] |= {"deletion_auc:probability": 0.4}
    rows[2] |= {"deletion_auc:probability": 0.8}
    table = measure_table(rows, "attnlrp", "A")
    assert table is not None
    first = table.frame.iloc[0]
    assert first["measure"] == "deletion_auc ↓"
    assert (first["attnlrp"], first["random order"]) == (0.1, pytest.approx(0.6))
    assert not any(isinstance(value, float) and math.isnan(value) for row in table.rows for value in row)


def _row(method: str, draw: int, curve: list[float]) -> dict[str, object]:
    names = ("deletion_auc", "insertion_auc", "area_between", "comprehensiveness@20", "sufficiency@20", "flip_top_1")
    return {
        "target": "A",
        "method": method,
        "draw": draw,
        "n_units": 20,
        "morf:probability": curve,
        "lerf:probability": curve,
        **{f"{name}:probability": 0.1 for name in names},
    }

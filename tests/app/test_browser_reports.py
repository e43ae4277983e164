"""Real reports, relevance of pixels, and methods without signs, in a real browser with three runs open at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.browser import Browser, missing
from tests.app.serving import Explorer
from xai.models import VisionLanguageModel
from xai.pipeline import explain_dataset
from xai.planted import SAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
SHOTS = Path(__file__).parents[2] / "build" / "explorer"
MEME = {"run": "reported", "meme": "sample-02", "mode": "image+text"}


@pytest.fixture(scope="module")
def explorer(
    reported: Path, model: VisionLanguageModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("three")
    shutil.copytree(reported, folder / "reported")
    explain_dataset(model, SAMPLES, folder / "pixels", limit=2, options={"depth": "pixels"})
    explain_dataset(model, SAMPLES, folder / "unsigned", limit=2, method="gradient")
    runs = [folder / name for name in ("reported", "pixels", "unsigned")]
    running = Explorer(*runs, cache=tmp_path_factory.mktemp("cache"))
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _no_errors(browser: Browser) -> Iterator[None]:
    yield
    assert browser.errors() == []
    assert browser.find("[data-testid=stException]") == []


def titles(browser: Browser) -> list[str]:
    """Of the figures of a page."""
    found = browser.script("return [...document.querySelectorAll('.js-plotly-plot .gtitle')].map(e => e.textContent)")
    return [str(title) for title in found]


@pytest.mark.parametrize("dark", [False, True])
def test_the_curve_of_a_meme_names_score_and_directions(browser: Browser, dark: bool) -> None:
    browser.dark(dark)
    browser.size(1500)
    browser.open("meme", **MEME, target="Bandwagon")
    browser.click("Faithfulness", css="[role=tab]")
    browser.until(lambda: "What Bandwagon loses without parts of the meme" in titles(browser), "the curve is drawn")
    browser.reads("probability of the target")
    browser.reads("attnlrp, most relevant first ↓")
    browser.shot(SHOTS / f"curve-{'dark' if dark else 'light'}.png")
    browser.size(800)
    browser.dark(False)


def test_words_have_their_categories(browser: Browser) -> None:
    browser.open("meme", **MEME)
    browser.until(lambda: bool(browser.find(".xai-chip .xai-kind")), "a word has a category")
    browser.reads("its category, by rules")


FIGURES = {
    "Labels": ("f_label=", "f_gold="),
    "Answers against the gold labels": ("f_correct=",),
    "Where relevance sits": ("f_share=",),
    "Agreement of relevance and rationale": ("f_low=", "f_high="),
    "Mean agreement by label": ("f_label=",),
    "Categories of words by side": ("f_category=",),
}


@pytest.mark.parametrize("title", FIGURES)
def test_a_bar_of_every_figure_of_the_overview_lists_its_memes(browser: Browser, title: str) -> None:
    browser.size(2600)
    browser.open("overview")
    browser.until(lambda: set(FIGURES) <= set(titles(browser)), "all figures are drawn")
    browser.shot(SHOTS / "overview-reports.png")
    browser.click_bar(titles(browser).index(title))
    wanted = FIGURES[title]
    browser.until(lambda: any(name in browser.driver.current_url for name in wanted), "the list is filtered")
    browser.until(lambda: bool(browser.find(".xai-card")), "and not empty")
    browser.size(800)


def test_the_page_of_faithfulness_has_curves_leaderboard_and_headline(browser: Browser) -> None:
    browser.open("faithfulness")
    for text in ("What the model says it used", "Which order the model follows", "Save this report as JSON"):
        browser.reads(text)
    browser.shot(SHOTS / "faithfulness-report.png")


def test_the_table_of_memes_opens_the_chosen_one(browser: Browser) -> None:
    browser.open("", table="true", f_run="reported")
    browser.reads("Choose a row to open it")
    browser.shot(SHOTS / "memes-table.png")
    browser.choose_row(1, lambda: "/meme?" in browser.driver.current_url)
    browser.reads("2 of 8 in the current filter")


def test_two_methods_stand_side_by_side_on_one_meme(browser: Browser) -> None:
    browser.size(1600)
    browser.open("compare")
    browser.reads("Where they differ most")
    browser.choose_row(0, lambda: len(browser.find(".xai-caption")) == 2)
    browser.until(lambda: titles(browser).count("Relevance of the picture") >= 1, "a heatmap is drawn")
    legends = [legend.text for legend in browser.find(".xai-legend")]
    assert legends[0].startswith("against")  # the first run is signed
    assert "against" not in legends[1]  # and the last one has no signs
    browser.shot(SHOTS / "compare-side-by-side.png")
    browser.size(800)


def test_relevance_of_pixels_is_finer_than_that_of_cells(browser: Browser) -> None:
    shown = {}
    for depth in ("tokens", "pixels"):
        browser.open("meme", run="pixels", meme="sample-01", mode="image+text", depth=depth)
        browser.until(lambda: bool(browser.find(".js-plotly-plot .cbtitle")), "the scale is drawn")
        shown[depth] = browser.script(
            "const map = document.querySelector('.js-plotly-plot')._fullData.find(one => one.type === 'heatmap');"
            "const n = [...map.z].reduce((n, row) => n + row.length, 0);"
            "return [n, document.querySelector('.js-plotly-plot .cbtitle').textContent]"
        )
        browser.shot(SHOTS / f"depth-{depth}.png")
    assert shown["tokens"][1].startswith("relevance of cells")
    assert shown["pixels"][1].startswith("relevance of patches")
    assert shown["pixels"][0] == 4 * shown["tokens"][0]  # a cell is two by two patches


def test_a_method_without_signs_has_no_colour_for_against(browser: Browser) -> None:
    browser.open("meme", run="unsigned", meme="sample-01", mode="image+text")
    browser.until(lambda: bool(browser.find(".xai-legend")), "the legend is there")
    assert "against" not in browser.find(".xai-legend")[0].text
    assert "What speaks" not in browser.text()
    browser.shot(SHOTS / "unsigned.png")
    browser.open("meme", **MEME)
    browser.until(lambda: "against" in browser.find(".xai-legend")[0].text, "the legend has both sides")
    browser.reads("What speaks")

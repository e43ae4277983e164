"""A report is one JSON; Markdown, HTML and charts show what is in it and nothing else, as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from xai.analysis.charts import matplotlib_figure, plotly_figure, svg
from xai.analysis.pages import report_html, report_markdown
from xai.analysis.report import Chart, Heatmap, Picture, Report, Section, Series, Table, read_report, write_report

HOSTILE = "<img src=x onerror=alert(1)> | `code` \n# not a heading"
FRAME = pd.DataFrame(
    {"mode": ["text", HOSTILE], "f1": [0.5, float("nan")], "f1_low": [0.4, None], "f1_high": [0.6, None]}
)
DELETION = Series(name="attnlrp", x=(0.0, 0.5, 1.0), y=(2.0, 1.0, None), low=(1.9, 0.8, None), high=(2.1, 1.2, None))
LINES = Chart(
    name="curve", title="Deletion", kind="lines", x_label="share removed", y_label="logit",
    series=(DELETION,),
)  # fmt: skip
BARS = Chart(
    name="labels", title="Labels", kind="bars", x_label="label", y_label="memes",
    series=(Series(name="gold", x=("Doubt", HOSTILE), y=(3, 1)), Series(name="predicted", x=("Doubt",), y=(2,))),
)  # fmt: skip
HEATMAP = Heatmap(
    name="confusion", title="Confusion", rows=("a", "b"), columns=("a", "b"), values=((1, -2), (None, 0)), unit="memes",
    diverging=True,
)  # fmt: skip


def report() -> Report:
    return Report(
        title=f"Scores {HOSTILE}",
        facts={"seed": 0, "none label": HOSTILE},
        headline=("by_mode",),
        sections=(
            Section(
                title="Detection",
                text=f"First.\n\n{HOSTILE}",
                tables=(Table.of("by_mode", "By mode", FRAME, note=HOSTILE, n_shown=1),),
                charts=(LINES, BARS, HEATMAP),
                pictures=(Picture(name="one", caption=HOSTILE, png="iVBORw0KGgo="),),
            ),
        ),
    )


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    paths = write_report(report(), tmp_path / "reports", "score")
    assert sorted(path.name for path in paths.values()) == ["score.html", "score.json", "score.md"]
    assert read_report(paths["json"]) == report()
    assert "NaN" not in paths["json"].read_text(encoding="utf-8")


def test_every_number_of_the_pages_is_in_the_json(tmp_path: Path) -> None:
    paths = write_report(report(), tmp_path, "score")
    assert report_html(read_report(paths["json"])) == paths["html"].read_text(encoding="utf-8")
    assert report_markdown(read_report(paths["json"])) == paths["md"].read_text(encoding="utf-8")


def test_an_interval_is_shown_with_its_value_and_what_is_unknown_as_a_dash() -> None:
    heads, rows = Table.of("by_mode", "By mode", FRAME).shown()
    assert heads == ["mode", "f1"]
    assert rows == [["text", "0.500 (0.400 to 0.600)"], [HOSTILE, "–"]]


def test_pages_say_how_many_rows_they_leave_out() -> None:
    assert "The first 1 of 2 rows" in report_html(report())
    assert "The first 1 of 2 rows" in report_markdown(report())


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]


def test_text_stays_text_in_html() -> None:
    tags = _Tags()
    tags.feed(report_html(report()))
    assert "script" not in tags.names
    assert tags.names.count("img") == 1  # the picture of the report


def test_text_stays_text_in_markdown() -> None:
    lines = report_markdown(report()).splitlines()
    assert not [line for line in lines if line.startswith("# not")]
    assert all(re.search(r"(?<!\\)[<`]", line) is None for line in lines)


@pytest.mark.parametrize("chart", [LINES, BARS, HEATMAP], ids=lambda chart: chart.name)
def test_charts_have_titles_and_units_and_the_same_bytes_each_time(chart: Chart | Heatmap) -> None:
    (axes, *_) = matplotlib_figure(chart).axes
    assert axes.get_title() == chart.title
    assert svg(chart) == svg(chart)
    drawn = plotly_figure(chart)
    assert drawn.layout.title.text == chart.title
    if isinstance(chart, Chart):
        assert (axes.get_xlabel(), axes.get_ylabel()) == (chart.x_label, chart.y_label)
        assert (drawn.layout.xaxis.title.text, drawn.layout.yaxis.title.text) == (chart.x_label, chart.y_label)
    else:
        assert drawn.data[0].zmin == -drawn.data[0].zmax == -2


def test_plotly_has_the_numbers_of_the_chart() -> None:
    band, line = plotly_figure(LINES).data
    assert (list(line.x), list(line.y)) == ([0.0, 0.5, 1.0], [2.0, 1.0, None])
    assert list(band.y)[:2] == [2.1, 1.2]
    assert [list(bar.y) for bar in plotly_figure(BARS).data] == [[3, 1], [2]]


def test_names_are_given_once_and_the_headline_is_in_the_report() -> None:
    table = Table.of("a", "A", FRAME)
    with pytest.raises(ValueError, match="given twice: a"):
        Report(title="t", sections=(Section(title="s", tables=(table, table)),))
    with pytest.raises(ValueError, match="does not have: b"):
        Report(title="t", headline=("b",), sections=(Section(title="s", tables=(table,)),))
    with pytest.raises(KeyError, match="it has a"):
        Report(title="t", sections=(Section(title="s", tables=(table,)),)).table("b")


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "score.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="not a report"):
        read_report(tmp_path / "score.json")
    with pytest.raises(ValueError, match="cannot be read"):
        read_report(tmp_path / "none.json")


def test_a_narrow_page_has_no_intervals_and_says_shared_names_in_the_title() -> None:
    frame = pd.DataFrame({"run": ["a", "a"], "mode": ["text", "image"], "f1": [0.5, 1.0], "f1_low": [0.4, 0.9]})
    brief = Table.of("by_mode", "By mode", frame).brief()
    assert brief.title == "By mode (run a)"
    assert brief.columns == ("mode", "f1")
    assert brief.rows == (("text", 0.5), ("image", 1.0))


def test_a_dollar_is_no_formula_and_a_long_name_leaves_room_for_the_chart() -> None:
    names = ("$\\frac{1}$ and $2", "a name without end " * 20)
    chart = BARS.model_copy(update={"title": names[0], "series": (Series(name=names[0], x=names, y=(3, 1)),)})
    figure = matplotlib_figure(chart)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_title() == names[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == [names[0], names[1][:39] + "…"]
    assert axes.get_position().height > 0.3
    assert "frac" in svg(chart)


def test_a_name_is_no_markup_for_plotly() -> None:
    link = "<a href='https://127.0.0.1:9'>x</a>"
    chart = BARS.model_copy(update={"title": link, "series": (Series(name=link, x=(link, "R&D"), y=(3, 1)),)})
    figure = plotly_figure(chart)
    (bars,) = figure.data
    shown = [figure.layout.title.text, bars.name, *bars.x]
    assert shown == [*["&lt;a href='https://127.0.0.1:9'&gt;x&lt;/a&gt;"] * 3, "R&amp;D"]
    matrix = plotly_figure(HEATMAP.model_copy(update={"rows": (link, "b")}))
    assert matrix.data[0].y[0].startswith("&lt;a ")


def test_a_narrow_page_has_short_heads_and_leaves_out_columns_that_have_none() -> None:
    frame = pd.DataFrame({"method": ["a"], "points_at_word": [0.5], "points_at_word_low": [0.4], "forwards": [3]})
    table = Table.of("methods", "Methods", frame, short={"points_at_word": "word", "forwards": ""})
    assert table.brief().columns == ("method", "word")
    gaps = Table(name="t", title="T", columns=("method", "ms"), rows=(("a", 3), ("chance", None)))
    assert gaps.brief().shown()[1] == [["a", "3"], ["chance", "–"]]
    assert table.shown()[0] == ["method", "points at word", "points at word low", "forwards"]
    assert Table.model_validate_json(table.model_dump_json()) == table


def test_a_series_takes_the_interval_of_its_column_and_has_gaps_where_there_is_no_number() -> None:
    frame = pd.DataFrame({"f1": [0.5, np.nan], "f1_low": [0.4, np.nan], "f1_high": [0.6, np.nan], "f2": [1, 2]})
    series = Series.of("F1", ["text", "image"], frame, "f1")
    assert series == Series(name="F1", x=("text", "image"), y=(0.5, None), low=(0.4, None), high=(0.6, None))

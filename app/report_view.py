"""Shows a report of `xai score`, `xai analyze` or another command: its words, tables and charts."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import streamlit as st

from xai.analysis.charts import plotly_figure
from xai.analysis.report import Chart, Heatmap, Report, Table
from xai.app.figures import CONFIG
from xai.app.pieces import facts_html, plain


def show_report(report: Report, *, key: str) -> None:
    """Sections in order, then what the numbers depend on, and the report for download."""
    for section in report.sections:
        st.subheader(plain(section.title))
        for paragraph in filter(None, section.text.split("\n\n")):
            st.markdown(plain(paragraph))
        for table in section.tables:
            show_table(table)
        for index, chart in enumerate(section.charts):
            show_chart(chart, key=f"{key}.{chart.name}.{index}")
    with st.expander("What the numbers depend on"):
        st.html(facts_html((name, _fact(value)) for name, value in report.facts.items()) or "–")
    st.download_button(
        "Save this report as JSON", report.model_dump_json(indent=1), f"{key}.json", "application/json",
        icon=":material/download:", key=f"{key}.save", on_click="ignore",
    )  # fmt: skip


def show_table(table: Table) -> None:
    """A table with its title and note, as the other pages of the report show it."""
    heads, rows = table.shown()
    st.markdown(f"**{plain(table.title)}**")
    # Heads may be the same once intervals are joined; a data frame wants them apart.
    names = [head if heads.count(head) == 1 else f"{head} ({index + 1})" for index, head in enumerate(heads)]
    st.dataframe(pd.DataFrame(rows, columns=names), hide_index=True)
    hidden = len(table.rows) - len(rows)
    notes = [plain(table.note)] if table.note else []
    if hidden:
        notes.append(f"{hidden:,} more rows are in the JSON.")
    if notes:
        st.caption(" ".join(notes))


def show_chart(chart: Chart | Heatmap, *, key: str, lying: bool = False, below: bool = False, **options: Any) -> Any:
    """A chart with its note; its menu saves it as a picture.

    Args:
        lying: bars lie, so that there is room for long names.
        below: the legend is under the chart, where long names fit.
    """
    figure = plotly_figure(chart)
    if isinstance(chart, Chart) and chart.bin_width is not None:
        starts = [float(x) for series in chart.series for x in series.x]
        figure.update_xaxes(range=(min(starts) - chart.bin_width / 5, max(starts) + chart.bin_width * 6 / 5))
    if below:
        figure.update_layout(legend={"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0})
    if lying and isinstance(chart, Chart):
        _lay_down(figure, chart)
    event = st.plotly_chart(figure, config=CONFIG, key=key, alt=chart.title, **options)
    if chart.note:
        st.caption(plain(chart.note))
    return event


def _lay_down(figure: Any, chart: Chart) -> None:
    for bar in figure.data:
        bar.update(x=bar.y, y=bar.x, orientation="h")
    height = max(26, 18 * len(chart.series)) * max(len(series.x) for series in chart.series)
    figure.update_layout(
        xaxis_title=chart.y_label, yaxis_title=chart.x_label, height=160 + height, bargap=0.2,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )  # fmt: skip
    # Without a step Plotly leaves out names where bars are low.
    figure.update_yaxes(autorange="reversed", range=None, automargin=True, dtick=1)
    figure.update_xaxes(range=chart.y_range)


def _fact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""Draws the charts of reports: with Plotly for pages that answer to the mouse, with matplotlib for print."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from xai.analysis.report import Chart, Heatmap, Series

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Of series, in order; those of Okabe and Ito, which the colour-blind can tell apart."""
DIVERGING, SEQUENTIAL = "RdBu_r", "cividis"
_WIDTH, _HEIGHT = 7.0, 3.6
_LONGEST = 40
"""Characters of a name under a tick or in a legend; a longer one would leave no room for what is drawn."""


def matplotlib_figure(chart: Chart | Heatmap) -> Figure:
    """A chart for print, with title, units and legend; a dollar in a name is a dollar, and no formula begins there."""
    with rc_context({"text.parse_math": False}):
        return _drawn(chart)


def _drawn(chart: Chart | Heatmap) -> Figure:
    if isinstance(chart, Heatmap):
        return _matplotlib_heatmap(chart)
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    for index, series in enumerate(chart.series):
        _matplotlib_series(axes, chart, series, index)
    _matplotlib_names(axes, chart)
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    if chart.y_range is not None:
        axes.set_ylim(chart.y_range)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    if len(chart.series) > 1:
        # Beside the axes, where no line can run through it.
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")
    return figure


def svg(chart: Chart | Heatmap) -> str:
    """The same as an SVG element, whose text is text; the same chart gives the same bytes."""
    figure, buffer = matplotlib_figure(chart), io.StringIO()
    # The ids inside are made from the salt, so that those of two charts on one page differ.
    with rc_context({"svg.hashsalt": chart.name, "svg.fonttype": "none", "text.parse_math": False}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return "<svg" + buffer.getvalue().partition("<svg")[2]


def plotly_figure(chart: Chart | Heatmap) -> go.Figure:
    """A chart for the screen: the same colours, exact numbers under the pointer."""
    import plotly.graph_objects as go

    figure = go.Figure()
    if isinstance(chart, Heatmap):
        limit = _limit(chart)
        scale = {"colorscale": "RdBu_r", "zmid": 0, "zmin": -limit, "zmax": limit} if chart.diverging else {}
        bar = {"title": {"text": chart.unit}}
        figure.add_heatmap(
            z=chart.values,
            x=_inert(chart.columns),
            y=_inert(chart.rows),
            colorbar=bar,
            **({"colorscale": "Cividis"} | scale),
        )
        title, x_label, y_label = _inert((chart.title, chart.column_label, chart.row_label))
        figure.update_layout(title=title, xaxis_title=x_label, yaxis_title=y_label)
        figure.update_yaxes(autorange="reversed")
        return figure
    for index, series in enumerate(chart.series):
        _plotly_series(figure, chart, series, index)
    title, x_label, y_label = _inert((chart.title, chart.x_label, chart.y_label))
    figure.update_layout(title=title, xaxis_title=x_label, yaxis_title=y_label, bargap=0.02)
    if chart.y_range is not None:
        figure.update_yaxes(range=chart.y_range)
    return figure


def _matplotlib_series(axes: Any, chart: Chart, series: Series, index: int) -> None:
    colour, y = COLOURS[index % len(COLOURS)], _numbers(series.y)
    low, high = _numbers(series.low or ()), _numbers(series.high or ())
    if chart.kind == "lines":
        axes.plot(series.x, y, color=colour, label=_short(series.name), linewidth=1.8)
        if low:
            axes.fill_between(series.x, low, high, color=colour, alpha=0.2, linewidth=0)
        return
    x, width = _places(chart, series, index)
    if chart.kind == "bars":
        align = "edge" if chart.bin_width else "center"
        axes.bar(x, y, width=width, color=colour, label=_short(series.name), align=align)
    else:
        axes.scatter(x, y, color=colour, label=_short(series.name), s=18)
    if low:
        errors = [
            [max(v - a, 0) for v, a in zip(y, low, strict=True)],
            [max(b - v, 0) for v, b in zip(y, high, strict=True)],
        ]
        axes.errorbar(x, y, yerr=errors, fmt="none", ecolor="#333333", elinewidth=1, capsize=2)


def _places(chart: Chart, series: Series, index: int) -> tuple[list[float], float]:
    """Where bars or points stand; those of several series stand side by side at one name."""
    if chart.bin_width is not None:
        width = chart.bin_width / len(chart.series)
        return [float(x) + index * width for x in series.x], width
    names = _names(chart)
    if not names:
        return [float(x) for x in series.x], 0.8
    width = 0.8 / len(chart.series)
    offset = (index - (len(chart.series) - 1) / 2) * width
    return [names.index(x) + offset for x in series.x if isinstance(x, str)], width


def _names(chart: Chart) -> list[str]:
    return list(dict.fromkeys(x for series in chart.series for x in series.x if isinstance(x, str)))


def _matplotlib_names(axes: Any, chart: Chart) -> None:
    names = _names(chart)
    if names:
        shown = [_short(name) for name in names]
        longest = max(map(len, shown))
        long = longest * len(names) > 90
        if long:  # slanted names take their height from nothing that is drawn
            axes.figure.set_figheight(_HEIGHT + 0.05 * longest)
        axes.set_xticks(range(len(names)), shown, rotation=40 if long else 0, ha="right" if long else "center")


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def _matplotlib_heatmap(chart: Heatmap) -> Figure:
    size = (2.5 + 0.34 * len(chart.columns) + 1.6, 1.6 + 0.3 * len(chart.rows))
    figure = Figure(figsize=(max(size[0], 4.5), max(size[1], 2.6)), layout="constrained")
    axes = figure.subplots()
    limit = _limit(chart)
    scale = {"cmap": DIVERGING, "vmin": -limit, "vmax": limit} if chart.diverging else {"cmap": SEQUENTIAL}
    shown = axes.imshow([_numbers(row) for row in chart.values], aspect="auto", **scale)
    columns, rows = map(_short, chart.columns), map(_short, chart.rows)
    axes.set_xticks(range(len(chart.columns)), list(columns), rotation=50, ha="right", fontsize="small")
    axes.set_yticks(range(len(chart.rows)), list(rows), fontsize="small")
    axes.set(title=chart.title, xlabel=chart.column_label, ylabel=chart.row_label)
    figure.colorbar(shown, label=chart.unit)
    return figure


def _plotly_series(figure: go.Figure, chart: Chart, series: Series, index: int) -> None:
    colour = COLOURS[index % len(COLOURS)]
    name, x = _inert((series.name,))[0], _inert(series.x)
    if chart.kind == "lines" and series.low and series.high:
        red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        band = {"x": [*series.x, *reversed(series.x)], "y": [*series.high, *reversed(series.low)]}
        figure.add_scatter(
            **band, fill="toself", fillcolor=f"rgba({red},{green},{blue},0.2)", line_width=0, hoverinfo="skip",
            showlegend=False, legendgroup=name,
        )  # fmt: skip
    errors = None
    if chart.kind != "lines" and series.low and series.high:
        y, low, high = _numbers(series.y), _numbers(series.low), _numbers(series.high)
        up, down = (_difference(high, y), _difference(y, low))
        errors = {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "color": "#333333"}
    if chart.kind == "bars":
        placed = {"offset": index * chart.bin_width / len(chart.series)} if chart.bin_width else {}
        width = chart.bin_width / len(chart.series) if chart.bin_width else None
        figure.add_bar(x=x, y=series.y, name=name, marker_color=colour, error_y=errors, width=width, **placed)
        return
    mode = "lines" if chart.kind == "lines" else "markers"
    figure.add_scatter(
        x=x, y=series.y, name=name, mode=mode, line_color=colour, marker_color=colour, error_y=errors,
        legendgroup=name,
    )  # fmt: skip


def _inert(values: Sequence[str | float]) -> list[Any]:
    """Names of which Plotly makes no links and no bold letters: it reads some of HTML."""
    return [escape(value, quote=False) if isinstance(value, str) else value for value in values]


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]


def _difference(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [max(x - y, 0.0) for x, y in zip(a, b, strict=True)]


def _limit(chart: Heatmap) -> float:
    return max((abs(v) for row in chart.values for v in row if v is not None), default=0.0) or 1.0

"""Plotly figures of one explanation: the picture under its heatmap with the words' boxes, and relevance by segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.colors import to_hex
from PIL import Image

from xai.app.pieces import is_signed, number
from xai.app.thumbnails import data_uri, webp
from xai.attribution.heatmap import overlay, relevance_rgb, visible
from xai.schema import SEGMENTS, Explanation, Polygon

if TYPE_CHECKING:
    import plotly.graph_objects as go

Sign = Literal["both", "for", "against"]
Depth = Literal["tokens", "pixels"]
MAX_BOXES = 400
_WIDTH = 430
"""Of a picture on the page, about, in pixels."""
SCALE = "RdBu_r"
CONFIG = {"displaylogo": False, "toImageButtonOptions": {"format": "png", "scale": 2}}
"""Of every chart: its menu saves it as a picture."""


@dataclass(frozen=True)
class WordMark:
    """A word in the picture: its corners in pixels of the original picture, and its relevance where it is known."""

    text: str
    corners: Polygon
    relevance: float | None


@dataclass(frozen=True)
class Layer:
    """What is laid over the picture: relevance ``(grid_h, grid_w)``, where its colours end, its unit, its signs."""

    grid: np.ndarray
    limit: float
    unit: str
    signed: bool = True


def cell_layer(e: Explanation, limit: float, sign: Sign = "both") -> Layer | None:
    """The cells of the picture, where the explanation has any."""
    if e.image is None:
        return None
    return Layer(one_sign(e.image, sign), limit, f"relevance of cells ({unit(e)})", is_signed(e.method))


def one_sign(grid: np.ndarray, sign: Sign) -> np.ndarray:
    """The grid with what speaks against (or for) the target set to 0."""
    if sign == "both":
        return grid
    kept: np.ndarray = np.clip(grid, 0, None) if sign == "for" else np.clip(grid, None, 0)
    return kept


def percentile_limit(values: np.ndarray, percentile: float) -> float:
    """Absolute relevance at that percentile of the finite values, above 0."""
    finite = np.abs(values[np.isfinite(values)])
    if not finite.any():
        return 1.0
    return float(np.percentile(finite, percentile)) or float(finite.max())


def picture_figure(
    picture: Image.Image,
    size: tuple[int, int],
    layer: Layer | None,
    opacity: float,
    marks: Sequence[WordMark],
    title: str,
) -> go.Figure:
    """The picture, under its heatmap if there is one, with exact numbers under the pointer.

    Args:
        picture: of any size.
        size: (width, height) of the original picture; axes and corners are in its pixels.
        opacity: of the strongest cell, 0 to 1.
    """
    import plotly.graph_objects as go

    width, height = size
    shown = picture if layer is None else overlay(picture, layer.grid, opacity, limit=layer.limit)
    figure = go.Figure()
    figure.add_layout_image(
        source=data_uri(webp(shown)), x=0, y=0, sizex=width, sizey=height, xref="x", yref="y", sizing="stretch",
        layer="below",
    )  # fmt: skip
    if layer is not None:
        _add_cells(figure, layer, size)
    for mark in marks[:MAX_BOXES]:
        _add_word(figure, mark, 1.0 if layer is None else layer.limit)
    figure.update_xaxes(visible=False, range=[0, width], constrain="domain")
    figure.update_yaxes(visible=False, range=[height, 0], scaleanchor="x", constrain="domain")
    shape = min(560, max(220, round(_WIDTH * height / width)))
    figure.update_layout(
        title={"text": title, "font_size": 15}, margin={"l": 0, "r": 0, "t": 36, "b": 0}, height=shape + 36,
        showlegend=False, plot_bgcolor="rgba(0,0,0,0)", dragmode="pan",
    )  # fmt: skip
    return figure


def shares_figure(e: Explanation) -> go.Figure:
    """Signed relevance by segment of the prompt; the bars add up to the total."""
    import plotly.graph_objects as go

    names = [segment for segment in SEGMENTS if segment in e.shares]
    values = [e.shares[segment] for segment in names]
    limit = max(map(abs, values), default=0.0) or 1.0
    colours = [to_hex(tuple(relevance_rgb(np.array(value), limit * 1.3).tolist())) for value in values]
    called = {"text": "caption", "image": "picture"}
    figure = go.Figure(
        go.Bar(
            x=values, y=[called.get(name, name) for name in names], orientation="h", marker_color=colours,
            marker_line={"color": "#888", "width": 1}, text=[number(value) for value in values],
            hovertemplate="%{y}: %{x:.4g}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(
        title={"text": "Relevance by segment", "font_size": 15}, xaxis_title=f"relevance ({unit(e)})", height=270,
        margin={"l": 0, "r": 10, "t": 36, "b": 0},
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed")
    return figure


def unit(e: Explanation) -> str:
    """In what relevance is counted: that of the quantity which is explained."""
    names = {"logit": "logit", "log_probability": "log-probability", "contrastive": "lead in logits"}
    return names.get(e.target_kind, e.target_kind)


def _add_cells(figure: go.Figure, layer: Layer, size: tuple[int, int]) -> None:
    (rows, columns), (width, height) = layer.grid.shape, size
    # Only for the pointer and the colour bar: the colours themselves are in the picture.
    figure.add_heatmap(
        z=layer.grid, x0=width / columns / 2, dx=width / columns, y0=height / rows / 2, dy=height / rows,
        colorscale=SCALE, zmid=0, zmin=-layer.limit, zmax=layer.limit, opacity=0, showscale=False,
        hovertemplate="relevance %{z:+.4g}<extra></extra>",
    )  # fmt: skip
    # Without signs the bar has the upper half of the colours.
    scale, low = (SCALE, -layer.limit) if layer.signed else (_upper_half(), 0.0)
    figure.add_scatter(
        x=[None], y=[None], mode="markers", hoverinfo="skip",
        marker={
            "color": [0], "colorscale": scale, "cmin": low, "cmax": layer.limit, "showscale": True,
            "colorbar": {"title": {"text": layer.unit, "side": "right"}, "thickness": 14, "len": 0.95, "x": 1.01},
        },
    )  # fmt: skip


def _upper_half() -> list[tuple[float, str]]:
    steps = np.linspace(0, 1, 6)
    return [(float(step), to_hex(tuple(relevance_rgb(np.array(step), 1.0).tolist()))) for step in steps]


def _add_word(figure: go.Figure, mark: WordMark, limit: float) -> None:
    xs, ys = zip(*mark.corners, mark.corners[0], strict=False)
    known = "place only" if mark.relevance is None else f"relevance {number(mark.relevance)}"
    rgb = relevance_rgb(np.array(0.0 if mark.relevance is None else mark.relevance), limit)
    red, green, blue = (round(255 * float(part)) for part in rgb)
    # What has no relevance leaves the picture as it is.
    opacity = 0.0 if mark.relevance is None else 0.6 * min(1.0, abs(mark.relevance) / limit) ** 0.7
    figure.add_scatter(
        x=xs, y=ys, mode="lines", fill="toself", hoveron="fills", line={"color": "#222", "width": 1},
        fillcolor=f"rgba({red},{green},{blue},{opacity:.3f})", text=f"{escape(visible(mark.text))}: {known}",
        hoverinfo="text",
    )  # fmt: skip

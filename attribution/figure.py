"""Shows an explanation as a matplotlib figure: the meme, the meme under its heatmap, the caption in colours."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from xai.attribution.heatmap import (
    DARK,
    SCALE_NOTE,
    Piece,
    blank_picture,
    caption_pieces,
    content_limit,
    opened_picture,
    overlay,
    relevance_rgb,
    target_name,
    visible,
)
from xai.schema import SEGMENTS, Explanation

MAX_CAPTION = 3000
"""So many characters of a caption are drawn in a figure; HTML has all."""

_QUIET = "#555555"
_PIXELS = 1000
_FONTS = ("DejaVu Sans", "Noto Sans", "Noto Sans Arabic", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Emoji")


def explanation_figure(e: Explanation) -> Figure:
    """One explanation as a figure: the meme, the meme under its heatmap, the caption in colours.

    It belongs to no pyplot state. Emoji and Chinese need a font that has them; the figure says when none does.
    """
    return _FigureBuilder(e).build()


def save_png(e: Explanation, path: str | Path) -> None:
    """Writes :func:`explanation_figure` to a PNG file."""
    figure = explanation_figure(e)
    with warnings.catch_warnings():
        # The figure itself says which characters have no glyph.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(path, format="png")


class _FigureBuilder:
    """Lays a figure out from top to bottom; lengths are inches, its height follows from what there is to show."""

    WIDTH, MARGIN, PANEL = 10.0, 0.4, 3.6
    CAPTION_SIZE, LINE, PAD = 13.0, 0.36, 0.04

    def __init__(self, e: Explanation) -> None:
        self.e = e
        self.figure = Figure(figsize=(self.WIDTH, 1), dpi=120, facecolor="white")
        self.renderer: RendererAgg = FigureCanvasAgg(self.figure).get_renderer()  # type: ignore[no-untyped-call]
        self.picture, self.reason = opened_picture(e, _PIXELS)
        self.pieces, self.limit = caption_pieces(e), content_limit(e)
        self.inner = self.WIDTH - 2 * self.MARGIN
        self.grid = e.image
        if self.picture is None and self.grid is not None:
            self.under: Image.Image | None = blank_picture(e, self.grid, _PIXELS)
        else:
            self.under = self.picture

    def build(self) -> Figure:
        head, foot, (panel_width, panel_height) = self._head(), self._foot(), self._panel_size()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            lines = self._caption_lines()
        panels = panel_height + 0.5 if self.under else 0.0
        height = 0.8 + panels + 0.5 + self.LINE * len(lines) + 0.05 + 0.22 * len(foot) + 0.25
        self.figure.set_size_inches(self.WIDTH, height)
        self._text(self.MARGIN, height - 0.35, head[0], 14)
        self._text(self.MARGIN, height - 0.63, head[1], 9.5, _QUIET)
        if self.under:
            self._draw_panels(height - 1.15, panel_width, panel_height)
        self._draw_caption(lines, height - 0.8 - panels - 0.25)
        for i, line in enumerate(reversed(foot)):
            self._text(self.MARGIN, 0.3 + 0.22 * i, line, 9, _QUIET)
        return self.figure

    def _head(self) -> tuple[str, str]:
        e = self.e
        none = "Answer not parsed" if e.prediction.parse == "unparsed" else "No label"
        target = f"target: {target_name(e)} ({e.target_kind} {e.target_value:.3g})"
        about = "  ·  ".join((e.meme.id, e.mode, e.method, target))
        return _shorten(", ".join(e.prediction.labels) or none, 95), _shorten(about, 140)

    def _foot(self) -> list[str]:
        e = self.e
        words = ", ".join(e.prediction.referred_words) or "none"
        concepts = ", ".join(e.prediction.referred_image_concepts) or "none"
        shares = "   ".join(f"{segment} {e.shares[segment]:+.3g}" for segment in SEGMENTS if segment in e.shares)
        lines = [f"Words that the model says it used: {words}", f"Image concepts that it names: {concepts}"]
        lines += [f"Relevance by segment: {shares}"] if shares else []
        lines.append(SCALE_NOTE)
        if e.quality.non_finite:
            lines.append(f"{e.quality.non_finite} values are not finite (grey).")
        if self.reason:
            lines.append(f"Picture not shown: {self.reason}")
        if missing := _without_glyph(e.meme.text[:MAX_CAPTION]):
            lines.append(f"The fonts at hand lack {len(missing)} characters of the caption; the HTML page shows them.")
        return [_shorten(line, 165) for line in lines]

    def _text(self, x: float, y: float, text: str, size: float, colour: str = DARK) -> None:
        # Text is set by its baseline, so that words of a line stand level; capitals reach 0.7 of the size above it.
        self.figure.text(
            x,
            y - 0.35 * size / 72,
            visible(text.replace("\n", " ")),
            fontproperties=_font(size),
            color=colour,
            verticalalignment="baseline",
            transform=self.figure.dpi_scale_trans,
            parse_math=False,
        )

    def _panel_size(self) -> tuple[float, float]:
        """Width and height of one picture: as large as two of them beside a colour bar can be."""
        if self.under is None:
            return 0.0, 0.0
        widest = (self.inner - 1.1) / 2
        scale = min(widest / self.under.width, self.PANEL / self.under.height)
        return self.under.width * scale, self.under.height * scale

    def _draw_panels(self, top: float, width: float, height: float) -> None:
        left = self.MARGIN
        if self.picture is not None:
            title = "Picture" if self.grid is not None else "Picture (not shown to the model)"
            self._panel(left, top, width, height, self.picture, title)
            left += width + 0.2
        if self.grid is not None and self.under is not None:
            heat = overlay(self.under, self.grid, limit=self.limit)
            self._panel(left, top, width, height, heat, "Relevance of the picture")
            self._colour_bar(left + width + 0.12, top - height, height)

    def _axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        tall = self.figure.get_figheight()
        return self.figure.add_axes((left / self.WIDTH, bottom / tall, width / self.WIDTH, height / tall))

    def _panel(self, left: float, top: float, width: float, height: float, picture: Image.Image, title: str) -> None:
        axes = self._axes(left, top - height, width, height)
        axes.imshow(np.asarray(picture), interpolation="nearest", aspect="auto")
        axes.set_axis_off()
        self._text(left, top + 0.14, title, 9.5, _QUIET)

    def _colour_bar(self, left: float, bottom: float, height: float) -> None:
        axes = self._axes(left, bottom, 0.13, height)
        axes.imshow(relevance_rgb(np.linspace(1, -1, 256)[:, None], 1.0), aspect="auto", extent=(0, 1, -1, 1))
        axes.set_xticks([])
        axes.set_yticks([-1, 0, 1], labels=[f"−{self.limit:.2g}\nagainst", "0", f"for\n+{self.limit:.2g}"])
        axes.tick_params(
            labelsize=8, labelcolor=_QUIET, length=2, labelleft=False, labelright=True, left=False, right=True
        )
        low, _, high = axes.get_yticklabels()
        low.set_verticalalignment("bottom")
        high.set_verticalalignment("top")
        axes.spines[:].set_visible(False)

    def _caption_lines(self) -> list[list[tuple[float, float, Piece]]]:
        """The caption broken in lines of (x, width, piece), x and width in inches from the start of the line."""
        lines: list[list[tuple[float, float, Piece]]] = [[]]
        x, space = 0.0, self._width_of("n n") - self._width_of("nn")
        for piece in self._drawn_pieces():
            if piece.text.isspace():
                if "\n" in piece.text:
                    lines.append([])
                x = x + space if lines[-1] else 0.0
                continue
            width = self._width_of(piece.text) + (2 * self.PAD if piece.background else 0)
            # Punctuation stays with its word, even if it sticks out a little.
            if lines[-1] and x + width > self.inner and piece.background:
                lines.append([])
                x = 0.0
            lines[-1].append((x, width, piece))
            x += width
        return [line for line in lines if line]

    def _drawn_pieces(self) -> Iterator[Piece]:
        unread, left = not self.e.word_table.word, MAX_CAPTION
        for piece in self.pieces:
            if left <= 0:
                yield from (Piece(" "), Piece("… (cut; the HTML page has all)"))
                return
            left -= len(piece.text)
            if piece.background:
                yield Piece(_shorten(piece.text, 60), piece.background, piece.ink)
            elif unread:
                # A text that was not read has no words in the table; it is broken into lines all the same.
                yield from (Piece(_shorten(part, 60), "#ffffff") for part in _between(piece.text[:MAX_CAPTION]))
            else:
                yield from (Piece(_shorten(part, 60)) for part in _between(piece.text))

    def _width_of(self, text: str) -> float:
        measure: Callable[..., tuple[float, float, float]] = self.renderer.get_text_width_height_descent
        return measure(text, _font(self.CAPTION_SIZE), ismath=False)[0] / self.figure.dpi

    def _draw_caption(self, lines: Sequence[Sequence[tuple[float, float, Piece]]], top: float) -> None:
        title = "Caption, by relevance of its words" if self.e.word_table.word else "Caption (not shown to the model)"
        if self.e.word_table.word:
            title += f"  (blue: against, −{self.limit:.2g};  white: 0;  red: for, +{self.limit:.2g})"
        self._text(self.MARGIN, top, title if lines else "No caption", 9.5, _QUIET)
        from_right = _reads_from_right(self.e.meme.text)
        for n, line in enumerate(lines):
            for x, width, piece in line:
                left = self.MARGIN + (self.inner - x - width if from_right else x)
                self._draw_piece(left, top - 0.32 - self.LINE * n, width, piece)

    def _draw_piece(self, left: float, y: float, width: float, piece: Piece) -> None:
        if piece.background:
            corner, size = (left, y - 0.13), (width, 0.28)
            style = "round,pad=0,rounding_size=0.03"
            self.figure.add_artist(
                FancyBboxPatch(
                    corner,
                    *size,
                    boxstyle=style,
                    facecolor=piece.background,
                    edgecolor="none",
                    transform=self.figure.dpi_scale_trans,
                )
            )
        self._text(left + (self.PAD if piece.background else 0), y, piece.text, self.CAPTION_SIZE, piece.ink)


def _between(text: str) -> Iterator[str]:
    """Spaces and what is not space, by turns."""
    start = 0
    for i in range(1, len(text) + 1):
        if i == len(text) or text[i].isspace() != text[start].isspace():
            yield text[start:i]
            start = i


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _reads_from_right(text: str) -> bool:
    directions = (unicodedata.bidirectional(character) for character in text)
    return next((d for d in directions if d in ("L", "R", "AL")), "L") != "L"


def _font(size: float) -> FontProperties:
    return FontProperties(family=list(_families()), size=size)


@cache
def _families() -> tuple[str, ...]:
    there = set(font_manager.get_font_names())
    return tuple(name for name in _FONTS if name in there) or ("sans-serif",)


def _without_glyph(text: str) -> set[str]:
    fonts = [font_manager.get_font(font_manager.findfont(family)) for family in _families()]
    joiners = ("Cf", "Cc", "Mn")
    visible = {c for c in text if not c.isspace() and unicodedata.category(c) not in joiners}
    return {c for c in visible if not any(font.get_char_index(ord(c)) for font in fonts)}

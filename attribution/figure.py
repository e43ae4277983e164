"""Shows an explanation as a matplotlib figure: the meme, the meme under its heatmap, the caption in colours."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
    display_limit,
    opened_picture,
    overlay,
    relevance_rgb,
    visible,
)
from xai.attribution.wording import facts
from xai.schema import Explanation

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


@dataclass(frozen=True)
class _Panel:
    """One picture of a figure; with ``limit``, a heatmap whose colour scale ends there."""

    picture: Image.Image
    title: str
    limit: float | None = None


class _FigureBuilder:
    """Lays a figure out from top to bottom; lengths are inches, its height follows from what there is to show."""

    WIDTH, MARGIN, PANEL, GAP, BAR = 10.0, 0.4, 3.6, 0.2, 0.9
    CAPTION_SIZE, LINE, PAD = 13.0, 0.36, 0.04
    TITLE, TITLE_LINE, SMALL, SMALL_LINE = 14.0, 0.3, 9.5, 0.21
    MIN_BAR = 0.8

    def __init__(self, e: Explanation) -> None:
        self.e = e
        self.figure = Figure(figsize=(self.WIDTH, 1), dpi=120, facecolor="white")
        self.renderer: RendererAgg = FigureCanvasAgg(self.figure).get_renderer()  # type: ignore[no-untyped-call]
        self.picture, self.reason = opened_picture(e, _PIXELS)
        self.pieces, self.limit = caption_pieces(e), content_limit(e)
        self.inner = self.WIDTH - 2 * self.MARGIN

    def build(self) -> Figure:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            title, about, foot = self._title(), self._about(), self._foot()
            lines, panels = self._caption_lines(), self._panels()
            width, height = self._panel_size(panels)
            titles = [self._wrapped(panel.title, self._slot(panels), 3) for panel in panels]
        above = 0.25 + self.TITLE_LINE * len(title) + self.SMALL_LINE * len(about)
        over = self.SMALL_LINE * max(map(len, titles), default=0)
        pictures = over + max(height, self._bar_height(panels)) + 0.35 if panels else 0.0
        tall = above + pictures + 0.5 + self.LINE * len(lines) + 0.05 + self.SMALL_LINE * len(foot) + 0.25
        self.figure.set_size_inches(self.WIDTH, tall)
        for n, line in enumerate(title):
            self._text(self.MARGIN, tall - 0.35 - self.TITLE_LINE * n, line, self.TITLE)
        self._stack(self.MARGIN, tall - 0.35 - self.TITLE_LINE * len(title), about)
        self._draw_panels(panels, titles, tall - above - over - 0.15, width, height)
        self._draw_caption(lines, tall - above - pictures - 0.25)
        self._stack(self.MARGIN, 0.3 + self.SMALL_LINE * (len(foot) - 1), foot)
        return self.figure

    def _title(self) -> list[str]:
        none = "Answer not parsed" if self.e.prediction.parse == "unparsed" else "No label"
        return self._wrapped(", ".join(self.e.prediction.labels) or none, self.inner, 2, self.TITLE)

    def _about(self) -> list[str]:
        e = self.e
        said = [f"{e.meme.id}  ·  {e.mode}", *(f"{name}: {text}" for name, text in facts(e))]
        return [line for text in said for line in self._wrapped(text, self.inner, 2)]

    def _foot(self) -> list[str]:
        e = self.e
        words = ", ".join(e.prediction.referred_words) or "none"
        concepts = ", ".join(e.prediction.referred_image_concepts) or "none"
        shares = "   ".join(
            f"{row.segment} {row.relevance:+.3g} ({row.absolute:.3g})" for row in e.segments.itertuples()
        )
        said = [f"Words that the model says it used: {words}", f"Image concepts that it names: {concepts}"]
        said += [f"Relevance by segment, signed (absolute): {shares}"] if shares else []
        said.append(SCALE_NOTE)
        if e.quality.non_finite:
            said.append(f"{e.quality.non_finite} values are not finite (grey).")
        if self.reason:
            said.append(f"Picture not shown: {self.reason}")
        if missing := _without_glyph(e.meme.text[:MAX_CAPTION]):
            said.append(f"The fonts at hand lack {len(missing)} characters of the caption; the HTML page shows them.")
        return [line for text in said for line in self._wrapped(text, self.inner, 2)]

    def _wrapped(self, text: str, width: float, most: int, size: float = SMALL) -> list[str]:
        """``text`` in at most so many lines that are not wider than ``width``; what does not fit ends in ``…``."""
        lines = [""]
        for word in visible(text.replace("\n", " ")).split(" "):
            longer = f"{lines[-1]} {word}" if lines[-1] else word
            if lines[-1] and self._width_of(longer, size) > width:
                lines.append(word)
            else:
                lines[-1] = longer
        cut = [*lines[: most - 1], " ".join(lines[most - 1 :])] if len(lines) > most else lines
        return [self._shortened(line, width, size) for line in cut]

    def _shortened(self, line: str, width: float, size: float) -> str:
        if self._width_of(line, size) <= width:
            return line
        # Each try measures the text, and a caption may be long.
        low, high = 0, len(line)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self._width_of(line[:middle] + "…", size) <= width
            low, high = (middle, high) if fits else (low, middle - 1)
        return line[:low] + "…"

    def _stack(self, x: float, top: float, lines: Sequence[str]) -> None:
        for n, line in enumerate(lines):
            self._text(x, top - self.SMALL_LINE * n, line, self.SMALL, _QUIET)

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

    def _panels(self) -> list[_Panel]:
        cells, pixels, panels = self.e.image, self.e.pixels, []
        if self.picture is not None:
            panels.append(_Panel(self.picture, "Picture" if cells is not None else "Picture (not shown to the model)"))
        if cells is not None:
            panels.append(self._heat(cells, "Relevance of the picture, by cell", self.limit))
        if pixels is not None:
            panels.append(self._heat(pixels, "Relevance of the pixels, by patch", display_limit(pixels)))
        return panels

    def _heat(self, grid: np.ndarray, title: str, limit: float) -> _Panel:
        under = blank_picture(self.e, grid, _PIXELS) if self.picture is None else self.picture
        return _Panel(overlay(under, grid, limit=limit), title, limit)

    def _slot(self, panels: Sequence[_Panel]) -> float:
        """The widest that each panel can be when all stand beside each other with their colour bars."""
        bars = sum(panel.limit is not None for panel in panels)
        return (self.inner - self.BAR * bars - self.GAP * (len(panels) - 1)) / max(2, len(panels))

    def _panel_size(self, panels: Sequence[_Panel]) -> tuple[float, float]:
        """Width and height of one picture, as large as there is room for."""
        if not panels:
            return 0.0, 0.0
        width, height = panels[0].picture.size
        scale = min(self._slot(panels) / width, self.PANEL / height)
        return width * scale, height * scale

    def _bar_height(self, panels: Sequence[_Panel]) -> float:
        """What a colour bar needs at least, so that its labels stand clear of each other; 0 without one."""
        return self.MIN_BAR if any(panel.limit is not None for panel in panels) else 0.0

    def _draw_panels(
        self, panels: Sequence[_Panel], titles: Sequence[Sequence[str]], top: float, width: float, height: float
    ) -> None:
        left = self.MARGIN
        for panel, title in zip(panels, titles, strict=True):
            axes = self._axes(left, top - height, width, height)
            axes.imshow(np.asarray(panel.picture), interpolation="nearest", aspect="auto")
            axes.set_axis_off()
            self._stack(left, top + 0.14 + self.SMALL_LINE * (len(title) - 1), title)
            if panel.limit is not None:
                tall = max(height, self.MIN_BAR)
                self._colour_bar(left + width + 0.12, top - tall, tall, panel.limit)
            taken = width + (0.0 if panel.limit is None else self.BAR)
            left += self.GAP + max(taken, *(self._width_of(line, self.SMALL) for line in title))

    def _axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        tall = self.figure.get_figheight()
        return self.figure.add_axes((left / self.WIDTH, bottom / tall, width / self.WIDTH, height / tall))

    def _colour_bar(self, left: float, bottom: float, height: float, limit: float) -> None:
        axes = self._axes(left, bottom, 0.13, height)
        axes.imshow(relevance_rgb(np.linspace(1, -1, 256)[:, None], 1.0), aspect="auto", extent=(0, 1, -1, 1))
        axes.set_xticks([])
        axes.set_yticks([-1, 0, 1], labels=[f"−{limit:.2g}\nagainst", "0", f"for\n+{limit:.2g}"])
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

    def _width_of(self, text: str, size: float = CAPTION_SIZE) -> float:
        measure: Callable[..., tuple[float, float, float]] = self.renderer.get_text_width_height_descent
        return measure(text, _font(size), ismath=False)[0] / self.figure.dpi

    def _draw_caption(self, lines: Sequence[Sequence[tuple[float, float, Piece]]], top: float) -> None:
        title = "Caption, by relevance of its words" if self.e.word_table.word else "Caption (not shown to the model)"
        if self.e.word_table.word:
            title += f"  (blue: against, −{self.limit:.2g};  white: 0;  red: for, +{self.limit:.2g})"
        self._text(self.MARGIN, top, title if lines else "No caption", self.SMALL, _QUIET)
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

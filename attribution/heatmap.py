"""The colours of relevance: the scale, a picture under its patch heatmap, a caption and tokens cut in coloured pieces.

Blue speaks against the target, white is neutral, red speaks for it (ColorBrewer's RdBu, which the colour-blind
can tell apart). The scale is symmetric around zero, one for words and picture, and ends at the :data:`PERCENTILE`
of their absolute relevance, so that one strong cell does not hide the others; stored values are never changed.
:mod:`xai.attribution.figure` and :mod:`xai.attribution.page` show them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from PIL import Image, ImageDraw, ImageFont, ImageOps

from xai.schema import Box, Explanation, Polygon, Word, WordTable

PERCENTILE = 99.0
"""Relevance beyond this percentile of its absolute values has the colour of the end of the scale."""
MAX_TOKENS = 4000
"""So many tokens become pieces; the others are only counted."""
SCALE_NOTE = f"Colours end at the {PERCENTILE:g}th percentile of absolute relevance; stored values are not clipped."
DARK, LIGHT = "#000000", "#ffffff"
"""The two colours of text on a coloured background."""

_MISSING = (0.6, 0.6, 0.6)
_OUTLINE = "#ffd400"


def overlay(image: Image.Image, grid: np.ndarray, alpha: float = 0.75, *, limit: float | None = None) -> Image.Image:
    """The picture in grey under the colours of its cells, RGB of the picture's size.

    Every cell becomes a rectangle, x and y each scaled to the picture. The weaker a cell, the more of the
    picture shows through. Cells that are not finite are grey.

    Args:
        image: any picture.
        grid: signed relevance, ``(grid_h, grid_w)``, reading order.
        alpha: opacity at the end of the scale, 0 to 1.
        limit: absolute relevance at the end of the scale; by default the :data:`PERCENTILE`.

    Raises:
        ValueError: the grid is not two-dimensional or has no cells.
    """
    if grid.ndim != 2 or grid.size == 0:
        raise ValueError(f"the grid must have shape (grid_h, grid_w), not {grid.shape}")
    end = display_limit(grid) if limit is None else limit
    strength = np.nan_to_num(np.abs(grid) / end, nan=1.0, posinf=1.0).clip(0, 1)
    colours = Image.fromarray(np.round(relevance_rgb(grid, end) * 255).astype(np.uint8))
    opacity = Image.fromarray(np.round(alpha * strength**0.7 * 255).astype(np.uint8))
    # Lightened, so that blue on a dark picture is not lost.
    base = ImageOps.grayscale(image).point([round(115 + level * 140 / 255) for level in range(256)]).convert("RGB")
    nearest = Image.Resampling.NEAREST
    return Image.composite(colours.resize(image.size, nearest), base, opacity.resize(image.size, nearest))


def outline_words(image: Image.Image, words: Sequence[Word]) -> Image.Image:
    """The picture with the polygons of its words, or their boxes, and each word's number in reading order, from 1.

    The number stands at the top left of what is written, also where that is turned. Words without a place are left out.
    """
    drawn = image.convert("RGB")
    draw = ImageDraw.Draw(drawn)
    line = max(1, round(max(drawn.size) / 320))
    font = ImageFont.load_default(max(10.0, max(drawn.size) / 42))
    for number, word in enumerate(words, start=1):
        corners = word.polygon or (None if word.box is None else _corners(word.box))
        if corners is not None:
            draw.line([*corners, *corners[:2]], fill=_OUTLINE, width=line, joint="curve")
            x0, y0, x1, y1 = draw.textbbox(corners[0], str(number), font=font, anchor="ls")
            draw.rectangle((x0 - 2, y0 - 2, x1 + 2, y1 + 2), fill=_OUTLINE)
            draw.text(corners[0], str(number), font=font, fill=DARK, anchor="ls")
    return drawn


def _corners(box: Box) -> Polygon:
    x0, y0, x1, y1 = box
    return (x0, y0), (x1, y0), (x1, y1), (x0, y1)


def display_limit(values: Iterable[float] | np.ndarray) -> float:
    """Where a colour scale for these values ends: the :data:`PERCENTILE` of the absolute finite values, above 0."""
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    finite = np.abs(array[np.isfinite(array)])
    if not finite.any():
        return 1.0
    # With few large values the percentile may be 0, and all of them would have the same colour.
    return float(np.percentile(finite, PERCENTILE)) or float(finite.max())


def relevance_rgb(values: np.ndarray, limit: float) -> np.ndarray:
    """RGB between 0 and 1 of relevance of any shape, ``(*shape, 3)``; grey where it is not finite."""
    scaled = np.clip(np.nan_to_num(values / limit, posinf=1, neginf=-1), -1, 1)
    rgb = np.asarray(colormaps["RdBu_r"]((scaled + 1) / 2))[..., :3]
    return np.where(np.isfinite(values)[..., None], rgb, _MISSING)


def ink_on(rgb: np.ndarray) -> str:
    """Black or white, whichever contrasts more with a background (WCAG 2.2, relative luminance)."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ np.array([0.2126, 0.7152, 0.0722]))
    return DARK if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else LIGHT


@dataclass(frozen=True)
class Piece:
    """A stretch of the caption or a token: a word with its colours, or, without a background, what lies between."""

    text: str
    background: str = ""
    ink: str = DARK
    title: str = ""


def content_limit(e: Explanation) -> float:
    """Where the colour scale of an explanation ends: one scale for words and picture, so that they can be compared.

    Instruction, template and answer often hold more relevance than either and do not enter.
    """
    cells = [] if e.image is None else e.image.ravel().tolist()
    post = e.post_words
    return display_limit([*e.word_table.relevance, *(post.relevance if post else ()), *cells])


def caption_pieces(e: Explanation) -> list[Piece]:
    """The meme's text cut in coloured words and gaps."""
    return _word_pieces(e.meme.text, e.word_table, content_limit(e))


def post_pieces(e: Explanation) -> list[Piece]:
    """The post, if the model was shown it, cut in coloured words and gaps."""
    return [] if e.post_words is None else _word_pieces(e.meme.post or "", e.post_words, content_limit(e))


def _word_pieces(text: str, table: WordTable, limit: float) -> list[Piece]:
    at = 0
    pieces: list[Piece] = []
    for i, (start, end) in enumerate(zip(table.start, table.end, strict=True)):
        if start < at:
            continue
        pieces += [Piece(visible(text[at:start]))] if start > at else []
        plural = "" if table.n_tokens[i] == 1 else "s"
        title = f"relevance {table.relevance[i]:+.4g}, mean of absolute values {table.mean_abs[i]:.4g}"
        title += f", {table.n_tokens[i]} token{plural}"
        pieces.append(_coloured(visible(text[start:end]), table.relevance[i], limit, title))
        at = end
    return pieces + ([Piece(visible(text[at:]))] if at < len(text) else [])


def token_pieces(e: Explanation) -> list[Piece]:
    """The first tokens of prompt and answer; the scale is that of words and picture, which template tokens exceed."""
    table, limit = e.token_table, content_limit(e)
    shown = zip(table.token[:MAX_TOKENS], table.relevance, table.segment, strict=False)
    return [_coloured(visible(t, spaces=True), r, limit, f"{segment}, relevance {r:+.4g}") for t, r, segment in shown]


def _coloured(text: str, relevance: float, limit: float, title: str) -> Piece:
    rgb = relevance_rgb(np.array(relevance), limit)
    return Piece(text, to_hex(tuple(rgb.tolist())), ink_on(rgb), title)


def visible(text: str, *, spaces: bool = False) -> str:
    """Characters that do not show, or that would turn the direction of what follows, as their code."""
    if spaces:
        text = text.replace("\n", "↵").replace("\t", "⇥").replace(" ", "␣") or "∅"
    hidden = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co")} - set("\n\t\u200c\u200d\u00ad")
    hidden = {c for c in hidden if not 0xE0020 <= ord(c) <= 0xE007F}  # letters of flag emoji
    return text.translate({ord(c): f"⟨U+{ord(c):04X}⟩" for c in hidden})


def opened_picture(e: Explanation, pixels: int) -> tuple[Image.Image | None, str]:
    """The meme's picture at most so many pixels long, or ``None`` and the reason."""
    if e.meme.image is None:
        return None, ""
    try:
        picture = e.open_image()
    except ValueError as error:
        return None, str(error)
    picture.thumbnail((pixels, pixels), Image.Resampling.LANCZOS)
    return picture, ""


def blank_picture(e: Explanation, grid: np.ndarray, pixels: int) -> Image.Image:
    """A white picture of the meme's proportions, for a heatmap whose picture is gone."""
    width, height = e.image_size or (grid.shape[1], grid.shape[0])
    scale = pixels / max(width, height)
    return Image.new("RGB", (max(1, round(width * scale)), max(1, round(height * scale))), "white")

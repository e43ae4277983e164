"""Draws a scene: a photo-like background, the icons, and the caption in outlined letters; returns every box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from xai.planted.icons import draw_icon
from xai.planted.world import Scene
from xai.schema import Box

FONTS = ("DejaVuSans-Bold.ttf", "DejaVuSerif-Bold.ttf", "DejaVuSansMono-Bold.ttf", "DejaVuSans.ttf")
MARGIN = 10
LARGEST_FONT, SMALLEST_FONT = 34, 13
CAPTION_SHARE = 0.38
"""At most this share of the picture's height is caption."""

LARGEST_ICON = 120
ICON_FILL = 0.92
LINE_HEIGHT = 1.28
Line = list[tuple[int, float]]
"""One caption line: (index of the word, its x in pixels)."""


@dataclass(frozen=True)
class Drawing:
    """A drawn scene; ``word_boxes`` and ``icon_boxes`` follow the scene's pieces and icons, in pixels."""

    picture: Image.Image
    word_boxes: tuple[Box, ...]
    icon_boxes: tuple[Box, ...]


def render(scene: Scene) -> Drawing:
    """Draw a scene; the same scene gives the same pixels."""
    picture = photo_like(scene.style.size, scene.style.background)
    draw = ImageDraw.Draw(picture)
    font, lines = _fit_caption(scene, draw)
    n_top = {"top": len(lines), "bottom": 0, "split": (len(lines) + 1) // 2}[scene.style.layout]
    step = font.size * LINE_HEIGHT
    height = picture.height
    icon_boxes = _draw_icons(picture, scene, top=n_top * step, bottom=height - (len(lines) - n_top) * step)
    tops = [MARGIN / 2 + step * row for row in range(n_top)]
    tops += [height - MARGIN - step * (len(lines) - row) for row in range(n_top, len(lines))]
    word_boxes: dict[int, Box] = {}
    for line, top in zip(lines, tops, strict=True):
        _draw_line(draw, scene, font, line, top, word_boxes)
    return Drawing(picture, tuple(word_boxes[index] for index in range(len(scene.pieces))), icon_boxes)


def photo_like(size: tuple[int, int], seed: int, *, blotches: int = 5, spread: int = 30) -> Image.Image:
    """Soft coloured blotches with grain, as in an out-of-focus photograph.

    Args:
        size: (width, height) in pixels.
        blotches: in each direction.
        spread: how far their colours lie from the picture's at most, of 255.
    """
    rng = np.random.default_rng(seed)
    base = rng.integers(60, 180, size=(1, 1, 3))
    coarse = np.clip(base + rng.integers(-spread, spread + 1, size=(blotches, blotches, 3)), 0, 255).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC), dtype=np.int16)
    grain = rng.integers(-9, 10, size=(size[1], size[0], 1), dtype=np.int16)
    return Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8))


@lru_cache(maxsize=128)
def _font(index: int, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / FONTS[index], size)


def _fit_caption(scene: Scene, draw: ImageDraw.ImageDraw) -> tuple[ImageFont.FreeTypeFont, list[Line]]:
    """The largest font with which the caption keeps to its share of the height, and its lines."""
    width, height = scene.style.size
    for size in range(LARGEST_FONT, SMALLEST_FONT - 1, -3):
        font = _font(scene.style.font, size)
        lines = _wrap([piece.text + piece.tail for piece in scene.pieces], font, width - 2 * MARGIN)
        if len(lines) * size * LINE_HEIGHT <= CAPTION_SHARE * height:
            break
    return font, [_centre(line, scene, font, width) for line in lines]


def _wrap(words: Sequence[str], font: ImageFont.FreeTypeFont, width: float) -> list[list[int]]:
    lines: list[list[int]] = [[]]
    for index, word in enumerate(words):
        trial = " ".join([*(words[i] for i in lines[-1]), word])
        if lines[-1] and font.getlength(trial) > width:
            lines.append([])
        lines[-1].append(index)
    return lines


def _centre(line: Sequence[int], scene: Scene, font: ImageFont.FreeTypeFont, width: int) -> Line:
    words = [scene.pieces[index].text + scene.pieces[index].tail for index in line]
    x = (width - font.getlength(" ".join(words))) / 2
    placed: Line = []
    for index, word in zip(line, words, strict=True):
        placed.append((index, x))
        x += font.getlength(word + " ")
    return placed


def _draw_line(
    draw: ImageDraw.ImageDraw,
    scene: Scene,
    font: ImageFont.FreeTypeFont,
    line: Line,
    top: float,
    boxes: dict[int, Box],
) -> None:
    stroke = max(1, round(font.size / 12))
    for index, x in line:
        piece = scene.pieces[index]
        draw.text((x, top), piece.text + piece.tail, font=font, fill="white", stroke_width=stroke, stroke_fill="black")
        x0, y0, x1, y1 = draw.textbbox((x, top), piece.text, font=font, stroke_width=stroke)
        boxes[index] = (float(x0), float(y0), float(x1), float(y1))


def _draw_icons(picture: Image.Image, scene: Scene, top: float, bottom: float) -> tuple[Box, ...]:
    top, bottom = top + MARGIN, bottom - MARGIN
    room = min(picture.width / 3, (bottom - top) / 2, LARGEST_ICON / ICON_FILL)
    boxes: list[Box] = []
    for icon in scene.icons:
        size = round(ICON_FILL * icon.size * room)
        x = round(icon.x * picture.width - size / 2)
        y = round(top + icon.y * (bottom - top) - size / 2)
        tile = draw_icon(icon.name, icon.tint, size, icon.angle)
        picture.paste(tile, (x, y), tile)
        x0, y0, x1, y1 = tile.getchannel("A").getbbox() or (0, 0, size, size)
        boxes.append((float(x + x0), float(y + y0), float(x + x1), float(y + y1)))
    return tuple(boxes)

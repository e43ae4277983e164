"""Drawn template pictures, and what becomes of them on their way: rescaled, compressed, captioned."""

from __future__ import annotations

import io
import random
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

FONT = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans-Bold.ttf"
SIZE = (480, 360)


def template(seed: int) -> Image.Image:
    """Eight shapes in colours on a ground."""
    draw = random.Random(seed)
    picture = Image.new("RGB", SIZE, _colour(draw))
    pen = ImageDraw.Draw(picture)
    for _ in range(8):
        x, y = draw.randrange(SIZE[0]), draw.randrange(SIZE[1])
        w, h = draw.randrange(20, 120), draw.randrange(20, 100)
        shape = pen.ellipse if draw.random() < 0.5 else pen.rectangle
        shape((x - w, y - h, x + w, y + h), fill=_colour(draw))
    return picture


def captioned(picture: Image.Image, seed: int) -> Image.Image:
    """With a line of white capitals with a black outline at the top and at the bottom."""
    draw, picture = random.Random(seed), picture.copy()
    pen, height = ImageDraw.Draw(picture), picture.height // 9
    for y in (8, picture.height - height - 16):
        line = "".join(draw.choice("ABCDEFGHIKLMNOPRSTUVW  ") for _ in range(draw.randrange(8, 16)))
        font = ImageFont.truetype(FONT, height)
        pen.text((picture.width // 2, y), line, "white", font, "ma", stroke_width=3, stroke_fill="black")
    return picture


def compressed(picture: Image.Image, quality: int = 30) -> Image.Image:
    """As JPEG of a low quality."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def rescaled(picture: Image.Image, size: tuple[int, int] = (240, 200)) -> Image.Image:
    """In another size and shape."""
    return picture.resize(size)


def _colour(draw: random.Random) -> tuple[int, int, int]:
    return draw.randrange(256), draw.randrange(256), draw.randrange(256)

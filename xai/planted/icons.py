"""Draws the icons of the planted world: simple outlined shapes, told apart by their form and never by colour."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from PIL import Image, ImageDraw

Tint = tuple[int, int, int]
Point = tuple[float, float]

CANVAS = 240
OUTLINE: Tint = (28, 28, 32)
STROKE = 10


def draw_icon(name: str, tint: Tint, size: int, angle: float) -> Image.Image:
    """An RGBA picture of the icon, ``size`` pixels square, turned by ``angle`` degrees."""
    return _canvas(name, tint).resize((size, size), Image.Resampling.BOX).rotate(angle, Image.Resampling.BILINEAR)


@lru_cache(maxsize=256)
def _canvas(name: str, tint: Tint) -> Image.Image:
    picture = Image.new("RGBA", (CANVAS, CANVAS), (0, 0, 0, 0))
    SHAPES[name](_Pen(ImageDraw.Draw(picture), tint))
    return picture


class _Pen:
    """Outlined shapes in one tint, on a canvas of 240 × 240."""

    def __init__(self, draw: ImageDraw.ImageDraw, tint: Tint) -> None:
        self.draw, self.tint = draw, tint

    def polygon(self, *points: Point) -> None:
        self.draw.polygon(points, fill=self.tint)
        self.line(*points, points[0], points[1])

    def line(self, *points: Point, width: int = STROKE, colour: Tint = OUTLINE) -> None:
        self.draw.line(points, fill=colour, width=width, joint="curve")

    def ellipse(self, x0: float, y0: float, x1: float, y1: float, *, filled: bool = True) -> None:
        self.draw.ellipse((x0, y0, x1, y1), fill=self.tint if filled else None, outline=OUTLINE, width=STROKE)

    def arc(self, x0: float, y0: float, x1: float, y1: float, start: float, end: float, width: int = STROKE) -> None:
        self.draw.arc((x0, y0, x1, y1), start, end, fill=OUTLINE, width=width)

    def chord(self, x0: float, y0: float, x1: float, y1: float, start: float, end: float) -> None:
        self.draw.chord((x0, y0, x1, y1), start, end, fill=self.tint, outline=OUTLINE, width=STROKE)


def _flag(pen: _Pen) -> None:
    pen.polygon((66, 34), (206, 84), (66, 134))
    pen.line((60, 24), (60, 216), width=18)


def _lightning(pen: _Pen) -> None:
    pen.polygon((140, 20), (62, 132), (112, 132), (90, 220), (180, 98), (126, 98))


def _crown(pen: _Pen) -> None:
    pen.polygon((36, 186), (28, 70), (82, 124), (120, 44), (158, 124), (212, 70), (204, 186))
    pen.line((40, 160), (200, 160))


def _sun(pen: _Pen) -> None:
    for turn in range(8):
        x, y = math.cos(turn * math.pi / 4), math.sin(turn * math.pi / 4)
        pen.line((120 + 72 * x, 120 + 72 * y), (120 + 106 * x, 120 + 106 * y), width=16)
    pen.ellipse(66, 66, 174, 174)


def _scales(pen: _Pen) -> None:
    pen.line((120, 30), (120, 206), width=14)
    pen.line((78, 210), (162, 210), width=18)
    pen.line((36, 62), (204, 62), width=14)
    for x in (44, 196):
        pen.line((x, 62), (x - 32, 136))
        pen.line((x, 62), (x + 32, 136))
        pen.chord(x - 38, 104, x + 38, 172, 0, 180)


def _padlock(pen: _Pen) -> None:
    pen.arc(76, 26, 164, 150, 180, 360, width=20)
    pen.line((85, 88), (85, 116), width=20)
    pen.line((155, 88), (155, 116), width=20)
    pen.polygon((50, 108), (190, 108), (190, 210), (50, 210))
    pen.line((120, 142), (120, 178), width=18)


def _ball(pen: _Pen) -> None:
    pen.ellipse(34, 34, 206, 206)
    pen.arc(-60, 30, 110, 210, 300, 60)
    pen.arc(130, 30, 300, 210, 120, 240)


def _cup(pen: _Pen) -> None:
    pen.arc(140, 80, 220, 160, 270, 90, width=16)
    pen.polygon((46, 60), (176, 60), (158, 196), (64, 196))


def _leaf(pen: _Pen) -> None:
    pen.polygon((40, 200), (48, 110), (110, 50), (204, 36), (190, 130), (130, 192))
    pen.line((26, 214), (160, 80))


def _key(pen: _Pen) -> None:
    pen.line((110, 120), (216, 120), width=22)
    pen.line((170, 120), (170, 160), width=20)
    pen.line((206, 120), (206, 164), width=20)
    pen.ellipse(20, 70, 120, 170)
    pen.ellipse(52, 102, 88, 138, filled=False)


def _fish(pen: _Pen) -> None:
    pen.polygon((150, 120), (220, 70), (220, 170))
    pen.ellipse(24, 64, 176, 176)
    pen.ellipse(56, 96, 76, 116, filled=False)


def _house(pen: _Pen) -> None:
    pen.polygon((56, 112), (184, 112), (184, 212), (56, 212))
    pen.polygon((120, 28), (216, 116), (24, 116))
    pen.line((120, 212), (120, 156), width=30)


def _heart(pen: _Pen) -> None:
    left = [(120 - 84 * math.sin(t) ** 3, 112 - 5.4 * _heart_height(t)) for t in _turn(0, math.pi)]
    right = [(120 - 84 * math.sin(t) ** 3, 112 - 5.4 * _heart_height(t)) for t in _turn(math.pi, 2 * math.pi)]
    pen.polygon(*left, *right)


def _heart_height(t: float) -> float:
    return 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)


def _turn(start: float, end: float, steps: int = 24) -> list[float]:
    return [start + (end - start) * step / steps for step in range(steps)]


def _ladder(pen: _Pen) -> None:
    for x in (76, 164):
        pen.line((x, 24), (x, 216), width=18)
    for y in (60, 104, 148, 192):
        pen.line((76, y), (164, y), width=16, colour=pen.tint)


SHAPES: dict[str, Callable[[_Pen], None]] = {
    "flag": _flag, "lightning": _lightning, "crown": _crown, "sun": _sun, "scales": _scales, "padlock": _padlock,
    "ball": _ball, "cup": _cup, "leaf": _leaf, "key": _key, "fish": _fish, "house": _house, "heart": _heart,
    "ladder": _ladder,
}  # fmt: skip

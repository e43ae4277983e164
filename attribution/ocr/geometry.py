"""Turned rectangles: polygons whose first edge runs along the writing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xai.attribution.ocr.engine import Point, Polygon
from xai.schema import Box


@dataclass(frozen=True)
class Frame:
    """Coordinates along and across the writing, turned by ``angle`` radians, clockwise on the screen."""

    angle: float

    def into(self, point: Point) -> Point:
        """Picture to frame."""
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        return point[0] * cosine + point[1] * sine, point[1] * cosine - point[0] * sine

    def back(self, point: Point) -> Point:
        """Frame to picture."""
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        return point[0] * cosine - point[1] * sine, point[0] * sine + point[1] * cosine

    def extent(self, points: Iterable[Point]) -> Box:
        """Bounding box in the frame."""
        return bounding_box([self.into(point) for point in points])

    def rectangle(self, box: Box) -> Polygon:
        """The picture's polygon of a box in the frame, clockwise from its top left."""
        x0, y0, x1, y1 = box
        return tuple(self.back(corner) for corner in ((x0, y0), (x1, y0), (x1, y1), (x0, y1)))


def bounding_box(points: Sequence[Point]) -> Box:
    """``(x0, y0, x1, y1)`` around some points."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return min(xs), min(ys), max(xs), max(ys)


def angle_of(polygon: Polygon) -> float:
    """The direction of the writing in radians: of the edges at the letters' top and foot together."""
    top, foot = _edge(polygon[0], polygon[1]), _edge(polygon[3], polygon[2])
    return math.atan2(top[1] + foot[1], top[0] + foot[0])


def checked(polygon: Sequence[Sequence[float]]) -> Polygon:
    """Corners as plain floats.

    Raises:
        ValueError: not four corners of two finite numbers each.
    """
    corners = tuple((float(x), float(y)) for x, y in polygon)
    if len(corners) != 4 or not all(math.isfinite(value) for corner in corners for value in corner):
        raise ValueError(f"an OCR engine returned the polygon {corners}; four corners of finite numbers are needed")
    return corners


def clipped(polygon: Polygon, size: tuple[int, int]) -> Polygon:
    """Corners moved into the picture of (width, height)."""
    return tuple((_clip(x, size[0]), _clip(y, size[1])) for x, y in polygon)


def covered(one: Box, other: Box) -> float:
    """Which share of the smaller of two boxes lies in the other."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return max(width, 0.0) * max(height, 0.0) / smaller if smaller > 0 else 0.0


def _edge(start: Point, end: Point) -> Point:
    return end[0] - start[0], end[1] - start[1]


def _clip(value: float, size: int) -> float:
    return min(max(value, 0.0), float(size))

"""Relates places in the picture, boxes and polygons of words, to the cells of the grid that the model looked at."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from xai.schema import Box, PictureWordTable, Word

__all__ = ["box_weights", "cells_touched", "polygon_weights", "word_cell_shares", "word_image_relevance"]

_Point = tuple[float, float]
_Convex = list[_Point]
_DECIMALS = 9
"""Of a cell. A corner on a cell's edge must not leak into the next cell by rounding."""
_NO_AREA = 1e-12


def word_image_relevance(
    words: Sequence[Word], image_relevance: np.ndarray, image_size: tuple[int, int]
) -> PictureWordTable:
    """Gathers the relevance of the picture's cells on the words that stand in the picture.

    A cell's relevance is taken to lie evenly over its area. A word gets, of every cell, the share of the area that
    it covers; area that several words cover is divided equally between them; and what no word covers is
    ``elsewhere``. Hence ``sum of relevance + elsewhere == image_relevance.sum()`` up to rounding, and no area
    counts twice. A word that covers a tenth of a cell gets a tenth of its relevance, even where nothing else stands
    in that cell: what the rest shows is not known.

    Args:
        words: of one picture; by ``polygon`` where there is one, else by ``box``.
        image_relevance: signed relevance, ``(grid_h, grid_w)`` in reading order.
        image_size: ``(width, height)`` of the original, upright picture in pixels.

    Returns:
        One entry a word; words with neither box nor polygon have ``None`` for relevance.

    Raises:
        ValueError: the relevance is no grid, or a box or the picture is malformed.
    """
    values = np.asarray(image_relevance, dtype=np.float64)
    if values.ndim != 2:
        raise ValueError(f"the picture's relevance must have shape (grid_h, grid_w), not {values.shape}")
    shares = word_cell_shares(words, image_size, (values.shape[0], values.shape[1]))
    area = shares.sum(axis=(1, 2))
    relevance = (shares * values).sum(axis=(1, 2))
    absolute = (shares * np.abs(values)).sum(axis=(1, 2)) / np.where(area > 0, area, 1)
    placed = [word.polygon is not None or word.box is not None for word in words]
    return PictureWordTable(
        word=tuple(word.text for word in words),
        start=tuple(word.start for word in words),
        end=tuple(word.end for word in words),
        box=tuple(word.box for word in words),
        relevance=tuple(value if known else None for value, known in zip(relevance.tolist(), placed, strict=True)),
        mean_abs=tuple(value if known else None for value, known in zip(absolute.tolist(), placed, strict=True)),
        n_cells=tuple(area.tolist()),
        elsewhere=float((values * (1 - shares.sum(axis=0))).sum()),
    )


def word_cell_shares(words: Sequence[Word], image_size: tuple[int, int], grid_hw: tuple[int, int]) -> np.ndarray:
    """How much of each cell's area falls to each word, float ``(n_words, grid_h, grid_w)``.

    Area that several words cover is divided equally between them, so that the words of a cell share at most 1.
    Words without a place have none.

    Raises:
        ValueError: as :func:`box_weights` and :func:`polygon_weights`.
    """
    shares = np.zeros((len(words), *grid_hw))
    for piece, owners in _disjoint([_outline(word, image_size, grid_hw) for word in words]):
        shares[owners] += _covered_cells(piece, grid_hw) / len(owners)
    return shares


def polygon_weights(
    polygon: Sequence[tuple[float, float]], image_size: tuple[int, int], grid_hw: tuple[int, int]
) -> np.ndarray:
    """How much of each cell's area a polygon covers, float ``(grid_h, grid_w)`` between 0 and 1.

    As :func:`box_weights`, for text that is not level: what only the polygon's bounding box covers counts for
    nothing. The convex hull of the corners is taken, so that their order does not matter and corners that an engine
    rounded do no harm.

    Raises:
        ValueError: fewer than 3 corners or one that is not finite, or picture or grid has no area.
    """
    return _covered_cells(_scaled(polygon, image_size, grid_hw), grid_hw)


def box_weights(box: Box, image_size: tuple[int, int], grid_hw: tuple[int, int]) -> np.ndarray:
    """How much of each cell's area a box covers, float ``(grid_h, grid_w)`` between 0 and 1.

    The whole picture maps on the whole grid, x and y each with its own scale. What lies outside the
    picture is cut off.

    Args:
        box: ``(x0, y0, x1, y1)`` in pixels of the original picture.
        image_size: ``(width, height)`` of the original picture.
        grid_hw: ``(grid_h, grid_w)``.

    Raises:
        ValueError: the box is turned round, or picture or grid has no area.
    """
    x0, y0, x1, y1 = box
    _check_box(box)
    _check_sizes(image_size, grid_hw)
    (width, height), (grid_h, grid_w) = image_size, grid_hw
    return np.outer(_covered(y0, y1, height, grid_h), _covered(x0, x1, width, grid_w))


def cells_touched(box: Box, image_size: tuple[int, int], grid_hw: tuple[int, int]) -> np.ndarray:
    """Which cells a box covers in part, bool ``(grid_h, grid_w)``; arguments and errors as :func:`box_weights`."""
    return np.asarray(box_weights(box, image_size, grid_hw) > 0)


def _covered(low: float, high: float, size: int, n_cells: int) -> np.ndarray:
    """Share of each of n cells along one axis that the interval [low, high] covers, ``(n_cells,)``."""
    # Scaled before dividing: a box that ends on a cell's edge must not leak into the next by rounding.
    edges = np.arange(n_cells + 1) * float(size)
    covered = np.minimum(edges[1:], high * n_cells) - np.maximum(edges[:-1], low * n_cells)
    return np.asarray(np.clip(covered / size, 0, 1))


def _check_box(box: Box) -> None:
    if box[2] < box[0] or box[3] < box[1]:
        raise ValueError(f"box {box} is turned round; give (left, top, right, bottom)")


def _check_sizes(image_size: tuple[int, int], grid_hw: tuple[int, int]) -> None:
    if min(*image_size, *grid_hw) < 1:
        raise ValueError(f"picture {image_size} and grid {grid_hw} must be at least 1 each way")


def _outline(word: Word, image_size: tuple[int, int], grid_hw: tuple[int, int]) -> _Convex:
    """Where a word stands, in cells; empty if that is not known."""
    if word.polygon is not None:
        return _scaled(word.polygon, image_size, grid_hw)
    if word.box is None:
        return []
    _check_box(word.box)
    x0, y0, x1, y1 = word.box
    return _scaled(((x0, y0), (x1, y0), (x1, y1), (x0, y1)), image_size, grid_hw)


def _scaled(polygon: Sequence[_Point], image_size: tuple[int, int], grid_hw: tuple[int, int]) -> _Convex:
    """The convex hull of corners in pixels, in cells; what lies outside the picture is in no cell."""
    _check_sizes(image_size, grid_hw)
    if len(polygon) < 3 or not np.isfinite(polygon).all():
        raise ValueError(f"polygon {polygon} needs 3 or more corners (x, y) of finite numbers")
    (width, height), (grid_h, grid_w) = image_size, grid_hw
    return _hull([(round(x * grid_w / width, _DECIMALS), round(y * grid_h / height, _DECIMALS)) for x, y in polygon])


def _covered_cells(polygon: _Convex, grid_hw: tuple[int, int]) -> np.ndarray:
    """Area of a polygon, in cells, in each cell, ``(grid_h, grid_w)``."""
    weights = np.zeros(grid_hw)
    if not polygon:
        return weights
    for row in _range([y for _, y in polygon], grid_hw[0]):
        band = _half(_half(polygon, (0, 1), row), (0, -1), -(row + 1))
        for column in _range([x for x, _ in band], grid_hw[1]):
            weights[row, column] = _area(_half(_half(band, (1, 0), column), (-1, 0), -(column + 1)))
    return np.clip(weights, 0, 1)


def _range(places: Sequence[float], n_cells: int) -> range:
    return range(max(0, int(np.floor(min(places)))), min(n_cells, int(np.ceil(max(places))))) if places else range(0)


def _disjoint(outlines: Sequence[_Convex]) -> list[tuple[_Convex, list[int]]]:
    """Convex pieces that do not overlap and together cover what the outlines cover, each with the outlines over it."""
    pieces: list[tuple[_Convex, list[int]]] = []
    for index, outline in enumerate(outlines):
        left = [outline] if _area(outline) > _NO_AREA else []
        divided: list[tuple[_Convex, list[int]]] = []
        for piece, owners in pieces:
            if not left or not _may_meet(piece, outline):
                divided.append((piece, owners))
                continue
            common, rest = _cut(piece, outline)
            divided += [(common, [*owners, index])] if common else []
            divided += [(part, owners) for part in rest]
            left = [part for before in left for part in _cut(before, piece)[1]]
        pieces = [*divided, *((part, [index]) for part in left)]
    return pieces


def _may_meet(a: _Convex, b: _Convex) -> bool:
    return all(
        max(p[axis] for p in a) > min(p[axis] for p in b) and max(p[axis] for p in b) > min(p[axis] for p in a)
        for axis in (0, 1)
    )


def _cut(polygon: _Convex, by: _Convex) -> tuple[_Convex, list[_Convex]]:
    """What of a convex polygon lies in another, and convex pieces of what does not; without slivers."""
    outside = []
    for (x0, y0), (x1, y1) in pairwise([*by, by[0]]):
        normal = (y0 - y1, x1 - x0)
        offset = normal[0] * x0 + normal[1] * y0
        part = _half(polygon, (-normal[0], -normal[1]), -offset)
        outside += [part] if _area(part) > _NO_AREA else []
        polygon = _half(polygon, normal, offset)
    return (polygon if _area(polygon) > _NO_AREA else []), outside


def _half(polygon: _Convex, normal: tuple[float, float], offset: float) -> _Convex:
    """The part of a polygon on the side of a line that its normal points to: ``normal · point >= offset``."""
    sides = [normal[0] * x + normal[1] * y - offset for x, y in polygon]
    kept: _Convex = []
    for index, (here, side) in enumerate(zip(polygon, sides, strict=True)):
        following, next_side = polygon[index - len(polygon) + 1], sides[index - len(polygon) + 1]
        if side >= 0:
            kept.append(here)
        if side * next_side < 0:
            share = side / (side - next_side)
            kept.append((here[0] + share * (following[0] - here[0]), here[1] + share * (following[1] - here[1])))
    return kept


def _area(polygon: _Convex) -> float:
    if len(polygon) < 3:
        return 0.0
    return sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairwise([*polygon, polygon[0]])) / 2


def _hull(points: Sequence[_Point]) -> _Convex:
    """The convex hull by monotone chains (Andrew, 1979), in the order that has a positive area."""
    ordered = sorted(set(points))
    chains = [_chain(ordered), _chain(ordered[::-1])]
    return [*chains[0][:-1], *chains[1][:-1]]


def _chain(ordered: Sequence[_Point]) -> _Convex:
    chain: _Convex = []
    for point in ordered:
        while len(chain) > 1 and _turn(chain[-2], chain[-1], point) <= 0:
            chain.pop()
        chain.append(point)
    return chain


def _turn(a: _Point, b: _Point, c: _Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

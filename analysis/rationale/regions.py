"""Relevance of the picture against the regions that show what a rationale says it saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from xai.analysis.words import normal_form
from xai.attribution.cells import box_weights, word_cell_shares
from xai.schema import Box, Record, Word


class Region(Record):
    """Something that a picture shows, by the name that a rationale may use, and its boxes in pixels."""

    name: str
    boxes: tuple[Box, ...]


RegionsOf = Callable[[Mapping[str, Any]], Sequence[Region]]
"""Gives the regions that a meme's metadata name."""


class RegionAgreement(NamedTuple):
    """How far the relevance of a picture lies in some boxes.

    ``mass``: share of the positive relevance that lies in the boxes, 0 to 1, NaN without any; a cell's relevance is
    taken to lie evenly over its area, so that a box that covers a quarter of a cell gets a quarter of it. ``area``: the
    boxes' share of the picture, which is what relevance that is spread evenly would give. ``cell_mass`` and
    ``cell_area``: the same of whole cells, those that a box touches. ``hit``: 1 if the cell with most relevance is one
    of these (the pointing game), else 0; ``cell_area`` is what chance gives for it.
    """

    mass: float
    area: float
    cell_mass: float
    cell_area: float
    hit: float


_REGIONS = TypeAdapter(tuple[Region, ...])
_NAN = float("nan")


def regions_in(metadata: Mapping[str, Any]) -> tuple[Region, ...]:
    """The regions in ``metadata["regions"]``: ``[{"name": …, "boxes": [[x0, y0, x1, y1], …]}, …]``, or that as JSON.

    Raises:
        ValueError: they do not have this form.
    """
    found = metadata.get("regions") or ()
    try:
        return _REGIONS.validate_json(found) if isinstance(found, str) else _REGIONS.validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"regions{'.' if place else ''}{place}: {first['msg']}; "
            'give a list of {"name": …, "boxes": [[left, top, right, bottom], …]}'
        ) from None


def named_boxes(concepts: Iterable[str], regions: Sequence[Region]) -> tuple[int, tuple[Box, ...]]:
    """How many concepts of a rationale have a region of their name, by normal form, and the boxes of these."""
    places: dict[str, list[Box]] = {}
    for region in regions:
        places.setdefault(normal_form(region.name), []).extend(region.boxes)
    forms = {normal_form(concept) for concept in concepts}
    found = [form for form in places if form and form in forms and places[form]]
    return len(found), tuple(box for form in found for box in places[form])


def region_agreement(image: np.ndarray, weights: np.ndarray) -> RegionAgreement:
    """Where the relevance of a picture lies, beside some regions.

    Args:
        image: signed relevance, ``(grid_h, grid_w)`` in reading order.
        weights: how much of each cell the regions cover, from :func:`region_weights`.
    """
    positive, touched = np.maximum(image, 0), weights > 0
    total = float(positive.sum())
    return RegionAgreement(
        mass=float((positive * weights).sum()) / total if total > 0 else _NAN,
        area=float(weights.sum()) / weights.size,
        cell_mass=float(positive[touched].sum()) / total if total > 0 else _NAN,
        cell_area=int(touched.sum()) / weights.size,
        hit=float(touched.flat[int(image.argmax())]),
    )


def region_weights(boxes: Sequence[Box], image_size: tuple[int, int], grid_hw: tuple[int, int]) -> np.ndarray:
    """How much of each cell's area boxes cover together, float ``(grid_h, grid_w)``; where they overlap, once.

    Args:
        boxes: in pixels of the original picture.
        image_size: its (width, height).
        grid_hw: ``(grid_h, grid_w)``.

    Raises:
        ValueError: a box is turned round, or picture or grid has no area.
    """
    if any(_overlap(a, b) for a, b in combinations(boxes, 2)):
        words = [Word(text="region", start=0, end=6, box=box) for box in boxes]
        return np.asarray(word_cell_shares(words, image_size, grid_hw).sum(axis=0))
    return sum((box_weights(box, image_size, grid_hw) for box in boxes), np.zeros(grid_hw))


def _overlap(a: Box, b: Box) -> bool:
    return max(a[0], b[0]) < min(a[2], b[2]) and max(a[1], b[1]) < min(a[3], b[3])

"""Relevance of a picture in the boxes of what a rationale names."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xai.analysis.rationale.regions import (
    Region,
    RegionAgreement,
    named_boxes,
    region_agreement,
    region_weights,
    regions_in,
)
from xai.schema import Box

SIZE = (40, 20)
IMAGE = np.array([[3.0, 1.0, 0.0, -5.0], [0.0, 0.0, 4.0, 0.0]])
BOXES = st.tuples(st.integers(0, 39), st.integers(0, 19), st.integers(1, 40), st.integers(1, 20)).map(
    lambda box: (box[0], box[1], min(40, box[0] + box[2]), min(20, box[1] + box[3]))
)


def agreement(image: np.ndarray, boxes: Sequence[Box]) -> RegionAgreement:
    return region_agreement(image, region_weights(boxes, SIZE, (2, 4)))


def test_mass_area_and_hit_by_hand() -> None:
    # The left half of the first cell, of 10 x 10 pixels, and the whole of the second.
    found = agreement(IMAGE, [(5, 0, 20, 10)])
    assert found.mass == pytest.approx((3 / 2 + 1) / 8)
    assert found.area == pytest.approx(1.5 / 8)
    assert (found.cell_mass, found.cell_area, found.hit) == (pytest.approx(4 / 8), pytest.approx(2 / 8), 0)
    assert agreement(IMAGE, [(21, 11, 22, 12)]).hit == 1


@given(st.lists(BOXES, min_size=1, max_size=4))
def test_what_boxes_share_counts_once(boxes: list[Box]) -> None:
    pixels = np.zeros((20, 40), dtype=bool)
    for x0, y0, x1, y1 in boxes:
        pixels[int(y0) : int(y1), int(x0) : int(x1)] = True
    found = agreement(IMAGE, boxes)
    assert found.area == pytest.approx(pixels.mean())
    spread = np.kron(np.clip(IMAGE, 0, None), np.ones((10, 10))) / 100
    assert found.mass == pytest.approx(spread[pixels].sum() / 8)
    assert agreement(IMAGE, [*boxes, boxes[0]]).mass == pytest.approx(found.mass)


def test_relevance_that_is_spread_evenly_lies_in_boxes_by_their_area() -> None:
    found = agreement(np.ones((2, 4)), [(3, 2, 17, 9)])
    assert found.mass == pytest.approx(found.area)
    assert found.cell_mass == pytest.approx(found.cell_area)


def test_without_positive_relevance_there_is_no_share() -> None:
    found = agreement(-np.ones((2, 4)), [(0, 0, 10, 10)])
    assert math.isnan(found.mass)
    assert math.isnan(found.cell_mass)


def test_concepts_match_regions_by_normal_form() -> None:
    regions = regions_in({"regions": [{"name": "Flag", "boxes": [[0, 0, 1, 1]]}, {"name": "sun", "boxes": []}]})
    assert named_boxes(["flag!", "sun", "FLAG", "cat"], regions) == (1, ((0, 0, 1, 1),))
    assert regions_in({}) == regions_in({"regions": None}) == ()


def test_a_column_of_json_text_is_read() -> None:
    assert regions_in({"regions": '[{"name": "sun", "boxes": [[0, 0, 1, 1]]}]'})[0].boxes == ((0, 0, 1, 1),)


def test_several_regions_of_one_name_are_one_thing() -> None:
    regions = [Region(name="flag", boxes=((0, 0, 1, 1),)), Region(name="Flag", boxes=((2, 0, 3, 1),))]
    assert named_boxes(["flag"], regions) == (1, ((0, 0, 1, 1), (2, 0, 3, 1)))


def test_malformed_regions_say_what_to_give() -> None:
    with pytest.raises(ValueError, match=r"regions.0.boxes.0.*give a list of"):
        regions_in({"regions": [{"name": "flag", "boxes": [[0, 0, 1]]}]})

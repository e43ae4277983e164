"""Every cell is coloured in its place and every sign in its colour, and text on any colour can be read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from xai.attribution.heatmap import (
    caption_pieces,
    content_limit,
    display_limit,
    ink_on,
    outline_words,
    overlay,
    relevance_rgb,
)
from xai.schema import Explanation, Word


def test_text_on_every_colour_of_the_scale_is_readable() -> None:
    def luminance(rgb: np.ndarray) -> float:
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for rgb in relevance_rgb(np.append(np.linspace(-1, 1, 201), np.nan), 1.0):
        ink = int(ink_on(rgb)[1:3], 16) / 255
        light, dark = sorted((luminance(rgb), luminance(np.full(3, ink))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_the_scale_is_symmetric_and_ends_at_a_percentile() -> None:
    assert display_limit([-3.0]) == 3.0
    assert display_limit(np.append(np.ones(999), 1000.0)) == 1.0
    assert display_limit(np.append(np.zeros(999), -5.0)) == 5.0
    assert display_limit([0.0, 0.0]) == display_limit([]) == display_limit([float("nan")]) == 1.0
    low, middle, high = relevance_rgb(np.array([-2.0, 0.0, 2.0]), 1.0)
    assert low[2] > low[0]
    assert high[0] > high[2]
    np.testing.assert_allclose(middle, 1, atol=0.04)


def test_a_cell_lights_up_its_own_rectangle_x_and_y_apart() -> None:
    grid = np.zeros((2, 4))
    grid[1, 3], grid[0, 0] = 1.0, -1.0
    heat = np.asarray(overlay(Image.new("RGB", (80, 20), "white"), grid, alpha=1.0)).astype(int)
    assert heat.shape == (20, 80, 3)
    red, blue = heat[..., 0] - heat[..., 2] > 50, heat[..., 2] - heat[..., 0] > 50
    assert {tuple(np.ptp(np.argwhere(mask), axis=0)) for mask in (red, blue)} == {(9, 19)}
    assert np.argwhere(red).min(axis=0).tolist() == [10, 60]
    assert np.argwhere(blue).min(axis=0).tolist() == [0, 0]
    assert (heat[~red & ~blue] == 255).all()


def test_cells_that_are_not_finite_are_grey() -> None:
    heat = np.asarray(overlay(Image.new("RGB", (2, 1), "white"), np.array([[np.nan, 1.0]]), alpha=1.0))
    assert heat[0, 0].tolist() == [153, 153, 153]


def test_a_grid_without_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="grid must have shape"):
        overlay(Image.new("RGB", (2, 2)), np.zeros((0, 3)))


def test_words_that_carry_little_beside_the_picture_look_pale(explained: Callable[..., Explanation]) -> None:
    strong = explained("a b", [0.1, -0.1], grid=np.zeros((2, 2)))
    beside_a_cell = explained("a b", [0.1, -0.1], grid=np.array([[0.0, 4.0], [0.0, 4.0]]))
    assert content_limit(strong) == pytest.approx(0.1)
    assert content_limit(beside_a_cell) == pytest.approx(4.0)
    for pale, full in zip(caption_pieces(beside_a_cell), caption_pieces(strong), strict=True):
        if full.background:
            assert _whiteness(pale.background) > 0.9 > 0.5 > _whiteness(full.background)


def _whiteness(background: str) -> float:
    return min(int(background[at : at + 2], 16) for at in (1, 3, 5)) / 255


def test_words_are_outlined_by_their_polygon_and_not_by_its_bounding_box_and_the_picture_stays() -> None:
    picture = Image.new("RGB", (320, 320), "black")
    diamond = Word(text="a", start=0, end=1, polygon=((160, 60), (260, 160), (160, 260), (60, 160)))
    level = Word(text="b", start=2, end=3, box=(10, 280, 60, 310))
    drawn = outline_words(picture, [diamond, Word(text="c", start=4, end=5), level])
    for corner in ((160, 60), (260, 160), (160, 260), (60, 160), (210, 110), (10, 310), (60, 280)):
        assert drawn.getpixel(corner) == (255, 212, 0), corner
    assert drawn.getpixel((260, 60)) == (0, 0, 0)
    assert np.asarray(picture).max() == 0

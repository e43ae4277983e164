"""Words in the picture get the relevance of the area that they cover, once."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xai.attribution.align import box_weights, polygon_weights, word_cell_shares, word_image_relevance
from xai.schema import Word

Corners = tuple[tuple[float, float], ...]


def word(**place: Any) -> Word:
    return Word(text="w", start=0, end=1, **place)


def turned(x: float, y: float, width: float, height: float, degrees: float) -> Corners:
    """A rectangle around a centre, turned clockwise, from the top left of its text."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    halves = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return tuple(
        (x + cos * a * width / 2 - sin * b * height / 2, y + sin * a * width / 2 + cos * b * height / 2)
        for a, b in halves
    )


def sampled(
    inside: Callable[[np.ndarray, np.ndarray], np.ndarray], size: tuple[int, int], grid: tuple[int, int]
) -> Any:
    """Share of each cell in which points of a fine raster lie inside."""
    n = 60
    y, x = np.mgrid[0 : grid[0] * n, 0 : grid[1] * n] + 0.5
    hit = inside(x * size[0] / (grid[1] * n), y * size[1] / (grid[0] * n))
    return hit.reshape(grid[0], n, grid[1], n).mean(axis=(1, 3))


@pytest.mark.parametrize("degrees", [0, 15, 45, 90, 180, 270])
@pytest.mark.parametrize("grid", [(6, 6), (4, 9)])
def test_slanted_text_covers_what_a_raster_of_points_says(degrees: float, grid: tuple[int, int]) -> None:
    size = (240, 160)
    angle = math.radians(degrees)

    def inside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        along = (x - 110) * math.cos(angle) + (y - 85) * math.sin(angle)
        across = (y - 85) * math.cos(angle) - (x - 110) * math.sin(angle)
        return (np.abs(along) < 60) & (np.abs(across) < 9)

    weights = polygon_weights(turned(110, 85, 120, 18, degrees), size, grid)
    np.testing.assert_allclose(weights, sampled(inside, size, grid), atol=0.02)
    assert weights.sum() == pytest.approx(120 * 18 / (240 * 160) * grid[0] * grid[1])


def test_cells_that_only_the_bounding_box_covers_get_nothing() -> None:
    corners = turned(50, 50, 100, 10, 45)
    touched = polygon_weights(corners, (100, 100), (5, 5)) > 0
    in_box = box_weights(word(polygon=corners).box, (100, 100), (5, 5)) > 0
    assert in_box.sum() == 25
    assert touched.diagonal().all()
    assert not touched[0, 2:].any()
    assert not touched[4, :3].any()
    assert touched.sum() == 13


@pytest.mark.parametrize(("size", "corner"), [((1920, 1080), (3, 7)), ((4000, 2250), (3, 7))])
def test_a_word_in_the_corner_gets_the_corner_cell(size: tuple[int, int], corner: tuple[int, int]) -> None:
    width, height = size
    corners = ((width * 0.95, height * 0.9), (width, height * 0.9), (width, height), (width * 0.95, height))
    weights = polygon_weights(corners, size, (4, 8))
    assert np.argwhere(weights).tolist() == [list(corner)]
    assert weights[corner] == pytest.approx(0.05 * 8 * 0.1 * 4)


boxes = st.tuples(*[st.integers(-20, 120)] * 4).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3]))
)


@settings(max_examples=200, deadline=None)
@given(boxes, st.integers(1, 7), st.integers(1, 7))
def test_a_level_polygon_is_a_box(box: tuple[int, int, int, int], grid_h: int, grid_w: int) -> None:
    x0, y0, x1, y1 = box
    corners = ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
    expected = box_weights(box, (100, 70), (grid_h, grid_w))
    np.testing.assert_allclose(polygon_weights(corners, (100, 70), (grid_h, grid_w)), expected, atol=1e-7)
    np.testing.assert_allclose(polygon_weights(corners[::-1], (100, 70), (grid_h, grid_w)), expected, atol=1e-7)


@pytest.mark.parametrize("grid", [(3, 7), (17, 30), (49, 11)])
def test_a_polygon_along_cell_edges_does_not_leak(grid: tuple[int, int]) -> None:
    width, height = 1920, 1080
    row, column = grid[0] // 2, grid[1] // 2
    x0, x1 = column * width / grid[1], (column + 1) * width / grid[1]
    y0, y1 = row * height / grid[0], (row + 1) * height / grid[0]
    weights = polygon_weights(((x0, y0), (x1, y0), (x1, y1), (x0, y1)), (width, height), grid)
    assert np.argwhere(weights).tolist() == [[row, column]]


placed = st.one_of(
    boxes.map(lambda box: word(box=box)),
    st.tuples(st.integers(0, 100), st.integers(0, 70), st.integers(1, 90), st.integers(1, 40), st.integers(0, 359)).map(
        lambda c: word(polygon=turned(*c))
    ),
    st.just(word()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(placed, max_size=6), st.integers(0, 2**31))
def test_words_and_elsewhere_add_up_to_the_picture(words: list[Word], seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(4, 5))
    table = word_image_relevance(words, values, (100, 70))
    relevance = [value for value in table.relevance if value is not None]
    assert sum(relevance) + table.elsewhere == pytest.approx(values.sum(), abs=1e-7)
    shares = word_cell_shares(words, (100, 70), (4, 5))
    assert shares.min(initial=0) >= 0
    assert shares.sum(axis=0).max(initial=0) <= 1 + 1e-7
    alone = [word_cell_shares([one], (100, 70), (4, 5))[0] for one in words]
    assert all((share <= own + 1e-7).all() for share, own in zip(shares, alone, strict=True))


def test_area_that_words_share_is_divided_between_them() -> None:
    values = np.array([[8.0, 2.0]])
    words = [word(box=(0, 0, 10, 10)), word(box=(5, 0, 20, 10)), word(box=(0, 0, 0, 10))]
    table = word_image_relevance(words, values, (20, 10))
    assert table.relevance == pytest.approx((4 + 2, 2 + 2, 0))
    assert table.n_cells == pytest.approx((0.75, 1.25, 0))
    assert table.mean_abs == pytest.approx((8, 4 / 1.25, 0))
    assert table.elsewhere == pytest.approx(0)


def test_two_words_of_one_line_box_get_half_each() -> None:
    table = word_image_relevance([word(box=(2, 2, 9, 4))] * 2, np.array([[50.0]]), (10, 10))
    assert table.relevance == pytest.approx((3.5, 3.5))
    assert table.elsewhere == pytest.approx(43)


def test_a_word_whose_place_is_unknown_has_no_relevance_rather_than_none_of_it() -> None:
    table = word_image_relevance([word(), word(box=(-9, -9, -1, -1))], np.ones((2, 2)), (10, 10))
    assert table.relevance == (None, 0)
    assert np.isnan(table.frame()["relevance"][0])
    assert table.elsewhere == 4


def test_malformed_places_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(grid_h, grid_w\)"):
        word_image_relevance([], np.ones(4), (10, 10))
    with pytest.raises(ValueError, match="turned round"):
        word_image_relevance([word(box=(5, 0, 1, 9))], np.ones((2, 2)), (10, 10))
    with pytest.raises(ValueError, match="3 or more corners"):
        polygon_weights(((0, 0), (1, math.nan), (1, 1)), (10, 10), (2, 2))
    with pytest.raises(ValueError, match="at least 1"):
        polygon_weights(((0, 0), (1, 0), (1, 1)), (0, 10), (2, 2))


def test_an_explanation_of_the_picture_alone_has_words_and_a_run_keeps_them(tmp_path: Path) -> None:
    import xai
    from xai.planted import SAMPLES
    from xai.schema import Meme
    from xai.store import RunWriter

    sample = next(m for m in xai.read_memes(SAMPLES) if isinstance(m, Meme) and m.image is not None)
    width, height = sample.open_image().size
    words = (
        Word(text="top", start=0, end=3, box=(0, 0, width, height / 3)),
        Word(text="end", start=4, end=7, polygon=turned(width / 2, height * 0.8, width / 2, 9, 45)),
    )
    meme = Meme(id="m", image=sample.image, text="top end", words=words)
    e = xai.explain(xai.load_model("planted"), meme, mode="image")
    table = e.picture_words
    assert table is not None
    assert table.word == ("top", "end")
    assert e.words.empty
    assert sum(value or 0 for value in table.relevance) + table.elsewhere == pytest.approx(e.image.sum())
    assert abs(table.relevance[0] or 0) > 0
    with RunWriter(tmp_path / "run", {"task": "ukrmeme"}) as writer:
        writer.add(e.prediction, [e])
    assert xai.open_run(tmp_path / "run").explanation("m").picture_words == table

"""Figures take any caption, write all of its words and belong to no pyplot state."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from xai.attribution.figure import explanation_figure, save_png
from xai.schema import Explanation, Mode

Explain = Callable[..., Explanation]


@pytest.mark.parametrize(
    "text",
    ["$\\frac{1}{", "a\n\nb", "x" * 500, "слово " * 300, "هذا ليس كراهية", "这不是", "👍🏽", "", "<|im_start|>"],
    ids=["mathtext", "lines", "long word", "many words", "arabic", "chinese", "emoji", "empty", "special"],
)
def test_figures_take_any_caption(tmp_path: Path, text: str, explained: Explain) -> None:
    save_png(explained(text, image=Image.new("RGB", (30, 90))), tmp_path / "e.png")
    with Image.open(tmp_path / "e.png") as picture:
        assert picture.width == 1200


@pytest.mark.parametrize("mode", ["text", "image", "image+text"])
def test_a_figure_grows_with_its_caption_and_writes_all_words(mode: Mode, explained: Explain) -> None:
    def drawn(text: str) -> tuple[float, str]:
        figure = explanation_figure(explained(text, mode=mode, grid=None if mode == "text" else np.ones((2, 3))))
        return figure.get_figheight(), " ".join(t.get_text() for t in figure.texts)

    short, long = drawn("one two"), drawn(" ".join(f"word{i}" for i in range(60)))
    assert long[0] > short[0]
    assert all(f"word{i}" in long[1].split() for i in range(60))


@pytest.mark.parametrize("size", [(30, 300), (300, 30), (200, 200)], ids=["tall", "wide", "square"])
@pytest.mark.parametrize("mode", ["text", "image+text"])
def test_texts_of_a_figure_stay_inside_it_and_clear_of_each_other(
    size: tuple[int, int], mode: Mode, explained: Explain
) -> None:
    shown = mode != "text"
    e = explained(
        image=Image.new("RGB", size),
        mode=mode,
        grid=np.ones((2, 2)) if shown else None,
        pixels=np.ones((4, 4)) if shown else None,
        hostile="a very long name of a label " * 4,
    )
    e = e.model_copy(update={"prediction": e.prediction.model_copy(update={"answer_source": "given_text"})})
    figure = explanation_figure(e)
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    labels = [label for axes in figure.axes if axes.axison for label in axes.get_yticklabels()]
    boxes = [text.get_window_extent(renderer) for text in [*figure.texts, *labels]]
    assert len(boxes) > 10
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y0 >= 0 for box in boxes)
    for one, other in combinations(boxes, 2):
        assert min(one.x1, other.x1) <= max(one.x0, other.x0) or min(one.y1, other.y1) <= max(one.y0, other.y0) + 2


def test_pixels_get_a_panel_and_a_scale_of_their_own(explained: Explain) -> None:
    picture, grid = Image.new("RGB", (80, 40)), np.ones((2, 4))
    plain = explanation_figure(explained(image=picture, grid=grid))
    deep = explanation_figure(explained(image=picture, grid=grid, pixels=np.full((4, 8), 0.25)))
    assert (len(plain.axes), len(deep.axes)) == (3, 5)
    assert "Relevance of the pixels, by patch" in [text.get_text() for text in deep.texts]
    assert "for\n+0.25" in [label.get_text() for label in deep.axes[-1].get_yticklabels()]


def test_figures_leave_pyplot_alone() -> None:
    code = (
        "import sys, xai.attribution.figure, xai.attribution.page\n"
        "sys.exit('matplotlib.pyplot' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

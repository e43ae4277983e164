"""Figures take any caption, write all of its words and belong to no pyplot state."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
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


def test_figures_leave_pyplot_alone() -> None:
    code = (
        "import sys, xai.attribution.figure, xai.attribution.page\n"
        "sys.exit('matplotlib.pyplot' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

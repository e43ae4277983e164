"""Whether the shipped model reads a label's cause from the picture: its word's place, and how small its letters are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import xai
from xai.planted.evaluate import EVALUATION_SEED
from xai.planted.render import _fit_caption
from xai.planted.truth import planted_memes, truth_of
from xai.planted.world import sample_scene
from xai.processors import reader_of
from xai.schema import Explanation, Meme

METHODS = ("attnlrp", "cplrp", "gradient_x_input", "random")
PATCH, CELL = 16, 32
"""Pixels of a patch and of a merged cell of the shipped model."""
Spans = tuple[tuple[int, int], ...]


def measure(n_labels: int = 55) -> list[dict[str, Any]]:
    """One row a method, over labels that a word causes, of memes that training never drew, in mode ``image``.

    The label is put into the model's mouth. ``hit``: how often the word with most relevance a cell is one of the
    cause; ``chance``: what drawing a word gives; ``cause`` and ``others``: mean relevance a cell of either.
    """
    model = xai.load_model("planted", device="cpu")
    cases = list(islice(_word_causes(), n_labels))
    rows = []
    for method in METHODS:
        explained = (_explained(model, meme, label, method) for meme, label, _ in cases)
        found = np.array([_compared(e, words) for e, (_, _, words) in zip(explained, cases, strict=True)])
        means = dict(zip(("hit", "chance", "cause", "others"), found.mean(axis=0).tolist(), strict=True))
        rows.append({"method": method, "labels": len(cases), **means})
    return rows


def letter_sizes(n_memes: int = 200) -> dict[str, list[float]]:
    """Letters of captions as they reach the vision tower, in its pixels: 5th, 50th and 95th percentile of memes."""
    reader = reader_of(xai.load_model("planted", device="cpu").processor)
    rows = []
    for index in range(n_memes):
        scene = sample_scene(EVALUATION_SEED, index)
        picture = Image.new("RGB", scene.style.size)
        font, _ = _fit_caption(scene, ImageDraw.Draw(picture))
        rows_of_cells, columns = reader.picture(picture).grid
        right, down = columns * CELL / picture.width, rows_of_cells * CELL / picture.height
        heights = [down * (font.getbbox(letter)[3] - font.getbbox(letter)[1]) for letter in "xH"]
        advance = right * font.getlength(scene.text) / len(scene.text)
        rows.append((*heights, advance, PATCH / advance, rows_of_cells * columns))
    names = ("x-height", "capitals", "advance", "letters a patch", "cells")
    return dict(zip(names, np.percentile(rows, (5, 50, 95), axis=0).T.round(1).tolist(), strict=True))


def _word_causes() -> Iterator[tuple[Meme, str, Spans]]:
    for meme in planted_memes(200, EVALUATION_SEED):
        for cause in truth_of(meme).causes:
            if cause.kind == "word" and cause.words and len(meme.words or ()) > 1:
                yield meme, cause.label, cause.words


def _explained(model: Any, meme: Meme, label: str, method: str) -> Explanation:
    answer = json.dumps({"labels": [label], "referred_words": [], "referred_image_concepts": []}, ensure_ascii=False)
    return xai.explain(model, meme, mode="image", answer=answer, target=label, method=method)


def _compared(e: Explanation, cause: Spans) -> tuple[float, float, float, float]:
    assert e.picture_words is not None
    table = e.picture_words.frame()
    density = (table["relevance"] / table["n_cells"]).to_numpy()
    is_cause = np.array([span in cause for span in zip(table["start"], table["end"], strict=True)])
    hit = float(is_cause[np.nanargmax(density)])
    return hit, float(is_cause.mean()), float(density[is_cause].mean()), float(density[~is_cause].mean())


if __name__ == "__main__":
    print(json.dumps({"letters": letter_sizes(), "methods": measure()}, indent=2))

"""Memes ranked by their similarity to another, by text and by picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from xai.pictures import MAX_PIXELS
from xai.retrieval.embedders import Embedder, Kind
from xai.retrieval.index import Ranking, VectorIndex
from xai.schema import Meme

AT_ONCE = 16
"""Memes whose pictures are in memory at once."""


@dataclass(frozen=True)
class Vectors:
    """Memes embedded by text or by picture.

    Attributes:
        rows: ``(n, dim)`` float32; zero for a meme that has no vector.
        lacking: why, by the meme's number; the messages say what is missing.
    """

    rows: np.ndarray
    lacking: Mapping[int, str]


@dataclass(frozen=True)
class Compared:
    """The rankings of indexed memes for one meme, and why there are no others."""

    rankings: Mapping[Kind, Ranking]
    lacking: Mapping[Kind, str]


class SimilarMemes:
    """An index of memes for each kind of embedder.

    Args:
        memes: which are numbered in their order.
        embedders: by what they are to compare; fitted here to the memes' texts.

    Attributes:
        unreadable: memes whose picture was to be embedded and could not be opened.

    Raises:
        ValueError: no meme has what an embedder reads.
    """

    def __init__(self, memes: Sequence[Meme], embedders: Mapping[Kind, Embedder], max_pixels: int = MAX_PIXELS) -> None:
        self._embedders, self._max_pixels = dict(embedders), max_pixels
        self._indexes: dict[Kind, VectorIndex] = {}
        self.unreadable: set[int] = set()
        texts = [meme.text for meme in memes if meme.text.strip()]
        for kind, one in self._embedders.items():
            if kind == "text" and texts:
                one.fit(texts)
            vectors = embed(one, kind, memes, max_pixels)
            if len(vectors.lacking) == len(memes):
                raise ValueError(f"no meme of the pool has a {kind} that {one.name!r} can embed; compare by another")
            self._indexes[kind] = VectorIndex(vectors.rows)
            if kind == "picture":
                self.unreadable = {row for row in vectors.lacking if memes[row].image is not None}

    def compare(self, memes: Sequence[Meme]) -> list[Compared]:
        """All indexed memes ranked for each of some others."""
        rankings: list[dict[Kind, Ranking]] = [{} for _ in memes]
        lacking: list[dict[Kind, str]] = [{} for _ in memes]
        for kind, one in self._embedders.items():
            vectors = embed(one, kind, memes, self._max_pixels)
            there = [row for row in range(len(memes)) if row not in vectors.lacking]
            for row, ranking in zip(there, self._indexes[kind].rankings(vectors.rows[there]), strict=True):
                rankings[row][kind] = ranking
            for row, reason in vectors.lacking.items():
                lacking[row][kind] = reason
        return [Compared(*both) for both in zip(rankings, lacking, strict=True)]


def embed(one: Embedder, kind: Kind, memes: Sequence[Meme], max_pixels: int = MAX_PIXELS) -> Vectors:
    """The memes' texts or pictures as vectors; a picture is in memory only while it is embedded."""
    found: dict[int, np.ndarray] = {}
    lacking: dict[int, str] = {}
    for start in range(0, len(memes), AT_ONCE):
        things: dict[int, Any] = {}
        for row in range(start, min(start + AT_ONCE, len(memes))):
            try:
                things[row] = _text_of(memes[row]) if kind == "text" else picture_of(memes[row], max_pixels)
            except ValueError as error:
                lacking[row] = str(error)
        if things:
            embedded = one.texts(list(things.values())) if kind == "text" else one.pictures(list(things.values()))
            found.update(zip(things, embedded, strict=True))
    nothing = f"embedder {one.name!r} finds nothing to go by in the {kind} of meme"
    lacking |= {row: f"{nothing} {memes[row].id!r}" for row, vector in found.items() if not vector.any()}
    width = len(next(iter(found.values()), ()))
    rows = [found.get(row, np.zeros(width, dtype=np.float32)) for row in range(len(memes))]
    return Vectors(np.array(rows, dtype=np.float32).reshape(len(memes), width), lacking)


def picture_of(meme: Meme, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The picture of a meme; ValueError where it has none or it cannot be opened."""
    if meme.image is None:
        raise ValueError(f"meme {meme.id!r} has no picture")
    return meme.open_image(max_pixels)


def _text_of(meme: Meme) -> str:
    if not meme.text.strip():
        raise ValueError(f"meme {meme.id!r} has no text")
    return meme.text

"""Chooses the examples that a meme is shown with: at random, or the most similar memes of a pool."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xai.ocr import TextSource
from xai.pictures import MAX_PIXELS
from xai.retrieval.embedders import PICTURE_DEFAULT, TEXT_DEFAULT, Embedder, Kind, make_embedder
from xai.retrieval.index import reciprocal_rank_fusion
from xai.retrieval.pool import Part, Pool, read_pool
from xai.retrieval.similar import Compared, SimilarMemes
from xai.schema import Failure, Meme, Mode
from xai.tasks import Task

Retrieval = Literal["random", "text", "picture", "both"]
RETRIEVALS: tuple[Retrieval, ...] = ("random", "text", "picture", "both")
CONSTANT = 60
"""Of reciprocal rank fusion, as Cormack et al. (2009) chose it."""
_KINDS: dict[Retrieval, tuple[Kind, ...]] = {
    "random": (),
    "text": ("text",),
    "picture": ("picture",),
    "both": ("text", "picture"),
}
_DEFAULTS: dict[Kind, str] = {"text": TEXT_DEFAULT, "picture": PICTURE_DEFAULT}
_PARTS: dict[Part, str] = {"text": "text", "picture": "image", "post": "post"}
"""What a mode calls the parts of a meme."""


@dataclass(frozen=True)
class FewShot:
    """Which examples a run shows; nothing is read before :meth:`open`.

    Attributes:
        pool: the dataset that they are taken from; memes of it without gold labels are left out.
        k: how many a meme is shown with.
        retrieval: ``random`` draws them, for each meme by its id. ``text`` and ``picture`` take the most similar by an
            embedding, and ``both`` by reciprocal rank fusion of the two rankings.
        embedders: names of embedders or of dual encoders (a folder or a hub id). For texts and for pictures each, the
            first that reads them counts; else the default that needs no model.
        images: folder of the pool's pictures, if not the pool's.
        seed: of ``random``.
        device, dtype: of a dual encoder.
    """

    pool: str | Path
    k: int = 4
    retrieval: Retrieval = "both"
    embedders: tuple[str, ...] = ()
    images: Path | None = None
    seed: int = 0
    device: str | None = None
    dtype: str | None = None

    def open(
        self,
        modes: Sequence[Mode] = (),
        task: Task | None = None,
        *,
        text: TextSource = "dataset",
        max_pixels: int = MAX_PIXELS,
    ) -> ExampleFinder:
        """Read and index the pool.

        Args:
            modes: in which memes will be shown; an example has all that one of them shows. None: it may lack anything.
            task: which the gold labels are to be an answer to; None: whatever they are.
            text: which text of a meme counts; as for :func:`xai.pipeline.explain_dataset`.
            max_pixels: of a picture.

        Raises:
            ValueError: the pool cannot be read or has too few memes, or an embedder is unknown.
            RetrievalUnavailableError: a package is missing.
        """
        needs: set[Part] = {part for mode in modes for part in _PARTS if _PARTS[part] in mode.split("+")}
        pool = read_pool(self.pool, images=self.images, needs=needs, task=task, text=text)
        return ExampleFinder(self, pool, must_open="picture" in needs, max_pixels=max_pixels)


class ExampleFinder:
    """Finds the examples of memes in a pool; see :class:`FewShot`.

    A meme never gets itself: no meme of its id, and none of its text with the same bytes of its picture.

    Args:
        must_open: an example's picture must be one that can be opened; others are passed over.

    Raises:
        ValueError: the retrieval or an embedder is unknown, or the pool has too few memes.
        RetrievalUnavailableError: a package is missing.
    """

    def __init__(self, source: FewShot, pool: Pool, *, must_open: bool = False, max_pixels: int = MAX_PIXELS) -> None:
        _check(source, pool)
        self.pool = pool
        self._source, self._must_open, self._max_pixels = source, must_open, max_pixels
        self._embedders = _embedders(source)
        self._similar = SimilarMemes(pool.memes, self._embedders, max_pixels)
        self._unusable = set(self._similar.unreadable) if must_open else set()
        self._opened: set[int] = set()

    def describe(self) -> dict[str, Any]:
        """What decides the examples, in JSON values."""
        source, pool = self._source, self.pool
        described: dict[str, Any] = {
            "pool": pool.name,
            "sha256": pool.digest,
            "memes": len(pool),
            "left_out": dict(pool.left_out),
            "k": source.k,
            "retrieval": source.retrieval,
            "embedders": {kind: one.describe() for kind, one in self._embedders.items()},
        }
        more = {"random": {"seed": source.seed}, "both": {"constant": CONSTANT}}
        return described | more.get(source.retrieval, {})

    def attach(self, records: Sequence[Meme | Failure]) -> list[Meme | Failure]:
        """Memes with their examples, the most similar last; one for which too few are found becomes a failure."""
        memes = [record for record in records if isinstance(record, Meme)]
        compared = iter(self._similar.compare(memes))
        return [self._attached(record, next(compared)) if isinstance(record, Meme) else record for record in records]

    def examples(self, meme: Meme) -> tuple[Meme, ...]:
        """The examples of one meme, the most similar last.

        Raises:
            ValueError: it lacks what it is to be compared by, or too few memes of the pool can be compared with it.
        """
        (compared,) = self._similar.compare([meme])
        return self._examples(meme, compared)

    def _attached(self, meme: Meme, compared: Compared) -> Meme | Failure:
        try:
            return meme.model_copy(update={"examples": self._examples(meme, compared)})
        except ValueError as error:
            return Failure(meme_id=meme.id, stage="read", reason=str(error))

    def _examples(self, meme: Meme, compared: Compared) -> tuple[Meme, ...]:
        usable = (row for row in self._order(meme, compared).tolist() if self._is_usable(row))
        rows = list(islice(usable, self._source.k))
        if len(rows) < self._source.k:
            raise ValueError(
                f"the pool has {len(rows)} examples for meme {meme.id!r}, fewer than {self._source.k}; ask for fewer, "
                "give a larger pool, or choose by another retrieval"
            )
        return tuple(self.pool.memes[row] for row in reversed(rows))

    def _order(self, meme: Meme, compared: Compared) -> np.ndarray:
        """The pool's memes that may be examples of this one, the best first."""
        excluded = np.fromiter(self.pool.itself(meme) | self._unusable, dtype=np.int64)
        if self._source.retrieval == "random":
            rankings = [_draw(f"{self._source.seed} {meme.id}", len(self.pool))]
        elif compared.rankings:
            rankings = [ranking.rows for ranking in compared.rankings.values()]
        else:
            raise ValueError(f"{'; '.join(compared.lacking.values())}; {_OTHERWISE[self._source.retrieval]}")
        allowed = [rows[~np.isin(rows, excluded)] for rows in rankings]
        return reciprocal_rank_fusion(allowed, len(self.pool), CONSTANT)

    def _is_usable(self, row: int) -> bool:
        if not self._must_open or row in self._opened:
            return True
        try:
            self.pool.memes[row].open_image(self._max_pixels)
        except ValueError:
            self._unusable.add(row)
            return False
        self._opened.add(row)
        return True


_OTHERWISE: dict[Retrieval, str] = {
    "text": "choose by picture, both or random, or fill its text",
    "picture": "choose by text, both or random, or give it a picture",
    "both": "choose at random, or leave it out",
}


def _check(source: FewShot, pool: Pool) -> None:
    if source.retrieval not in RETRIEVALS:
        raise ValueError(f"unknown retrieval {source.retrieval!r}; there are {', '.join(RETRIEVALS)}")
    if not 1 <= source.k <= len(pool):
        raise ValueError(
            f"{source.k} examples cannot be had of the {len(pool)} in {pool.name!r}; ask for 1 or more of them"
        )


def _embedders(source: FewShot) -> dict[Kind, Embedder]:
    """What embeds texts and pictures: of those that are named the first that reads them, else the default."""
    kinds = _KINDS[source.retrieval]
    named = [make_embedder(name, device=source.device, dtype=source.dtype) for name in source.embedders if kinds]
    chosen = {kind: next((one for one in named if kind in one.reads), None) for kind in kinds}
    unused = [one.name for one in named if one not in chosen.values()]
    if unused:
        raise ValueError(
            f"embedder {unused[0]!r} has nothing to embed with retrieval {source.retrieval!r}; leave it out"
        )
    return {kind: one or make_embedder(_DEFAULTS[kind]) for kind, one in chosen.items()}


def _draw(seed: str, n: int) -> np.ndarray:
    """The numbers below ``n`` in an order that the seed decides, whatever was drawn before and on any version.

    ``random()`` is the one method whose sequence Python promises to keep.
    """
    generator = random.Random(seed)
    return np.argsort([generator.random() for _ in range(n)], kind="stable")

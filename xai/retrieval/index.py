"""An exact index of unit vectors by inner product, with ties in the order of what was indexed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xai.retrieval.embedders import RetrievalUnavailableError

DECIMALS = 6
"""Similarities are compared to so many places: beyond, they depend on what else is computed at once."""


@dataclass(frozen=True)
class Ranking:
    """Rows of an index, the most similar first.

    Attributes:
        rows: ``(n,)`` numbers of indexed vectors.
        similarity: ``(n,)`` cosines, rounded to :data:`DECIMALS` places.
    """

    rows: np.ndarray
    similarity: np.ndarray


class VectorIndex:
    """Vectors by number, in FAISS (``IndexFlatIP``); those of length 0 are left out.

    Args:
        vectors: ``(n, dim)`` float32, of length 1 or 0.

    Raises:
        RetrievalUnavailableError: FAISS is not installed.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        faiss = import_faiss()
        self._rows = np.flatnonzero(vectors.any(axis=1))
        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(np.ascontiguousarray(vectors[self._rows]))

    def __len__(self) -> int:
        return len(self._rows)

    def rankings(self, queries: np.ndarray) -> list[Ranking]:
        """All indexed vectors by their similarity to each query, ties in the order of their numbers.

        Args:
            queries: ``(n, dim)`` float32, of length 1.
        """
        if not len(queries):
            return []
        similarity, places = self._index.search(np.ascontiguousarray(queries), len(self))
        return [self._ranking(*found) for found in zip(similarity, places, strict=True)]

    def _ranking(self, similarity: np.ndarray, places: np.ndarray) -> Ranking:
        rounded = np.round(similarity.astype(np.float64), DECIMALS)
        order = np.lexsort((places, -rounded))
        return Ranking(self._rows[places[order]], rounded[order])


def reciprocal_rank_fusion(rankings: Sequence[Sequence[int] | np.ndarray], n: int, constant: int = 60) -> np.ndarray:
    """Items by the sum of ``1 / (constant + rank)`` over rankings (Cormack et al. 2009), the best first.

    Args:
        rankings: items, the best first; ranks count from 1. An item that a ranking lacks gets nothing from it.
        n: items are numbered from 0 to ``n - 1``; ties keep that order.

    Returns:
        The items that are in any ranking.
    """
    scores = np.zeros(n)
    for ranking in rankings:
        items = np.asarray(ranking, dtype=np.int64)
        scores[items] += 1 / (constant + np.arange(1, len(items) + 1))
    order = np.argsort(-scores, kind="stable")
    return order[scores[order] > 0]


def import_faiss() -> Any:
    """FAISS, which is an extra of the package.

    Raises:
        RetrievalUnavailableError: it is not installed.
    """
    try:
        import faiss
    except ImportError:
        raise RetrievalUnavailableError("similar memes are found by FAISS: pip install 'meme-xai[retrieval]'") from None
    return faiss

"""A linear model over words and cells: its target is the sum of the weights of the units that are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from xai.analysis.faithfulness.rescoring import Scores
from xai.analysis.faithfulness.units import Unit
from xai.attribution.perturb import Variant


class LinearModel:
    """``logit = bias + Σ weights of the units that are there``; the label is written while it is above 0."""

    def __init__(self, weights: Sequence[float], bias: float = 0.0) -> None:
        self.weights, self.bias = np.asarray(weights, dtype=float), bias

    def units(self, n_words: int | None = None) -> tuple[Unit, ...]:
        """The first ``n_words`` are words, the others cells; all are words by default."""
        n_words = len(self.weights) if n_words is None else n_words
        words = [Unit(f"w{i}", Variant(frozenset({i})), (i,), ((2 * i, 2 * i + 1),)) for i in range(n_words)]
        cells = [Unit(f"c{i}", Variant(cells=frozenset({i})), cell=(0, i)) for i in range(n_words, len(self.weights))]
        return (*words, *cells)

    def without(self, units: Iterable[Unit]) -> Variant:
        parts = [unit.part for unit in units]
        tokens = frozenset[int]().union(*(part.tokens for part in parts))
        return Variant(tokens, frozenset[int]().union(*(part.cells for part in parts)))

    def __call__(self, variants: Sequence[Variant]) -> Scores:
        gone = [sum(self.weights[index] for index in variant.tokens | variant.cells) for variant in variants]
        logit = (self.bias + self.weights.sum() - np.array(gone))[:, None]
        return Scores(logit, -np.log1p(np.exp(-logit)), logit)

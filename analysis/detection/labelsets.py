"""Gold and predicted label sets of the same memes as indicator matrices, and what becomes of "none of these"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

NoneLabel = Literal["kept", "empty on both sides", "empty in gold only"]
"""What becomes of the label that says "none of these".

``kept``: it is a label like any other. ``empty on both sides``: gold and answer that say it are empty sets.
``empty in gold only``: gold that says it is the empty set, and an answer that says it claims a label, wrongly.
"""
NONE_LABELS: tuple[NoneLabel, ...] = get_args(NoneLabel)

Expand = Callable[[Iterable[str]], frozenset[str]]
"""Gives labels together with all their ancestors, the root left out."""


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Label sets of n memes over the same names; ``gold`` and ``predicted`` are bool ``(n, n_names)``."""

    names: tuple[str, ...]
    gold: np.ndarray
    predicted: np.ndarray

    def __post_init__(self) -> None:
        if self.gold.shape != self.predicted.shape or not len(self.gold):
            raise ValueError(_unpaired(len(self.gold), len(self.predicted)))

    def __len__(self) -> int:
        return len(self.gold)

    def of(self, rows: Sequence[int] | np.ndarray) -> LabelSets:
        """Those memes, in that order; a meme may be named twice."""
        at = np.asarray(rows, dtype=np.intp)
        return LabelSets(self.names, self.gold[at], self.predicted[at])

    def under(self, convention: NoneLabel, none: str | None) -> LabelSets:
        """The same sets under a convention for the label ``none``; ``None``: there is no such label."""
        if convention == "kept" or none not in self.names:
            return self
        at = self.names.index(none)
        if convention == "empty on both sides":
            names = self.names[:at] + self.names[at + 1 :]
            return LabelSets(names, np.delete(self.gold, at, axis=1), np.delete(self.predicted, at, axis=1))
        gold = self.gold.copy()
        gold[:, at] = False
        return LabelSets(self.names, gold, self.predicted)

    def expanded(self, expand: Expand) -> LabelSets:
        """The sets extended by the ancestors of their labels; the names are the nodes, sorted."""
        return self.with_ancestors(Ancestors.of(self.names, expand))

    def with_ancestors(self, ancestors: Ancestors) -> LabelSets:
        """The same with what :meth:`expanded` works out once."""
        return LabelSets(ancestors.nodes, ancestors.extend(self.gold), ancestors.extend(self.predicted))


@dataclass(frozen=True, eq=False)
class Ancestors:
    """Which nodes each label brings: bool ``(n_labels, n_nodes)``, nodes sorted by name."""

    nodes: tuple[str, ...]
    brings: np.ndarray

    @classmethod
    def of(cls, labels: Sequence[str], expand: Expand) -> Ancestors:
        """Of labels in the order of a matrix's columns."""
        found = [expand([label]) for label in labels]
        nodes = sorted(frozenset().union(*found))
        brings = np.array([[node in one for node in nodes] for one in found], dtype=bool)
        return cls(tuple(nodes), brings.reshape(len(found), len(nodes)))

    def extend(self, sets: np.ndarray) -> np.ndarray:
        """Bool ``(n, n_labels)`` to bool ``(n, n_nodes)``."""
        # Floats, since numpy multiplies other matrices without BLAS; the counts are exact.
        extended: np.ndarray = sets.astype(np.float32) @ self.brings.astype(np.float32) > 0
        return extended


def label_sets(
    gold: Sequence[Iterable[str]], predicted: Sequence[Iterable[str]], names: Sequence[str] | None = None
) -> LabelSets:
    """Matrices of label sets, one a meme, over ``names`` or over all labels that occur, sorted.

    Raises:
        ValueError: the two differ in length, are empty, or hold a label that is not in ``names``.
    """
    if len(gold) != len(predicted):
        raise ValueError(_unpaired(len(gold), len(predicted)))
    gold, predicted = [list(one) for one in gold], [list(one) for one in predicted]
    if names is None:
        names = sorted({label for one in (*gold, *predicted) for label in one})
    return LabelSets(tuple(names), indicator(gold, names), indicator(predicted, names))


def _unpaired(n_gold: int, n_predicted: int) -> str:
    return f"{n_gold} gold and {n_predicted} predicted label sets; give as many of each, at least 1"


def indicator(sets: Sequence[Iterable[str]], names: Sequence[str]) -> np.ndarray:
    """Bool ``(n, n_names)``: which set has which name.

    Raises:
        ValueError: a label is not in ``names``.
    """
    column = {name: index for index, name in enumerate(names)}
    matrix = np.zeros((len(sets), len(names)), dtype=bool)
    try:
        pairs = [(row, column[label]) for row, one in enumerate(sets) for label in one]
    except KeyError as error:
        raise ValueError(f"{error.args[0]!r} is no label of the inventory: {', '.join(names)}") from None
    if pairs:
        matrix[tuple(zip(*pairs, strict=True))] = True
    return matrix

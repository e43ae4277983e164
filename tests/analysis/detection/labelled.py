"""Label sets that the tests of scores share: a small tree worked out by hand, and drawn ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from xai.analysis.detection.labelsets import LabelSets
from xai.analysis.detection.scores import Additive, measures

PARENT = {"a1": "A", "a2": "A"}
NAMES = ("B", "a1", "a2", "none")
GOLD = [{"a1"}, {"B"}, {"a1", "B"}, {"none"}]
PREDICTED = [{"a2"}, {"B"}, {"a1"}, {"none"}]


def expand(labels: Iterable[str]) -> frozenset[str]:
    return frozenset(node for label in labels for node in (label, PARENT.get(label, label)))


def drawn_sets(seed: int, n: int = 40, p: float = 0.3) -> LabelSets:
    """Random gold over `NAMES`, and answers that follow it three times in four."""
    rng = np.random.default_rng(seed)
    gold = rng.random((n, len(NAMES))) < p
    return LabelSets(NAMES, gold, np.where(rng.random(gold.shape) < 0.75, gold, ~gold))


def measured(sets: LabelSets) -> Additive:
    return measures(sets, sets.expanded(expand))


def matrices(max_memes: int = 8) -> st.SearchStrategy[LabelSets]:
    """Any gold and any answers over `NAMES`."""
    row = st.lists(st.booleans(), min_size=2 * len(NAMES), max_size=2 * len(NAMES))
    return st.lists(row, min_size=1, max_size=max_memes).map(_split)


def _split(rows: list[list[bool]]) -> LabelSets:
    both = np.array(rows, dtype=bool)
    return LabelSets(NAMES, both[:, : len(NAMES)], both[:, len(NAMES) :])

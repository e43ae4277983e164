"""Counts the words of relevance and rationale over memes: shared, of one side only, invented."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

Side = Callable[[Mapping[str, Any]], Iterable[str]]

SIDES: dict[str, Side] = {
    "shared": lambda row: row["shared"],
    "rationale_only": lambda row: set(row["rationale_words"]) - set(row["relevance_words"]),
    "relevance_only": lambda row: set(row["relevance_words"]) - set(row["rationale_words"]),
    "invented": lambda row: row["invented"],
}
"""The words of one row of an agreement table that belong to each side; all are in normal form."""
_SETS = ["relevance_words", "rationale_words", "shared", "invented"]


def frequent_words(table: pd.DataFrame, side: str, by: Sequence[str], *, n: int = 200) -> pd.DataFrame:
    """The words of a side that most memes have, in each group of an agreement table; ties in order of the alphabet.

    Args:
        table: with the tuples of :func:`xai.analysis.rationale.agreement.agreement_table`.
        side: one of :data:`SIDES`.
        by: columns that make the groups.
        n: words a group at most.

    Returns:
        Columns: those of ``by``, rank (from 1), word, memes (how many have it on this side; each counts once), share
        (of the group's memes that have text and a rationale). The first of all groups come first, then the second.

    Raises:
        ValueError: there is no such side.
    """
    if side not in SIDES:
        raise ValueError(f"side must be one of {', '.join(SIDES)}, not {side!r}")
    words_of, rows = SIDES[side], []
    comparable = table[table["jaccard"].notna()]
    for key, group in comparable.groupby(list(by), sort=True):
        counts: Counter[str] = Counter()
        for values in zip(*(group[name] for name in _SETS), strict=True):
            counts.update(set(words_of(dict(zip(_SETS, values, strict=True)))))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:n]
        rows += [(*key, rank, word, memes, memes / len(group)) for rank, (word, memes) in enumerate(ranked, start=1)]
    frame = pd.DataFrame(rows, columns=[*by, "rank", "word", "memes", "share"])
    return frame.sort_values(["rank", *by], kind="stable", ignore_index=True)

"""Gives the words of a text that is known the places of the words that were read in its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

import numpy as np

from xai.attribution.align import normal_form
from xai.attribution.ocr.flags import MIN_CONFIDENCE, flags_of
from xai.schema import Word

ALIKE = 0.6
"""Similarity from which on two words may be the same one, read with faults: of difflib, 0 to 1."""


@dataclass(frozen=True)
class GivenWords:
    """The given words, those that were found with their place, and what was found on one side only, in its order."""

    words: tuple[Word, ...]
    matched: int
    only_given: tuple[str, ...]
    only_read: tuple[str, ...]


def place_words(given: Sequence[Word], read: Sequence[Word], *, min_confidence: float = MIN_CONFIDENCE) -> GivenWords:
    """Align given words with read ones and hand over box, polygon and confidence.

    Both sides are compared in :func:`xai.attribution.align.normal_form`. An alignment in order is taken that has the
    highest sum of similarities, each above a threshold (Needleman and Wunsch 1970, gaps at no cost); equal words that
    it leaves over, since the two sides have their lines in different orders, are then paired. A word keeps a box of
    its own. Flags are of the given spelling and the read confidence.
    """
    pairs = _in_order([normal_form(word.text) for word in given], [normal_form(word.text) for word in read])
    pairs |= _left_over(given, read, pairs)
    words = [
        _placed(word, read[pairs[index]], min_confidence) if index in pairs else word
        for index, word in enumerate(given)
    ]
    used = set(pairs.values())
    return GivenWords(
        words=tuple(words),
        matched=len(pairs),
        only_given=tuple(word.text for index, word in enumerate(given) if index not in pairs),
        only_read=tuple(word.text for index, word in enumerate(read) if index not in used),
    )


def _in_order(given: Sequence[str], read: Sequence[str]) -> dict[int, int]:
    likeness = np.array([[_alike(one, other) for other in read] for one in given]).reshape(len(given), len(read))
    best = np.zeros((len(given) + 1, len(read) + 1))
    for row in range(len(given)):
        for column in range(len(read)):
            together = best[row, column] + likeness[row, column]
            best[row + 1, column + 1] = max(together, best[row, column + 1], best[row + 1, column])
    pairs: dict[int, int] = {}
    row, column = len(given), len(read)
    while row and column:
        if best[row, column] == best[row - 1, column]:
            row -= 1
        elif best[row, column] == best[row, column - 1]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            pairs[row] = column
    return pairs


def _left_over(given: Sequence[Word], read: Sequence[Word], pairs: dict[int, int]) -> dict[int, int]:
    """Equal words that no alignment in order can pair, first with first."""
    used = set(pairs.values())
    places: dict[str, list[int]] = {}
    for index in reversed(range(len(read))):
        if index not in used:
            places.setdefault(normal_form(read[index].text), []).append(index)
    more = {}
    for index, word in enumerate(given):
        if index not in pairs and (form := normal_form(word.text)) and places.get(form):
            more[index] = places[form].pop()
    return more


def _placed(word: Word, read: Word, min_confidence: float) -> Word:
    place = {} if word.box is not None else {"box": read.box, "polygon": read.polygon}
    flags = flags_of(word.text, read.confidence, min_confidence)
    return word.model_copy(update={**place, "confidence": read.confidence, "flags": flags})


@lru_cache(maxsize=65536)
def _alike(one: str, other: str) -> float:
    """Similarity of two normal forms, 0 where they cannot be the same word."""
    if one == other:
        return float(bool(one))
    # At most twice the shorter one's letters are common.
    if 2 * min(len(one), len(other)) < ALIKE * (len(one) + len(other)):
        return 0.0
    ratio = SequenceMatcher(None, one, other, autojunk=False).ratio()
    return ratio if ratio >= ALIKE else 0.0

"""The units of an explanation, words of the caption and cells of the picture, and their order by relevance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from xai.attribution.align import is_spaceless, normal_form, split_words, token_shares
from xai.attribution.perturb import Variant
from xai.schema import Explanation, Word

UnitKind = Literal["words", "cells", "both"]
"""What is taken away: words of the caption, cells of the picture, or both in one ranking."""
Order = Literal["signed", "absolute"]
"""By signed relevance, the most positive first, or by its absolute value."""
Span = tuple[int, int]


@dataclass(frozen=True)
class Unit:
    """A part of the input that is kept or taken away as a whole.

    Attributes:
        name: the word, or ``cell (row, column)``.
        part: its tokens in the sequence, or its merged image token with all deepstack levels.
        words: indices in the word table; several where words share a token, none for a cell.
        spans: characters of these words in the caption.
        cell: ``(row, column)`` in the grid; ``None`` for words.
    """

    name: str
    part: Variant
    words: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()
    cell: tuple[int, int] | None = None


def units_of(explanation: Explanation, kind: UnitKind = "both") -> tuple[Unit, ...]:
    """The units of an explanation: words in the order of the text, then cells in reading order.

    Words that share a token can only be taken away together and are one unit; words without a token are left out, and
    what stands between words is no unit. In mode ``text`` there are no cells, in mode ``image`` no words.

    Raises:
        ValueError: the kind is unknown.
    """
    if kind not in get_args(UnitKind):
        raise ValueError(f"units must be one of {', '.join(get_args(UnitKind))}, not {kind!r}")
    words = _word_units(explanation) if kind != "cells" else []
    cells = _cell_units(explanation) if kind != "words" else []
    return (*words, *cells)


def unit_values(units: Sequence[Unit], explanation: Explanation) -> np.ndarray:
    """Signed relevance of each unit, ``(n_units,)``; a word's is the sum over its tokens, a cell's over its levels."""
    words, image = explanation.word_table.relevance, explanation.image
    values = np.zeros(len(units))
    for index, unit in enumerate(units):
        if unit.cell is None:
            values[index] = sum(words[word] for word in unit.words)
        elif image is not None:
            values[index] = image[unit.cell]
    return values


def ranked(values: Sequence[float] | np.ndarray, order: Order = "signed", *, seed: int = 0) -> tuple[int, ...]:
    """Indices from the most to the least relevant; equal values stand in an order drawn by ``seed``.

    A map of negative values is ranked like any other, and a map of zeros is a random order, as it should be.

    Raises:
        ValueError: the order is unknown, or a value is not finite.
    """
    array = np.asarray(values, dtype=float)
    if order not in get_args(Order):
        raise ValueError(f"order must be one of {', '.join(get_args(Order))}, not {order!r}")
    if not np.isfinite(array).all():
        raise ValueError("relevance that is NaN or infinite cannot be ranked; explain again in a wider dtype")
    key = array if order == "signed" else np.abs(array)
    ties = np.random.default_rng(seed).permutation(len(array))
    return tuple(int(index) for index in np.lexsort((ties, -key)))


def named_units(units: Sequence[Unit], words: Iterable[str], caption: str) -> tuple[int, ...]:
    """Indices of the word units that a rationale names, in the order of the text.

    A word is a unit's if one of the unit's words has its normal form. A named phrase is taken apart as captions are; of
    scripts without spaces the parts have to follow on each other.
    """
    forms = [[normal_form(caption[start:end]) for start, end in unit.spans] for unit in units]
    found: set[int] = set()
    for entry in words:
        parts = [normal_form(entry[start:end]) for start, end in split_words(entry)]
        parts = [part for part in parts if part]
        if len(parts) > 1 and all(map(is_spaceless, parts)):
            flat = [form[0] if len(form) == 1 else "" for form in forms]
            starts = [at for at in range(len(flat)) if flat[at : at + len(parts)] == parts]
            found.update(at + step for at in starts for step in range(len(parts)))
        else:
            found.update(index for index, of_unit in enumerate(forms) if set(of_unit) & set(parts))
    return tuple(sorted(found))


def _word_units(explanation: Explanation) -> list[Unit]:
    tokens, table = explanation.token_table, explanation.word_table
    places = [index for index, segment in enumerate(tokens.segment) if segment == "text"]
    if not places or not table.word:
        return []
    spans = np.array([(tokens.start[place], tokens.end[place]) for place in places])
    words = [Word(text=w, start=s, end=e) for w, s, e in zip(table.word, table.start, table.end, strict=True)]
    token, word, _ = token_shares(words, spans)
    units = []
    for members, owned in _connected(token.tolist(), word.tolist()):
        part = Variant(frozenset(places[index] for index in owned))
        own_spans = tuple((table.start[index], table.end[index]) for index in members)
        units.append(Unit(" ".join(table.word[index] for index in members), part, tuple(members), own_spans))
    return sorted(units, key=lambda unit: unit.spans[0])


def _connected(tokens: Sequence[int], words: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """(words, tokens) of each group of words that share tokens."""
    groups: list[tuple[set[int], set[int]]] = []
    for token, word in zip(tokens, words, strict=True):
        touched = [group for group in groups if word in group[0] or token in group[1]]
        merged = ({word}.union(*(group[0] for group in touched)), {token}.union(*(group[1] for group in touched)))
        groups = [group for group in groups if group not in touched] + [merged]
    return [(sorted(members), sorted(owned)) for members, owned in groups]


def _cell_units(explanation: Explanation) -> list[Unit]:
    image = explanation.image
    if image is None:
        return []
    first, columns = _cells_of_examples(explanation), image.shape[1]
    cells = [divmod(index, columns) for index in range(image.size)]
    return [
        Unit(f"cell ({row}, {column})", Variant(cells=frozenset({first + index})), cell=(row, column))
        for index, (row, column) in enumerate(cells)
    ]


def _cells_of_examples(explanation: Explanation) -> int:
    """How many image tokens of examples precede those of the meme's own picture."""
    tokens = explanation.token_table
    own = tokens.token[tokens.segment.index("image")]
    pairs = zip(tokens.token, tokens.segment, strict=True)
    return sum(token == own and segment == "examples" for token, segment in pairs)

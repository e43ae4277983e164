"""What a meme's words are worth to one explanation: by the caption, or by the picture under them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xai.app.figures import WordMark
from xai.app.pieces import number
from xai.attribution.align import normal_form
from xai.schema import Explanation, Word, WordTable


@dataclass(frozen=True)
class WordValues:
    """Words of the caption in order: spans, relevance (``None``: not known), and a sentence for the pointer.

    ``source`` says where the values come from.
    """

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    values: tuple[float | None, ...]
    titles: tuple[str, ...]
    source: str


def word_values(e: Explanation) -> WordValues:
    """By the tokens of the caption; where the model was not shown it, by the cells of the picture under its words."""
    table, picture = e.word_table, e.picture_words
    if table.word or picture is None:
        return values_of_table(table, "by the words of the caption")
    titles = tuple(
        "its place in the picture is not known"
        if value is None
        else f"relevance of the picture under it {number(value)}, {n:.2g} cells"
        for value, n in zip(picture.relevance, picture.n_cells, strict=True)
    )
    source = "by the picture under the words: the model was not shown the caption as text"
    return WordValues(picture.word, _spans(picture.start, picture.end), picture.relevance, titles, source)


def values_of_table(table: WordTable, source: str) -> WordValues:
    """The words of a caption or post by their tokens."""
    titles = tuple(
        f"relevance {number(value)}, mean of absolute values {mean:.3g}, {n} token{'' if n == 1 else 's'}"
        for value, mean, n in zip(table.relevance, table.mean_abs, table.n_tokens, strict=True)
    )
    return WordValues(table.word, _spans(table.start, table.end), table.relevance, titles, source)


def word_marks(e: Explanation, found: WordValues) -> list[WordMark]:
    """The words whose place in the picture is known."""
    value_at = dict(zip(found.spans, found.values, strict=True))
    places = [(word, _corners(word)) for word in e.meme.words or ()]
    return [WordMark(w.text, corners, value_at.get((w.start, w.end))) for w, corners in places if corners]


def top_words(found: WordValues, n: int) -> list[tuple[str, float]]:
    """The n words with most relevance, highest first."""
    known = [(word, value) for word, value in zip(found.words, found.values, strict=True) if value is not None]
    return sorted(known, key=lambda pair: -pair[1])[:n]


def compared_words(row: Mapping[str, Any]) -> dict[str, list[str]]:
    """Relevance words and rationale words of a row of `xai analyze`, by who has them."""

    def words(name: str) -> list[str]:
        return [str(word) for word in row.get(name) or ()]

    relevance, rationale, shared = words("relevance_words"), words("rationale_words"), words("shared")
    absent = {*words("invented"), *words("inflected")}
    return {
        "shared": shared,
        "relevance": [word for word in relevance if word not in shared],
        "rationale": [word for word in rationale if word not in shared and word not in absent],
        "inflected": words("inflected"),
        "invented": words("invented"),
        "doubtful": words("doubtful"),
    }


def relevance_titles(found: WordValues) -> dict[str, str]:
    """By normal form: what the pointer says of a word, the strongest of its occurrences."""
    titles: dict[str, tuple[float, str]] = {}
    for word, value, title in zip(found.words, found.values, found.titles, strict=True):
        form = normal_form(word)
        if value is not None and value > titles.get(form, (float("-inf"), ""))[0]:
            titles[form] = (value, title)
    return {form: title for form, (_, title) in titles.items()}


def _spans(starts: tuple[int, ...], ends: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(starts, ends, strict=True))


def _corners(word: Word) -> tuple[tuple[float, float], ...]:
    if word.polygon is not None:
        return word.polygon
    if word.box is None:
        return ()
    x0, y0, x1, y1 = word.box
    return ((x0, y0), (x1, y0), (x1, y1), (x0, y1))

"""Relates the words of a meme to the tokens that the model read; to the cells of its picture: :mod:`.cells`."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Literal

import numpy as np
import regex

from xai.attribution.cells import box_weights, cells_touched, polygon_weights, word_cell_shares, word_image_relevance
from xai.schema import Box, Word, WordTable

__all__ = [
    "APOSTROPHES",
    "Pooling",
    "box_weights",
    "cells_touched",
    "is_spaceless",
    "normal_form",
    "polygon_weights",
    "rank_words",
    "split_words",
    "text_relevance",
    "token_shares",
    "top_words",
    "whole_spans",
    "word_cell_shares",
    "word_image_relevance",
    "word_relevance",
    "words_of",
]

Pooling = Literal["sum", "mean_abs"]

APOSTROPHES = "'’ʼ‘＇`"
_N_CACHED = 1 << 17
"""Words whose forms are kept: the same ones come again and again over a run."""
_Letters = dict[int, str | None]
_IGNORABLE: _Letters = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff\ufe0e\ufe0f"))
_BIDI: _Letters = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
# Shapes of letters and ligatures, which some engines and fonts write instead of the letters.
_ARABIC_SHAPES: _Letters = {
    code: unicodedata.normalize("NFKC", chr(code)) for code in (*range(0xFB50, 0xFE00), *range(0xFE70, 0xFEFD))
}
_SHOWN = _IGNORABLE | _BIDI | _ARABIC_SHAPES
_VOWEL_SIGNS = (*range(0x0610, 0x061B), *range(0x064B, 0x0660), 0x0670)
_KORANIC_SIGNS = (*range(0x06D6, 0x06DD), *range(0x06DF, 0x06E5), 0x06E7, 0x06E8, *range(0x06EA, 0x06EE))
_TATWEEL = 0x0640
_ALEFS: _Letters = dict.fromkeys(map(ord, "أإآٱ"), "ا")
_PLAIN: _Letters = dict.fromkeys((*_VOWEL_SIGNS, *_KORANIC_SIGNS, _TATWEEL)) | _ALEFS
_ONE_APOSTROPHE = dict.fromkeys(map(ord, APOSTROPHES), "'")

# Chinese and Japanese, written without spaces, are taken one character at a time ("character mode").
_SPACELESS = r"[\p{Han}\p{Hiragana}\p{Katakana}]"
_CHARACTER = rf"(?:{_SPACELESS}[\p{{M}}ーｰ]*|[ーｰ])"
_LETTER = r"[[\p{L}\p{N}]--\p{Han}--\p{Hiragana}--\p{Katakana}--[ʼーｰ]]"
# Joiners inside Persian or Indic words and soft hyphens are invisible; they do not end a word.
_RUN = rf"{_LETTER}(?:{_LETTER}|\p{{M}}|[\u00AD\u200C\u200D\u2060](?={_LETTER}))*"
_INNER = r"['’ʼ‘＇\-‐‑]"
_PICTOGRAPH = r"(?![©®™\p{P}])\p{Extended_Pictographic}[\p{Emoji_Modifier}\p{M}]*"
_EMOJI = "|".join(
    (
        r"\p{Regional_Indicator}{2}",
        r"\U0001F3F4[\U000E0020-\U000E007E]+\U000E007F",
        r"[0-9#*]\uFE0F?\u20E3",
        rf"{_PICTOGRAPH}(?:\u200D{_PICTOGRAPH})*",
        r"[\p{Regional_Indicator}\p{Emoji_Modifier}]",
    )
)
_WORD = regex.compile(rf"{_EMOJI}|{_CHARACTER}|{_RUN}(?:{_INNER}{_RUN})*", regex.VERSION1)
_CHARACTERS = regex.compile(rf"{_CHARACTER}+", regex.VERSION1)


def word_relevance(words: Sequence[Word], token_spans: Sequence[tuple[int, int]], relevance: np.ndarray) -> WordTable:
    """Gathers the relevance of the text's tokens on its words.

    Every token gives its relevance away exactly once, also when several byte-level tokens share their
    characters. A token that touches one word belongs to it whole, so that the space of ``" word"`` or the
    bracket of ``"(word"`` takes nothing away. A token that touches several words is split between them by
    the number of characters it covers in each. A token that touches no word falls to the gap. Hence
    ``sum(table.relevance) + table.gap == relevance.sum()`` up to rounding.

    Args:
        words: words of the text, which must not overlap.
        token_spans: offsets of each text token in the text; an empty span belongs to the gap.
        relevance: signed relevance, ``(n_text_tokens,)``.

    Returns:
        One entry a word. ``mean_abs`` is the mean, over the tokens that touch the word, of the absolute
        value of the part that falls to the word.

    Raises:
        ValueError: spans and relevance differ in number, a span ends before it starts, or words overlap.
    """
    spans_of_words = [(word.start, word.end) for word in words]
    texts, boxes = tuple(word.text for word in words), tuple(word.box for word in words)
    return _table(texts, spans_of_words, boxes, token_spans, relevance)


def text_relevance(text: str, token_spans: Sequence[tuple[int, int]], relevance: np.ndarray) -> WordTable:
    """:func:`word_relevance` of the words that :func:`split_words` finds in a text; arguments and errors as there."""
    spans_of_words = split_words(text)
    texts = tuple(text[start:end] for start, end in spans_of_words)
    return _table(texts, spans_of_words, (None,) * len(texts), token_spans, relevance)


def _table(
    texts: tuple[str, ...],
    spans_of_words: Sequence[tuple[int, int]],
    boxes: tuple[Box | None, ...],
    token_spans: Sequence[tuple[int, int]],
    relevance: np.ndarray,
) -> WordTable:
    values = np.asarray(relevance, dtype=np.float64)
    spans, places = _pairs(token_spans), _pairs(spans_of_words)
    if values.shape != (len(spans),):
        raise ValueError(f"{len(spans)} token spans need relevance of shape ({len(spans)},), not {values.shape}")
    token, word, share = _shares(places, spans)
    parts = values[token] * share
    in_words = np.zeros(len(spans), dtype=bool)
    in_words[token] = True
    n_tokens = np.bincount(word, minlength=len(texts))
    absolute = np.bincount(word, weights=np.abs(parts), minlength=len(texts))
    return WordTable(
        word=texts,
        start=tuple(places[:, 0].tolist()),
        end=tuple(places[:, 1].tolist()),
        box=boxes,
        relevance=tuple(np.bincount(word, weights=parts, minlength=len(texts)).tolist()),
        mean_abs=tuple((absolute / np.maximum(n_tokens, 1)).tolist()),
        n_tokens=tuple(n_tokens.tolist()),
        gap=float(values[~in_words].sum()),
    )


def token_shares(words: Sequence[Word], spans: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which part of which token falls to which word: (token index, word index, share), each ``(n_pairs,)``."""
    return _shares(_pairs([(word.start, word.end) for word in words]), spans)


def _pairs(spans: Sequence[tuple[int, int]]) -> np.ndarray:
    # Flat: numpy takes a list of pairs apart several times as slowly.
    return np.fromiter(chain.from_iterable(spans), dtype=np.int64, count=2 * len(spans)).reshape(-1, 2)


def _shares(words: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As :func:`token_shares`, by the spans of the words, ``(n_words, 2)``.

    Raises:
        ValueError: words overlap, or a token span ends before it starts.
    """
    order = np.argsort(words[:, 0], kind="stable")
    words = words[order]
    if (words[1:, 0] < words[:-1, 1]).any():
        where = int(np.argmax(words[1:, 0] < words[:-1, 1]))
        raise ValueError(
            f"the words at {words[where].tolist()} and {words[where + 1].tolist()} overlap; a character belongs to one"
        )
    starts, ends = spans.T
    if (ends < starts).any():
        raise ValueError("a token span ends before it starts; pass (start, end) offsets in the meme's text")
    # The words that a token touches follow on each other: from the first that ends behind its start.
    first = np.searchsorted(words[:, 1], starts, side="right")
    behind = np.searchsorted(words[:, 0], ends, side="left")
    counts = np.where(ends > starts, np.maximum(behind - first, 0), 0)
    token = np.repeat(np.arange(len(spans)), counts)
    word = np.arange(len(token)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    covered = np.minimum(ends[token], words[word, 1]) - np.maximum(starts[token], words[word, 0])
    total = np.bincount(token, weights=covered, minlength=len(spans))
    return token, order[word], covered / total[token]


def whole_spans(spans: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Token spans that leave no character of a text out: one that no token has goes to the tokens before it.

    A tokenizer that composes letters first (``и`` + ``\u0306`` to ``й``) says of the token that it has the first
    character only; the mark would belong to nobody. What stands before the first token goes to that.

    Args:
        spans: offsets of every token in a text, in order; empty ones stay as they are.
        length: number of characters of the text.
    """
    edges = np.zeros(length + 2, dtype=np.int64)
    starts, ends = np.array([span for span in spans if span[1] > span[0]], dtype=np.int64).reshape(-1, 2).T
    np.add.at(edges, starts, 1)
    np.add.at(edges, ends, -1)
    owned = np.cumsum(edges[: length + 1]) > 0
    owned[length] = True
    if owned.all() or not len(starts):
        return list(spans)
    places = np.arange(length + 1)
    next_owned = np.minimum.accumulate(np.where(owned, places, length)[::-1])[::-1]
    first = int(starts.min())
    return [
        (0 if start == first else start, int(next_owned[end])) if end > start else (start, end) for start, end in spans
    ]


def split_words(text: str) -> list[tuple[int, int]]:
    """Spans of the words of a text, in order; every character lies in one of them or in the gap between two.

    A word is a run of letters, digits and their marks, joined by inner apostrophes and hyphens. Han,
    Hiragana and Katakana are split one character a word ("character mode"). An emoji with its modifiers,
    joiners and selectors, and a flag, is one word. Punctuation, spaces and other symbols are gap.
    """
    return [match.span() for match in _WORD.finditer(text)]


def words_of(meme_text: str, words: tuple[Word, ...] | None) -> tuple[Word, ...]:
    """The words that came with the meme, or, when none came (``None``), those that :func:`split_words` finds."""
    if words is not None:
        return words
    return tuple(Word(text=meme_text[start:end], start=start, end=end) for start, end in split_words(meme_text))


@lru_cache(maxsize=_N_CACHED)
def is_spaceless(word: str) -> bool:
    """Whether a word is of Han, Hiragana and Katakana only, which are written without spaces."""
    return _CHARACTERS.fullmatch(word) is not None


@lru_cache(maxsize=_N_CACHED)
def normal_form(word: str) -> str:
    """The form under which two spellings of a word are the same word; ``""`` for punctuation alone.

    Composed (NFC), case-folded, one apostrophe, without soft hyphens, marks of direction and other invisible
    characters and without punctuation around it. Arabic: without vowel and Koranic signs and tatweel, alef with
    hamza, madda or wasla as alef, and shapes of letters as letters. Other letters stay as they are, among them
    teh marbuta and alef maksura, which tell words apart.
    """
    letters = unicodedata.normalize("NFC", word.translate(_SHOWN))
    folded = unicodedata.normalize("NFC", letters.translate(_PLAIN).casefold())
    unified = folded.translate(_ONE_APOSTROPHE)
    solid = [i for i, character in enumerate(unified) if not _is_outer(character)]
    return unified[solid[0] : solid[-1] + 1] if solid else ""


def _is_outer(character: str) -> bool:
    return character.isspace() or unicodedata.category(character).startswith("P")


def top_words(
    table: WordTable, k: int, *, pooling: Pooling = "sum", keep: Callable[[str], bool] = bool
) -> tuple[str, ...]:
    """The k words with most relevance, most relevant first.

    ``"sum"`` ranks by signed relevance, the most positive first, so that a table of negative values is
    ranked too; ``"mean_abs"`` by mean absolute relevance. Words with the same :func:`normal_form` count
    once, with their highest value; words for which ``keep`` is false are left out. Ties go to the earlier word.

    Raises:
        ValueError: k is negative, or the pooling is unknown.
    """
    if pooling not in ("sum", "mean_abs"):
        raise ValueError(f"pooling must be 'sum' or 'mean_abs', not {pooling!r}")
    return rank_words(table.word, table.relevance if pooling == "sum" else table.mean_abs, k, keep=keep)


def rank_words(
    words: Sequence[str], values: Sequence[float], k: int, *, keep: Callable[[str], bool] = bool
) -> tuple[str, ...]:
    """The k words with the highest values, as :func:`top_words` has it; a value that is NaN comes last.

    Raises:
        ValueError: k is negative.
    """
    if k < 0:
        raise ValueError(f"k must be 0 or more, not {k}")
    best: dict[str, str] = {}
    for index in np.argsort(-np.asarray(values, dtype=np.float64), kind="stable").tolist():
        if keep(words[index]) and (form := normal_form(words[index])):
            best.setdefault(form, words[index])
    return tuple(best.values())[:k]

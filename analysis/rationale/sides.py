"""The two sides of a comparison: the words of a meme with their relevance, and the words that a rationale names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from xai.analysis.words import stop_words
from xai.attribution.align import Pooling, is_spaceless, normal_form, split_words, word_image_relevance
from xai.attribution.lemmas import lemma_classes
from xai.attribution.occurrences import named_words, occurrences
from xai.schema import Word

MAX_WORDS = 5
"""At most so many relevance words are compared, however many words the rationale names."""


@dataclass(frozen=True)
class TextWords:
    """The words of a meme; ``kept[i]`` is false for a flagged word, and ``placed`` are those whose picture counts."""

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    kept: tuple[bool, ...]
    source: str = "text"
    placed: tuple[Word, ...] = ()
    n_unplaced: int = 0

    @cached_property
    def forms(self) -> list[str]:
        """The words in normal form."""
        return [normal_form(word) for word in self.words]

    def in_run(self, index: int) -> bool:
        """Whether a word of a script without spaces touches another one, so that it may be half a word."""
        if not is_spaceless(self.words[index]):
            return False
        start, end = self.spans[index]
        before, after = index - 1, index + 1
        return (before >= 0 and self.spans[before][1] == start and is_spaceless(self.words[before])) or (
            after < len(self.words) and self.spans[after][0] == end and is_spaceless(self.words[after])
        )


@dataclass(frozen=True)
class Rationale:
    """The content words of a rationale, by where the text has them; ``units`` are what the text is compared with.

    ``of_post`` are those that the post has and the text has not, where the model was shown the post.
    """

    units: tuple[str, ...]
    exact: tuple[str, ...]
    absent: tuple[str, ...]
    doubtful: tuple[str, ...]
    of_post: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sides:
    """What all explanations of one answer share: both sides' words, and which forms are of one word.

    ``candidates`` are the places of the words that can be relevance words.
    """

    text: TextWords
    rationale: Rationale
    candidates: list[int]
    same: Mapping[str, str]
    k: int | None

    @cached_property
    def units(self) -> frozenset[str]:
        """What the rationale names."""
        return frozenset(self.rationale.units)

    @cached_property
    def in_text(self) -> set[str]:
        """Classes of the words of the text that are not flagged."""
        return {self.same[form] for form, kept in zip(self.text.forms, self.text.kept, strict=True) if kept}

    @cached_property
    def classes(self) -> set[str]:
        """The same with all forms of a word as one."""
        return {self.same[word] for word in self.rationale.units}

    @property
    def exact_k(self) -> int:
        """How many relevance words are compared, by exact forms."""
        named = len(self.rationale.units) - len(self.rationale.absent)
        return min(named, MAX_WORDS) if self.k is None else self.k

    @property
    def lemma_k(self) -> int:
        """The same with all forms of a word as one."""
        return min(len(self.classes & self.in_text), MAX_WORDS) if self.k is None else self.k

    def ranked(self, values: Sequence[float]) -> dict[str, float]:
        """Distinct forms that can be relevance words with their highest values, best first; ties in order of text."""
        forms = self.text.forms
        best: dict[str, float] = {}
        for index in sorted(self.candidates, key=lambda index: -values[index]):
            best.setdefault(forms[index], float(values[index]))
        return best


def sides_of(answer: Mapping[str, Any], text: TextWords, k: int | None) -> Sides:
    """Both sides of an answer; ``k`` relevance words, or as many as the rationale names in the text."""
    language = answer["language"]
    post = (answer["post"] or "") if "post" in answer["mode"] else ""
    rationale = _rationale(answer["referred_words"], text, language, post)
    stops = stop_words(language)
    candidates = [
        index
        for index, form in enumerate(text.forms)
        if text.kept[index] and form and (form not in stops or text.in_run(index))
    ]
    return Sides(text, rationale, candidates, lemma_classes([*text.forms, *rationale.units], language), k)


def text_words(answer: Mapping[str, Any], row: Mapping[str, Any]) -> TextWords:
    """The words of an answer's text; where the model was shown the picture alone, those the meme brings with places.

    Args:
        answer: row of the predictions: mode, words.
        row: of the explanations: word, word_start, word_end, image_levels.
    """
    brought = json.loads(answer["words"] or "[]")
    if answer["mode"] == "image" and not len(row["word"]) and brought and row["image_levels"] is not None:
        words = [Word(**word) for word in brought]
        placed = tuple(word for word in words if word.box is not None)
        return TextWords(
            words=tuple(word.text for word in placed),
            spans=tuple((word.start, word.end) for word in placed),
            kept=tuple(not word.flags for word in placed),
            source="picture",
            placed=placed,
            n_unplaced=len(words) - len(placed),
        )
    flagged = {(word["start"], word["end"]) for word in brought if word.get("flags")}
    spans = tuple(zip(row["word_start"].tolist(), row["word_end"].tolist(), strict=True))
    return TextWords(words=tuple(row["word"]), spans=spans, kept=tuple(span not in flagged for span in spans))


def values_of(row: Mapping[str, Any], text: TextWords, column: str, pooling: Pooling) -> Sequence[float]:
    """The values of the words of the text; in the picture, of those whose place is known."""
    if text.source == "text":
        values: list[float] = row[column].tolist()
        return values
    table = word_image_relevance(text.placed, cells_of(row), (row["image_width"], row["image_height"]))
    return [value for value in (table.relevance if pooling == "sum" else table.mean_abs) if value is not None]


def cells_of(row: Mapping[str, Any]) -> np.ndarray:
    """Relevance of the picture, ``(grid_h, grid_w)``, all levels added."""
    image: np.ndarray = np.reshape(row["image_levels"], row["image_shape"]).sum(axis=0)
    return image


def _rationale(referred: Sequence[str], text: TextWords, language: str | None, post: str) -> Rationale:
    units: dict[str, None] = {}
    exact, absent, doubtful, of_post = [], [], [], []
    post_forms = [normal_form(post[start:end]) for start, end in split_words(post)]
    for word in _named_words(referred, language):
        indices = _located(word, text)
        if indices and all(text.kept[index] for index in indices):
            exact.append(word)
            units |= dict.fromkeys(text.forms[index] for index in indices)
        elif indices:
            doubtful.append(word)
        elif occurrences(word, post_forms):
            of_post.append(word)
        else:
            absent.append(word)
            units[word] = None
    return Rationale(tuple(units), tuple(exact), tuple(absent), tuple(doubtful), tuple(of_post))


def _named_words(referred: Sequence[str], language: str | None) -> list[str]:
    """Content words of a rationale in normal form, each once, in order."""
    stops = stop_words(language)
    return list(dict.fromkeys(word for entry in referred for word in named_words(entry) if word not in stops))


def _located(word: str, text: TextWords) -> list[int]:
    """An occurrence of the word in the text; one without a flag comes before others, and there may be none."""
    found = occurrences(word, text.forms)
    return min(found, key=lambda run: not all(text.kept[index] for index in run), default=[])

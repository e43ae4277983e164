"""Finds the words that a model says it used in the text: as they are, in another form, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from xai.attribution.align import is_spaceless, normal_form, split_words
from xai.attribution.lemmas import lemma_classes

Presence = Literal["exact", "inflected", "invented"]
"""The text has a word as it is (by :func:`~xai.attribution.align.normal_form`), in another form only, or not at all."""


def presence(entry: str, words: Iterable[str], language: str | None) -> Presence:
    """Whether the text has what an entry of a rationale names; of a phrase, the least of what its words are.

    Of an entry without any word, punctuation say, nothing is missing.

    Args:
        entry: as the answer has it, a word or a phrase.
        words: of the text, in order.
        language: code that says which forms are forms of one word, see :mod:`xai.attribution.lemmas`.
    """
    forms = [normal_form(word) for word in words]
    absent = [word for word in named_words(entry) if not occurrences(word, forms)]
    same = lemma_classes([*forms, *absent], language)
    in_text = {same[form] for form in forms}
    if not absent:
        return "exact"
    return "inflected" if all(same[word] in in_text for word in absent) else "invented"


def named_words(entry: str) -> list[str]:
    """The words of an entry of a rationale in normal form, in order; a phrase is split as texts are.

    What is written without spaces stays whole: the model said what its words are.
    """
    spans: list[tuple[int, int]] = []
    for start, end in split_words(entry):
        joins = bool(spans) and spans[-1][1] == start and is_spaceless(entry[spans[-1][0] : end])
        spans = [*spans[:-1], (spans[-1][0], end)] if joins else [*spans, (start, end)]
    return [form for start, end in spans if (form := normal_form(entry[start:end]))]


def occurrences(word: str, forms: Sequence[str]) -> list[list[int]]:
    """Where a text has a word: the indices of the one form that is it, or of those that follow on each other as it.

    The latter only where it is written without spaces; spaces and line breaks between them do not matter.

    Args:
        word: in normal form.
        forms: the words of the text in normal form, in order.
    """
    found = [[index] for index, form in enumerate(forms) if form == word]
    if is_spaceless(word):
        found += [run for start in range(len(forms)) if len(run := _spelled(word, forms, start)) > 1]
    return found


def _spelled(word: str, forms: Sequence[str], start: int) -> list[int]:
    """The forms from ``start`` on that spell the word, if they do."""
    rest, end = word, start
    while rest and end < len(forms) and forms[end] and rest.startswith(forms[end]):
        rest, end = rest.removeprefix(forms[end]), end + 1
    return [] if rest else list(range(start, end))

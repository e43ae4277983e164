"""Which inflected forms are forms of one word: by a dictionary for Ukrainian, by a stated rule for English."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

__all__ = ["Lemmatizer", "lemma_classes", "lemmatizer", "ukrainian_analyzer"]

_MIN_STEM = 3
"""Letters that the English rule leaves at least: "this" is no plural, "thing" no participle."""
_VOWELS = frozenset("aeiouy")


@dataclass(frozen=True)
class Lemmatizer:
    """Gives the base forms that a word in normal form may have; two words match if they have one in common.

    ``name`` says with what, and its version; it belongs into every table that the matches are in.
    """

    name: str
    lemmas: Callable[[str], frozenset[str]]


@cache
def lemmatizer(language: str | None) -> Lemmatizer:
    """What there is for a language.

    ``uk``: pymorphy3 with its dictionary, all readings of a form; it comes with ``pip install 'meme-xai[uk]'``, and
    without it forms match exactly. ``en``: endings are taken off by rule, see :func:`_english`. Any other language,
    and an unknown one: exact forms only.
    """
    code = (language or "").replace("_", "-").split("-")[0].lower()
    if code == "en":
        return Lemmatizer("endings 1.0", _english)
    if code == "uk":
        return _ukrainian()
    return Lemmatizer("none", _itself)


def lemma_classes(forms: Iterable[str], language: str | None) -> dict[str, str]:
    """For each form, the first of the forms given that is a form of the same word."""
    lemmas = lemmatizer(language).lemmas
    groups: list[tuple[set[str], list[str]]] = []
    for form in dict.fromkeys(forms):
        bases, members = set(lemmas(form)), [form]
        for group in [group for group in groups if group[0] & bases]:
            groups.remove(group)
            bases, members = bases | group[0], [*group[1], *members]
        groups.append((bases, members))
    return {form: members[0] for _, members in groups for form in members}


def _itself(form: str) -> frozenset[str]:
    return frozenset((form,))


@cache
def ukrainian_analyzer() -> Any | None:
    """pymorphy3 with its Ukrainian dictionary, loaded once a process; ``None`` where one of the two is missing."""
    try:
        from pymorphy3 import MorphAnalyzer

        return MorphAnalyzer(lang="uk")
    except (ImportError, ValueError):  # ValueError: the package without the dictionary
        return None


def _ukrainian() -> Lemmatizer:
    analyzer = ukrainian_analyzer()
    if analyzer is None:
        return Lemmatizer("none: pip install 'meme-xai[uk]'", _itself)
    versions = metadata.version("pymorphy3"), metadata.version("pymorphy3-dicts-uk")
    return Lemmatizer("pymorphy3 {}, dictionary {}".format(*versions), cache(lambda form: _readings(analyzer, form)))


def _readings(analyzer: Any, form: str) -> frozenset[str]:
    # Of a word that is not in the dictionary, pymorphy3 guesses, which takes long; a name would match what it merely
    # resembles.
    if not analyzer.word_is_known(form):
        return frozenset((form,))
    return frozenset({form, *(reading.normal_form for reading in analyzer.parse(form) if reading.is_known)})


@cache
def _english(form: str) -> frozenset[str]:
    """The form, and what it is without ``'s``, ``-s``, ``-es``, ``-ies``, ``-ed`` or ``-ing``.

    A consonant doubled before an ending is undone, and a silent ``e`` may have been there. Irregular forms are not
    known, and now and then two words share what is left (``caring``, ``cars``): the matches are counted apart.
    """
    word = form.removesuffix("'s").removesuffix("'")
    found = {form, word}
    if word.endswith("ies"):
        found.add(word[:-3] + "y")
    if word.endswith("es") and word[:-2].endswith(("s", "x", "z", "ch", "sh", "o")):
        found.add(word[:-2])
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        found.add(word[:-1])
    for ending in ("ed", "ing"):
        stem = word.removesuffix(ending)
        if stem != word and _VOWELS & set(stem):
            found |= {stem, stem + "e"}
            found |= {stem[:-1]} if stem[-1:] == stem[-2:-1] and stem[-1:] not in _VOWELS else set()
            found |= {stem[:-1] + "y"} if ending == "ed" and stem.endswith("i") else set()
    return frozenset(base for base in found if base == form or len(base) >= _MIN_STEM)

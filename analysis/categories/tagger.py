"""What a category is, what a tagger of categories is, and the registry of those that there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from xai.registry import Registry

CATEGORIES: dict[str, str] = {
    "Entity": (
        "Who and where: a name of a person, animal, place, organisation, brand or event, or a part of one; what is "
        "derived from the name of a country (its people, its adjective); an institution or an office of public life "
        "(government, court, police, army, president, mayor), named or not."
    ),
    "Emotional": (
        "What is felt or valued: a word that names or shows a feeling (love, fear, weep, proud), praises or blames "
        "(terrible, lovely, coward, disaster, good, bad), turns up the degree of another word (very, really, "
        "absolutely), an exclamation (wow, ugh), or an emoji of a face, a heart or a gesture."
    ),
    "Rhetoric": (
        "What steers the argument: negation (not, never, nobody, without); commands; words of totality and "
        "restriction (all, every, always, only); of necessity and certainty (must, should, of course, maybe); "
        "comparatives and superlatives, also of valuing words (better, worst, than, same); connectives that give a "
        "reason, a condition, a contrast or a conclusion (because, if, but, therefore); question words that ask; "
        "quantifiers and numbers in words (some, most, often, half, two, million), and percentages."
    ),
    "Content": "What the meme is about: any other noun, verb, adjective or adverb that has a topic.",
    "Other": (
        "What has no topic of its own: articles, pronouns, prepositions, and/or, auxiliary and modal verbs of mere "
        "tense or possibility (is, has, will, can), numbers in digits, abbreviations of reference (p., fig.), "
        "fragments, strings without sense, and punctuation."
    ),
}
"""The categories and their definitions. Where two fit a word, the earlier one counts, with two exceptions that stand
in the definitions: negation, comparatives and superlatives are Rhetoric always."""

UNKNOWN = "unknown"
"""Stands where a tagger gave no category that can be read; it is counted and never guessed."""


@dataclass(frozen=True)
class WordInContext:
    """A word and the text that it is judged in.

    Attributes:
        word: as it stands in the text, or its normal form; it need not be in the text.
        context: the meme's text; ``""`` if there is none.
        language: a code such as ``en``, ``uk``, ``ar``, ``zh-Hans``; ``None`` if it is not known.
    """

    word: str
    context: str
    language: str | None = None


@runtime_checkable
class Tagger(Protocol):
    """Says of words which category they are of.

    ``name`` is that of the registry; ``version`` and what else the result depends on are recorded with it.
    """

    name: str

    @property
    def version(self) -> str:
        """Of the tagger: its lists, dictionaries, model and prompt, in one line."""

    def tag(self, words: Sequence[WordInContext]) -> list[str]:
        """A category of :data:`CATEGORIES` for each word, in order, or :data:`UNKNOWN`.

        The answer for a word depends on that word and its context alone, not on what else is asked with it.

        Raises:
            ValueError: nothing can be tagged; the message says what to do.
        """


_TAGGERS: Registry[Callable[..., Tagger]] = Registry("a category tagger")


def category_tagger(name: str) -> Callable[[type], type]:
    """Register a class as a tagger.

    Raises:
        ValueError: the name is taken.
    """

    def register(made: type) -> type:
        _TAGGERS.add(name, made)
        return made

    return register


def tagger_names() -> tuple[str, ...]:
    """The registered taggers, in order of registration."""
    return tuple(_TAGGERS)


def get_tagger(name: str, **options: Any) -> Tagger:
    """Make the tagger called ``name``; ``options`` are those of its class.

    Raises:
        ValueError: there is none of that name, the message lists those that exist; or it lacks what it needs here.
    """
    return _TAGGERS.named(name)(**options)

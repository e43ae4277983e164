"""The word lists of the rules: our own, versioned, one YAML file a language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from xai.attribution.align import normal_form

LANGUAGES = ("en", "uk", "ar", "zh")
"""The languages that have lists."""

_ORDER = ("negation", "questions", "function", "emotional", "rhetoric", "content", "entity", "fragments")
"""Of a word in several lists the first counts. Function words come early: "us" is a pronoun far more often than a
country. Commands, titles and heads of organisations are none of these: they count only in their place in a text, which
the lists under ``places`` help to tell."""
_CATEGORY = {
    "negation": "Rhetoric",
    "rhetoric": "Rhetoric",
    "commands": "Rhetoric",
    "emotional": "Emotional",
    "content": "Content",
    "entity": "Entity",
    "function": "Other",
    "questions": "Other",
    "fragments": "Other",
}
"""Of a list's first name. A question word that stands in no question is a pronoun."""
_IN_PLACE = ("entity.titles", "entity.organisation_heads")
_SHORTEST_STEM = 3


@dataclass(frozen=True)
class Lexicon:
    """The lists of one language, in normal form.

    Attributes:
        version: of the file.
        lists: words by the dotted name of their list, as ``"rhetoric.totality"``.
        kinds: the first list, in the order of precedence, of every single word.
        phrases: the same of what has several words, ``" "`` between them.
        stems: the same of beginnings of words.
    """

    language: str
    version: str
    lists: Mapping[str, frozenset[str]]
    kinds: Mapping[str, str]
    phrases: Mapping[str, str]
    stems: Mapping[str, str]

    def has(self, kind: str, form: str) -> bool:
        """Whether a list of this dotted name, if the language has it, holds a word in normal form."""
        return form in self.lists.get(kind, ())

    def kind(self, form: str) -> str | None:
        """The list of a word in normal form, or of the longest stem that it begins with."""
        found = self.kinds.get(form)
        if found is not None or not self.stems:
            return found
        ends = range(len(form), _SHORTEST_STEM - 1, -1)
        return next((self.stems[form[:end]] for end in ends if form[:end] in self.stems), None)


def category_of(kind: str) -> str:
    """The category of a list, by its dotted name."""
    return _CATEGORY[kind.split(".")[0]]


@cache
def lexicon(language: str) -> Lexicon:
    """The lists of one of :data:`LANGUAGES`."""
    text = files("xai.analysis.categories").joinpath("lexicons", f"{language}.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    lists = {name: block.split() for name, block in _blocks(content) if name != "version"}
    single: dict[str, str] = {}
    phrases: dict[str, str] = {}
    stems: dict[str, str] = {}
    for kind in sorted((one for one in lists if _ranked(one)), key=_rank):
        for entry in lists[kind]:
            if entry.endswith("*"):
                stems.setdefault(normal_form(entry.removesuffix("*")), kind)
            elif "_" in entry:
                phrases.setdefault(" ".join(map(normal_form, entry.split("_"))), kind)
            else:
                single.setdefault(normal_form(entry), kind)
    as_sets = {name: frozenset(map(normal_form, entries)) for name, entries in lists.items()}
    return Lexicon(language, str(content["version"]), as_sets, single, phrases, stems)


def _blocks(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _blocks(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)


def _ranked(kind: str) -> bool:
    return kind.split(".")[0] in _ORDER and kind not in _IN_PLACE


def _rank(kind: str) -> int:
    return _ORDER.index(kind.split(".")[0])

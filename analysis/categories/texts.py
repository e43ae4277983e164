"""A text as the rules see it: its words, where their sentences begin, what casing says, and the names in it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import regex

from xai.analysis.categories.lexicons import category_of, lexicon
from xai.attribution.align import is_spaceless, normal_form, split_words
from xai.attribution.lemmas import ukrainian_analyzer

_ENDS = re.compile(r"[.!?…。！？؟:;\n\r\"«»“”„()\[\]—–]|(?<!\w)-(?!\w)")
"""What a sentence ends at, or a part of one, after which a capital says nothing."""
_UPPER, _LOWER = regex.compile(r"\p{Lu}"), regex.compile(r"\p{Ll}")
_ASKS = re.compile(r"[?？؟]")
_STOPS = re.compile(r"[.!…。！\n\r]")
_TITLE_CASE_WORDS, _TITLE_CASE_SHARE, _LONG = 3, 0.85, 4
"""A text is in title case if of at least so many words inside its sentences, of so many letters, this share begins
with a capital."""
_WHOLE_NAMES = ("PERSON", "ORGANISATION")
_FORMS_KEPT = 1 << 16
"""Words whose normal form is remembered: a run has far fewer different words than words."""

_form = lru_cache(_FORMS_KEPT)(normal_form)


@dataclass(frozen=True)
class Occurrence:
    """A word in its place.

    Attributes:
        form: its normal form; ``before``, ``after``: those of its neighbours in its sentence, or ``""``.
        letters: the word as it is written there.
        starts: it is the first word of its sentence, or follows a colon, a bracket, a quotation mark or a line break.
        asked: its sentence ends in a question mark.
        first: normal form of the first word of its sentence.
        after_comma: a comma stands before it.
        before_capital: the next word of its sentence begins with a capital and is no function word.
        percent: a per cent sign or a multiplication sign follows it.
        found: the category and kind of the longest name or phrase that it is in, if any.
        cased: casing tells names from other words in its text.
    """

    form: str
    letters: str
    before: str = ""
    after: str = ""
    starts: bool = False
    asked: bool = False
    first: str = ""
    after_comma: bool = False
    before_capital: bool = False
    percent: bool = False
    found: tuple[str, str] | None = None
    cased: bool = False


@dataclass(frozen=True)
class Text:
    """A text and its language, one of those with lists. What is known of it is found out when it is first asked for."""

    text: str
    language: str

    def occurrence(self, word: str) -> Occurrence:
        """The first place of a word in the text; of a word that is not in it, the word alone, without any cue."""
        form = _form(word)
        place = self._places.get(form)
        if place is not None:
            return self._at(form, *place)
        start = self.text.find(word) if word and is_spaceless(word) else -1
        if start >= 0:
            return Occurrence(form, word, found=self._found(start, start + len(word)))
        alone = Text(word, self.language) if word != self.text else None
        return Occurrence(form, word, found=alone._found(0, len(word)) if alone else None)

    def _at(self, form: str, index: int, start: int, end: int) -> Occurrence:
        spans, gaps = self._spans, self._gaps
        starts = index == 0 or bool(_ENDS.search(gaps[index]))
        ends = index + 1 == len(spans) or bool(_ENDS.search(gaps[index + 1]))
        after = "" if ends else self._forms[index + 1]
        first = index
        while first > 0 and not _ENDS.search(gaps[first]):
            first -= 1
        rest = self.text[end:]
        stop, question = _STOPS.search(rest), _ASKS.search(rest)
        return Occurrence(
            form,
            self.text[start:end],
            before="" if starts else self._forms[index - 1],
            after=after,
            starts=starts,
            asked=question is not None and (stop is None or question.start() < stop.start()),
            first=self._forms[first],
            after_comma="," in gaps[index] or "،" in gaps[index],
            before_capital=bool(after) and self._capitalised(index + 1),
            percent=rest[:1] in ("%", "٪", "×") or rest[:2] == " %",
            found=self._found(start, end),
            cased=self._cased,
        )

    def _capitalised(self, index: int) -> bool:
        word = self.text[slice(*self._spans[index])]
        is_function = self._forms[index] in lexicon(self.language).lists["function"]
        return word[0].isupper() and not word.isupper() and not is_function

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        return split_words(self.text)

    @cached_property
    def _forms(self) -> list[str]:
        return [_form(self.text[start:end]) for start, end in self._spans]

    @cached_property
    def _gaps(self) -> list[str]:
        """What stands before each word, and behind the last."""
        edges = [0, *(edge for span in self._spans for edge in span), len(self.text)]
        return [self.text[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2)]

    @cached_property
    def _places(self) -> dict[str, tuple[int, int, int]]:
        places: dict[str, tuple[int, int, int]] = {}
        for index, (form, (start, end)) in enumerate(zip(self._forms, self._spans, strict=True)):
            places.setdefault(form, (index, start, end))
        return places

    @cached_property
    def _cased(self) -> bool:
        """Whether a capital letter tells something: the text is neither all capitals, nor none, nor in title case, nor
        mostly in a script without capitals."""
        words = [self.text[start:end] for start, end in self._spans]
        upper, lower = len(_UPPER.findall(self.text)), len(_LOWER.findall(self.text))
        if not upper or upper > lower or upper + lower < 0.5 * sum(map(str.isalpha, self.text)):
            return False
        inside = [
            word[0].isupper()
            for index, word in enumerate(words)
            if index and len(word) >= _LONG and not _ENDS.search(self._gaps[index])
        ]
        return len(inside) < _TITLE_CASE_WORDS or sum(inside) < _TITLE_CASE_SHARE * len(inside)

    @cached_property
    def _names(self) -> list[tuple[int, int, str, str]]:
        """Names and phrases of the text as (start, end, category, kind); none overlaps another, long ones first."""
        return _pipeline(self.language).find(self.text, self._cased)

    def _found(self, start: int, end: int) -> tuple[str, str] | None:
        touching = [name for name in self._names if max(name[0], start) < min(name[1], end)]
        if not touching:
            return None
        best = max(touching, key=lambda name: (min(name[1], end) - max(name[0], start), -name[0]))
        return best[2], best[3]


@dataclass(frozen=True)
class _Pipeline:
    """A blank pipeline of spaCy: its tokenizer, an entity ruler for names that their neighbours tell, and a matcher for
    listed names and phrases."""

    nlp: Any
    ruler: Any
    matcher: Any
    base: Callable[[str], str]

    def document(self, text: str) -> Any:
        """The text in tokens, each with its base form as lemma, by which phrases are compared."""
        document = self.nlp.make_doc(text)
        for token in document:
            token.lemma_ = self.base(token.text)
        return document

    def find(self, text: str, cased: bool) -> list[tuple[int, int, str, str]]:
        """Names and phrases as (start, end, category, kind): the longest of those that overlap."""
        from spacy.util import filter_spans

        document = self.document(text)
        named = self.ruler(document).ents if cased else ()
        spans = filter_spans([*self.matcher(document, as_spans=True), *named])
        return [(span.start_char, span.end_char, *_meaning(span.label_)) for span in spans]


def _meaning(label: str) -> tuple[str, str]:
    return ("Entity", label) if label in _WHOLE_NAMES else (category_of(label), label)


@cache
def _pipeline(language: str) -> _Pipeline:
    # Here, since spaCy loads torch where that is installed, which the other taggers do without.
    import spacy
    from spacy.matcher import PhraseMatcher

    words, base = lexicon(language), _base(language)
    nlp = spacy.blank(language)
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns(list(_name_patterns(words.lists, base)))
    made = _Pipeline(nlp, ruler, PhraseMatcher(nlp.vocab, attr="LEMMA"), base)
    long: dict[str, str] = {}
    if language == "zh":  # in characters, so that its words are phrases
        long = dict.fromkeys(words.lists["commands"], "commands") | dict(words.kinds)
        long = {form: kind for form, kind in long.items() if len(form) > 1}
    by_kind: dict[str, list[Any]] = {}
    for form, kind in (dict(words.phrases) | long).items():
        by_kind.setdefault(kind, []).append(made.document(form))
    for kind, documents in by_kind.items():
        made.matcher.add(kind, documents)
    return made


def _name_patterns(lists: Mapping[str, frozenset[str]], base: Callable[[str], str]) -> Iterator[dict[str, Any]]:
    """A title and the capitalised words behind it; the head of an organisation with what names it."""
    titles = sorted(map(base, lists["entity.titles"]))
    heads = sorted(map(base, lists["entity.organisation_heads"]))
    capital = {"IS_TITLE": True, "LEMMA": {"NOT_IN": sorted(lists["function"])}}
    title = [{"LEMMA": {"IN": titles}}, {"ORTH": ".", "OP": "?"}]
    of = [{"LOWER": "of"}, {"LOWER": "the", "OP": "?"}]
    yield {"label": "PERSON", "pattern": [*title, {**capital, "OP": "+"}]}
    yield {"label": "ORGANISATION", "pattern": [{"LEMMA": {"IN": heads}}, *of, {**capital, "OP": "+"}]}
    yield {"label": "ORGANISATION", "pattern": [{**capital, "OP": "+"}, {"LEMMA": {"IN": heads}, "IS_TITLE": True}]}


@cache
def _base(language: str) -> Callable[[str], str]:
    """What inflected forms of a word have in common, in phrases: of Ukrainian the first base form of the dictionary,
    of the others the normal form."""
    analyzer = ukrainian_analyzer() if language == "uk" else None

    @cache
    def base(word: str) -> str:
        form = normal_form(word)
        if analyzer is None or not any(map(str.isalpha, form)):
            return form or word
        return str(analyzer.parse(form)[0].normal_form)

    return base


def emoji_category(word: str) -> str | None:
    """Of an emoji: a flag is Entity; a face, a heart or a gesture is Emotional; another picture is Content.

    ``None`` for what is no emoji.
    """
    pictures = [character for character in word if unicodedata.category(character) == "So"]
    if not pictures or any(map(str.isalpha, word)):
        return None
    names = " ".join(unicodedata.name(character, "") for character in pictures)
    if "REGIONAL INDICATOR" in names or "\U0001f3f4" in word:
        return "Entity"
    feeling = re.search(r"FACE|HEART|HAND|THUMBS|FIST|CLAP|PERSON|KISS|TEAR|CRY|PARTY POPPER|FIRE\b|SKULL|ANGER", names)
    return "Emotional" if feeling else "Content"

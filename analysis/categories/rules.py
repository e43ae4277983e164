"""The tagger that ships: word lists, Ukrainian grammar, names, casing and place in the sentence. Needs no network."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib import metadata

from xai.analysis.categories.lexicons import LANGUAGES, Lexicon, category_of, lexicon
from xai.analysis.categories.tagger import UNKNOWN, WordInContext, category_tagger
from xai.analysis.categories.texts import Occurrence, Text, emoji_category
from xai.attribution.align import normal_form
from xai.attribution.lemmas import lemmatizer, ukrainian_analyzer

RULES_VERSION = "1.0"
_TEXTS_KEPT = 4096
_NAMES = ("entity.countries", "entity.cities", "entity.first_names")
"""Lists of names: where casing tells something, only a word with a capital is one ("turkey")."""
_SCRIPTS = (("LATIN", "en"), ("CYRILLIC", "uk"), ("ARABIC", "ar"), ("CJK", "zh"))
_SHORT_NAME = 3
"""Capitals of at most so many letters, in a text with small letters, are an abbreviated name; longer ones may shout."""
_CLITICS = ("وال", "فال", "بال", "كال", "لل", "ال", "و", "ف", "ب", "ل", "ك", "س")
_ARABIC_ANDS = ("و", "ف")
_ARABIC_ENDINGS = ("ون", "ين", "ات", "ان", "ها", "هم", "نا", "ة", "ا", "ه", "ي")
_SHORTEST_ARABIC = 3
_VOWELS = frozenset("aeiouyаеєиіїоуюя")
_COMPARED = re.compile(r"(?:щонай|якнай|най)\w{3,}|\w{3,}(?:ший|ше|жчий|жче)")
"""Ukrainian adjectives and adverbs; the ordinal and the pronoun that end so are in lists."""
_LAUGHS = re.compile(r"(?:ha|he|hi|ха|хе|хи|хі|ه){2,}[hхa]?|a{3,}h*|а{3,}х*|哈{2,}")
_INFLECTED = ("emotional", "rhetoric", "entity", "content")
_NAME_MARKS = frozenset(("Name", "Surn", "Patr", "Geox", "Orgn"))
_FUNCTION_MARKS = frozenset(("PREP", "CONJ", "PRCL", "NPRO"))


@category_tagger("rules")
class RulesTagger:
    """Judges by the first rule that says something; the rules and their order are in ``docs/categories.md``.

    It knows English, Ukrainian, Arabic and Chinese. A word of a given language that is none of these, or of another
    script, is unknown. In a text of several scripts each word is judged by the lists of its own.
    """

    name = "rules"

    def __init__(self) -> None:
        self._text = lru_cache(_TEXTS_KEPT)(Text)

    @property
    def version(self) -> str:
        """Of the rules, the lists, spaCy and pymorphy3; and what is lost where pymorphy3 is missing."""
        lists = ", ".join(f"{code} {lexicon(code).version}" for code in LANGUAGES)
        return f"rules {RULES_VERSION}; lists {lists}; spaCy {metadata.version('spacy')}; Ukrainian: {_ukrainian()}"

    def tag(self, words: Sequence[WordInContext]) -> list[str]:
        """One category a word; :data:`~xai.analysis.categories.tagger.UNKNOWN` where the language has no lists."""
        return [self._category(one) for one in words]

    def _category(self, one: WordInContext) -> str:
        kind = _emoji(one.word)
        if kind is not None:
            return kind
        language = _language(one)
        if language is None:
            return UNKNOWN
        occurrence = self._text(one.context, language).occurrence(one.word)
        return next(category for rule in _RULES if (category := rule(occurrence, language)) is not None)


def _ukrainian() -> str:
    if ukrainian_analyzer() is not None:
        return lemmatizer("uk").name
    return (
        "no pymorphy3, so that inflected forms of listed words, commands, comparatives and family names are not known "
        "(pip install 'meme-xai[uk]')"
    )


_emoji = lru_cache(_TEXTS_KEPT)(emoji_category)


@cache
def _script(word: str) -> str | None:
    """The language of the lists that a word's first letter belongs to; ``""`` for a word without letters."""
    letter = next((character for character in word if character.isalpha()), None)
    if letter is None:
        return ""
    name = unicodedata.name(letter, "")
    return next((language for script, language in _SCRIPTS if name.startswith(script)), None)


def _language(one: WordInContext) -> str | None:
    given = (one.language or "").replace("_", "-").split("-")[0].lower()
    if given and given not in LANGUAGES:
        return None
    script = _script(one.word)
    return None if script is None else script or given or "en"


# Each rule gives a category, or None where it has nothing to say; the last always gives one.


def _negation(word: Occurrence, language: str) -> str | None:
    """First of all, so that no negation is ever lost."""
    words = lexicon(language)
    negated = words.has("negation", word.form) or (language == "en" and word.form.endswith("n't"))
    if language == "ar" and word.form[:1] in _ARABIC_ANDS:
        negated = negated or words.has("negation", word.form[1:])
    return "Rhetoric" if negated else None


def _without_letters(word: Occurrence, language: str) -> str | None:
    if any(map(str.isalpha, word.form)):
        return None
    return "Rhetoric" if word.percent and any(map(str.isdigit, word.form)) else "Other"


def _name_or_phrase(word: Occurrence, language: str) -> str | None:
    if word.found is None:
        return None
    category, kind = word.found
    if kind in ("PERSON", "ORGANISATION") and lexicon(language).has("function", word.form):
        return None
    return "Rhetoric" if kind == "questions" and word.asked else category


def _question(word: Occurrence, language: str) -> str | None:
    return "Rhetoric" if word.asked and lexicon(language).has("questions", word.form) else None


def _one(word: Occurrence, language: str) -> str | None:
    """In "one biscuit" it counts, in "this one" it points."""
    if not lexicon(language).has("rhetoric.number_one", word.form):
        return None
    return "Other" if lexicon(language).has("places.points", word.before) else "Rhetoric"


def _short_name(word: Occurrence, language: str) -> str | None:
    """An abbreviated name, as "US" in a text with small letters."""
    letters = [character for character in word.letters if character.isalpha()]
    short = 2 <= len(letters) <= _SHORT_NAME and all(map(str.isupper, letters))
    known = lexicon(language)
    listed = (known.kind(word.form) or "").split(".")[0]
    is_name = known.has("entity.institutions", word.form)
    return "Entity" if short and word.cased and (is_name or listed == "") else None


def _listed(word: Occurrence, language: str) -> str | None:
    return _by_list(word, lexicon(language), word.form)


def _command(word: Occurrence, language: str) -> str | None:
    """A verb that commands: in its place in the sentence, and by the list or by grammar."""
    words, marks = lexicon(language), _marks(word.form, language)
    commands = [one for one in marks if "impr" in one]
    if commands and (len(commands) == len(marks) or _in_place(word, language)) and _inflected(word, language) is None:
        return "Rhetoric"
    if not words.has("commands", word.form) or (words.kind(word.form) or "").startswith("emotional"):
        return None
    if language != "en":
        return "Rhetoric"
    is_noun = words.has("places.after_nouns", word.after)
    return "Rhetoric" if _in_place(word, language) and not is_noun else None


def _in_place(word: Occurrence, language: str) -> bool:
    """Whether a command may stand here: at the beginning, behind a first word as "please", or after another command."""
    words = lexicon(language)
    if word.starts or (word.before == word.first and words.has("places.before_commands", word.before)):
        return True
    after_command = words.has("commands", word.first) or any("impr" in one for one in _marks(word.first, language))
    return after_command and (word.after_comma or words.has("places.between_commands", word.before))


def _inflected(word: Occurrence, language: str) -> str | None:
    """By the lists, through the word's base forms; function words and fragments have no other forms than the listed."""
    words = lexicon(language)
    kinds = [kind for base in _bases(word.form, language) if (kind := words.kinds.get(base)) is not None]
    by_group = sorted(
        (kind for kind in kinds if _group(kind) in _INFLECTED), key=lambda kind: _INFLECTED.index(_group(kind))
    )
    return next((category for kind in by_group if (category := _by_kind(word, kind)) is not None), None)


def _group(kind: str) -> str:
    return kind.split(".")[0]


def _capital(word: Occurrence, language: str) -> str | None:
    """A capital inside a sentence, or at its beginning with another behind it, where casing tells something.

    A whole word of capitals only shouts.
    """
    if not word.cased or not word.letters[:1].isupper() or word.letters.isupper():
        return None
    return "Entity" if not word.starts or word.before_capital else None


def _grammar(word: Occurrence, language: str) -> str | None:
    """What the Ukrainian dictionary says of all readings of a word, or its endings of a name that it lacks."""
    marks = _marks(word.form, language)
    if not marks:
        return "Entity" if language == "uk" and word.cased and _may_be_family_name(word) else None
    if word.letters[:1].isupper() and all(one & _NAME_MARKS for one in marks):
        return "Entity"
    if any("NUMR" in one for one in marks):
        return "Rhetoric"
    bases = (word.form, *_bases(word.form, language))
    if any(_COMPARED.fullmatch(base) for base in bases) and any(one & {"ADJF", "ADVB"} for one in marks):
        return "Rhetoric"
    if all("INTJ" in one for one in marks):
        return "Emotional"
    return "Other" if all(one & _FUNCTION_MARKS for one in marks) else None


def _may_be_family_name(word: Occurrence) -> bool:
    analyzer = ukrainian_analyzer()
    if analyzer is None or not word.letters[:1].isupper() or word.letters.isupper():
        return False
    return any("Surn" in reading.tag.grammemes for reading in analyzer.parse(word.form))


def _comparative(word: Occurrence, language: str) -> str | None:
    """An English comparative or superlative that no list has is known by what stands beside it: "cheaper than"."""
    if language != "en" or len(word.form) < 5:
        return None
    compared = word.form.endswith("er") and word.after == "than"
    return "Rhetoric" if compared or (word.form.endswith("est") and word.before == "the") else None


def _laugh(word: Occurrence, language: str) -> str | None:
    return "Emotional" if _LAUGHS.fullmatch(word.form) else None


def _fragment(word: Occurrence, language: str) -> str | None:
    """A single letter, and letters without a vowel; of Arabic and Chinese there is no such rule."""
    if language not in ("en", "uk"):
        return None
    return "Other" if len(word.form) == 1 or not _VOWELS & set(word.form) else None


def _topic(word: Occurrence, language: str) -> str:
    return "Content"


_RULES: tuple[Callable[[Occurrence, str], str | None], ...] = (
    *(_negation, _without_letters, _name_or_phrase, _question, _one, _short_name, _command, _listed, _laugh),
    *(_comparative, _inflected, _grammar, _capital, _fragment, _topic),
)


def _by_list(word: Occurrence, words: Lexicon, form: str) -> str | None:
    kind = words.kind(form)
    return None if kind is None else _by_kind(word, kind)


def _by_kind(word: Occurrence, kind: str) -> str | None:
    if kind in _NAMES and word.cased and not word.letters[:1].isupper():
        return None
    return category_of(kind)


@cache
def _bases(form: str, language: str) -> tuple[str, ...]:
    """The base forms that a word may have, in a fixed order; of a word with hyphens also those of its last part."""
    if language == "ar":
        return _arabic_bases(form)
    found = set(lemmatizer(language).lemmas(form))
    if "-" in form:
        found |= lemmatizer(language).lemmas(form.rpartition("-")[2])
    if language == "uk" and form[-1:] in ("о", "е"):
        found.add(f"{form[:-1]}ий")
    return tuple(sorted(map(normal_form, found), key=lambda base: (base != form, base)))


def _arabic_bases(form: str) -> tuple[str, ...]:
    """The word without the particles and the article before it and the endings behind it, which may be letters of it:
    what is left counts only if a list has it."""
    heads = [form, *(form.removeprefix(one) for one in _CLITICS if form.startswith(one))]
    heads += [f"ال{head}" for head in heads[1:]]
    tails = [head.removesuffix(one) for head in heads for one in _ARABIC_ENDINGS if head.endswith(one)]
    return tuple(dict.fromkeys(base for base in (*heads, *tails) if len(base) >= _SHORTEST_ARABIC))


@cache
def _marks(form: str, language: str) -> tuple[frozenset[str], ...]:
    """The grammemes of every reading that the Ukrainian dictionary has of a word; none of a word that it lacks."""
    analyzer = ukrainian_analyzer() if language == "uk" else None
    readings = [] if analyzer is None else analyzer.parse(form)
    return tuple(frozenset(reading.tag.grammemes) for reading in readings if reading.is_known)

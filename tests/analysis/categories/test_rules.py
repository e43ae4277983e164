"""The rules judge a word by the first cue that says something, in four languages, and never lose a negation."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from xai.analysis.categories import CATEGORIES, UNKNOWN, WordInContext, category_tagger, get_tagger, tagger_names
from xai.analysis.categories.lexicons import LANGUAGES, lexicon
from xai.analysis.words import kept_words
from xai.attribution.align import normal_form, split_words

RULES = get_tagger("rules")
NOT_QUITE_RHETORIC = {"too"}
"""Kept by the stop lists, and "also" more often than an excess."""


def category(word: str, context: str, language: str | None = "en") -> str:
    return RULES.tag([WordInContext(word, context, language)])[0]


def categories(context: str, language: str | None) -> dict[str, str]:
    words = [context[start:end] for start, end in split_words(context)]
    return dict(zip(words, RULES.tag([WordInContext(word, context, language) for word in words]), strict=True))


@pytest.mark.parametrize(
    ("word", "context", "language"),
    [
        ("not", "this is not soup", "en"),
        ("NOT", "President Not Today", "en"),
        ("Isn't", "Isn't it lovely", "en"),
        ("couldn’t", "we couldn’t care less", "en"),
        ("не", "суп не холодний", "uk"),
        ("Ніхто", "Ніхто не прийшов", "uk"),
        ("لا", "لا أحب الشاي", "ar"),
        ("ولا", "لا شاي ولا قهوة", "ar"),
        ("不", "我不喝茶", "zh"),
        ("没有", "这里没有茶", "zh"),
    ],
)
def test_negation_is_rhetoric_wherever_it_stands(word: str, context: str, language: str) -> None:
    assert category(word, context, language) == "Rhetoric"
    assert category(normal_form(word), "", language) == "Rhetoric"


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_stop_lists_keep_for_its_stance_is_rhetoric(language: str) -> None:
    found = {word: category(word, "", language) for word in kept_words(language) - NOT_QUITE_RHETORIC}
    assert set(found.values()) == {"Rhetoric"}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("kind", "expected"),
    [("emotional.feelings", "Emotional"), ("entity.countries", "Entity"), ("fragments", "Other")],
)
def test_a_listed_word_without_a_text_has_the_category_of_its_list(kind: str, expected: str, language: str) -> None:
    words = lexicon(language)
    sure = {form for form in words.lists[kind] if words.kinds.get(form) == kind}
    assert len(sure) >= 4
    assert {category(form, "", language) for form in sure} == {expected}


def test_a_capital_inside_a_sentence_tells_a_name_where_casing_tells_something() -> None:
    assert category("Grumblewick", "yesterday Grumblewick ate the lamp") == "Entity"
    assert category("Lamp", "Lamp eaten by cat") == "Content"
    assert category("GRUMBLEWICK", "YESTERDAY GRUMBLEWICK ATE THE LAMP") == "Content"
    assert category("Lamp", "How My Clever Lamp Learnt To Dance Again") == "Content"
    assert category("LAMP", "my new LAMP is here") == "Content"
    assert category("turkey", "In Oslo my turkey is dry") == "Content"
    assert category("Turkey", "my Turkey trip was dry") == "Entity"


def test_a_title_or_an_organisation_takes_the_names_beside_it_along() -> None:
    found = categories("Captain Waffles leads the Ministry of Socks", "en")
    assert {word for word, one in found.items() if one == "Entity"} == {"Captain", "Waffles", "Ministry", "Socks"}
    assert found["of"] == "Other"


def test_names_and_phrases_of_several_words_are_found_and_nothing_of_them_outside() -> None:
    assert category("united", "the United Nations of soup") == "Entity"
    assert category("united", "we are united") == "Content"
    assert category("course", "of course it rains") == "Rhetoric"
    assert category("course", "a course of soup") == "Content"


def test_a_verb_commands_by_its_place() -> None:
    assert category("water", "Water the ferns") == "Rhetoric"
    assert category("water", "Please water the ferns") == "Rhetoric"
    assert category("forget", "Remember the lamp, forget the rain") == "Rhetoric"
    assert category("water", "Water is wet") == "Content"
    assert category("water", "I drink water") == "Content"
    assert category("think", "i don't think it rains") == "Content"


def test_question_words_ask_only_in_questions() -> None:
    assert category("why", "why is the lamp blue?") == "Rhetoric"
    assert category("why", "I know why. Is it blue?") == "Other"
    assert category("хто", "хто з'їв суп?", "uk") == "Rhetoric"
    assert category("хто", "той, хто з'їв суп", "uk") == "Other"


def test_numbers_count_in_words_and_in_percent_only() -> None:
    assert category("47", "47 tabs") == "Other"
    assert category("100", "100% of ferns") == "Rhetoric"
    assert category("million", "a million tabs") == "Rhetoric"
    assert category("one", "one lamp is enough") == "Rhetoric"
    assert category("one", "take this one") == "Other"


def test_inflected_forms_are_known_in_english_and_arabic() -> None:
    assert category("despised", "the most despised lamp") == "Emotional"
    assert category("cheaper", "cheaper than soup") == "Rhetoric"
    assert category("السعيدة", "القطة السعيدة", "ar") == "Emotional"
    assert category("بالقاهرة", "نزلنا بالقاهرة", "ar") == "Entity"


def test_inflected_forms_are_known_in_ukrainian() -> None:
    pytest.importorskip("pymorphy3")
    assert category("Говерлою", "ми йшли Говерлою", "uk") == "Entity"
    assert category("Сполученими", "над Сполученими Штатами", "uk") == "Entity"
    assert category("ненавидимо", "ми ненавидимо дощ", "uk") == "Emotional"
    assert category("полийте", "полийте фікус", "uk") == "Rhetoric"
    assert category("сімнадцятьох", "без сімнадцятьох гривень", "uk") == "Rhetoric"
    assert category("швидшого", "нема швидшого трамвая", "uk") == "Rhetoric"
    assert category("найтихішого", "кличу найтихішого кота", "uk") == "Rhetoric"
    assert category("смішно", "це смішно", "uk") == "Emotional"


def test_a_chinese_character_is_judged_by_the_longest_word_that_it_is_in() -> None:
    found = categories("中国的猫很可爱，但是天气糟糕", "zh")
    assert found["国"] == "Entity"
    assert found["爱"] == found["糟"] == "Emotional"
    assert found["但"] == "Rhetoric"
    assert found["猫"] == "Content"
    assert category("国", "国", "zh") == "Content"
    assert category("不错", "这个不错", "zh") == "Emotional"


def test_emoji_are_feelings_flags_or_things() -> None:
    found = categories("🇫🇷 😂 ❤️ 👍🏽 🍕", None)
    assert list(found.values()) == ["Entity", "Emotional", "Emotional", "Emotional", "Content"]


def test_laughter_and_keyboard_noise() -> None:
    assert category("hahahaha", "hahahaha what") == "Emotional"
    assert category("хахаха", "хахаха що", "uk") == "Emotional"
    assert category("grmpf", "grmpf the lamp") == "Other"
    assert category("x", "x marks the lamp") == "Other"


def test_each_word_is_judged_by_the_lists_of_its_script() -> None:
    assert category("love", "кіт love", "uk") == "Emotional"
    assert category("любов", "my любов", None) == "Emotional"


def test_a_language_or_a_script_without_lists_is_unknown_and_not_guessed() -> None:
    assert category("Regenschirm", "mein Regenschirm", "de") == UNKNOWN
    assert category("ομπρέλα", "ομπρέλα", None) == UNKNOWN
    assert category("love", "love", "en-GB") == "Emotional"


_LETTERS = st.sampled_from(
    "abcdefghijklmnopqrstuvwxyzABCабвгґдеєжзиіїйклмнопрстуфхцчшщьюяҐАللاحبمكقدヤ中国不爱的猫 \n.,!?%0123'’-😂🇺🇦\u200f"
)


@settings(max_examples=150, deadline=None)
@given(st.text(_LETTERS, max_size=40), st.text(_LETTERS, max_size=12), st.sampled_from([*LANGUAGES, None]))
def test_every_word_has_exactly_one_category_and_always_the_same(text: str, word: str, language: str | None) -> None:
    asked = [WordInContext(one, text, language) for one in (word, *text.split())]
    found = RULES.tag(asked)
    assert len(found) == len(asked)
    assert set(found) <= {*CATEGORIES, UNKNOWN}
    assert get_tagger("rules").tag(asked) == found
    order = random.Random(1).sample(range(len(asked)), len(asked))
    assert RULES.tag([asked[i] for i in order]) == [found[i] for i in order]


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("абвгґїєіюяшщь'АБ"), min_size=1, max_size=9).filter(normal_form))
def test_a_word_in_the_script_of_a_listed_language_is_never_unknown(word: str) -> None:
    assert category(word, f"це {word} тут", "uk") in CATEGORIES


def test_without_pymorphy3_the_rules_go_on_and_say_what_is_lost() -> None:
    script = (
        "import sys; sys.modules['pymorphy3'] = None\n"
        "from xai.analysis.categories import WordInContext, get_tagger\n"
        "rules = get_tagger('rules')\n"
        "print(rules.version)\n"
        "words = ['не', 'жахливий', 'жахливого', 'Київ']\n"
        "print(rules.tag([WordInContext(one, '', 'uk') for one in words]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, encoding="utf-8")
    version, found = done.stdout.splitlines()
    assert "pip install 'meme-xai[uk]'" in version
    assert found == "['Rhetoric', 'Emotional', 'Content', 'Entity']"


def test_importing_the_taggers_loads_neither_spacy_nor_torch_nor_openai() -> None:
    script = "import sys, xai.analysis.categories; print({'spacy', 'torch', 'openai'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_taggers_are_registered_by_a_name_of_their_own() -> None:
    assert tagger_names()[:3] == ("llm", "local", "rules")
    with pytest.raises(ValueError, match="there are llm, local, rules"):
        get_tagger("oracle")
    with pytest.raises(ValueError, match="registered already"):
        category_tagger("rules")(object)


@pytest.mark.parametrize(
    ("language", "letters"),
    [
        ("en", r"[a-zü'*_.]"),
        ("uk", r"[а-щьюяґєіїʼ'*_-]"),
        ("ar", r"[\u0621-\u064a_]"),
        ("zh", r"\p{Han}"),
    ],
)
def test_lists_are_versioned_and_in_their_own_script(language: str, letters: str) -> None:
    words = lexicon(language)
    assert words.version == "1.0"
    for kind, entries in words.lists.items():
        odd = {entry for entry in entries if kind != "fragments" and not regex.fullmatch(f"{letters}+", entry)}
        assert not odd, kind

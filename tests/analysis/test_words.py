"""The stop lists drop function words and keep what turns a meaning round."""

from __future__ import annotations

import pytest

from xai.analysis.words import STOPWORDS_VERSION, kept_words, normal_form, stop_words


def is_content_word(word: str, language: str | None = None) -> bool:
    """Whether comparisons keep a word."""
    form = normal_form(word)
    return bool(form) and form not in stop_words(language)


@pytest.mark.parametrize(
    ("word", "language"),
    [
        *[(word, "en") for word in ("not", "no", "never", "all", "every", "don’t", "NOT!", "without")],
        *[(word, "uk") for word in ("не", "ні", "без", "кожен", "жоден", "всі")],
        *[(word, "ar") for word in ("لا", "ليس", "كل")],
        *[(word, "zh") for word in ("不", "没", "都")],
    ],
)
def test_negation_and_quantity_are_content(word: str, language: str) -> None:
    assert is_content_word(word, language)
    assert is_content_word(word)


@pytest.mark.parametrize(
    ("word", "language"),
    [("The", "en"), ("on", "en"), ("It’s", "en"), ("це", "uk"), ("й", "uk-UA"), ("في", "ar"), ("的", "zh")],
)
def test_function_words_are_not_content(word: str, language: str) -> None:
    assert not is_content_word(word, language)
    assert not is_content_word(word)


def test_a_language_without_a_list_uses_all_lists() -> None:
    assert not is_content_word("the", "fr")
    assert is_content_word("the", "uk")


@pytest.mark.parametrize("word", ["", "...", "—", "«»"])
def test_punctuation_is_not_content(word: str) -> None:
    assert not is_content_word(word)


def test_an_emoji_is_content() -> None:
    assert is_content_word("👍🏽")


@pytest.mark.parametrize("language", ["en", "uk", "ar", "zh", None])
def test_no_list_stops_a_word_that_must_be_kept(language: str | None) -> None:
    assert not stop_words(language) & kept_words()


@pytest.mark.parametrize(
    ("with_negation", "without"),
    [
        ("this is not hateful", "this is hateful"),
        ("це не ненависть", "це ненависть"),
        ("هذا ليس كراهية", "هذا كراهية"),
        ("这 不 是 仇 恨", "这 是 仇 恨"),
    ],
)
def test_a_negated_sentence_differs_from_the_plain_one(with_negation: str, without: str) -> None:
    assert set(filter(is_content_word, with_negation.split())) != set(filter(is_content_word, without.split()))


def test_the_lists_carry_a_version() -> None:
    assert STOPWORDS_VERSION.count(".") == 1

"""Words of a rationale are found in a text by their normal form, also where the script has no spaces."""

from __future__ import annotations

import pytest

from xai.attribution.align import normal_form, split_words
from xai.attribution.occurrences import named_words, occurrences, presence


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in split_words(text)]


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("Об'єднання, НІ!", ["об'єднання", "ні"]),
        ("这不是仇恨言论。Hello32", ["这不是仇恨言论", "hello32"]),
        ("это 今天 明天", ["это", "今天", "明天"]),
        ("…", []),
    ],
)
def test_phrases_are_split_as_texts_are_and_what_has_no_spaces_stays_whole(entry: str, named: list[str]) -> None:
    assert named_words(entry) == named


@pytest.mark.parametrize(
    ("word", "text", "found"),
    [
        ("no", "no means No", [[0], [2]]),
        ("仇恨", "仇\n恨 仇人 仇恨", [[0, 1], [4, 5]]),
        ("恨我们", "仇人恨我", []),
        ("ab", "a b", []),
    ],
)
def test_every_occurrence_is_found(word: str, text: str, found: list[list[int]]) -> None:
    assert occurrences(word, [normal_form(one) for one in words(text)]) == found


def test_one_sign_words_and_longer_ones_of_an_engine_spell_the_same_word() -> None:
    assert occurrences("这不是仇恨", ["这不是", "仇", "恨"]) == [[0, 1, 2]]
    assert occurrences("这不", ["这不是"]) == []


def test_a_phrase_is_what_the_least_of_its_words_is() -> None:
    text = words("crooked senators lied")
    assert presence("Crooked LIED", text, "en") == "exact"
    assert presence("crooked senator", text, "en") == "inflected"
    assert presence("crooked senator wins", text, "en") == "invented"
    assert presence("senator", text, "ar") == "invented"
    assert presence("senator", [], "en") == "invented"

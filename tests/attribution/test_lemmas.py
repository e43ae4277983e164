"""Forms of one word have a base form in common, and other words have none."""

from __future__ import annotations

import sys

import pytest

from xai.attribution.lemmas import lemma_classes, lemmatizer, ukrainian_analyzer


def match(a: str, b: str, language: str | None) -> bool:
    lemmas = lemmatizer(language).lemmas
    return bool(lemmas(a) & lemmas(b))


@pytest.mark.parametrize(
    ("form", "base"),
    [
        *[("senators", "senator"), ("lies", "lie"), ("lied", "lie"), ("lying", "lying"), ("countries", "country")],
        *[("running", "run"), ("stopped", "stop"), ("hated", "hate"), ("hates", "hating"), ("boxes", "box")],
        *[("tried", "try"), ("putin's", "putin"), ("voters'", "voter"), ("churches", "church")],
    ],
)
def test_english_endings_come_off(form: str, base: str) -> None:
    assert match(form, base, "en-GB")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("this", "thi"),
        ("thing", "th"),
        ("bus", "bu"),
        ("class", "clas"),
        ("crisis", "crisi"),
        ("red", "r"),
        ("not", "no"),
    ],
)
def test_english_words_that_only_look_inflected_stay_whole(a: str, b: str) -> None:
    assert not match(a, b, "en")


@pytest.mark.parametrize(
    ("form", "base"), [("війну", "війна"), ("брехали", "бреше"), ("об'єднанням", "об'єднання"), ("людей", "людина")]
)
def test_ukrainian_forms_match_by_the_dictionary(form: str, base: str) -> None:
    pytest.importorskip("pymorphy3")
    assert match(form, base, "uk-UA")
    assert not match(form, "народ", "uk")


def test_words_that_the_dictionary_does_not_have_match_themselves_only() -> None:
    pytest.importorskip("pymorphy3")
    assert match("зрадометр", "зрадометр", "uk")
    assert not match("зрадометр", "зрадометра", "uk")


@pytest.mark.parametrize("language", ["ar", "zh", None])
def test_other_languages_match_exactly(language: str | None) -> None:
    assert lemmatizer(language).name == "none"
    assert not match("lies", "lie", language)


def test_classes_are_named_by_their_first_form() -> None:
    classes = lemma_classes(["lied", "senators", "lie", "senator", "lies"], "en")
    assert classes == {"lied": "lied", "lie": "lied", "lies": "lied", "senators": "senators", "senator": "senators"}


def test_without_the_dictionary_ukrainian_matches_exactly_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pymorphy3", None)
    lemmatizer.cache_clear()
    ukrainian_analyzer.cache_clear()
    try:
        assert lemmatizer("uk").name == "none: pip install 'meme-xai[uk]'"
        assert lemmatizer("uk").lemmas("війну") == {"війну"}
    finally:
        lemmatizer.cache_clear()
        ukrainian_analyzer.cache_clear()

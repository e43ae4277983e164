"""Phrases of the explicator: a list, at most so many words, each a verb with an object, nothing shortened."""

from __future__ import annotations

import json

import pytest

from tests.annotation.conftest import TASK
from xai.annotation.explicator import explicator_task, read_phrases
from xai.tasks import load_task


def answer(*phrases: str) -> str:
    return json.dumps({"phrases": list(phrases)})


def test_the_phrases_of_the_answer_are_kept_as_they_are() -> None:
    found = read_phrases(answer("praises  the sun.", "thanks a cloud", "praises the sun"), 30)
    assert found.kept == ("praises the sun", "thanks a cloud")
    assert (found.left_out, found.refused) == ((), "")


def test_what_goes_beyond_thirty_words_is_left_out_whole_and_listed() -> None:
    ten = "moves one two three four five six seven eight nine"
    found = read_phrases(answer(f"{ten} a", f"{ten} b", "paints six more words than allowed now", "eats soup"), 30)
    # 11, 11 and 7 words make 29, and the last phrase would make 31.
    assert found.kept == (f"{ten} a", f"{ten} b", "paints six more words than allowed now")
    assert found.left_out == (("eats soup", "beyond 30 words"),)
    assert sum(len(phrase.split()) for phrase in found.kept) == 29


def test_thirty_words_are_kept_and_a_later_short_phrase_does_not_slip_in() -> None:
    fifteen = " ".join(["word"] * 14)
    found = read_phrases(answer(f"a {fifteen}", f"b {fifteen}", "c d"), 30)
    assert len(found.kept) == 2
    late = read_phrases(answer(f"a {fifteen}", f"b c {fifteen}", "d e"), 30)
    assert (len(late.kept), len(late.left_out)) == (1, 2)


def test_a_single_word_is_no_verb_with_an_object() -> None:
    found = read_phrases(answer("praises", "thanks a cloud"), 30)
    assert found.kept == ("thanks a cloud",)
    assert found.left_out == (("praises", "no verb with an object: fewer than two words"),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("It praises the sun.", "not one JSON object"),
        ('{"phrases": "praises the sun"}', "no list of strings"),
        ('{"phrases": [1]}', "no list of strings"),
        ('{"phrases": ["\\ud83d praises"]}', "no list of strings"),
        ('{"phrases": ["a b"]} {"phrases": ["c d"]}', "not one JSON object"),
        ('["praises the sun"]', "no list of strings"),
        ('{"phrases": []}', "no phrase that could be kept"),
        ('{"phrases": ["one"]}', "no phrase that could be kept"),
        (answer(" ".join(["word"] * 31)), "no phrase that could be kept"),
        ("[" * 100_000, "not one JSON object"),
        ("", "not one JSON object"),
    ],
)
def test_what_is_no_list_of_phrases_is_refused_with_the_reason(text: str, reason: str) -> None:
    found = read_phrases(text, 30)
    assert found.kept == ()
    assert reason in found.refused


def test_a_fence_and_a_train_of_thought_are_passed_over() -> None:
    text = f"<think>It {{might}} praise.</think>\n```json\n{answer('praises the sun')}\n```"
    assert read_phrases(text, 30).kept == ("praises the sun",)


def test_the_question_names_the_labels_and_the_limit_in_the_modes_of_the_task() -> None:
    question = explicator_task(("Weather", "Tools"), 12, load_task(TASK))
    prompt = question.instruction("image+text")
    assert "the labels: Weather, Tools." in prompt
    assert "at most 12 words" in " ".join(prompt.split())
    assert '{"phrases": ["verb object", "verb object"]}' in prompt
    assert prompt.endswith("Text in the picture: ")
    assert set(question.prompts["full"]["en"].modes) == {"text", "image+text", "image+text+post"}

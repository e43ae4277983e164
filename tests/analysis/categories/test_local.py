"""The tagger `local` asks whatever takes texts and gives texts, one word a question, and guesses nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import xai
from xai.analysis.categories import CATEGORIES, UNKNOWN, WordInContext, get_tagger
from xai.models import VisionLanguageModel

TEXT = "Never trust a <toaster>"
WORDS = [WordInContext(word, TEXT, "en") for word in ("Never", "trust", "toaster", "Never")]


class Parrot:
    """Replies with what it was given, in turn."""

    name, fingerprint = "parrot", "0"

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), []  # type: tuple[list[str], list[str]]
        self.batches: list[int] = []

    def reply(self, texts: Sequence[str], max_new_tokens: int) -> list[str]:
        self.asked += texts
        self.batches.append(len(texts))
        return [self.answers.pop(0) for _ in texts]


def test_an_answer_is_the_name_of_a_category_or_nothing() -> None:
    model = Parrot('"Rhetoric".', "It is Rhetoric or Content", " Content\n")
    tagger = get_tagger("local", model=model, batch_size=2)
    assert tagger.tag(WORDS) == ["Rhetoric", UNKNOWN, "Content", "Rhetoric"]
    assert tagger.counts == {"words": 4, "malformed": 1}  # type: ignore[attr-defined]
    assert model.batches == [2, 1]
    assert tagger.tag(WORDS[:1]) == ["Rhetoric"]
    assert len(model.asked) == 3
    assert tagger.version == "local parrot (0); prompt 1"


def test_the_question_has_the_definitions_and_the_text_and_spells_no_special_token() -> None:
    model = Parrot("Content")
    get_tagger("local", model=model).tag([WordInContext("soup", "soup<|im_end|>", "en")])
    (asked,) = model.asked
    assert all(f"- {name}: {definition}" in asked for name, definition in CATEGORIES.items())
    assert '"text": "soup\\u003c|im_end|>", "word": "soup"' in asked


def test_a_loaded_model_replies_to_plain_texts(model: VisionLanguageModel) -> None:
    replies = model.reply(["hello", "a longer message to the same model"], max_new_tokens=3)
    assert [model.reply([text], max_new_tokens=3) for text in ("hello", "a longer message to the same model")] == [
        [reply] for reply in replies
    ]
    with pytest.raises(ValueError, match="spells the special token"):
        model.reply(["<|im_end|>"])


def test_the_model_that_ships_goes_through_the_tagger_and_what_it_says_is_counted() -> None:
    # It was trained to label memes and knows no such question.
    tagger = get_tagger("local", model=xai.load_model("planted", device="cpu"))
    assert tagger.tag(WORDS) == [UNKNOWN] * 4
    assert tagger.counts == {"words": 4, "malformed": 3}  # type: ignore[attr-defined]

"""Limits: a text is cut where a reader would cut it and that is said, a picture never is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from PIL import Image

import xai
from xai.analysis.faithfulness.rescoring import prompt_of
from xai.jobs import Job
from xai.limits import Limits, cut_place, first_characters
from xai.models import VisionLanguageModel
from xai.prompts import EncodedPrompt, PromptStyle, encode_prompt
from xai.schema import Meme, Mode, Word
from xai.tasks import load_task

TASK, SHORT = load_task("ukrmeme"), PromptStyle(variant="short")
CONTEXT = 2048
"""``max_position_embeddings`` of the model that ships."""


def encode(model: VisionLanguageModel, meme: Meme, mode: Mode, **options: object) -> EncodedPrompt:
    return Job(model, TASK, mode, SHORT, **options).encode(meme)


@pytest.mark.parametrize("text", ["liar " * 20_000, "x" * 30_000, "👩🏽‍🚀" * 5000, "这" * 9000])
def test_a_text_of_any_length_leaves_the_context_room_for_the_answer_and_the_picture_whole(
    model: VisionLanguageModel, new_memes: list[Meme], text: str
) -> None:
    meme = new_memes[0].model_copy(update={"text": text})
    alone = encode(model, meme, "image")
    prompt = encode(model, meme, "image+text", max_new_tokens=100)
    assert CONTEXT - 130 < len(prompt) <= CONTEXT - 100
    assert alone.grid is not None
    assert prompt.segments.count("image") == alone.segments.count("image") == math.prod(alone.grid)
    assert (prompt.inputs["pixel_values"] == alone.inputs["pixel_values"]).all()
    assert prompt.text_end is not None
    assert prompt.text_end + prompt.characters_cut == len(text)
    assert max(end for _, end in prompt.text_spans) == prompt.text_end == len(prompt.shown(meme).text)


def test_what_is_left_of_a_text_is_read_as_if_it_were_all(model: VisionLanguageModel, new_memes: list[Meme]) -> None:
    meme = new_memes[0].model_copy(update={"text": new_memes[0].text + " tram umbrella" * 30})
    limits = Limits(max_characters=len(new_memes[0].text) + 6)
    cut = xai.explain(model, meme, limits=limits)
    whole = xai.explain(model, cut.meme)
    assert cut.meme.text == f"{new_memes[0].text} tram "
    assert cut.quality.characters_cut == len(" tram umbrella" * 30) - len(" tram ")
    assert whole.quality.characters_cut is None
    assert cut.words.equals(whole.words)
    assert prompt_of(model, cut).tokens == cut.token_table.token[: len(prompt_of(model, cut))]


@pytest.mark.parametrize(
    ("text", "at", "place"),
    [
        ("one two three", 9, 8),
        ("one two three", 8, 8),
        ("one two three", 7, 7),
        ("one", 2, 2),
        ("  one", 4, 4),
        ("ab це\u0301", 5, 3),
        ("e\u0301e\u0301e\u0301", 3, 2),
        ("hi 👩🏽‍🚀 no", 5, 3),
        ("这不是", 2, 2),
    ],
)
def test_a_text_is_cut_before_a_word_that_does_not_fit_and_within_one_only_if_it_is_the_first(
    text: str, at: int, place: int
) -> None:
    assert cut_place(Meme(id="m", text=text), at) == place


def test_the_words_that_a_meme_brings_are_cut_with_it() -> None:
    words = (Word(text="no", start=0, end=2, box=(0, 0, 9, 9)), Word(text="war now", start=3, end=10))
    meme = Meme(id="m", text="no war now", words=words)
    assert cut_place(meme, 7) == 3
    assert first_characters(meme, 3).words == words[:1]
    shortened = first_characters(meme, 6)
    assert shortened == Meme(id="m", text="no war", words=(words[0], Word(text="war", start=3, end=6)))
    assert first_characters(meme, 10) is meme


def test_a_long_text_is_refused_where_it_is_not_to_be_cut(model: VisionLanguageModel) -> None:
    meme = Meme(id="m", text="liar " * 1000)
    with pytest.raises(ValueError, match="text of meme 'm' has 5,000 characters, more than 4,000; shorten it, raise"):
        encode(model, meme, "text", limits=Limits(max_characters=4000, long_text="refuse"))
    with pytest.raises(
        ValueError, match=r"tokens, .* of them of its text, and there is room for 300; shorten the text"
    ):
        encode(model, meme, "text", limits=Limits(max_tokens=300, long_text="refuse"))


def test_a_picture_that_leaves_no_room_is_refused_with_its_tokens(
    model: VisionLanguageModel, new_memes: list[Meme]
) -> None:
    n_tokens = len(encode(model, new_memes[0], "image"))
    n_image = encode(model, new_memes[0], "image").segments.count("image")
    assert len(encode(model, new_memes[0], "image", limits=Limits(max_tokens=n_tokens))) == n_tokens
    for mode in ("image", "image+text"):
        with pytest.raises(
            ValueError, match=rf"without its text, {n_image} of them of the picture, .* room for 60; sc"
        ):
            encode(model, new_memes[0], mode, limits=Limits(max_tokens=60))


def test_the_context_is_the_most_that_max_tokens_can_allow(model: VisionLanguageModel) -> None:
    assert Limits(max_tokens=99).room(None, 5) == Limits(max_tokens=99).room(1000, 5) == 99
    assert Limits(max_tokens=9999).room(1000, 5) == Limits().room(1000, 5) == 995
    assert Limits().room(None, 5) is None
    with pytest.raises(ValueError, match=r"context of 2,048 tokens has no room .* beside 2,048 new tokens; lower"):
        xai.explain(model, Meme(id="m", text="x"), mode="text", max_new_tokens=2048)


def test_a_given_answer_beyond_the_context_is_refused(model: VisionLanguageModel) -> None:
    with pytest.raises(ValueError, match=r"prompt and answer have .* tokens and the model's context 2,048"):
        xai.explain(model, Meme(id="m", text="x"), mode="text", answer='{"labels": ["Smears"]' + " x" * 2000)


def test_a_picture_is_refused_by_its_head_and_taken_where_the_limit_allows_it(
    model: VisionLanguageModel, tmp_path: Path
) -> None:
    Image.new("RGB", (100, 60), "red").save(tmp_path / "a.png")
    for picture in (tmp_path / "a.png", Image.open(tmp_path / "a.png")):
        meme = Meme(id="m", image=picture)
        with pytest.raises(ValueError, match="is 100 × 60, more than 5,999 pixels; scale it down or raise max_pixels"):
            encode(model, meme, "image", limits=Limits(max_pixels=5999))
        assert encode(model, meme, "image", limits=Limits(max_pixels=6000)).image_size == (100, 60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_pixels": 0}, "max_pixels must be 1 or more, not 0"),
        ({"max_characters": -1}, "max_characters must be 1 or more"),
        ({"max_tokens": 0}, "max_tokens must be 1 or more"),
        ({"max_pixels": 10**9}, "Pillow opens 178,956,970 at most"),
        ({"long_text": "drop"}, "long_text must be 'cut' or 'refuse', not 'drop'"),
    ],
)
def test_limits_that_are_none_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Limits(**options)


def test_limits_come_back_from_a_configuration(model: VisionLanguageModel) -> None:
    limits = Limits(5, 6, 7, "refuse")
    assert Limits.of(Job(model, TASK, "text", SHORT, limits=limits).config()) == limits
    assert Limits.of({}) == Limits()


def test_without_a_room_nothing_is_cut_by_tokens(model: VisionLanguageModel) -> None:
    meme = Meme(id="m", text="x " * 4000)
    assert len(encode_prompt(model.processor, TASK, meme, "text", SHORT)) > CONTEXT

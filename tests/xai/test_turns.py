"""Prompts with a post, and with examples as earlier turns: what a processor itself gives, and whose each token is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

import xai
from xai.analysis.faithfulness.rescoring import Perturbation, rescoring, stand_in
from xai.analysis.faithfulness.units import units_of
from xai.models import VisionLanguageModel
from xai.planted.truth import planted_memes
from xai.prompts import EncodedPrompt, PromptStyle, encode_prompt
from xai.schema import Meme, Mode
from xai.tasks import load_task
from xai.tasks.answers import write_answer

from .checkpoints import TEXT_FAMILIES, VISION_FAMILIES

Loaded = Callable[[str], VisionLanguageModel]
TASK, SHORT = load_task("ukrmeme"), PromptStyle(variant="short")
FIRST, SECOND, OWN = planted_memes(3, 3)
MEME = OWN.model_copy(update={"examples": (FIRST, SECOND)})
M3 = load_task("m3")


def chat(texts: Sequence[str], pictures: Sequence[object]) -> list[dict[str, object]]:
    """The messages of the same chat, with the examples answered by their gold labels."""
    messages: list[dict[str, object]] = []
    for meme, text, picture in zip((FIRST, SECOND, OWN), texts, pictures, strict=True):
        content = [] if picture is None else [{"type": "image", "image": picture}]
        messages.append({"role": "user", "content": [*content, {"type": "text", "text": text}]})
        if meme is not OWN:
            answer = [{"type": "text", "text": write_answer(TASK, meme.labels or ())}]
            messages.append({"role": "assistant", "content": answer})
    return messages


def said() -> list[str]:
    return [
        TASK.instruction("text", "en", "short") + FIRST.text,
        TASK.introduction("caption", "en", "short").lstrip() + SECOND.text,
        TASK.introduction("caption", "en", "short").lstrip() + OWN.text,
    ]


@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_a_prompt_with_examples_is_what_the_processor_gives(loaded: Loaded, family: str) -> None:
    processor = loaded(family).processor
    encoded = encode_prompt(processor, TASK, MEME, "image+text", SHORT)
    texts = [text.replace("this text", "this meme") for text in said()]
    expected = processor.apply_chat_template(
        chat(texts, [meme.open_image() for meme in (FIRST, SECOND, OWN)]),
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"do_pan_and_scan": False} if family == "Gemma 3" else {},
    )
    assert encoded.inputs.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(encoded.inputs[name], tensor), name


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_text_decoders_read_examples_as_turns(loaded: Loaded, family: str) -> None:
    tokenizer = loaded(family).processor.tokenizer
    encoded = encode_prompt(loaded(family).processor, TASK, MEME, "text", SHORT)
    messages = [
        {"role": one["role"], "content": one["content"][0]["text"]}  # type: ignore[index]
        for one in chat(said(), [None] * 3)
    ]
    options = {"enable_thinking": False, "date_string": "26 Jul 2024"}
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", **options)
    assert torch.equal(encoded.inputs["input_ids"], expected["input_ids"])


def text_of(prompt: EncodedPrompt, segment: str, example: int = -1) -> str:
    return "".join(
        token
        for token, name, number in zip(prompt.tokens, prompt.segments, prompt.examples, strict=True)
        if (name, number) == (segment, example)
    )


def test_every_token_knows_the_example_that_it_is_of(model: VisionLanguageModel) -> None:
    prompt = encode_prompt(model.processor, TASK, MEME, "image+text", SHORT)
    for number, example in enumerate((FIRST, SECOND)):
        read = text_of(prompt, "examples", number).replace("<|image_pad|>", "").replace(" ", "")
        assert read == (example.text + write_answer(TASK, example.labels or ())).replace(" ", "")
    assert text_of(prompt, "text").strip() == OWN.text
    assert prompt.grid is not None
    assert prompt.segments.count("image") == prompt.grid[0] * prompt.grid[1]
    assert prompt.image_size == OWN.open_image().size
    assert {number for number, name in zip(prompt.examples, prompt.segments, strict=True) if name == "template"} == {-1}


def test_the_text_of_an_example_cannot_call_a_special_token(model: VisionLanguageModel) -> None:
    sly = FIRST.model_copy(update={"text": "one<|im_end|>two"})
    plain = encode_prompt(model.processor, TASK, MEME, "text", SHORT).inputs["input_ids"]
    meme = OWN.model_copy(update={"examples": (sly, SECOND)})
    ids = encode_prompt(model.processor, TASK, meme, "text", SHORT).inputs["input_ids"]
    end = model.processor.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert (ids == end).sum() == (plain == end).sum()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"labels": None}, "has no gold labels; choose examples that have"),
        ({"labels": ("Sarcasm",)}, "'Sarcasm' is no label"),
        ({"image": None}, "has no picture"),
        ({"text": " "}, "has no text"),
    ],
)
def test_an_example_that_is_none_is_refused(
    model: VisionLanguageModel, changes: dict[str, object], reason: str
) -> None:
    meme = OWN.model_copy(update={"examples": (FIRST.model_copy(update=changes),)})
    with pytest.raises(ValueError, match=reason):
        encode_prompt(model.processor, TASK, meme, "image+text", SHORT)


def test_shares_of_examples_add_up_with_the_segments(model: VisionLanguageModel) -> None:
    explanation = xai.explain(model, MEME)
    assert len(explanation.example_shares) == 2
    assert sum(explanation.example_shares) == pytest.approx(explanation.shares["examples"])
    assert sum(explanation.shares.values()) == pytest.approx(sum(explanation.token_table.relevance))
    assert explanation.image is not None
    assert explanation.image.sum() == pytest.approx(explanation.shares["image"])


def test_a_batch_of_memes_with_and_without_examples_is_answered_as_each_alone(model: VisionLanguageModel) -> None:
    memes = [MEME, FIRST, SECOND.model_copy(update={"examples": (FIRST,)})]
    together = xai.predict(model, memes)
    assert [one.generated_ids for one in together] == [xai.predict(model, [meme])[0].generated_ids for meme in memes]


def test_cells_that_are_taken_away_are_those_of_the_meme_and_not_of_its_examples(model: VisionLanguageModel) -> None:
    explanation = xai.explain(model, MEME)
    greyed = MEME.model_copy(update={"image": stand_in(MEME.open_image(), "mean_colour")})
    inputs = encode_prompt(model.processor, TASK, greyed, "image+text", SHORT).inputs
    answered = {
        **inputs,
        "input_ids": torch.cat([inputs["input_ids"], torch.tensor([explanation.prediction.generated_ids])], 1),
    }
    logits = (
        model.model(
            **{name: answered[name] for name in ("input_ids", "pixel_values", "image_grid_thw")},
            mm_token_type_ids=(answered["input_ids"] == model.processor.image_token_id).long(),
        )
        .logits[0]
        .detach()
    )
    places = [position - 1 for position in explanation.target_positions]
    expected = float(logits[places, list(explanation.target_token_ids)].sum())
    with rescoring(model, [explanation], Perturbation(cells="mean_colour")) as rescorer:
        cells = units_of(explanation, "cells")
        (found,) = rescorer([rescorer.without(cells)]).logit
    assert found[0] == pytest.approx(expected, abs=1e-3)
    assert found[0] != pytest.approx(explanation.target_value, abs=1e-1)


@pytest.mark.parametrize("mode", ["image+text", "image+text+post"])
def test_the_post_is_a_segment_of_its_own(model: VisionLanguageModel, mode: Mode) -> None:
    meme = Meme(id="m", image=OWN.image, text="one two", post="three four five")
    answer = write_answer(M3, ["Hate", "Politics"])
    explanation = xai.explain(model, meme, task="m3", mode=mode, answer=answer)
    if mode == "image+text":
        assert "post" not in explanation.shares
        assert explanation.post_words is None
        return
    words = explanation.post_words
    assert words is not None
    assert words.word == ("three", "four", "five")
    assert sum(words.relevance) + words.gap == pytest.approx(explanation.shares["post"])
    tokens = explanation.tokens[explanation.tokens["segment"] == "post"]
    assert "".join("three four five"[start:end] for start, end in zip(tokens["start"], tokens["end"], strict=True)) == (
        "three four five"
    )
    assert explanation.word_table.word == ("one", "two")


def test_a_meme_without_a_post_cannot_be_asked_with_it(model: VisionLanguageModel) -> None:
    with pytest.raises(ValueError, match="has no post; use mode 'image\\+text' or fill its post"):
        xai.explain(model, Meme(id="m", image=OWN.image, text="one", post=" "), task="m3", mode="image+text+post")


def test_relevance_of_the_pixels_is_of_the_memes_own_picture(model: VisionLanguageModel) -> None:
    explanation = xai.explain(model, MEME, depth="pixels")
    assert explanation.pixels is not None
    assert explanation.image is not None
    height, width = explanation.image.shape
    merge = model.processor.image_processor.merge_size
    assert explanation.pixels.shape == (height * merge, width * merge)
    assert np.isfinite(explanation.pixels).all()


@pytest.mark.parametrize("family", VISION_FAMILIES)
@pytest.mark.parametrize("name", ["aha-memes", "m3", "iron-meme/identities", "iron-meme/viewpoints", "iron-meme/roles"])
def test_every_family_that_sees_is_explained_for_every_task(loaded: Loaded, family: str, name: str) -> None:
    model, task = loaded(family), load_task(name)
    first, second = task.label_names[:2]
    labels = [first] if task.contradictions([first, second]) else [first, second]
    context = {"identities": ("Women",), "viewpoints": ("Women: in-group",)}
    meme = OWN.model_copy(update={"post": "see this", "context": context})
    mode: Mode = "image+text+post" if name == "m3" else "image+text"
    explanation = xai.explain(model, meme, task=task, mode=mode, answer=write_answer(task, labels))
    assert explanation.prediction.labels == tuple(labels)
    assert sum(explanation.shares.values()) == pytest.approx(sum(explanation.token_table.relevance))
    assert np.isfinite(explanation.token_table.relevance).all()
    assert ("post" in explanation.shares) == (name == "m3")

"""Prompts: every token knows its segment, and the meme's text is known by construction, never by search."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from xai.models import VisionLanguageModel
from xai.planted.truth import planted_memes
from xai.prompts import PromptStyle, collate, encode_prompt
from xai.schema import MODES, Meme, Mode
from xai.tasks import load_task

TASK, SHORT = load_task("ukrmeme"), PromptStyle(variant="short")
MEME = planted_memes(1, 3)[0]


@pytest.mark.parametrize("mode", MODES)
def test_ids_are_those_of_the_processor_itself(model: VisionLanguageModel, mode: Mode) -> None:
    encoded = encode_prompt(model.processor, TASK, MEME, mode, SHORT)
    content = [] if mode == "text" else [{"type": "image"}]
    text = TASK.instruction(mode, "en", "short") + ("" if mode == "image" else MEME.text)
    chat = [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]
    rendered = model.processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    images = None if mode == "text" else [MEME.open_image()]
    expected = model.processor(text=[rendered], images=images, return_tensors="pt")
    for name, tensor in expected.items():
        assert torch.equal(encoded.inputs[name], tensor), name


def test_text_tokens_cover_exactly_the_text(model: VisionLanguageModel) -> None:
    encoded = encode_prompt(model.processor, TASK, MEME, "image+text", SHORT)
    spans = [span for span, segment in zip(encoded.text_spans, encoded.segments, strict=True) if segment == "text"]
    assert spans[0][0] == 0
    assert spans[-1][1] == len(MEME.text)
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    outside = [s for s, segment in zip(encoded.text_spans, encoded.segments, strict=True) if segment != "text"]
    assert set(outside) == {(-1, -1)}


def test_a_caption_equal_to_a_part_of_the_instruction_is_not_confused_with_it(model: VisionLanguageModel) -> None:
    meme = Meme(id="m", text="this text use")
    encoded = encode_prompt(model.processor, TASK, meme, "text", SHORT)
    in_text = [index for index, segment in enumerate(encoded.segments) if segment == "text"]
    in_instruction = [index for index, segment in enumerate(encoded.segments) if segment == "instruction"]
    assert min(in_text) > max(in_instruction)
    assert "".join(encoded.tokens[index] for index in in_text).strip() == meme.text


@pytest.mark.parametrize(
    "caption", ["emoji 👩🏽‍🚀 here", "й decomposed ї", "مرحبا بالعالم", "这不是\n新闻", "  spaces  ", "x"]
)
def test_captions_of_any_script_keep_every_character(model: VisionLanguageModel, caption: str) -> None:
    encoded = encode_prompt(model.processor, TASK, Meme(id="m", text=caption), "text", SHORT)
    covered = {
        position
        for (start, end), segment in zip(encoded.text_spans, encoded.segments, strict=True)
        if segment == "text"
        for position in range(start, end)
    }
    assert covered == set(range(len(caption)))


def test_image_tokens_are_as_many_as_the_grid_has_cells(model: VisionLanguageModel) -> None:
    encoded = encode_prompt(model.processor, TASK, MEME, "image", SHORT)
    assert encoded.grid is not None
    assert encoded.segments.count("image") == encoded.grid[0] * encoded.grid[1] >= 25


def test_text_that_spells_a_special_token_is_refused(model: VisionLanguageModel) -> None:
    with pytest.raises(ValueError, match="special token"):
        encode_prompt(model.processor, TASK, Meme(id="m", text="hi <|im_end|>"), "text", SHORT)


@pytest.mark.parametrize(
    ("meme", "mode", "remedy"),
    [
        (Meme(id="m", text="words"), "image", "no picture"),
        (Meme(id="m", text=" "), "text", "no text"),
        (Meme(id="m", image="missing.png", text="words"), "image+text", "does not exist"),
    ],
)
def test_what_a_mode_needs_and_the_meme_lacks_is_named(
    model: VisionLanguageModel, meme: Meme, mode: Mode, remedy: str
) -> None:
    with pytest.raises(ValueError, match=remedy):
        encode_prompt(model.processor, TASK, meme, mode, SHORT)


def test_padding_is_on_the_side_asked_for_and_changes_no_id() -> None:
    short, long = ({"input_ids": torch.arange(n)[None], "attention_mask": torch.ones(1, n).long()} for n in (2, 4))
    left = collate([short, long], pad_id=9, side="left")
    assert left["input_ids"].tolist() == [[9, 9, 0, 1], [0, 1, 2, 3]]
    assert left["attention_mask"].tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    assert collate([short, long], pad_id=9, side="right")["input_ids"].tolist()[0] == [0, 1, 9, 9]

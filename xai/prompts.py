"""Builds the chat prompt of a meme and keeps, for every token, where it came from.

The place of the meme's text is known from how the prompt is put together and is never searched for: the chat
template is rendered once around two private-use characters that stand for the instruction and the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from xai.attribution.align import whole_spans
from xai.processors import Reader, reader_of
from xai.schema import Meme, Mode, Segment
from xai.tasks import Task

INSTRUCTION_MARK, CAPTION_MARK = "\ue000", "\ue001"
Span = tuple[int, int]
Span3 = tuple[int, int, int]
NOWHERE: Span = (-1, -1)
IGNORED = -100
"""The target of a token that is not learnt from."""
TOKEN_TYPES = ("mm_token_type_ids", "token_type_ids")
"""Names under which models take what kind of token stands where."""


@dataclass(frozen=True)
class PromptStyle:
    """Which of a task's prompts is used: the language of the instruction, its variant, and NO-label or not."""

    language: str = "en"
    variant: str = "full"
    with_none: bool = True


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt as the model takes it; every per-token sequence has the length of ``input_ids``.

    ``inputs`` is a batch of one and only what the model takes: ``input_ids`` and ``attention_mask`` ``(1, seq)``; for
    a model that sees, its token types ``(1, seq)`` with 1 at image placeholders; and with a picture ``pixel_values``,
    of Qwen-VL ``(patches, channels · frames · patch²)`` with ``image_grid_thw`` ``(1, 3)``, of Gemma 3
    ``(1, channels, height, width)``. ``text_spans`` are offsets in the meme's text, (-1, -1) outside it. ``grid`` is
    the (grid_h, grid_w) of the merged image tokens.
    """

    inputs: dict[str, Tensor]
    tokens: tuple[str, ...]
    segments: tuple[Segment, ...]
    text_spans: tuple[Span, ...]
    grid: tuple[int, int] | None
    image_size: tuple[int, int] | None

    def __len__(self) -> int:
        return len(self.tokens)


def encode_prompt(processor: Any, task: Task, meme: Meme, mode: Mode, style: PromptStyle) -> EncodedPrompt:
    """Encode the prompt of one meme: picture first, then the instruction, the meme's text last.

    Args:
        processor: of a model that is supported; see :mod:`xai.processors`.

    Raises:
        ValueError: the model cannot be asked in this mode, the meme lacks the picture or the text that the mode
            needs, or the text spells a special token.
    """
    reader = reader_of(processor)
    reader.check(mode)
    caption = _caption(reader.tokenizer, meme, mode)
    picture = meme.open_image() if mode != "text" else None
    instruction = task.instruction(mode, style.language, style.variant, style.with_none)
    head, tail = _template(reader, with_picture=picture is not None)
    encoded = None if picture is None else reader.picture(picture)
    if encoded is not None:
        head = head.replace(reader.picture_mark, encoded.text)
    text = head + instruction + caption + tail
    ids, offsets = _tokenise(reader.tokenizer, text)
    starts = (len(head), len(head) + len(instruction), len(head) + len(instruction) + len(caption))
    segments = _segments(ids, offsets, starts, reader.image_token_id)
    spans = [
        (max(start, starts[1]) - starts[1], min(end, starts[2]) - starts[1]) if segment == "text" else NOWHERE
        for (start, end), segment in zip(offsets, segments, strict=True)
    ]
    return EncodedPrompt(
        inputs=_sequence_inputs(ids, reader) | ({} if encoded is None else encoded.inputs),
        tokens=tuple(text[start:end] for start, end in offsets),
        segments=tuple(segments),
        text_spans=tuple(spans),
        grid=None if encoded is None else encoded.grid,
        image_size=None if picture is None else picture.size,
    )


def encode_message(processor: Any, text: str) -> EncodedPrompt:
    """Encode a chat of one message of a user that is text alone, of no task and about no meme.

    Raises:
        ValueError: the text spells a special token, which the model would obey.
    """
    reader = reader_of(processor)
    _refuse_special(reader.tokenizer, text, "the message")
    chat = reader.chat(text, with_picture=False)
    ids, offsets = _tokenise(reader.tokenizer, chat)
    tokens = tuple(chat[start:end] for start, end in offsets)
    segments: list[Segment] = ["template"] * len(ids)
    nowhere = (NOWHERE,) * len(ids)
    return EncodedPrompt(_sequence_inputs(ids, reader), tokens, tuple(segments), nowhere, grid=None, image_size=None)


def append_ids(inputs: Mapping[str, Tensor], ids: Sequence[int]) -> dict[str, Tensor]:
    """A batch of one with these ids behind its prompt, attended to and belonging to no picture."""
    row = torch.tensor([list(ids)])
    added = {"input_ids": row, "attention_mask": torch.ones_like(row)}
    added |= dict.fromkeys(TOKEN_TYPES, torch.zeros_like(row))
    return {
        name: torch.cat([tensor, added[name]], dim=1) if name in added else tensor for name, tensor in inputs.items()
    }


def collate(encoded: Sequence[dict[str, Tensor]], pad_id: int, side: Literal["left", "right"]) -> dict[str, Tensor]:
    """Pad encoded inputs to one batch; their token ids stay as they are.

    Tensors with one value a token become ``(batch, seq)``; picture tensors are concatenated.
    """
    fills = {"input_ids": pad_id, "attention_mask": 0, "targets": IGNORED} | dict.fromkeys(TOKEN_TYPES, 0)
    length = max(inputs["input_ids"].shape[1] for inputs in encoded)
    batch: dict[str, list[Tensor]] = {}
    for inputs in encoded:
        missing = length - inputs["input_ids"].shape[1]
        padding = (missing, 0) if side == "left" else (0, missing)
        for name, values in inputs.items():
            if name in fills:
                values = torch.nn.functional.pad(values, padding, value=fills[name])
            batch.setdefault(name, []).append(values)
    return {name: torch.cat(parts) for name, parts in batch.items()}


def _caption(tokenizer: Any, meme: Meme, mode: Mode) -> str:
    if mode == "image":
        return ""
    if not meme.text.strip():
        raise ValueError(f"meme {meme.id!r} has no text; use mode 'image' or fill its text")
    _refuse_special(tokenizer, meme.text, f"the text of meme {meme.id!r}")
    return meme.text


def _refuse_special(tokenizer: Any, text: str, what: str) -> None:
    # Some tokenizers add runs of line breaks to their vocabulary, which command nothing.
    spelled = [token for token in tokenizer.get_added_vocab() if token.strip() and token in text]
    if spelled:
        raise ValueError(
            f"{what} spells the special token {spelled[0]!r}, which the model would obey; put a space inside it"
        )


def _template(reader: Reader, with_picture: bool) -> tuple[str, str]:
    """The chat template's text before the instruction and after the meme's text."""
    parts = reader.chat(INSTRUCTION_MARK + CAPTION_MARK, with_picture=with_picture).split(
        INSTRUCTION_MARK + CAPTION_MARK
    )
    if len(parts) != 2:
        raise ValueError("the model's chat template does not show a user's text exactly once; xai cannot use it")
    if with_picture and parts[0].count(reader.picture_mark) != 1:
        raise ValueError("the model's chat template does not put one picture before the text; xai cannot use it")
    return parts[0], parts[1]


def _sequence_inputs(ids: Sequence[int], reader: Reader) -> dict[str, Tensor]:
    input_ids = torch.tensor([list(ids)])
    inputs = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    if reader.token_types is not None:
        inputs[reader.token_types] = torch.tensor([[int(token == reader.image_token_id) for token in ids]])
    return inputs


def _tokenise(tokenizer: Any, text: str) -> tuple[list[int], list[Span]]:
    encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    return encoding["input_ids"], whole_spans(encoding["offset_mapping"], len(text))


def _segments(ids: Sequence[int], offsets: Sequence[Span], starts: Span3, image_token_id: int | None) -> list[Segment]:
    """A token belongs to the meme's text if it holds any character of it, so that none is lost where tokens merge."""
    instruction, caption, tail = starts
    names: list[Segment] = []
    for token, (start, end) in zip(ids, offsets, strict=True):
        if token == image_token_id:
            names.append("image")
        elif max(start, caption) < min(end, tail):
            names.append("text")
        elif max(start, instruction) < min(end, caption):
            names.append("instruction")
        else:
            names.append("template")
    return names

"""Builds the chat prompt of a meme and keeps, for every token, where it came from.

The place of the meme's text is known from how the prompt is put together and is never searched for: the chat
template is rendered once around two private-use characters that stand for the instruction and the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor

from xai.limits import DEFAULT_LIMITS, Limits, cut_place, first_characters
from xai.processors import EncodedPicture, Reader, reader_of
from xai.schema import Meme, Mode, Segment
from xai.tasks import Task
from xai.tokenise import command_tokens, tokenise

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

    ``text_end`` is where the meme's text was cut and ``characters_cut`` how much of it was left out; ``None`` and 0 if
    nothing. ``n_frames`` is the number of pictures in the picture's file, of which the first is shown.
    """

    inputs: dict[str, Tensor]
    tokens: tuple[str, ...]
    segments: tuple[Segment, ...]
    text_spans: tuple[Span, ...]
    grid: tuple[int, int] | None
    image_size: tuple[int, int] | None
    text_end: int | None = None
    characters_cut: int = 0
    n_frames: int = 1

    def shown(self, meme: Meme) -> Meme:
        """The meme as the prompt has it: with its text cut where it was cut."""
        return meme if self.text_end is None else first_characters(meme, self.text_end)

    def __len__(self) -> int:
        return len(self.tokens)


def encode_prompt(
    processor: Any,
    task: Task,
    meme: Meme,
    mode: Mode,
    style: PromptStyle,
    limits: Limits = DEFAULT_LIMITS,
    room: int | None = None,
) -> EncodedPrompt:
    """Encode the prompt of one meme: picture first, then the instruction, the meme's text last.

    A text that spells special tokens of the model is read as the characters that it has. One that is too long is cut
    or refused, as ``limits`` has it; the picture is never touched.

    Args:
        processor: of a model that is supported; see :mod:`xai.processors`.
        room: tokens that the prompt may have; see :meth:`xai.limits.Limits.room`.

    Raises:
        ValueError: the model cannot be asked in this mode, the meme lacks the picture or the text that the mode
            needs, or one of them is too large.
    """
    reader = reader_of(processor)
    reader.check(mode)
    shown = _within_characters(meme, mode, limits)
    picture = meme.read_picture(limits.max_pixels) if mode != "text" else None
    encoded = None if picture is None else _picture(reader, meme, picture.image)
    instruction = task.instruction(mode, style.language, style.variant, style.with_none)
    prompt = _encode(reader, instruction, shown.text if mode != "image" else "", encoded)
    while room is not None and len(prompt) > room:
        shown = _fewer_tokens(shown, prompt, room, limits)
        prompt = _encode(reader, instruction, shown.text, encoded)
    n_cut = len(meme.text) - len(shown.text)
    return replace(
        prompt,
        image_size=None if picture is None else picture.image.size,
        n_frames=1 if picture is None else picture.n_frames,
        text_end=len(shown.text) if n_cut else None,
        characters_cut=n_cut,
    )


def encode_message(processor: Any, text: str) -> EncodedPrompt:
    """Encode a chat of one message of a user that is text alone, of no task and about no meme.

    Raises:
        ValueError: the text spells a special token, which the model would obey.
    """
    reader = reader_of(processor)
    _refuse_special(reader.tokenizer, text)
    chat = reader.chat(text, with_picture=False)
    ids, offsets = tokenise(reader.tokenizer, chat)
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


def _within_characters(meme: Meme, mode: Mode, limits: Limits) -> Meme:
    """The meme with no more text than may be shown; ValueError if it has none where the mode needs one."""
    if mode == "image":
        return meme
    if not meme.text.strip():
        raise ValueError(f"meme {meme.id!r} has no text; use mode 'image' or fill its text")
    n, most = len(meme.text), limits.max_characters
    if n <= most:
        return meme
    if limits.long_text == "refuse":
        raise ValueError(
            f"the text of meme {meme.id!r} has {n:,} characters, more than {most:,}; shorten it, raise "
            "max_characters, or let it be cut"
        )
    return first_characters(meme, cut_place(meme, most))


def _fewer_tokens(meme: Meme, prompt: EncodedPrompt, room: int, limits: Limits) -> Meme:
    """The meme with as much of its text as leaves the prompt within its room.

    Raises:
        ValueError: there would be no text left, or it is not to be cut.
    """
    in_text = [span for span, segment in zip(prompt.text_spans, prompt.segments, strict=True) if segment == "text"]
    n_fixed, n_image = len(prompt) - len(in_text), prompt.segments.count("image")
    at = 0 if n_fixed >= room or not in_text else cut_place(meme, in_text[room - n_fixed][0])
    if not meme.text[:at].strip():
        raise ValueError(
            f"the prompt of meme {meme.id!r} has {n_fixed:,} tokens without its text, {n_image:,} of them of the "
            f"picture, and there is room for {room:,}; scale the picture down, or raise max_tokens or lower "
            "max_new_tokens if one of them sets the room"
        )
    if limits.long_text == "refuse":
        raise ValueError(
            f"the prompt of meme {meme.id!r} has {len(prompt):,} tokens, {len(in_text):,} of them of its text, and "
            f"there is room for {room:,}; shorten the text, raise max_tokens, or let it be cut"
        )
    return first_characters(meme, at)


def _picture(reader: Reader, meme: Meme, picture: Image.Image) -> EncodedPicture:
    try:
        return reader.picture(picture)
    except ValueError as error:
        raise ValueError(f"the picture of meme {meme.id!r} {error}") from None


def _encode(reader: Reader, instruction: str, caption: str, picture: EncodedPicture | None) -> EncodedPrompt:
    """A prompt of these parts."""
    head, tail = _template(reader, with_picture=picture is not None)
    if picture is not None:
        head = head.replace(reader.picture_mark, picture.text)
    text = head + instruction + caption + tail
    starts = (len(head), len(head) + len(instruction), len(head) + len(instruction) + len(caption))
    ids, offsets = tokenise(reader.tokenizer, text, plain=starts[1:])
    segments = _segments(ids, offsets, starts, reader.image_token_id)
    spans = [
        (max(start, starts[1]) - starts[1], min(end, starts[2]) - starts[1]) if segment == "text" else NOWHERE
        for (start, end), segment in zip(offsets, segments, strict=True)
    ]
    return EncodedPrompt(
        inputs=_sequence_inputs(ids, reader) | ({} if picture is None else picture.inputs),
        tokens=tuple(text[start:end] for start, end in offsets),
        segments=tuple(segments),
        text_spans=tuple(spans),
        grid=None if picture is None else picture.grid,
        image_size=None,
    )


def _refuse_special(tokenizer: Any, text: str) -> None:
    spelled = [token for token in command_tokens(tokenizer) if token in text]
    if spelled:
        raise ValueError(
            f"the message spells the special token {spelled[0]!r}, which the model would obey; put a space inside it"
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

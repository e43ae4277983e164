"""Builds the chat prompt of a meme and keeps, for every token, where it came from.

The place of the meme's text is known from how the prompt is put together and is never searched for: the chat
template is rendered once around private-use characters that stand for what the user says and the model answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor

from xai.limits import DEFAULT_LIMITS, Limits, cut_place, first_characters
from xai.processors import EncodedPicture, Reader, reader_of
from xai.schema import Meme, Mode, Segment
from xai.tasks import Task
from xai.tasks.answers import write_answer
from xai.tokenise import command_tokens, tokenise

SAID_MARK, ANSWERED_MARK = "\ue000\ue001", "\ue001\ue000"
Span = tuple[int, int]
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

    Pictures of examples come before the meme's own in the tensors of pictures; ``grid`` and ``image_size`` are of the
    latter. ``examples`` is for each token the number of the example that it belongs to, -1 for none; empty without any.
    ``text_spans`` of tokens of the segment ``post`` are offsets in the post.
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
    examples: tuple[int, ...] = ()

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
    """Encode the prompt of one meme: picture first, then the instruction, its post, the meme's text last.

    The meme's examples come before, each a turn of the chat that the model is said to have answered by the gold
    labels; the instruction is in the first turn, then. A text that spells special tokens of the model is read as the
    characters that it has. One that is too long is cut or refused, as ``limits`` has it; pictures are never touched.

    Args:
        processor: of a model that is supported; see :mod:`xai.processors`.
        room: tokens that the prompt may have; see :meth:`xai.limits.Limits.room`.

    Raises:
        ValueError: the model cannot be asked in this mode, the meme or an example lacks what the mode needs, or one of
            them is too large.
    """
    reader = reader_of(processor)
    reader.check(mode)
    shown = _within_characters(meme, mode, limits)
    picture = meme.read_picture(limits.max_pixels) if "image" in mode else None
    turns = _example_turns(reader, task, meme, mode, style, limits)
    own = None if picture is None else _picture(reader, meme, picture.image)
    prompt = _encode(reader, [*turns, _turn(task, shown, mode, style, own, is_first=not turns)])
    while room is not None and len(prompt) > room:
        shown = _fewer_tokens(shown, prompt, room, limits)
        prompt = _encode(reader, [*turns, _turn(task, shown, mode, style, own, is_first=not turns)])
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
    if "post" in mode and not (meme.post or "").strip():
        raise ValueError(f"meme {meme.id!r} has no post; use mode 'image+text' or fill its post")
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
    n_example = prompt.segments.count("examples")
    examples = f" and {n_example:,} of its examples" if n_example else ""
    at = 0 if n_fixed >= room or not in_text else cut_place(meme, in_text[room - n_fixed][0])
    if not meme.text[:at].strip():
        raise ValueError(
            f"the prompt of meme {meme.id!r} has {n_fixed:,} tokens without its text, {n_image:,} of them of the "
            f"picture{examples}, and there is room for {room:,}; scale the picture down, or raise max_tokens or lower "
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


@dataclass(frozen=True)
class _Turn:
    """One message of the user about a meme: its picture, and texts by segment; with the answer of an example."""

    picture: EncodedPicture | None
    texts: tuple[tuple[Segment, str], ...]
    answer: str | None = None


@dataclass(frozen=True)
class _Piece:
    """A stretch of the prompt that is of one segment, and of an example if its number is not -1."""

    segment: Segment
    start: int
    end: int
    example: int = -1


def _turn(
    task: Task, meme: Meme, mode: Mode, style: PromptStyle, picture: EncodedPicture | None, *, is_first: bool
) -> _Turn:
    texts = task.said(meme, mode, style.language, style.variant, style.with_none, is_first=is_first)
    return _Turn(picture, tuple(texts))


def _example_turns(
    reader: Reader, task: Task, meme: Meme, mode: Mode, style: PromptStyle, limits: Limits
) -> list[_Turn]:
    """The turn of each example; its texts may be as long as those of the meme.

    Raises:
        ValueError: an example lacks what the mode needs, or its gold labels.
    """
    turns: list[_Turn] = []
    for example in meme.examples:
        if example.labels is None:
            raise ValueError(f"example {example.id!r} has no gold labels; choose examples that have")
        shown = _within_characters(example, mode, limits)
        picture = _picture(reader, example, example.open_image(limits.max_pixels)) if "image" in mode else None
        # The instruction of the first turn is about the meme in question, whose context it may speak of.
        asked = shown.model_copy(update={"context": meme.context})
        turn = _turn(task, asked, mode, style, picture, is_first=not turns)
        turns.append(replace(turn, answer=write_answer(task, example.labels)))
    return turns


def _encode(reader: Reader, turns: Sequence[_Turn]) -> EncodedPrompt:
    """A prompt of these turns, of which the last is about the meme in question."""
    text, pieces, plain = _written(reader, turns)
    ids, offsets = tokenise(reader.tokenizer, text, plain)
    pictures = [turn.picture for turn in turns if turn.picture is not None]
    segments, spans, examples = _segments(ids, offsets, pieces, reader.image_token_id)
    return EncodedPrompt(
        inputs=_sequence_inputs(ids, reader) | _picture_inputs(pictures),
        tokens=tuple(text[start:end] for start, end in offsets),
        segments=tuple(segments),
        text_spans=tuple(spans),
        grid=pictures[-1].grid if pictures else None,
        image_size=None,
        examples=tuple(examples) if len(turns) > 1 else (),
    )


def _written(reader: Reader, turns: Sequence[_Turn]) -> tuple[str, list[_Piece], list[Span]]:
    """The chat with its texts, the pieces of it, and the stretches that no special token may come of."""
    markup = _template(reader, len(turns) - 1, with_picture=turns[-1].picture is not None)
    text, pieces, plain = "", list[_Piece](), list[Span]()
    for number, turn in enumerate(turns):
        example = number if number < len(turns) - 1 else -1
        before = next(markup)
        if turn.picture is not None:
            before = before.replace(reader.picture_mark, turn.picture.text)
            pieces.append(_Piece("image", len(text), len(text) + len(before), example))
        text += before
        start = len(text)
        for segment, part in turn.texts:
            of_example = example >= 0 and segment != "instruction"
            name: Segment = "examples" if of_example else segment
            pieces.append(_Piece(name, len(text), len(text) + len(part), example if of_example else -1))
            text += part
        plain.append((start, len(text)))
        if turn.answer is not None:
            text += next(markup)
            pieces.append(_Piece("examples", len(text), len(text) + len(turn.answer), example))
            text += turn.answer
    return text + next(markup), pieces, plain


def _picture_inputs(pictures: Sequence[EncodedPicture]) -> dict[str, Tensor]:
    return {name: torch.cat([one.inputs[name] for one in pictures]) for name in pictures[0].inputs} if pictures else {}


def _refuse_special(tokenizer: Any, text: str) -> None:
    spelled = [token for token in command_tokens(tokenizer) if token in text]
    if spelled:
        raise ValueError(
            f"the message spells the special token {spelled[0]!r}, which the model would obey; put a space inside it"
        )


def _template(reader: Reader, n_examples: int, *, with_picture: bool) -> Iterator[str]:
    """The chat template's text before, between and after what is said: by turns what the user says and the answers."""
    chat = reader.chat(SAID_MARK, with_picture=with_picture, earlier=[(SAID_MARK, ANSWERED_MARK)] * n_examples)
    marks = re.findall(f"{SAID_MARK}|{ANSWERED_MARK}", chat)
    parts = re.split(f"{SAID_MARK}|{ANSWERED_MARK}", chat)
    if marks != [SAID_MARK, ANSWERED_MARK] * n_examples + [SAID_MARK]:
        each = "a user's text exactly once" if not n_examples else "each turn of a chat exactly once, in order"
        raise ValueError(f"the model's chat template does not show {each}; xai cannot use it")
    if with_picture and any(part.count(reader.picture_mark) != 1 for part in parts[:-1:2]):
        raise ValueError("the model's chat template does not put one picture before the text; xai cannot use it")
    return iter(parts)


def _sequence_inputs(ids: Sequence[int], reader: Reader) -> dict[str, Tensor]:
    input_ids = torch.tensor([list(ids)])
    inputs = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    if reader.token_types is not None:
        inputs[reader.token_types] = torch.tensor([[int(token == reader.image_token_id) for token in ids]])
    return inputs


def _segments(
    ids: Sequence[int], offsets: Sequence[Span], pieces: Sequence[_Piece], image_token_id: int | None
) -> tuple[list[Segment], list[Span], list[int]]:
    """Segment, offsets in the text of that segment, and example of every token.

    A token belongs to the meme's text if it holds any character of it, so that none is lost where tokens merge; else
    to its post, to an example, to the instruction.
    """
    segments: list[Segment] = []
    spans: list[Span] = []
    examples: list[int] = []
    for token, (start, end) in zip(ids, offsets, strict=True):
        is_image = token == image_token_id
        held = [
            piece
            for piece in pieces
            if (piece.segment == "image") == is_image and max(start, piece.start) < min(end, piece.end)
        ]
        piece = min(held, key=lambda one: _CLOSENESS.index(one.segment), default=_MARKUP)
        segments.append("examples" if piece.example >= 0 else piece.segment)
        examples.append(piece.example)
        is_placed = piece.segment in ("text", "post")
        spans.append(
            (max(start, piece.start) - piece.start, min(end, piece.end) - piece.start) if is_placed else NOWHERE
        )
    return segments, spans, examples


_MARKUP = _Piece("template", 0, 0)
_CLOSENESS: tuple[Segment, ...] = ("text", "post", "examples", "image", "instruction")
"""Whose a token is that holds characters of several."""

"""What differs between the processors of model families: how a chat is written, and how a picture is encoded.

One class a kind of processor; nothing outside of this file asks which kind it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from jinja2 import TemplateError
from PIL import Image
from torch import Tensor
from transformers import Gemma3Processor, Qwen2_5_VLProcessor, Qwen2VLProcessor, Qwen3VLProcessor

from xai.schema import ALL_MODES, Mode

TEMPLATE_OPTIONS = {"enable_thinking": False, "date_string": "26 Jul 2024"}
"""What chat templates of text decoders ask for. Qwen3 would reason at length before it answers. Llama 3 writes the date
of today, with which a meme would have another prompt tomorrow; this one is what its template falls back on."""

LONGEST = 200
"""Qwen-VL takes no picture of which one side is more than so many times the other; its processor says so."""


Turn = tuple[str, str]
"""What a user said, and what the model answered."""


@dataclass(frozen=True)
class EncodedPicture:
    """One picture as the model takes it.

    Attributes:
        inputs: ``pixel_values`` and, where the family has it, ``image_grid_thw`` ``(1, 3)``.
        text: what stands for the picture in the prompt: one placeholder a merged image token, and what frames them.
        grid: ``(grid_h, grid_w)`` of the merged image tokens, which cover the whole picture.
    """

    inputs: dict[str, Tensor]
    text: str
    grid: tuple[int, int]


@dataclass(frozen=True)
class TextProcessor:
    """Stands where a processor would, for a model that reads text only."""

    tokenizer: Any


@dataclass(frozen=True)
class Reader(ABC):
    """How one kind of processor writes a chat and encodes a picture.

    Attributes:
        processor: a processor of transformers, or a :class:`TextProcessor`.
        modes: what the model can be shown.
        token_types: the model's input with 1 at image placeholders; ``None`` if it has no such input.
    """

    processor: Any
    modes: ClassVar[tuple[Mode, ...]] = ALL_MODES
    token_types: ClassVar[str | None] = None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers."""
        return self.processor.tokenizer

    @property
    def image_token_id(self) -> int | None:
        """The placeholder of one merged image token; ``None`` if the model reads text only."""
        return None

    @property
    def picture_mark(self) -> str:
        """What the chat template writes in the place of a picture."""
        return str(self.processor.image_token)

    def chat(self, text: str, *, with_picture: bool, earlier: Sequence[Turn] = ()) -> str:
        """The prompt with a message of a user, a picture before a text, up to where the answer begins.

        Args:
            with_picture: whether each message of the user has a picture.
            earlier: what the user said and the model answered before.

        Raises:
            ValueError: the chat template fails, or does what a template must not.
        """
        picture = [{"type": "image"}] if with_picture else []
        chat = [{"role": role, "content": [{"type": "text", "text": said}]} for role, said in _spoken(text, earlier)]
        for message in chat[::2]:
            message["content"] = [*picture, *message["content"]]
        with _template_advice():
            return str(self.processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))

    @abstractmethod
    def picture(self, picture: Image.Image) -> EncodedPicture:
        """Encode an RGB picture.

        Raises:
            ValueError: the model reads text only, or cannot take a picture of this shape. The message goes on where
                "the picture" was named.
        """

    def check(self, mode: Mode) -> None:
        """Refuse a mode that shows the model what it cannot read.

        Raises:
            ValueError: the message names the mode to use instead.
        """
        if mode not in self.modes:
            raise ValueError(f"this model reads text only and cannot be asked in mode {mode!r}; use mode 'text'")


class TextReader(Reader):
    """Text decoders: a tokenizer with a chat template, in which the content of a message is a string."""

    modes = ("text",)

    def chat(self, text: str, *, with_picture: bool, earlier: Sequence[Turn] = ()) -> str:
        chat = [{"role": role, "content": said} for role, said in _spoken(text, earlier)]
        options = {"tokenize": False, "add_generation_prompt": True, **TEMPLATE_OPTIONS}
        with _template_advice():
            return str(self.tokenizer.apply_chat_template(chat, **options))

    def picture(self, picture: Image.Image) -> EncodedPicture:
        raise ValueError("cannot be shown to a model that reads text only; leave it out")


class QwenReader(Reader):
    """Qwen-VL: the picture is scaled to whole cells, and there are as many placeholders as cells."""

    token_types = "mm_token_type_ids"

    @property
    def image_token_id(self) -> int:
        return int(self.processor.image_token_id)

    def picture(self, picture: Image.Image) -> EncodedPicture:
        short, long = sorted(picture.size)
        if long > LONGEST * short:
            width, height = picture.size
            raise ValueError(f"is {width} × {height}: one side is more than {LONGEST} times the other; crop it")
        inputs = dict(self.processor.image_processor(images=[picture], return_tensors="pt"))
        merge = self.processor.image_processor.merge_size
        _, height, width = inputs["image_grid_thw"][0].tolist()
        grid = height // merge, width // merge
        return EncodedPicture(inputs, self.picture_mark * (grid[0] * grid[1]), grid)


class Gemma3Reader(Reader):
    """Gemma 3: the picture is scaled to a square of fixed size; no crops are added to it (pan and scan)."""

    token_types = "token_type_ids"

    @property
    def image_token_id(self) -> int:
        return int(self.tokenizer.image_token_id)

    def picture(self, picture: Image.Image) -> EncodedPicture:
        encoded = self.processor.image_processor(images=[picture], return_tensors="pt", do_pan_and_scan=False)
        side = math.isqrt(self.processor.image_seq_length)
        inputs = {"pixel_values": encoded["pixel_values"]}
        return EncodedPicture(inputs, str(self.processor.full_image_sequence), (side, side))


def _spoken(text: str, earlier: Sequence[Turn]) -> list[tuple[str, str]]:
    """(role, text) of every message, the user's and the model's by turns."""
    before = [message for said, answered in earlier for message in (("user", said), ("assistant", answered))]
    return [*before, ("user", text)]


@contextmanager
def _template_advice() -> Iterator[None]:
    """Within the block, what a checkpoint's template does wrong becomes one line.

    transformers renders it in Jinja's sandbox, which lets it neither reach into objects nor change them.
    """
    try:
        yield
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"the model's chat template fails ({error}); put the template of the model's makers into its folder"
        ) from None


READERS: dict[type, type[Reader]] = {
    TextProcessor: TextReader,
    Qwen2VLProcessor: QwenReader,
    Qwen2_5_VLProcessor: QwenReader,
    Qwen3VLProcessor: QwenReader,
    Gemma3Processor: Gemma3Reader,
}


def reader_of(processor: Any) -> Reader:
    """How prompts are written for the model of ``processor``.

    Raises:
        ValueError: a processor of an unknown kind, or one that cannot write a prompt: without a chat template, or
            without the offsets of a fast tokenizer.
    """
    kind = READERS.get(type(processor))
    if kind is None:
        known = ", ".join(sorted(one.__name__ for one in READERS if one is not TextProcessor))
        raise ValueError(
            f"xai does not know how a {type(processor).__name__} writes a prompt; it knows {known}, "
            "and the tokenizers of text decoders"
        )
    tokenizer = processor.tokenizer
    if not (getattr(processor, "chat_template", None) or tokenizer.chat_template):
        raise ValueError(
            "the checkpoint has no chat template, so the model was hardly trained to follow an instruction; use an "
            "instruction-tuned one, or put its template into the folder as chat_template.jinja"
        )
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} does not say which characters a token stands for; "
            "put the tokenizer.json of a fast tokenizer into the folder"
        )
    return kind(processor)

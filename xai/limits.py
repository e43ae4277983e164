"""How large a picture, a caption and a prompt may be, and what becomes of a caption that is larger."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from PIL import Image

from xai.attribution.align import split_words
from xai.pictures import MAX_PIXELS
from xai.schema import Meme

LongText = Literal["cut", "refuse"]
"""What becomes of a caption beyond the limit: its end is left out and flagged, or the meme is refused."""


@dataclass(frozen=True)
class Limits:
    """The largest picture, caption and prompt that are taken.

    A picture that is larger, by itself or in tokens, is refused whole and never scaled or cut to fit. A caption that is
    longer is cut behind a word, and the explanation says by how much (``quality.characters_cut``); or it is refused.

    Attributes:
        max_pixels: width times height of a picture, read before it is decoded.
        max_characters: of a caption.
        max_tokens: of a prompt, the picture's tokens included; by default what the model's context
            (``max_position_embeddings``) leaves beside the longest answer, which is also the most there can be.
        long_text: ``"cut"`` or ``"refuse"``.

    Raises:
        ValueError: a limit below 1, or more pixels than Pillow opens.
    """

    max_pixels: int = MAX_PIXELS
    max_characters: int = 10_000
    max_tokens: int | None = None
    long_text: LongText = "cut"

    def __post_init__(self) -> None:
        for name in ("max_pixels", "max_characters", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        # Pillow itself refuses beyond twice its own limit, which belongs to the whole process.
        most = 2 * (Image.MAX_IMAGE_PIXELS or self.max_pixels)
        if self.max_pixels > most:
            raise ValueError(f"max_pixels is {self.max_pixels:,}, but Pillow opens {most:,} at most; give no more")
        if self.long_text not in ("cut", "refuse"):
            raise ValueError(f"long_text must be 'cut' or 'refuse', not {self.long_text!r}")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The limits in the configuration of a run or an explanation, the usual ones where it names none."""
        stored = config.get("limits", {})
        return cls(**{field.name: stored[field.name] for field in fields(cls) if field.name in stored})

    def room(self, context: int | None, n_answer: int) -> int | None:
        """Tokens that a prompt may have; ``None`` without a limit.

        Args:
            context: tokens that the model takes in all; ``None`` if its configuration does not say.
            n_answer: tokens of the longest answer, which come behind the prompt.

        Raises:
            ValueError: the answer alone fills the context.
        """
        if context is None:
            return self.max_tokens
        if context <= n_answer:
            raise ValueError(
                f"the model's context of {context:,} tokens has no room for a prompt beside {n_answer:,} new tokens; "
                "lower max_new_tokens"
            )
        return min(context - n_answer, self.max_tokens or context)


DEFAULT_LIMITS = Limits()


_AHEAD = 64
"""Characters behind a place that tell whether it lies within a word."""


def cut_place(meme: Meme, at: int) -> int:
    """Where to cut a meme's text, at ``at`` or before: before the word that would not be whole.

    A text that begins with a longer word is cut inside of it, but not between a letter and its marks.
    """
    text = meme.text
    found = split_words(text[: at + _AHEAD]) if meme.words is None else ()
    spans = [*found, *((word.start, word.end) for word in meme.words or ())]
    start = next((start for start, end in spans if start < at < end), at)
    if text[:start].strip():
        return start
    while at > 1 and unicodedata.category(text[at]).startswith("M"):
        at -= 1
    return at


def first_characters(meme: Meme, n: int) -> Meme:
    """A meme with the first ``n`` characters of its text, and the words in them; one across the end is cut, too."""
    if n >= len(meme.text):
        return meme
    words = None
    if meme.words is not None:
        kept = [word for word in meme.words if word.start < n]
        words = tuple(
            word if word.end <= n else word.model_copy(update={"text": word.text[: n - word.start], "end": n})
            for word in kept
        )
    return meme.model_copy(update={"text": meme.text[:n], "words": words})

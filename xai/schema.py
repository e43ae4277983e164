"""What a meme, a prediction, an explanation and a failure are: the records that every other module exchanges.

Conventions that hold everywhere:

- character offsets count Unicode code points, start inclusive, end exclusive;
- boxes are ``(x0, y0, x1, y1)`` in pixels of the original picture as it stands upright, origin top left;
- polygons are corners ``(x, y)`` in the same pixels, clockwise from the top left of what is written, as it is read;
- grids are ``(grid_h, grid_w)`` arrays of merged image tokens in reading order;
- relevance is signed: positive speaks for the target, negative against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from PIL import Image
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from xai.pictures import MAX_PIXELS, Picture, PictureError, read_picture

Mode = Literal["text", "image", "image+text", "image+text+post"]
Segment = Literal["text", "post", "image", "examples", "instruction", "template", "answer"]
Parse = Literal["strict", "repaired", "unparsed"]
Stage = Literal["read", "predict", "attribute", "align", "store"]
AnswerSource = Literal["generated", "given_ids", "given_text"]
Box = tuple[float, float, float, float]
Polygon = tuple[tuple[float, float], ...]

MODES: tuple[Mode, ...] = ("text", "image", "image+text")
"""What a model can be shown of the meme itself."""
ALL_MODES: tuple[Mode, ...] = (*MODES, "image+text+post")
"""The same, and together with its post."""
SEGMENTS: tuple[Segment, ...] = ("text", "post", "image", "examples", "instruction", "template", "answer")
"""The parts of prompt and answer. ``examples`` are pictures, texts and labels of the memes that are shown before the
one in question; ``image``, ``text`` and ``post`` are of that one itself."""
ALL_LABELS = "*"
"""The name of the target that differentiates every label of the answer together."""


def _as_array(value: object) -> np.ndarray:
    array = np.array(value, dtype=np.float64)
    array.setflags(write=False)
    return array


Array = Annotated[
    np.ndarray,
    BeforeValidator(_as_array),
    PlainSerializer(lambda array: array.tolist(), return_type=list),
]


def is_encodable(text: str) -> bool:
    """Whether no lone surrogate is in a text, which no tokenizer takes and no file can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class Record(BaseModel):
    """Base of all records: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Word(Record):
    """One word of a meme's text: ``text == meme.text[start:end]``, and where it stands in the picture, if known.

    ``polygon`` is where slanted or upright text stands; ``box``, its bounding box, is filled in where only the
    polygon is given. ``flags`` say why the word is not to be relied on: ``low_confidence``, ``mixed_script`` (letters
    of two scripts in one word, as look-alikes make them), ``long``. Flagged words keep their relevance and are left
    out of comparisons, which count them.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    text: str
    start: int = Field(ge=0)
    end: int
    box: Box | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)
    polygon: Polygon | None = None
    flags: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_span(self) -> Word:
        if self.end <= self.start:
            raise ValueError(f"word {self.text!r} has an empty span [{self.start}, {self.end})")
        if self.polygon is not None and len(self.polygon) < 3:
            raise ValueError(f"the polygon of word {self.text!r} has {len(self.polygon)} corners; give 3 or more")
        if self.polygon is not None and self.box is None:
            xs, ys = zip(*self.polygon, strict=True)
            object.__setattr__(self, "box", (min(xs), min(ys), max(xs), max(ys)))
        return self


class Meme(Record):
    """A picture, its text, or both, with what is known about them.

    ``labels`` are the gold labels (``None``: unknown, ``()``: known to be none). ``post`` is the text
    of the post that carried the meme. ``image`` is a path, or a PIL picture in a notebook.

    Two fields say what else a model is told. ``examples`` are memes with gold labels that it sees before this one, as
    earlier turns of the chat, the most similar last. ``context`` is what the prompts of some tasks say of the meme
    beside its texts, by name: the labels that an earlier stage gave, or a description of its template.
    """

    id: str = Field(min_length=1)
    image: Path | Image.Image | None = None
    text: str = ""
    words: tuple[Word, ...] | None = None
    labels: tuple[str, ...] | None = None
    post: str | None = None
    language: str | None = None
    metadata: Mapping[str, Any] = Field(default_factory=dict)
    examples: tuple[Meme, ...] = ()
    context: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_words(self) -> Meme:
        told = [line for lines in self.context.values() for line in lines]
        if not is_encodable("".join([self.id, self.text, self.post or "", *told])):
            raise ValueError("it holds half a character (a lone surrogate); correct the text")
        for word in self.words or ():
            if self.text[word.start : word.end] != word.text:
                raise ValueError(
                    f"word {word.text!r} is not at [{word.start}, {word.end}) of the text of meme {self.id!r}"
                )
        return self

    def open_image(self, max_pixels: int = MAX_PIXELS) -> Image.Image:
        """The picture as RGB, turned upright by its EXIF orientation; see :func:`xai.pictures.read_picture`.

        Raises:
            ValueError: the meme has no picture, or it cannot be used; the message says which.
        """
        return self.read_picture(max_pixels).image

    def read_picture(self, max_pixels: int = MAX_PIXELS) -> Picture:
        """The picture of :meth:`open_image` with how many pictures its file holds; raises as that does."""
        if self.image is None:
            raise ValueError(f"meme {self.id!r} has no picture; use mode 'text' or give it one")
        name = f"{self.image.name!r} " if isinstance(self.image, Path) else ""
        try:
            return read_picture(self.image, max_pixels=max_pixels)
        except PictureError as error:
            raise ValueError(f"picture {name}of meme {self.id!r} {error}") from None


class LabelSpan(Record):
    """Where a parsed label stands in the generated text: ``text[start:end]`` without its quotation marks."""

    label: str
    start: int
    end: int


class Prediction(Record):
    """What the model answered for one meme in one mode, and how that was read.

    ``generated_ids`` are exactly the ids that the model produced, up to and including the
    end-of-sequence token. ``unknown_labels`` are labels outside the task's inventory, verbatim.

    ``answer_source`` says where the answer comes from: ``generated`` by the model of the run, ``given_ids``
    from elsewhere by its token ids, or ``given_text``, tokenised anew, so that the tokens need not be those
    of who wrote it. ``attention`` and ``dtype`` are those that the model answered with; ``None`` if it did not.

    ``confidence`` is what the answer says of itself, 0 to 1, where the task asks for it; ``None``: not asked, not
    said, or not to be read without guessing. ``reasons`` are the phrases by which it says why, where the task asks for
    them. ``log_probability`` is the natural logarithm of the probability of
    ``generated_ids`` given the prompt, by the model's own logits (no temperature, no penalty). ``batch_size`` is how
    many memes were answered at once with it, on which the last digits of all numbers can depend. Both are ``None`` for
    an answer that the model did not generate.
    """

    meme_id: str
    mode: Mode
    generated_ids: tuple[int, ...]
    text: str
    labels: tuple[str, ...] = ()
    label_spans: tuple[LabelSpan, ...] = ()
    unknown_labels: tuple[str, ...] = ()
    referred_words: tuple[str, ...] = ()
    referred_image_concepts: tuple[str, ...] = ()
    parse: Parse = "strict"
    parse_note: str = ""
    answer_source: AnswerSource = "generated"
    attention: str | None = None
    dtype: str | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)
    reasons: tuple[str, ...] = ()
    log_probability: float | None = None
    batch_size: int | None = None


class TokenTable(Record):
    """Relevance of every token of prompt and answer; equal-length columns in sequence order.

    ``start`` and ``end`` are offsets in the meme's text for tokens of segment ``text``, in its post for ``post``, in
    the generated text for ``answer``, and -1 elsewhere. An image token carries the relevance of all its levels.
    """

    token: tuple[str, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]
    segment: tuple[Segment, ...]
    relevance: tuple[float, ...]

    def frame(self) -> pd.DataFrame:
        """One row a token."""
        return pd.DataFrame({name: list(getattr(self, name)) for name in type(self).model_fields})


class WordTable(Record):
    """Relevance of every word of the meme's text, signed, and of the gaps between words.

    ``relevance`` sums over a word's tokens, each token counted once; ``mean_abs`` is the mean of the
    absolute values over those tokens (the pooling of earlier published work). ``gap`` is what fell on
    characters between words, so that ``sum(relevance) + gap`` equals the text tokens' total.
    """

    word: tuple[str, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]
    box: tuple[Box | None, ...]
    relevance: tuple[float, ...]
    mean_abs: tuple[float, ...]
    n_tokens: tuple[int, ...]
    gap: float = 0.0

    def frame(self) -> pd.DataFrame:
        """One row a word."""
        names = [name for name in type(self).model_fields if name != "gap"]
        return pd.DataFrame({name: list(getattr(self, name)) for name in names})


class PictureWordTable(Record):
    """Relevance of every word of a meme from the cells of the picture that it covers, signed.

    ``relevance`` is what falls to the word, and ``mean_abs`` the mean absolute relevance of the area it covers, both
    ``None`` for a word whose place is not known; ``n_cells`` is that area, in cells. ``elsewhere`` is what fell on no
    word, so that ``sum(relevance) + elsewhere`` equals the picture's total; see
    :func:`xai.attribution.cells.word_image_relevance`.
    """

    word: tuple[str, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]
    box: tuple[Box | None, ...]
    relevance: tuple[float | None, ...]
    mean_abs: tuple[float | None, ...]
    n_cells: tuple[float, ...]
    elsewhere: float = 0.0

    def frame(self) -> pd.DataFrame:
        """One row a word; NaN where the place is not known."""
        names = [name for name in type(self).model_fields if name != "elsewhere"]
        frame = pd.DataFrame({name: list(getattr(self, name)) for name in names})
        return frame.astype({"relevance": float, "mean_abs": float, "n_cells": float})


class Quality(Record):
    """How far an explanation can be trusted; numbers are reported, never corrected.

    ``conservation`` is total relevance over ``target_value - baseline_value`` (1 is exact; ``None`` when that
    is 0; it says nothing of methods without a sign). ``sink_share`` is the share of absolute relevance on the
    first token of the sequence and ``template_share`` that on chat-template tokens. ``non_finite`` counts NaN
    and infinite values. ``target_choice_changed`` counts the target tokens that are not the most likely ones
    for the model as it explains, what precedes them being given; ``None``, not counted, where the same model
    chose them with the same attention and dtype. ``position_share`` is, of the relevance of the image tokens,
    what the vision tower hands on to its position embeddings and so to no pixel; ``None`` unless it was asked.
    ``characters_cut`` is how many characters at the end of the meme's text the model was not shown, since it was too
    long; the explanation's meme is without them. ``picture_frames`` is the number of pictures, frames or pages, in a
    file with several, of which the first was shown. Both are ``None`` where nothing was left out.
    """

    conservation: float | None
    sink_share: float
    template_share: float
    non_finite: int = 0
    labels_located: int = 0
    labels_missing: tuple[str, ...] = ()
    target_choice_changed: int | None = None
    position_share: float | None = None
    characters_cut: int | None = None
    picture_frames: int | None = None


class Explanation(Record):
    """The relevance of one target of one prediction, by one method.

    ``target`` is a label, ``"*"`` for all labels of the answer together, or the characters of a span. The
    quantity that was explained is ``target_kind`` of the tokens ``target_token_ids`` at ``target_positions``,
    which are rows of the token table; see :class:`xai.attribution.targets.Target`. ``contrast_ids`` are the
    tokens that they are contrasted with, and ``contrast`` the labels which those begin. ``target_value`` is
    that quantity on the input, and ``baseline_value`` what it is at the method's baseline, 0 without one.
    ``settings`` are the options that the numbers depend on, as the method used them. ``image_levels`` has
    shape ``(1 + n_deepstack, grid_h, grid_w)``: the merged image tokens first, then every deepstack level.
    ``pixels``, with ``depth="pixels"``, has shape ``(patch_rows, patch_columns)``: what the vision tower hands on
    of it, added over the pixels of each patch.
    """

    meme: Meme
    prediction: Prediction
    mode: Mode
    method: str
    target: str
    target_kind: str = "logit"
    target_positions: tuple[int, ...] = ()
    target_token_ids: tuple[int, ...] = ()
    contrast_ids: tuple[int, ...] = ()
    contrast: tuple[str, ...] = ()
    target_value: float
    baseline_value: float = 0.0
    settings: Mapping[str, Any] = Field(default_factory=dict)
    token_table: TokenTable
    word_table: WordTable
    image_levels: Array | None = None
    pixels: Array | None = None
    image_size: tuple[int, int] | None = None
    """(width, height) of the original picture in pixels."""
    shares: Mapping[Segment, float]
    """Signed relevance by segment; the values add up to the total."""
    example_shares: tuple[float, ...] = ()
    """Signed relevance of each example of the meme, in their order; they add up to the share of ``examples``."""
    quality: Quality
    config: Mapping[str, Any] = Field(default_factory=dict)

    @property
    def tokens(self) -> pd.DataFrame:
        """One row a token: token, start, end, segment, relevance."""
        return self.token_table.frame()

    @property
    def words(self) -> pd.DataFrame:
        """One row a word: word, start, end, box, relevance (signed sum), mean_abs, n_tokens."""
        return self.word_table.frame()

    @property
    def post_words(self) -> WordTable | None:
        """The words of the meme's post, as ``word_table`` has those of its text; ``None`` if the model saw no post.

        Computed from the token table.
        """
        from xai.attribution.align import text_relevance

        tokens = self.tokens[self.tokens["segment"] == "post"]
        if self.meme.post is None or not len(tokens):
            return None
        spans = list(zip(tokens["start"], tokens["end"], strict=True))
        return text_relevance(self.meme.post, spans, tokens["relevance"].to_numpy())

    @property
    def segments(self) -> pd.DataFrame:
        """One row a segment: segment, relevance (signed sum), absolute (sum of absolute values), n_tokens.

        Signed and absolute sums of the rows are those of all tokens. The row of the image is the meme's own picture's;
        those of examples are theirs.
        """
        tokens = self.tokens.assign(absolute=self.tokens["relevance"].abs())
        sums = tokens.groupby("segment", sort=False)[["relevance", "absolute"]].sum()
        sums["n_tokens"] = tokens["segment"].value_counts()
        return sums.reindex([name for name in SEGMENTS if name in sums.index]).rename_axis("segment").reset_index()

    @property
    def picture_words(self) -> PictureWordTable | None:
        """The words by the cells of the picture that they cover, also where the model was not shown the text.

        ``None`` without a picture's relevance, or where the meme brings no words. Computed from what is stored, so
        that a run which keeps the words' places and the cells' relevance keeps this, too.
        """
        from xai.attribution.cells import word_image_relevance

        if self.image is None or self.image_size is None or not self.meme.words:
            return None
        return word_image_relevance(self.meme.words, self.image, self.image_size)

    @property
    def image(self) -> np.ndarray | None:
        """Relevance of the picture, float ``(grid_h, grid_w)`` in reading order, all levels added; or ``None``."""
        return None if self.image_levels is None else self.image_levels.sum(axis=0)

    def open_image(self) -> Image.Image:
        """The meme's picture, which may be as large as it was when it was explained; raises as :class:`Meme` does."""
        return self.meme.open_image(self.config.get("limits", {}).get("max_pixels", MAX_PIXELS))

    def __repr__(self) -> str:
        """One line; the tables are in ``words`` and ``tokens``."""
        target = "all labels" if self.target == ALL_LABELS else self.target
        return (
            f"Explanation({self.meme.id!r}, {self.mode}, {self.method}, target: {target}, "
            f"labels: {', '.join(self.prediction.labels) or 'none'})"
        )

    def _repr_html_(self) -> str:
        from xai.attribution.page import explanation_html

        return explanation_html(self)


class Failure(Record):
    """One record that could not be explained: at which stage, and a reason that says what to do."""

    meme_id: str
    mode: Mode | None = None
    stage: Stage
    reason: str

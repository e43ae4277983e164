"""RapidOCR: its wheel carries the models, which read Latin letters and Chinese, at any angle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from PIL import Image

from xai.attribution.ocr.engine import (
    HAN,
    LATIN,
    Piece,
    Point,
    Polygon,
    as_confidence,
    ocr_engine,
    package_version,
    require_languages,
)
from xai.attribution.ocr.geometry import Frame, angle_of, checked

UPRIGHT_UP_TO = 1.5
"""Height over width from which on RapidOCR takes a line to be written downwards."""


@dataclass(frozen=True)
class _Line:
    """A line as RapidOCR has it; ``letters`` are (text, confidence, corners) of letters or words, without spaces.

    Where ``is_turned``, the line is upside down, and its letters are placed as if it were not.
    """

    box: Polygon
    text: str
    confidence: float
    letters: Sequence[tuple[str, float, Polygon]]
    is_turned: bool


@ocr_engine("rapidocr")
class RapidOcr:
    """Lines with the places of their words; one model for all its languages, so that they need not be said."""

    name = "rapidocr"

    @property
    def version(self) -> str:
        """Of the package, which carries its models."""
        return package_version("rapidocr")

    def languages(self) -> tuple[str, ...]:
        """Those that its models were made for, if it and its runtime are installed."""
        is_here = all(find_spec(package) is not None for package in ("rapidocr", "onnxruntime"))
        return (*LATIN, *HAN) if is_here else ()

    def read(self, picture: Image.Image, languages: Sequence[str]) -> list[Piece]:
        """Pieces are words between spaces where RapidOCR places its letters, and lines where it does not."""
        require_languages(self, languages, "pip install 'meme-xai[ocr]' has English and Chinese; take tesseract")
        try:
            lines = self._lines(picture)
        except Exception as error:  # its own errors share no base class, and one picture must not end a dataset
            reason = str(error) or type(error).__name__
            raise ValueError(f"rapidocr failed on a picture of {picture.width} x {picture.height}: {reason}") from None
        return [piece for line in lines for piece in _pieces(line)]

    def _lines(self, picture: Image.Image) -> list[_Line]:
        # In its own steps, since its result does not tell which lines were upside down.
        engine = self._engine
        blue_first = np.ascontiguousarray(np.asarray(picture.convert("RGB"))[:, :, ::-1])
        prepared, record = engine.preprocess_img(blue_first)
        found, turns, texts, crops = engine.run_ocr_steps(prepared, record)
        if texts.txts is None:
            if found.boxes is not None:
                raise ValueError(f"it found {len(found.boxes)} lines and could not read them")
            return []
        is_turned = [
            "180" in label and score > engine.cfg.Cls.cls_thresh
            for (label, score), text in zip(turns.cls_res, texts.txts, strict=True)
            if text.strip()  # others are dropped from the result
        ]
        result = engine.build_final_output(blue_first, found, turns, texts, crops, record)
        if result.txts is None:
            return []
        # Of lines none of whose letters has a place it leaves the letters out, so that the others' cannot be told.
        placed = result.word_results if len(result.word_results) == len(result.txts) else [()] * len(result.txts)
        columns = (result.boxes, result.txts, result.scores, placed, is_turned)
        return [
            _Line(
                checked(box), text, as_confidence(score), [(one, value, checked(at)) for one, value, at in letters], up
            )
            for box, text, score, letters, up in zip(*columns, strict=True)
        ]

    @cached_property
    def _engine(self) -> Any:
        from rapidocr import RapidOCR

        # Nothing is dropped for its score: what is doubtful is flagged.
        settings = {"log_level": "error", "return_word_box": True, "text_score": 0.0}
        return RapidOCR(params={f"Global.{name}": value for name, value in settings.items()})


def _pieces(line: _Line) -> list[Piece]:
    """The line's words between spaces by the places of their letters, or the line as a whole."""
    written = _as_written(line.box, line.is_turned)
    words = _grouped([len(text) for text, _, _ in line.letters], [len(word) for word in line.text.split()])
    if not words or "".join(text for text, _, _ in line.letters) != "".join(line.text.split()):
        return [Piece(line.text, written, line.confidence)]
    frame, pieces = Frame(angle_of(written)), []
    for first, end in words:
        letters = line.letters[first:end]
        text = "".join(letter for letter, _, _ in letters)
        corners = [corner for _, _, polygon in letters for corner in polygon]
        corners = [_mirrored(corner, line.box) for corner in corners] if line.is_turned else corners
        confidence = sum(value * len(letter) for letter, value, _ in letters) / len(text)
        pieces.append(Piece(text, frame.rectangle(frame.extent(corners)), as_confidence(confidence)))
    return pieces


def _grouped(letters: Sequence[int], words: Sequence[int]) -> list[tuple[int, int]]:
    """Which letters make each word, (first, end), by their numbers of characters; empty if one stands in two words."""
    behind = {0: 0} | {length: index for index, length in enumerate(accumulate(letters), start=1)}
    ends = [0, *accumulate(words)]
    if not all(end in behind for end in ends):
        return []
    return [(behind[start], behind[end]) for start, end in pairwise(ends)]


def _as_written(box: Polygon, turned: bool) -> Polygon:
    """The corners from the letters' top left on; RapidOCR gives them from the picture's top left on."""
    frame = Frame(angle_of(box))
    x0, y0, x1, y1 = frame.extent(box)
    first = (1 if y1 - y0 >= UPRIGHT_UP_TO * (x1 - x0) else 0) + (2 if turned else 0)
    return box[first % 4 :] + box[: first % 4]


def _mirrored(corner: Point, box: Polygon) -> Point:
    """A corner on the other side of the middle of the line."""
    return sum(x for x, _ in box) / 2 - corner[0], sum(y for _, y in box) / 2 - corner[1]

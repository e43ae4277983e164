"""RapidOCR: its wheel carries the models, which read Latin letters and Chinese, at any angle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
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
        try:
            version("rapidocr"), version("onnxruntime")
        except PackageNotFoundError:
            return ()
        return (*LATIN, *HAN)

    def read(self, picture: Image.Image, languages: Sequence[str]) -> list[Piece]:
        """Pieces are words between spaces where RapidOCR places its letters, and lines where it does not."""
        require_languages(self, languages, "pip install 'meme-xai[ocr]' has English and Chinese; take tesseract")
        blue_first = np.ascontiguousarray(np.asarray(picture.convert("RGB"))[:, :, ::-1])
        try:
            prepared, record = self._engine.preprocess_img(blue_first)
            found, turns, texts, crops = self._engine.run_ocr_steps(prepared, record)
        except Exception as error:  # its own errors share no base class, and one picture must not end a dataset
            reason = str(error) or type(error).__name__
            raise ValueError(f"rapidocr failed on a picture of {picture.width} x {picture.height}: {reason}") from None
        if texts.txts is None:
            return []
        # In steps, since its result does not tell which lines were upside down, and places their words as if not.
        reversed_ = [
            "180" in label and score > self._engine.cfg.Cls.cls_thresh
            for (label, score), text in zip(turns.cls_res, texts.txts, strict=True)
            if text.strip()
        ]
        result = self._engine.build_final_output(blue_first, found, turns, texts, crops, record)
        if result.txts is None:
            return []
        placed = result.word_results if len(result.word_results) == len(result.txts) else [()] * len(result.txts)
        return [
            piece
            for box, text, score, words, turned in zip(
                result.boxes, result.txts, result.scores, placed, reversed_, strict=True
            )
            for piece in _pieces(checked(box), text, score, words, turned)
        ]

    @cached_property
    def _engine(self) -> Any:
        from rapidocr import RapidOCR

        # Nothing is dropped for its score: what is doubtful is flagged.
        settings = {"log_level": "error", "return_word_box": True, "text_score": 0.0}
        return RapidOCR(params={f"Global.{name}": value for name, value in settings.items()})


def _pieces(box: Polygon, text: str, score: float, words: Sequence[Any], turned: bool) -> list[Piece]:
    line = _as_written(box, turned)
    letters = [(one[0], float(one[1]), one[2]) for one in words or () if one[2] is not None]
    chunks = text.split()
    if "".join(letter for letter, _, _ in letters) != "".join(chunks):
        return [Piece(text, line, as_confidence(score))]
    frame, pieces = Frame(angle_of(line)), []
    for chunk in chunks:
        own, length = [], 0
        while length < len(chunk):
            own.append(letters.pop(0))
            length += len(own[-1][0])
        if length > len(chunk):
            return [Piece(text, line, as_confidence(score))]
        corners = [
            _mirrored(corner, box) if turned else (float(corner[0]), float(corner[1])) for *_, b in own for corner in b
        ]
        confidence = sum(value * len(letter) for letter, value, _ in own) / length
        pieces.append(Piece(chunk, frame.rectangle(frame.extent(corners)), as_confidence(confidence)))
    return pieces


def _as_written(box: Polygon, turned: bool) -> Polygon:
    """The corners from the letters' top left on; RapidOCR gives them from the picture's top left on."""
    frame = Frame(angle_of(box))
    x0, y0, x1, y1 = frame.extent(box)
    first = (1 if y1 - y0 >= UPRIGHT_UP_TO * (x1 - x0) else 0) + (2 if turned else 0)
    return box[first % 4 :] + box[: first % 4]


def _mirrored(corner: Point, box: Polygon) -> Point:
    """A corner on the other side of the middle of the line."""
    return sum(x for x, _ in box) / 2 - corner[0], sum(y for _, y in box) / 2 - corner[1]

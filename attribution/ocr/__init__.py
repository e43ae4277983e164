"""Reads the words of a picture: engines behind one interface, and one layout for what any of them returns."""

from xai.attribution.ocr import easy, rapid, tesseract
from xai.attribution.ocr.engine import (
    Choice,
    OcrEngine,
    OcrUnavailableError,
    Piece,
    apt_line,
    choose_engine,
    engine_names,
    get_engine,
    ocr_engine,
)
from xai.attribution.ocr.flags import MIN_CONFIDENCE, flags_of
from xai.attribution.ocr.layout import Reading, read_pieces

__all__ = [
    "MIN_CONFIDENCE",
    "Choice",
    "OcrEngine",
    "OcrUnavailableError",
    "Piece",
    "Reading",
    "apt_line",
    "choose_engine",
    "engine_names",
    "flags_of",
    "get_engine",
    "ocr_engine",
    "read_pieces",
]
del easy, rapid, tesseract

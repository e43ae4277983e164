"""Engines that the tests need, and what is read where."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PIL import Image

from xai.attribution.ocr import MIN_CONFIDENCE, OcrEngine, Reading, get_engine, read_pieces

Reader = Callable[..., Reading]


def engine_for(name: str, *languages: str) -> OcrEngine:
    """An engine that has the languages, or a skipped test that says what is missing."""
    engine = get_engine(name)
    missing = set(languages) - set(engine.languages())
    if missing:
        where = "its weights are the user's own" if name == "easyocr" else "`make test` as root installs it"
        pytest.skip(f"{name} has no {', '.join(sorted(missing))}; {where}")
    return engine


@pytest.fixture(scope="session")
def read() -> Reader:
    """``read(engine name, picture, *languages)``: the reading of a picture by a real engine."""

    def reading(name: str, picture: Image.Image, *languages: str, min_confidence: float = MIN_CONFIDENCE) -> Reading:
        pieces = engine_for(name, *languages).read(picture, languages)
        return read_pieces(pieces, picture.size, min_confidence=min_confidence)

    return reading

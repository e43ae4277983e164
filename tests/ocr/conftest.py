"""Engines that the tests need, and what is read where."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PIL import Image

from xai.attribution.ocr import MIN_CONFIDENCE, OcrEngine, Reading, get_engine, read_pieces

from .pages import missing_fonts

Reader = Callable[..., Reading]


@pytest.fixture(scope="session", autouse=True)
def _fonts() -> None:
    if missing_fonts():
        pytest.skip(f"fonts are not installed: {', '.join(missing_fonts())}; `make test` as root installs them")


def engine_for(name: str, *languages: str) -> OcrEngine:
    """An engine that has the languages, or a skipped test that says what is missing."""
    engine = get_engine(name)
    missing = set(languages) - set(engine.languages())
    if missing:
        pytest.skip(f"{name} has no {', '.join(sorted(missing))}; `make test` as root installs it")
    return engine


@pytest.fixture(scope="session")
def read() -> Reader:
    """``read(engine name, picture, *languages)``: the reading of a picture by a real engine."""

    def reading(name: str, picture: Image.Image, *languages: str, min_confidence: float = MIN_CONFIDENCE) -> Reading:
        pieces = engine_for(name, *languages).read(picture, languages)
        return read_pieces(pieces, picture.size, min_confidence=min_confidence)

    return reading

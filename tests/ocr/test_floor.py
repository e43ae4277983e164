"""What the engines must read of drawn memes; every third page of those that the documentation's table is of."""

from __future__ import annotations

import pytest

from xai.attribution.ocr.tesseract import Tesseract, _greys, _lettering

from .conftest import engine_for
from .floor import measure
from .pages import memes

# Measured on all pages: see the table in docs/ocr.md.
FLOORS = [
    ("tesseract", "en", 0.95, 0.95),
    ("tesseract", "uk", 0.80, 0.80),
    ("tesseract", "ar", 0.80, 0.80),
    ("tesseract", "zh-Hans", 0.80, 0.80),
    ("rapidocr", "en", 0.95, 0.95),
    ("rapidocr", "zh-Hans", 0.95, 0.95),
    ("easyocr", "en", 0.95, 0.95),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "language", "recall", "precision"), FLOORS)
def test_white_capitals_on_a_photo_are_read(name: str, language: str, recall: float, precision: float) -> None:
    score = measure(engine_for(name, language), language, memes(language)[::3])
    assert score.drawn >= 20
    assert score.recall >= recall, score
    assert score.precision >= precision, score


def test_the_lettering_taken_out_of_the_photo_is_what_makes_tesseract_read() -> None:
    engine = engine_for("tesseract", "en")
    assert isinstance(engine, Tesseract)
    page = memes("en")[0]
    wanted = set(page.text.split())
    alone, with_photo = (
        {piece.text for line in engine._view(page.picture, view, "eng") for piece in line}
        for view in (_lettering, _greys)
    )
    assert wanted <= alone
    assert len(wanted & with_photo) < len(wanted)

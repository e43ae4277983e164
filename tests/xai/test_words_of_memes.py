"""A word knows where it stands in the picture, and why it is not to be relied on."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from xai.schema import Word


def test_a_polygon_brings_its_bounding_box() -> None:
    word = Word(text="no", start=0, end=2, polygon=((4, 1), (9, 6), (7, 8), (2, 3)), flags=("low_confidence",))
    assert word.box == (2, 1, 9, 8)
    assert Word.model_validate(word.model_dump(mode="json")) == word


def test_a_box_that_is_given_beside_the_polygon_stays() -> None:
    assert Word(text="no", start=0, end=2, box=(0, 0, 9, 8), polygon=((-1, 0), (9, 0), (9, 8))).box == (0, 0, 9, 8)


def test_a_word_without_a_place_or_a_doubt_has_neither() -> None:
    word = Word(text="no", start=0, end=2)
    assert (word.box, word.polygon, word.flags) == (None, None, ())


def test_a_polygon_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="has 2 corners; give 3 or more"):
        Word(text="no", start=0, end=2, polygon=((0, 0), (1, 1)))
    with pytest.raises(ValidationError, match="polygon"):
        Word.model_validate({"text": "no", "start": 0, "end": 2, "polygon": [1, 2, 3]})

"""One meme page a script: every word has place, characters, tokens and cells, the sums agree, the page says so."""

from __future__ import annotations

import re

import pytest

from xai.attribution.ocr import OcrUnavailableError

from .scripts import CAPTIONS, IMAGES, Script, script

PAGE = IMAGES.parent / "scripts.md"
ROW = re.compile(r"^\| \d+ \| (.+?) \| (\d+)–(\d+) \| (\d+) \| ([\d.]+) \|$", re.MULTILINE)


@pytest.fixture(scope="module", params=list(CAPTIONS))
def one(request: pytest.FixtureRequest) -> Script:
    try:
        return script(request.param)
    except OcrUnavailableError as error:
        pytest.skip(str(error))


def test_the_caption_is_read_and_every_word_has_a_place_characters_tokens_and_cells(one: Script) -> None:
    language = one.meme.language or ""
    assert one.meme.text == "\n".join(line.upper() for line in CAPTIONS[language]).replace("’", "'")
    table, picture = one.explanation.word_table, one.explanation.picture_words
    assert picture is not None
    for word, start, end, box in zip(table.word, table.start, table.end, table.box, strict=True):
        assert one.meme.text[start:end] == word
        assert box is not None
    assert min(table.n_tokens) >= 1
    assert min(picture.n_cells) > 0.1


def test_words_and_gaps_have_the_relevance_of_the_tokens_and_words_and_elsewhere_that_of_the_cells(one: Script) -> None:
    e, picture = one.explanation, one.explanation.picture_words
    assert picture is not None
    assert e.image is not None
    tokens = sum(
        r for r, segment in zip(e.token_table.relevance, e.token_table.segment, strict=True) if segment == "text"
    )
    assert abs(tokens) > 0
    assert sum(e.word_table.relevance) + e.word_table.gap == pytest.approx(tokens, abs=1e-9)
    read = sum(value for value in picture.relevance if value is not None)
    assert read + picture.elsewhere == pytest.approx(float(e.image.sum()), abs=1e-9)


def test_the_page_of_the_documentation_shows_what_is_read(one: Script) -> None:
    section = PAGE.read_text("utf-8").split(f"script-{one.meme.language}.png")[1].split("\n## ")[0]
    shown, found = ROW.findall(section), ROW.findall("\n".join(one.rows()))
    assert [row[:4] for row in shown] == [row[:4] for row in found]
    assert [float(row[4]) for row in shown] == pytest.approx([float(row[4]) for row in found], abs=0.2)


@pytest.mark.parametrize("language", CAPTIONS)
def test_the_pictures_of_the_documentation_are_small(language: str) -> None:
    assert (IMAGES / f"script-{language}.png").stat().st_size < 60_000

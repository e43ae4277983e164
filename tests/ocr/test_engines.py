"""The engines themselves, on pages that are drawn here."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from PIL import Image

from xai.attribution.ocr import (
    OcrEngine,
    OcrUnavailableError,
    Piece,
    apt_line,
    choose_engine,
    engine_names,
    get_engine,
    ocr_engine,
)
from xai.attribution.ocr import engine as registry
from xai.attribution.ocr.rapid import _grouped

from .conftest import Reader, engine_for
from .pages import font, plain

TESSERACT_AND_RAPIDOCR = pytest.mark.parametrize("name", ["tesseract", "rapidocr"])


@pytest.fixture
def two_lines() -> Image.Image:
    return plain([((60, 40), "Total revenue 12"), ((60, 110), "second line here")], width=420, height=180)


@TESSERACT_AND_RAPIDOCR
def test_total_revenue_12_is_three_words_with_boxes(name: str, read: Reader, two_lines: Image.Image) -> None:
    reading = read(name, two_lines, "en")
    assert reading.text == "Total revenue 12\nsecond line here"
    chosen = font("DejaVuSans.ttf", 32)
    for word, before in zip(reading.words[:3], ["", "Total ", "Total revenue "], strict=True):
        x0, y0, x1, y1 = chosen.getbbox(word.text)
        left = 60 + chosen.getlength(before)
        assert word.box == pytest.approx(
            (left + x0, 40 + y0, left + x1, 40 + y1), abs=14
        )  # RapidOCR leaves room around a line
        assert word.confidence is not None
        assert word.confidence > 0.5
        assert word.flags == ()


@TESSERACT_AND_RAPIDOCR
@pytest.mark.parametrize("degrees", [15, 90, 180])
def test_turned_text_is_read_in_its_order_with_its_polygon(
    name: str, degrees: int, read: Reader, two_lines: Image.Image
) -> None:
    turned = two_lines.rotate(-degrees, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    reading = read(name, turned, "en")
    assert reading.text == "Total revenue 12\nsecond line here"
    polygon = reading.words[1].polygon
    assert polygon is not None
    (x0, y0), (x1, y1) = polygon[:2]
    assert math.degrees(math.atan2(y1 - y0, x1 - x0)) % 360 == pytest.approx(degrees, abs=3)
    # Where the middle of "revenue" was, turned about the middle of the picture.
    chosen = font("DejaVuSans.ttf", 32)
    box = chosen.getbbox("revenue")
    right = 60 + chosen.getlength("Total ") + (box[0] + box[2]) / 2 - two_lines.width / 2
    down = 40 + (box[1] + box[3]) / 2 - two_lines.height / 2
    angle = math.radians(degrees)
    expected = (
        turned.width / 2 + right * math.cos(angle) - down * math.sin(angle),
        turned.height / 2 + right * math.sin(angle) + down * math.cos(angle),
    )
    middle = [sum(values) / 4 for values in zip(*polygon, strict=True)]
    assert middle == pytest.approx(expected, abs=8)


def test_a_column_of_chinese_is_read_downwards(read: Reader) -> None:
    signs = "今天终于打开窗户"
    lines = [((60.0, 20.0 + 40 * place), sign) for place, sign in enumerate(signs)]
    reading = read("rapidocr", plain(lines, font_name="NotoSansCJK-Bold.ttc", width=160, height=380), "zh-Hans")
    assert reading.text == signs
    for place, word in enumerate(reading.words):
        assert word.box is not None
        assert word.box[1] < 20 + 40 * place + 28 < word.box[3]


@TESSERACT_AND_RAPIDOCR
def test_an_empty_picture_has_no_words(name: str, read: Reader) -> None:
    reading = read(name, Image.new("RGB", (200, 100), "white"), "en")
    assert (reading.text, reading.words) == ("", ())


def test_a_picture_that_an_engine_chokes_on_is_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match="rapidocr failed on a picture of 3000 x 4"):
        engine_for("rapidocr", "en").read(Image.new("RGB", (3000, 4), "white"), ["en"])
    assert engine_for("tesseract", "en").read(Image.new("RGB", (1, 1), "white"), ["en"]) == []


def test_a_latin_word_among_ukrainian_ones_keeps_its_letters_where_both_languages_are_named(read: Reader) -> None:
    picture = plain([((40, 60), "Київ Total привіт")], width=420, height=140)
    words = read("tesseract", picture, "uk", "en").words
    assert [word.text for word in words] == ["Київ", "Total", "привіт"]
    assert not any("mixed_script" in word.flags for word in words)


def test_all_engines_are_engines_and_say_what_they_have() -> None:
    assert engine_names()[:3] == ("easyocr", "rapidocr", "tesseract")
    for name in engine_names():
        engine = get_engine(name)
        assert isinstance(engine, OcrEngine)
        assert engine.name == name
        assert isinstance(engine.languages(), tuple)
        assert engine.version


@pytest.mark.parametrize("name", ["tesseract", "rapidocr", "easyocr"])
def test_a_language_that_is_not_there_is_refused_with_a_remedy(name: str) -> None:
    picture = Image.new("RGB", (20, 20))
    with pytest.raises(OcrUnavailableError, match=r"apt-get install tesseract-ocr|pip install"):
        get_engine(name).read(picture, ["xx"])
    engine_for("tesseract", "en")
    with pytest.raises(ValueError, match="which languages"):
        get_engine("tesseract").read(picture, [])
    with pytest.raises(ValueError, match="which languages"):
        choose_engine([])


@pytest.mark.parametrize(
    ("letters", "words", "groups"),
    [
        ([1, 1, 1], [2, 1], [(0, 2), (2, 3)]),
        ([5, 2], [5, 2], [(0, 1), (1, 2)]),
        ([3, 1], [2, 2], []),  # a letter of three characters stands in two words
        ([1], [1, 1], []),
    ],
)
def test_letters_are_gathered_on_words_by_their_characters(
    letters: list[int], words: list[int], groups: list[tuple[int, int]]
) -> None:
    assert _grouped(letters, words) == groups


def test_easyocr_without_its_weights_is_not_chosen_and_never_downloads(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EASYOCR_MODULE_PATH", str(tmp_path))
    assert get_engine("easyocr").languages() == ()
    with pytest.raises(OcrUnavailableError, match="weights"):
        get_engine("easyocr").read(Image.new("RGB", (20, 20)), ["uk"])


@pytest.mark.parametrize(
    ("languages", "picked"),
    [(["en"], "rapidocr"), (["zh-Hans", "en"], "rapidocr"), (["uk"], "tesseract"), (["uk", "en"], "tesseract")],
)
def test_auto_picks_by_script_and_says_why(languages: list[str], picked: str) -> None:
    engine_for(picked, *languages)
    choice = choose_engine(languages)
    assert choice.engine.name == picked
    assert picked in choice.reason
    assert all(one in choice.reason for one in languages)


def test_auto_says_what_to_install_where_no_engine_reads_a_language() -> None:
    with pytest.raises(OcrUnavailableError, match="no OCR engine here reads xx; apt-get install tesseract-ocr"):
        choose_engine(["xx"])
    assert apt_line(["uk", "en", "zh-Hans"]) == (
        "apt-get install tesseract-ocr tesseract-ocr-ukr tesseract-ocr-chi-sim"
    )


@pytest.fixture
def _registered() -> Iterator[None]:
    before = dict(registry._ENGINES)
    yield
    registry._ENGINES.clear()
    registry._ENGINES.update(before)
    registry._READY.pop("stub", None)


@pytest.mark.usefixtures("_registered")
def test_an_engine_is_added_by_a_decorator_and_a_name_is_taken_once() -> None:
    @ocr_engine("stub")
    class Stub:
        name = "stub"
        version = "1"

        def languages(self) -> tuple[str, ...]:
            return ("xx",)

        def read(self, picture: Image.Image, languages: object) -> list[Piece]:
            return []

    assert choose_engine(["xx"]).engine is get_engine("stub")
    with pytest.raises(ValueError, match="registered already"):
        ocr_engine("stub")(Stub)
    with pytest.raises(ValueError, match="unknown OCR engine 'nothing'; there are"):
        get_engine("nothing")

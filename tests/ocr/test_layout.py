"""Whatever an engine returns becomes words of our own splitter, in reading order, with the place of each."""

from __future__ import annotations

import json
import math
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xai.attribution.align import split_words
from xai.attribution.ocr import Piece, flags_of, read_pieces
from xai.attribution.ocr.geometry import Frame

SIZE = (800, 600)
HEIGHT, LETTER = 20.0, 12.0


def piece(text: str, x: float, y: float = 100.0, *, height: float = HEIGHT, confidence: float = 0.9) -> Piece:
    """A piece with letters of equal width."""
    width = LETTER * len(text)
    return Piece(text, ((x, y), (x + width, y), (x + width, y + height), (x, y + height)), confidence)


def in_a_row(*visual: str) -> list[Piece]:
    """Pieces from left to right with a space between two."""
    starts = [50 + LETTER * len(" ".join(["", *visual[:place]])) for place in range(len(visual))]
    return [piece(text, start) for text, start in zip(visual, starts, strict=True)]


def texts(pieces: list[Piece]) -> list[str]:
    return [word.text for word in read_pieces(pieces, SIZE).words]


def letters(text: str) -> list[Piece]:
    return [piece(character, 50 + LETTER * place) for place, character in enumerate(text) if character != " "]


def words(text: str) -> list[Piece]:
    return [piece(text[start:end], 50 + LETTER * start) for start, end in split_words(text)]


@pytest.mark.parametrize("unit", [lambda text: [piece(text, 50)], words, letters], ids=["line", "word", "letter"])
def test_a_line_its_words_or_its_letters_make_the_same_three_words(unit) -> None:  # type: ignore[no-untyped-def]
    reading = read_pieces(unit("Total revenue 12"), SIZE)
    assert reading.text == "Total revenue 12"
    assert [word.text for word in reading.words] == ["Total", "revenue", "12"]
    for word, (start, end) in zip(reading.words, [(0, 5), (6, 13), (14, 16)], strict=True):
        assert (word.start, word.end) == (start, end)
        assert word.box is not None
        # Within a letter: in a line, the shares are those of letters of usual widths.
        assert np.allclose(word.box, (50 + LETTER * start, 100, 50 + LETTER * end, 120), atol=LETTER)
        assert word.confidence == pytest.approx(0.9)


def test_punctuation_stays_in_the_text_and_out_of_the_box() -> None:
    reading = read_pieces([piece("“window”,", 50)], SIZE)
    assert reading.text == "“window”,"
    (word,) = reading.words
    assert word.text == "window"
    assert word.box is not None
    assert 50 < word.box[0] < word.box[2] < 50 + LETTER * 9


def test_lines_are_joined_by_line_breaks_and_offsets_are_those_of_the_text() -> None:
    reading = read_pieces([piece("bottom", 50, 400), piece("line", 150, 402), piece("top", 50, 50)], SIZE)
    assert reading.text == "top\nbottom line"
    assert [reading.text[word.start : word.end] for word in reading.words] == ["top", "bottom", "line"]


def test_a_slowly_falling_line_is_one_line_and_its_neighbour_another() -> None:
    falling = [piece("word", 20 + 60 * n, 100 + 5 * n) for n in range(10)]
    below = [piece("next", 20 + 60 * n, 130 + 5 * n) for n in range(10)]
    assert read_pieces([*below, *falling], SIZE).text == "\n".join([" ".join(["word"] * 10), " ".join(["next"] * 10)])


def test_columns_are_not_interleaved_and_what_spans_them_parts_them() -> None:
    page = [piece("headline over both of the columns here", 50, 20)]
    page += [piece(f"left {n}", 50, 60 + 30 * n) for n in range(3)]
    page += [piece(f"right {n}", 400, 60 + 30 * n) for n in range(3)]
    page += [piece("footer under both of the columns here", 50, 200)]
    lines = ["headline over both of the columns here", *(f"left {n}" for n in range(3))]
    lines += [*(f"right {n}" for n in range(3)), "footer under both of the columns here"]
    assert read_pieces(page[::-1], SIZE).text == "\n".join(lines)


def test_a_full_stop_and_a_small_letter_do_not_open_a_line() -> None:
    stop = piece(".", 50 + 4 * LETTER, 116, height=3)
    assert read_pieces([piece("stop", 50), stop], SIZE).text.startswith("stop")
    assert "\n" not in read_pieces([piece("stop", 50), stop], SIZE).text


def test_a_line_from_right_to_left_is_logical_with_numbers_and_latin_from_left_to_right() -> None:
    pieces = in_a_row("البيت", "iPhone", "15", "اشتريت")
    assert read_pieces(pieces, SIZE).text == "اشتريت iPhone 15 البيت"
    assert texts(pieces) == ["اشتريت", "iPhone", "15", "البيت"]


def test_the_first_word_of_an_arabic_line_lies_at_its_right_end() -> None:
    first, last = read_pieces([piece("اشتريت البيت", 50)], SIZE).words
    assert (first.text, last.text) == ("اشتريت", "البيت")
    assert first.box is not None
    assert last.box is not None
    assert first.box[0] > last.box[2]


def test_arabic_inside_a_latin_line_keeps_both_orders() -> None:
    pieces = in_a_row("he", "said", "البيت", "اشتريت", "twice")
    assert read_pieces(pieces, SIZE).text == "he said اشتريت البيت twice"


def test_arabic_columns_are_read_from_the_right() -> None:
    page = [
        piece(text, x, y) for text, x, y in [("ثالث", 50, 60), ("رابع", 50, 90), ("أول", 500, 60), ("ثان", 500, 90)]
    ]
    assert read_pieces(page, SIZE).text == "أول\nثان\nثالث\nرابع"


def test_chinese_signs_have_nothing_between_them_and_latin_has() -> None:
    pieces = [piece("今天", 50), piece("买了", 110), piece("iPhone", 170), piece("手机", 260)]
    assert read_pieces(pieces, SIZE).text == "今天买了 iPhone 手机"


def test_a_column_of_signs_is_divided_downwards() -> None:
    column = Piece("今天打开", ((100, 50), (130, 50), (130, 210), (100, 210)), 0.9)
    boxes = [word.box for word in read_pieces([column], SIZE).words]
    assert boxes[0] == pytest.approx((100, 50, 130, 90))
    assert boxes[-1] == pytest.approx((100, 170, 130, 210))


@pytest.mark.parametrize("degrees", [0, 15, 90, 180, -90, -15])
def test_turned_text_has_turned_polygons_in_its_own_reading_order(degrees: int) -> None:
    frame = Frame(math.radians(degrees))
    x, y = frame.into((400, 300))
    lines = [
        Piece(text, frame.rectangle((x, y + down, x + 120, y + down + 20)), 0.9)
        for text, down in (("under it", 30), ("Total revenue", 0))
    ]
    reading = read_pieces(lines, SIZE)
    assert reading.text == "Total revenue\nunder it"
    first = reading.words[0]
    assert first.polygon is not None
    assert first.polygon[0] == pytest.approx((400, 300))
    (x0, y0), (x1, y1) = first.polygon[:2]
    assert math.degrees(math.atan2(y1 - y0, x1 - x0)) == pytest.approx(degrees)
    xs, ys = zip(*first.polygon, strict=True)
    assert first.box == (min(xs), min(ys), max(xs), max(ys))


def test_letters_of_slanted_text_are_joined_to_slanted_words() -> None:
    frame = Frame(math.radians(15))
    x, y = frame.into((100, 100))
    pieces = [
        Piece(one, frame.rectangle((x + LETTER * place, y, x + LETTER * (place + 1), y + HEIGHT)), 0.9)
        for place, one in enumerate("to be")
        if one != " "
    ]
    to, be = read_pieces(pieces, SIZE).words
    assert (to.text, be.text) == ("to", "be")
    assert to.polygon is not None
    assert to.polygon[1] == pytest.approx(frame.back((x + 2 * LETTER, y)))


def test_empty_pieces_are_dropped_whatever_their_confidence() -> None:
    pieces = [piece(" ", 50, confidence=1.0), piece("\u200e\n", 90, confidence=1.0), piece("word", 150, confidence=0.1)]
    assert read_pieces(pieces, SIZE).text == "word"


def test_corners_at_the_edge_are_clipped_to_plain_numbers_that_json_holds() -> None:
    corners = np.array([[-7.5, -3], [60, 2], [58, 30], [-9, 25]], dtype=np.float32)
    (word,) = read_pieces([Piece("edge", corners, np.float32(0.5))], (50, 20)).words  # type: ignore[arg-type]
    assert word.box == (0.0, 0.0, 50.0, 20.0)
    assert {type(value) for corner in word.polygon or () for value in corner} == {float}
    assert type(word.confidence) is float
    json.dumps(word.model_dump(), allow_nan=False)


def test_decomposed_letters_are_composed_once() -> None:
    reading = read_pieces([piece("І\u0308жак и\u0306ого", 50)], SIZE)
    assert reading.text == "Їжак його"
    assert [word.text for word in reading.words] == ["Їжак", "його"]


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(ValueError, match="four corners"):
        read_pieces([Piece("word", ((0, 0), (math.nan, 0), (1, 1), (0, 1)), 0.9)], SIZE)
    with pytest.raises(ValueError, match="between 0 and 1"):
        read_pieces([piece("word", 50, confidence=96)], SIZE)


def test_doubtful_words_are_flagged_and_stay() -> None:
    mixed = "\u0410pple"  # a Cyrillic capital in a Latin word
    pieces = [piece("clear", 20), piece("faint", 100, confidence=0.3), piece(mixed, 180), piece("a" * 30, 300)]
    reading = read_pieces(pieces, SIZE)
    assert reading.text.split() == ["clear", "faint", mixed, "a" * 30]
    assert [word.flags for word in reading.words] == [(), ("low_confidence",), ("mixed_script",), ("long",)]
    assert [word.flags for word in read_pieces(pieces, SIZE, min_confidence=0.2).words][1] == ()


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("Київ", ()),
        ("Kиїв", ("mixed_script",)),
        ("мiй", ("mixed_script",)),
        ("iPhone15", ()),
        ("αβγ", ()),
        ("今天", ()),
        ("а" * 29, ()),
        ("а" * 30, ("long",)),
    ],
)
def test_flags_by_letters(text: str, flags: tuple[str, ...]) -> None:
    assert flags_of(text, 0.9) == flags
    assert flags_of(text, None) == flags


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.sampled_from("abЖїابع今天 12.-’\u0301😀"), min_size=1, max_size=6),
            st.floats(0, 700),
            st.floats(0, 560),
        ),
        max_size=8,
    )
)
def test_no_letter_is_lost_and_words_never_overlap(drawn: list[tuple[str, float, float]]) -> None:
    reading = read_pieces([piece(text, x, y) for text, x, y in drawn], SIZE)
    expected = sorted("".join(unicodedata.normalize("NFC", text) for text, _, _ in drawn).replace(" ", ""))
    assert sorted(reading.text.replace(" ", "").replace("\n", "")) == expected
    assert [(word.start, word.end) for word in reading.words] == split_words(reading.text)
    assert all(one.end <= other.start for one, other in pairwise(reading.words))
    for word in reading.words:
        assert word.box is not None
        assert 0 <= word.box[0] <= word.box[2] <= 800

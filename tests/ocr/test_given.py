"""Words of a text that is known get the places of the words that were read, and what is left over is listed."""

from __future__ import annotations

from xai.attribution.align import words_of
from xai.attribution.ocr.given import place_words
from xai.schema import Word


def read_words(*texts: str, confidence: float = 0.9) -> list[Word]:
    """Words below each other, ten pixels apart."""
    words, start = [], 0
    for place, text in enumerate(texts):
        box = (0.0, 10.0 * place, 30.0, 10.0 * place + 8)
        corners = ((box[0], box[1]), (box[2], box[1]), (box[2], box[3]), (box[0], box[3]))
        words.append(
            Word(text=text, start=start, end=start + len(text), box=box, polygon=corners, confidence=confidence)
        )
        start += len(text) + 1
    return words


def rows(text: str, *read: str) -> list[int | None]:
    """For each word of the text, which read word's box it got."""
    placed = place_words(words_of(text, None), read_words(*read))
    return [None if word.box is None else round(word.box[1] / 10) for word in placed.words]


def test_words_are_the_same_in_any_case_apostrophe_and_composition() -> None:
    assert rows("Моя п’ять її", "МОЯ", "П'ЯТЬ", "І\u0308І\u0308") == [0, 1, 2]


def test_misread_words_are_found_by_likeness_and_order() -> None:
    assert rows("the neighbour starts to drill", "THE", "NEIGHB0UR", "STARTS", "T0", "DRlLL") == [0, 1, 2, None, 4]


def test_a_repeated_word_keeps_its_turn() -> None:
    assert rows("no no yes no", "no", "no", "yes", "no") == [0, 1, 2, 3]
    assert rows("no yes no", "yes", "no") == [None, 0, 1]


def test_lines_in_another_order_are_paired_by_equal_words() -> None:
    assert rows("top line here bottom words", "bottom", "words", "top", "line", "here") == [2, 3, 4, 0, 1]


def test_what_is_on_one_side_only_is_listed_in_order() -> None:
    placed = place_words(words_of("my quiet chair", None), read_words("my", "watermark", "chair", "com"))
    assert placed.matched == 2
    assert placed.only_given == ("quiet",)
    assert placed.only_read == ("watermark", "com")
    assert [word.text for word in placed.words] == ["my", "quiet", "chair"]


def test_a_word_that_has_a_box_keeps_it_and_gets_confidence_and_flags() -> None:
    given = [Word(text="chair", start=0, end=5, box=(1, 2, 3, 4))]
    (word,) = place_words(given, read_words("CHAIR", confidence=0.2)).words
    assert word.box == (1, 2, 3, 4)
    assert word.confidence == 0.2
    assert word.flags == ("low_confidence",)


def test_nothing_on_one_side_matches_nothing() -> None:
    assert place_words([], read_words("a")).only_read == ("a",)
    assert place_words(words_of("a b", None), []).only_given == ("a", "b")
    assert place_words([], []).words == ()


def test_emoji_alone_are_not_the_same_as_nothing() -> None:
    assert rows("😀 ok", "ok", "😀") == [1, 0]

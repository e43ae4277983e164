"""Words, tokens and cells are related without losing or doubling any relevance."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xai.attribution.align import (
    box_weights,
    cells_touched,
    normal_form,
    split_words,
    text_relevance,
    token_shares,
    top_words,
    whole_spans,
    word_relevance,
    words_of,
)
from xai.schema import Word, WordTable

PIECES = [
    *(
        "loomer",
        "Ain’t",
        "rock-n-roll",
        "ні",
        "об’єднання",
        "й",
        "и\u0306",
        "ї",
        "لا",
        "كتابٌ",
        "مي\u200cخواهم",
        "不",
        "仇恨",
    ),
    *(
        "カ",
        "です",
        "한국어",
        "👨‍👩‍👧",
        "👍🏽",
        "🇺🇦",
        "❤️",
        "1️⃣",
        "\u200d",
        "\u0301",
        "$",
        "!",
        "—",
        " ",
        "\n",
        "  ",
        "12",
        "_",
    ),
]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=20)


@st.composite
def segmented(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]], list[float]]:
    """A text, token spans that cover it with some spans repeated as byte-level BPE does, and relevances."""
    text = draw(texts)
    cuts = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=10))})
    spans = [span for span in pairwise(cuts) for _ in range(draw(st.integers(1, 4)))]
    values = draw(st.lists(st.floats(-1e3, 1e3), min_size=len(spans), max_size=len(spans)))
    return text, spans, values


def words_in(text: str) -> list[str]:
    return [text[start:end] for start, end in split_words(text)]


@settings(max_examples=300, deadline=None)
@given(segmented())
def test_words_and_gap_add_up_to_the_tokens(case: tuple[str, list[tuple[int, int]], list[float]]) -> None:
    text, spans, values = case
    table = word_relevance(words_of(text, None), spans, np.array(values))
    assert sum(table.relevance) + table.gap == pytest.approx(sum(values), abs=1e-9)


@settings(max_examples=300, deadline=None)
@given(texts)
def test_every_letter_and_digit_lies_in_exactly_one_word(text: str) -> None:
    spans = split_words(text)
    covered = [i for start, end in spans for i in range(start, end)]
    assert covered == sorted(set(covered))
    letters = {i for i, character in enumerate(text) if unicodedata.category(character)[0] in "LN" and character != "ʼ"}
    assert letters <= set(covered)
    assert not any(text[i].isspace() for i in covered)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ain’t it 'quoted' rock-n-roll?", ["Ain’t", "it", "quoted", "rock-n-roll"]),
        ("обʼєднання м'яч — ні!", ["обʼєднання", "м'яч", "ні"]),
        ("и\u0306ога ї", ["и\u0306ога", "ї"]),
        ("لا أحد", ["لا", "أحد"]),
        ("这不是。Hello32", ["这", "不", "是", "Hello32"]),
        ("ok👍🏽👨‍👩‍👧🇺🇦🇵🇱❤️", ["ok", "👍🏽", "👨‍👩‍👧", "🇺🇦", "🇵🇱", "❤️"]),
        ("スーパーABC 人々", ["スー", "パー", "ABC", "人", "々"]),
        ("这不是仇恨言论。Hello32", [*"这不是仇恨言论", "Hello32"]),
        ("™ !? $", []),
        ("", []),
    ],
)
def test_words_follow_the_script(text: str, words: list[str]) -> None:
    assert words_in(text) == words


def test_words_that_came_with_the_meme_are_used_as_they_are() -> None:
    given_words = (Word(text="a b", start=0, end=3, box=(0, 0, 1, 1)),)
    assert words_of("a b", given_words) == given_words
    assert words_of("a b", ()) == ()


def table_of(text: str, tokens: list[tuple[int, int]], relevance: list[float]) -> WordTable:
    return word_relevance(words_of(text, None), tokens, np.array(relevance))


def test_four_byte_tokens_of_one_emoji_are_counted_once_each() -> None:
    table = table_of("a 😀", [(0, 1), (1, 3), (2, 3), (2, 3), (2, 3)], [1.0, 0.5, -0.25, 0.125, 2.0])
    assert table.relevance == (1.0, 2.375)
    assert table.n_tokens == (1, 4)
    assert table.mean_abs == (1.0, 2.875 / 4)
    assert table.gap == 0


def test_a_token_over_two_words_is_split_by_characters() -> None:
    table = table_of("我们abc", [(0, 5)], [5.0])
    assert table.word == ("我", "们", "abc")
    assert table.relevance == (1.0, 1.0, 3.0)


def test_spaces_and_brackets_of_a_token_take_nothing_from_its_word() -> None:
    table = table_of("so (what", [(0, 2), (2, 8)], [1.0, 4.0])
    assert table.relevance == (1.0, 4.0)


def test_tokens_between_words_and_empty_spans_fall_to_the_gap() -> None:
    table = table_of("a , b", [(0, 1), (1, 3), (3, 5), (0, 0)], [1.0, -2.0, 4.0, 8.0])
    assert table.relevance == (1.0, 4.0)
    assert table.gap == 6.0


def test_a_word_without_tokens_has_no_relevance() -> None:
    table = table_of("a b", [(0, 1)], [1.0])
    assert table.relevance == (1.0, 0.0)
    assert table.mean_abs == (1.0, 0.0)
    assert table.n_tokens == (1, 0)


def test_a_text_without_words_or_tokens_gives_an_empty_table() -> None:
    assert table_of("", [], []).word == ()
    assert table_of("?!", [(0, 2)], [3.0]).gap == 3.0


def test_spans_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 token spans"):
        table_of("a b", [(0, 1), (1, 3)], [1.0])
    with pytest.raises(ValueError, match="ends before it starts"):
        table_of("a b", [(2, 1)], [1.0])


def test_words_that_overlap_are_refused_and_their_order_does_not_matter() -> None:
    a, b, c = Word(text="a", start=0, end=1), Word(text="b", start=2, end=3), Word(text="a b", start=0, end=3)
    spans, values = [(0, 2), (2, 3)], np.array([1.0, 4.0])
    assert word_relevance([b, a], spans, values).relevance == (4.0, 1.0)
    with pytest.raises(ValueError, match=r"\[0, 3\] and \[2, 3\] overlap"):
        word_relevance([c, b], spans, values)


@settings(max_examples=300, deadline=None)
@given(segmented())
def test_a_text_is_split_as_its_words_would_be(case: tuple[str, list[tuple[int, int]], list[float]]) -> None:
    text, spans, values = case
    assert text_relevance(text, spans, np.array(values)) == word_relevance(
        words_of(text, None), spans, np.array(values)
    )


@settings(max_examples=300, deadline=None)
@given(segmented())
def test_shares_are_those_that_counting_characters_gives(
    case: tuple[str, list[tuple[int, int]], list[float]],
) -> None:
    text, spans, _ = case
    words = words_of(text, None)
    counted = {}
    for token, span in enumerate(spans):
        common = {i: len(set(range(*span)) & set(range(w.start, w.end))) for i, w in enumerate(words)}
        counted |= {(token, i): n / sum(common.values()) for i, n in common.items() if n}
    token, word, share = token_shares(words, np.array(spans, dtype=np.int64).reshape(-1, 2))
    assert dict(zip(zip(token.tolist(), word.tolist(), strict=True), share.tolist(), strict=True)) == counted


@st.composite
def any_spans(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]], list[float]]:
    """A text and spans in any order that overlap, are empty or leave parts of it out, with relevances."""
    text = draw(texts)
    place = st.integers(0, len(text))
    spans = [(min(a, b), max(a, b)) for a, b in draw(st.lists(st.tuples(place, place), max_size=12))]
    values = draw(st.lists(st.floats(-1e6, 1e6), min_size=len(spans), max_size=len(spans)))
    return text, spans, values


@settings(max_examples=300, deadline=None)
@given(any_spans())
def test_no_spans_lose_or_double_relevance(case: tuple[str, list[tuple[int, int]], list[float]]) -> None:
    text, spans, values = case
    table = text_relevance(text, spans, np.array(values))
    total, size = sum(values), sum(map(abs, values))
    assert sum(table.relevance) + table.gap == pytest.approx(total, abs=1e-9 * (1 + size))
    assert sum(map(abs, table.relevance)) <= size * (1 + 1e-9)
    touching = [any(max(start, s) < min(end, e) for s, e in split_words(text)) for start, end in spans]
    silent = [value for value, touches in zip(values, touching, strict=True) if not touches]
    assert table.gap == pytest.approx(sum(silent), abs=1e-9 * (1 + size))


@settings(max_examples=300, deadline=None)
@given(any_spans())
def test_whole_spans_leave_no_character_out_and_take_none_that_another_token_has(
    case: tuple[str, list[tuple[int, int]], list[float]],
) -> None:
    text, spans, _ = case
    found = whole_spans(spans, len(text))
    filled = [(before, after) for before, after in zip(spans, found, strict=True) if before[1] > before[0]]
    owned = {place for span in spans for place in range(*span)}
    assert [after for before, after in zip(spans, found, strict=True) if before[1] == before[0]] == [
        span for span in spans if span[1] == span[0]
    ]
    if filled:
        assert {place for span in found for place in range(*span)} == set(range(len(text)))
    for before, after in filled:
        assert set(range(*before)) <= set(range(*after))
        assert not (set(range(*after)) - set(range(*before))) & owned


def test_top_words_keep_the_sign() -> None:
    table = table_of("bad good fine", [(0, 3), (3, 8), (8, 13)], [-5.0, 1.0, 2.0])
    assert top_words(table, 2) == ("fine", "good")
    assert top_words(table, 2, pooling="mean_abs") == ("bad", "fine")


def test_an_all_negative_table_is_still_ranked() -> None:
    table = table_of("bad worse", [(0, 3), (3, 9)], [-1.0, -2.0])
    assert top_words(table, 5) == ("bad", "worse")


def test_a_repeated_word_counts_once_with_its_best_occurrence() -> None:
    table = table_of("No yes NO", [(0, 2), (2, 6), (6, 9)], [1.0, 2.0, 3.0])
    assert top_words(table, 3) == ("NO", "yes")
    assert top_words(table, 3, keep=lambda word: word != "yes") == ("NO",)


def test_unusable_rankings_are_refused() -> None:
    table = table_of("a", [(0, 1)], [1.0])
    with pytest.raises(ValueError, match="k must be"):
        top_words(table, -1)
    with pytest.raises(ValueError, match="pooling must be"):
        top_words(table, 1, pooling="max")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "form"),
    [
        ("«Об\u02bcЄднання\u00ad!»", "об'єднання"),
        ("И\u0306", "й"),
        ("STRASSE", "strasse"),
        ("straße", "strasse"),
        ("❤️", "❤"),
        ("كِتَابٌ", "كتاب"),
        ("كتـــاب", "كتاب"),
        ("أحد", "احد"),
        ("ا\u0654حد", "احد"),
        ("الآن", "الان"),
        ("ﻻ", "لا"),
        ("\u200fلا\u202c", "لا"),
        ("مدرسة", "مدرسة"),
        ("على", "على"),
        ("...", ""),
        ("", ""),
    ],
)
def test_spellings_of_a_word_share_a_normal_form(word: str, form: str) -> None:
    assert normal_form(word) == form


@settings(max_examples=300, deadline=None)
@given(texts)
def test_a_normal_form_is_its_own_and_that_of_the_decomposed_word(word: str) -> None:
    form = normal_form(word)
    assert normal_form(form) == form
    assert normal_form(unicodedata.normalize("NFD", word)) == form


def test_a_box_in_the_corner_of_a_wide_picture_gets_the_corner_cells() -> None:
    touched = cells_touched((1800, 1010, 1920, 1080), (1920, 1080), (4, 8))
    assert np.argwhere(touched).tolist() == [[3, 7]]


def test_box_weights_are_shares_of_each_cell() -> None:
    weights = box_weights((5, 10, 20, 25), (40, 30), (3, 4))
    np.testing.assert_allclose(weights, [[0, 0, 0, 0], [0.5, 1, 0, 0], [0.25, 0.5, 0, 0]])


@pytest.mark.parametrize("grid", [(3, 7), (17, 30), (49, 11)])
def test_a_box_along_cell_edges_does_not_leak(grid: tuple[int, int]) -> None:
    width, height = 1920, 1080
    row, column = grid[0] // 2, grid[1] // 2
    box = (
        column * width / grid[1],
        row * height / grid[0],
        (column + 1) * width / grid[1],
        (row + 1) * height / grid[0],
    )
    weights = box_weights(box, (width, height), grid)
    assert weights[row, column] == pytest.approx(1)
    assert weights.sum() == pytest.approx(1)


def test_what_lies_outside_the_picture_is_cut_off() -> None:
    np.testing.assert_allclose(box_weights((-10, -10, 400, 400), (40, 30), (2, 2)), np.ones((2, 2)))
    assert not cells_touched((50, 0, 60, 30), (40, 30), (2, 2)).any()


def test_a_box_turned_round_is_refused() -> None:
    with pytest.raises(ValueError, match="turned round"):
        box_weights((10, 0, 5, 5), (40, 30), (2, 2))

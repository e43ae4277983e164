"""Labels are found by characters in the ids that ran, in every script, and none is lost."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from xai.attribution.targets import Target, all_labels, label_targets, token_offsets
from xai.schema import LabelSpan

LABELS = [
    "Glittering generalities (Virtue)",
    "Misrepresentation of Someone's Position (Straw Man)",
    "Presenting Irrelevant Data (Red Herring)",
    "Appeal to (Strong) Emotions",
    "Obfuscation, Intentional vagueness, Confusion",
    "Thought-terminating cliché",
    "Name calling/Labeling",
    "Навішування ярликів",
    "Перебільшення (їжак і ґава)",
    "нагородження",
    "转移注意力",
    "تخويف",
    "🔥 Flag-waving 🇺🇦",
    "👩‍👩‍👧",
    "так",
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Byte-level BPE that merges ``)"`` into one token and has several tokens for most emoji."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    corpus = ['{"labels": ["Glittering (Virtue)", "(Man)"]}', "Навішування ярликів і ґави", "cliché", '(Virtue)"', ')"']
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus * 5, trainer)
    bpe.add_tokens([AddedToken("<think>", special=False), AddedToken("a b", special=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", additional_special_tokens=["<|im_start|>"]
    )


def answer(*labels: str) -> tuple[str, list[LabelSpan]]:
    text = '{"labels": ["' + '", "'.join(labels) + '"]}'
    spans, start = [], 0
    for label in labels:
        start = text.index(f'"{label}"', start) + 1
        spans.append(LabelSpan(label=label, start=start, end=start + len(label)))
        start += len(label)
    return text, spans


def test_the_tokenizer_has_the_awkward_merges_and_splits(tokenizer: Any) -> None:
    assert ')"' in tokenizer.convert_ids_to_tokens(tokenizer.encode('(Virtue)"'))
    assert len(tokenizer.encode("🔥")) > 1


@pytest.mark.parametrize("text", [*LABELS, 'x 🔥🔥 "(Virtue)"] й ї\n', "<think>a b</think> été"])
def test_offsets_equal_those_of_the_tokenizer_itself(tokenizer: Any, text: str) -> None:
    encoded = tokenizer(text, return_offsets_mapping=True)
    found_text, offsets = token_offsets(tokenizer, encoded["input_ids"])
    assert found_text == text
    assert offsets == [tuple(span) for span in encoded["offset_mapping"]]


def test_every_label_is_located(tokenizer: Any) -> None:
    text, spans = answer(*LABELS)
    encoded = tokenizer(text, return_offsets_mapping=True)
    targets = label_targets(tokenizer, encoded["input_ids"], text, spans, prompt_length=10)
    assert [target.name for target in targets] == LABELS
    assert all(target.located for target in targets)
    for target, span in zip(targets, spans, strict=True):
        expected = [
            index
            for index, (start, end) in enumerate(encoded["offset_mapping"])
            if any(start <= place < end for place in range(span.start, span.end))
        ]
        assert list(target.positions) == [10 + index for index in expected]
        assert list(target.token_ids) == [encoded["input_ids"][index] for index in expected]
        assert span.label in tokenizer.decode(list(target.token_ids), clean_up_tokenization_spaces=False)


def test_ids_are_used_as_they_ran_and_not_as_the_text_would_be_encoded(tokenizer: Any) -> None:
    letters = tokenizer.convert_tokens_to_ids(list("Man"))
    assert letters != tokenizer.encode("Man")
    (target,) = label_targets(tokenizer, letters, "Man", [LabelSpan(label="Man", start=0, end=3)], prompt_length=2)
    assert target == Target("Man", (2, 3, 4), tuple(letters))


def test_special_tokens_are_kept_out_of_the_text_and_never_belong_to_a_label(tokenizer: Any) -> None:
    start, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    ids = [start, *tokenizer.encode("так"), end]
    text, offsets = token_offsets(tokenizer, ids)
    assert text == tokenizer.decode(ids, skip_special_tokens=True) == "так"
    assert offsets[0] == (0, 0)
    assert offsets[-1] == (3, 3)
    (target,) = label_targets(tokenizer, ids, text, [LabelSpan(label="так", start=0, end=3)], prompt_length=0)
    assert target.token_ids == tuple(ids[1:-1])


def test_a_row_of_the_embedding_without_a_token_is_passed_over(tokenizer: Any) -> None:
    ids = [*tokenizer.encode("a"), len(tokenizer) + 5, *tokenizer.encode("c")]
    assert token_offsets(tokenizer, ids) == ("ac", [(0, 1), (1, 1), (1, 2)])


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_incomplete_utf8_becomes_what_the_tokenizers_decoder_writes(tokenizer: Any, cut: int) -> None:
    ids = [*tokenizer.encode("🔥")[:cut], *tokenizer.encode("x")]
    text, offsets = token_offsets(tokenizer, ids)
    assert text == tokenizer.decode(ids)
    assert offsets[-1] == (len(text) - 1, len(text))
    assert all(end > start for start, end in offsets)


def test_a_label_without_tokens_is_returned_as_not_located(tokenizer: Any) -> None:
    text, spans = answer("так")
    ids = tokenizer.encode(text)
    beyond = LabelSpan(label="ні", start=len(text), end=len(text) + 2)
    found, missing = label_targets(tokenizer, ids, text, [*spans, beyond], prompt_length=0)
    assert found.located
    assert missing == Target("ні", (), ())
    assert not missing.located


def test_a_label_written_twice_has_the_tokens_of_both_places(tokenizer: Any) -> None:
    text, spans = answer("Man", "так", "Man")
    ids = tokenizer.encode(text)
    both = label_targets(tokenizer, ids, text, spans, prompt_length=0)
    first, last = (label_targets(tokenizer, ids, text, [span], prompt_length=0)[0] for span in (spans[0], spans[2]))
    assert [target.name for target in both] == ["Man", "так"]
    assert both[0].positions == (*first.positions, *last.positions)


def test_text_that_is_not_that_of_the_ids_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="do not strip"):
        label_targets(tokenizer, tokenizer.encode(" так"), "так", [], prompt_length=0)


def test_a_tokenizer_that_is_not_byte_level_is_refused() -> None:
    class Pieces:
        all_special_ids: tuple[int, ...] = ()
        added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012

        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return ["▁так"]

    with pytest.raises(ValueError, match="not byte-level BPE"):
        token_offsets(Pieces(), [3])  # type: ignore[arg-type]


def test_all_labels_counts_shared_tokens_once() -> None:
    merged = all_labels([Target("b", (7, 9), (1, 2)), Target("a", (5, 7), (3, 1)), Target("c", (), ())])
    assert merged == Target("*", (5, 7, 9), (3, 1, 2))


def test_all_labels_refuses_what_cannot_be_added() -> None:
    with pytest.raises(ValueError, match="different tokens at position 7"):
        all_labels([Target("b", (7,), (1,)), Target("a", (7,), (3,))])
    with pytest.raises(ValueError, match="different kinds"):
        all_labels([Target("b", (7,), (1,)), Target("a", (8,), (3,), kind="log-probability")])


def test_a_target_needs_one_token_a_position() -> None:
    with pytest.raises(ValueError, match="2 positions and 1 token ids"):
        Target("a", (1, 2), (3,))

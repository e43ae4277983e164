"""Labels are found by characters in the ids that ran, in every script, and none is lost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from xai.attribution.targets import (
    Target,
    all_labels,
    contrastive_target,
    encode_answer,
    label_targets,
    resolve,
    span_target,
    target_score,
    token_offsets,
    token_target,
)
from xai.schema import LabelSpan

from .small_tokenizers import gemma_tokenizer, llama2_tokenizer

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


@pytest.fixture(scope="module")
def falling_back() -> dict[str, Any]:
    """Tokenizers that write spaces as ``▁`` and fall back on bytes, those of Gemma and of Llama 2."""
    corpus = [answer(*LABELS)[0], "the text of a meme", "Навішування ярликів"] * 3
    return {"Gemma": gemma_tokenizer(corpus), "Llama 2": llama2_tokenizer(corpus)}


@pytest.mark.parametrize("kind", ["Gemma", "Llama 2"])
@pytest.mark.parametrize("text", [*LABELS, 'x 🔥🔥 "(Virtue)"] й ї\n', "  two  spaces ", "été\n\n<0x41>"])
def test_text_of_pieces_and_bytes_is_what_the_tokenizers_decoder_writes(
    falling_back: dict[str, Any], kind: str, text: str
) -> None:
    tokenizer = falling_back[kind]
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    found_text, offsets = token_offsets(tokenizer, encoded["input_ids"])
    assert found_text == tokenizer.decode(encoded["input_ids"], skip_special_tokens=True)
    if kind == "Gemma":
        assert found_text == text
        assert offsets == [tuple(span) for span in encoded["offset_mapping"]]


@pytest.mark.parametrize("kind", ["Gemma", "Llama 2"])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_bytes_that_are_no_utf8_are_each_replaced_as_the_tokenizers_decoder_does(
    falling_back: dict[str, Any], kind: str, cut: int
) -> None:
    tokenizer = falling_back[kind]
    fire = tokenizer.convert_tokens_to_ids([f"<0x{byte:02X}>" for byte in "🔥".encode()])
    ids = [*fire, *fire[:cut], *tokenizer.encode("x", add_special_tokens=False)]
    text, offsets = token_offsets(tokenizer, ids)
    assert text == tokenizer.decode(ids)
    assert [text[start:end] for start, end in offsets[: 4 + cut]] == ["\N{REPLACEMENT CHARACTER}"] * (4 + cut)


@pytest.mark.parametrize("kind", ["Gemma", "Llama 2"])
def test_every_label_is_located_among_pieces_and_bytes(falling_back: dict[str, Any], kind: str) -> None:
    tokenizer = falling_back[kind]
    text, spans = answer(*LABELS)
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    targets = label_targets(tokenizer, ids, text, spans, prompt_length=0)
    assert [target.name for target in targets] == LABELS
    assert all(target.located for target in targets)
    assert all(span.label in tokenizer.decode(list(t.token_ids)) for t, span in zip(targets, spans, strict=True))


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
        all_labels([Target("b", (7,), (1,)), Target("a", (8,), (3,), kind="log_probability")])


def test_a_target_needs_one_token_a_position() -> None:
    with pytest.raises(ValueError, match="2 positions and 1 token ids"):
        Target("a", (1, 2), (3,))


def test_kinds_that_do_not_exist_and_contrasts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="there are logit, log_probability, contrastive"):
        Target("a", (1,), (3,), kind="probability")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs 1 contrast ids and labels, got 0 and 0"):
        Target("a", (1,), (3,), kind="contrastive")
    with pytest.raises(ValueError, match="needs 0 contrast ids"):
        Target("a", (1,), (3,), contrast_ids=(2,), contrast=("b",))
    with pytest.raises(ValueError, match="contrastive targets have no sum"):
        all_labels([Target("a", (1,), (3,), "contrastive", (2,), ("b",))])


@pytest.mark.parametrize("kind", ["logit", "log_probability"])
def test_all_labels_keep_the_kind_of_each(tokenizer: Any, kind: Any) -> None:
    text, spans = answer("Man", "так")
    targets = label_targets(tokenizer, tokenizer.encode(text), text, spans, prompt_length=3, kind=kind)
    assert {target.kind for target in [*targets, all_labels(targets)]} == {kind}


def test_scores_are_those_of_the_definition() -> None:
    logits = torch.tensor([[1.0, 2.0, 4.0], [0.5, 0.0, -1.0]])
    positions = [5, 8]
    assert float(target_score(Target("a", (5, 8), (2, 0)), logits, positions)) == 4.5
    expected = torch.log_softmax(logits[0], 0)[2] + torch.log_softmax(logits[1], 0)[0]
    found = target_score(Target("a", (5, 8), (2, 0), "log_probability"), logits, positions)
    assert float(found) == pytest.approx(float(expected))
    several = Target("a", (5, 5, 8), (2, 2, 0), "contrastive", (0, 1, 2), ("b", "c", "d"))
    assert float(target_score(several, logits, positions)) == 1.5  # leads of 3, 2 and 1.5
    assert resolve(several, logits, positions) == Target("a", (8,), (0,), "contrastive", (2,), ("d",))
    batch = torch.stack([logits, -logits])
    assert target_score(several, batch, positions).tolist() == [1.5, -3.0]


def test_half_precision_logits_are_scored_in_single_precision() -> None:
    logits = torch.tensor([[1024.0, 1.0]], dtype=torch.bfloat16)
    found = target_score(Target("a", (1, 1), (0, 1)), logits, [1])
    assert (found.dtype, float(found)) == (torch.float32, 1025.0)


def test_a_span_of_the_answer_is_what_covers_its_characters(tokenizer: Any) -> None:
    text = '{"labels": ["Man"], "words": ["🔥", "ґави"]}'
    ids = tokenizer.encode(text)
    for wanted in ("Man", "🔥", "ґави", 'words": ['):
        start = text.index(wanted)
        target = span_target(tokenizer, ids, start, start + len(wanted), prompt_length=7, kind="log_probability")
        offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        expected = [i for i, (low, high) in enumerate(offsets) if low < start + len(wanted) and high > start]
        assert target.positions == tuple(7 + index for index in expected)
        assert target.token_ids == tuple(ids[index] for index in expected)
        assert (target.name, target.kind) == (wanted, "log_probability")
    assert span_target(tokenizer, ids, 0, 1, prompt_length=0, name="brace").name == "brace"


@pytest.mark.parametrize(("start", "end"), [(2, 2), (3, 2), (-1, 2), (0, 4)])
def test_a_span_outside_the_answer_is_refused(tokenizer: Any, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="an answer of 3 characters"):
        span_target(tokenizer, tokenizer.encode("Man"), start, end, prompt_length=0)


def test_one_generated_token_is_a_target_in_an_answer_of_one_token_too(tokenizer: Any) -> None:
    (end,) = tokenizer.convert_tokens_to_ids(["<|im_end|>"])
    assert token_target(tokenizer, [end], 0, prompt_length=4) == Target("<|im_end|>", (4,), (end,))
    ids = [*tokenizer.convert_tokens_to_ids(["a", "b"]), end]
    assert token_target(tokenizer, ids, 0, prompt_length=4).name == "a"
    with pytest.raises(ValueError, match="no token 3 in an answer of 3 tokens"):
        token_target(tokenizer, ids, 3, prompt_length=4)


def contrast(tokenizer: Any, label: str, others: list[str], prompt_length: int = 10) -> tuple[Target, list[int]]:
    text, spans = answer("так", label)
    ids = encode_answer(tokenizer, text)
    return contrastive_target(tokenizer, ids, text, spans[1], others, prompt_length=prompt_length), ids


PAIRS = [
    ("Glittering generalities (Virtue)", "Misrepresentation of Someone's Position (Straw Man)"),
    ("(Man)", "Doubt"),
    ("Man", "Mango"),
    ("Навішування ярликів", "Навішування"),
    ("🔥", "🔥🔥"),
    ("🔥", "🔦"),
]


@pytest.mark.parametrize(("label", "other"), [*PAIRS, *((b, a) for a, b in PAIRS)])
def test_labels_part_at_the_first_token_in_which_the_two_answers_differ(tokenizer: Any, label: str, other: str) -> None:
    found, ids = contrast(tokenizer, label, [other])
    other_ids = tokenizer.encode(answer("так", other)[0])
    parting = next(index for index, pair in enumerate(zip(ids, other_ids, strict=False)) if pair[0] != pair[1])
    assert found == Target(label, (10 + parting,), (ids[parting],), "contrastive", (other_ids[parting],), (other,))


@pytest.mark.parametrize(("label", "other"), PAIRS)
def test_a_pair_and_its_reverse_share_all_that_precedes_and_swap_their_tokens(
    tokenizer: Any, label: str, other: str
) -> None:
    (forth, ids), (back, other_ids) = contrast(tokenizer, label, [other]), contrast(tokenizer, other, [label])
    place = forth.positions[0] - 10
    assert ids[:place] == other_ids[:place]
    assert back.positions == forth.positions
    assert (back.token_ids, back.contrast_ids) == (forth.contrast_ids, forth.token_ids)


def test_several_others_may_part_at_different_tokens(tokenizer: Any) -> None:
    others = ["Навішування", "Doubt"]
    found, _ = contrast(tokenizer, "Навішування ярликів", others)
    singles = [contrast(tokenizer, "Навішування ярликів", [other])[0] for other in others]
    assert found.positions == tuple(single.positions[0] for single in singles)
    assert found.positions[0] > found.positions[1]
    assert found.contrast == tuple(others)


def test_ids_that_the_tokenizer_would_not_write_are_kept_up_to_the_label(tokenizer: Any) -> None:
    letters = tokenizer.convert_tokens_to_ids(list("Man"))
    text, spans = answer("Man")
    start = spans[0].start
    ids = [*tokenizer.encode(text[:start]), *letters, *tokenizer.encode(text[start + 3 :])]
    assert ids != tokenizer.encode(text)
    found = contrastive_target(tokenizer, ids, text, spans[0], ["Doubt"], prompt_length=0)
    first = len(tokenizer.encode(text[:start]))
    assert found.positions == (first,)
    assert found.token_ids == (letters[0],)
    assert found.contrast_ids == (tokenizer.encode('Doubt"]}')[0],)


def test_a_label_is_not_contrasted_with_itself_or_with_nothing(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="their tokens do not differ"):
        contrast(tokenizer, "Man", ["Man"])
    with pytest.raises(ValueError, match="needs another label"):
        contrast(tokenizer, "Man", [])

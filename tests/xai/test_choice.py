"""What is explained can be chosen: a label, a lead, a span, an answer that was not given; and it is stored as such."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import xai
from xai.attribution.methods import methods
from xai.attribution.perturb import Variant, score_variants
from xai.attribution.relevance import target_values
from xai.choice import TargetChoice, target_of
from xai.jobs import Job, inputs_of_answer, word_groups
from xai.models import VisionLanguageModel
from xai.pipeline import explain_answer, predict
from xai.prompts import NOWHERE, EncodedPrompt, Span
from xai.schema import MODES, Explanation, Mode, Word
from xai.tasks import load_task

QUICK: dict[str, dict[str, Any]] = {
    "smooth_gradients": {"n_samples": 2},
    "integrated_gradients": {"n_steps": 8},
    "shapley": {"n_samples": 1},
}


def inputs_of(model: VisionLanguageModel, e: Explanation) -> dict[str, torch.Tensor]:
    """What the model read when ``e`` was made."""
    prompt = Job(model, load_task("ukrmeme"), e.mode, model.style).encode(e.meme)
    return inputs_of_answer(prompt, e.prediction.generated_ids)


def logits_of(model: VisionLanguageModel, e: Explanation) -> torch.Tensor:
    """Logits that predict each position, ``(seq, vocab)``; the first row is nothing."""
    with torch.no_grad():
        return model.model(**inputs_of(model, e)).logits[0].roll(1, dims=0)


@pytest.fixture(scope="module")
def meme(model: VisionLanguageModel, new_memes: list[xai.Meme]) -> xai.Meme:
    """A meme whose answer names two labels or more."""
    return next(m for m, p in zip(new_memes, predict(model, new_memes[:20]), strict=False) if len(p.labels) >= 2)


@pytest.fixture(scope="module")
def labels(model: VisionLanguageModel, meme: xai.Meme) -> tuple[str, ...]:
    return predict(model, [meme])[0].labels


def answer_with(labels: Sequence[str]) -> str:
    fields = {"labels": list(labels), "referred_words": [], "referred_image_concepts": []}
    return json.dumps(fields, ensure_ascii=False)


@pytest.mark.parametrize("name", [method.name for method in methods()])
@pytest.mark.parametrize("mode", MODES)
def test_every_method_fills_words_and_picture(
    model: VisionLanguageModel, meme: xai.Meme, name: str, mode: Mode
) -> None:
    e = xai.explain(model, meme, mode=mode, method=name, **QUICK.get(name, {}))
    assert e.method == name
    if mode != "image":
        assert (e.words["relevance"] != 0).all()
    if mode == "text":
        assert e.image is None
    else:
        assert e.image is not None
        assert e.image.any()
    assert e.tokens["relevance"].sum() == pytest.approx(sum(e.shares.values()))
    if name in ("cplrp", "shapley"):
        assert e.quality.conservation == pytest.approx(1, abs=1e-3)


def test_relevance_of_the_pixels_is_kept_beside_that_of_the_cells(model: VisionLanguageModel, meme: xai.Meme) -> None:
    cells = xai.explain(model, meme)
    e = xai.explain(model, meme, depth="pixels", vision_rule="gamma")
    assert cells.pixels is None
    assert e.pixels is not None
    assert e.image is not None
    assert e.pixels.shape == tuple(2 * size for size in e.image.shape)
    np.testing.assert_allclose(e.image, cells.image, rtol=1e-4, atol=1e-4)
    assert e.quality.position_share is not None
    assert e.settings["vision_rule"] == "gamma"
    mode = xai.explain(model, meme, mode="text", depth="pixels")
    assert mode.pixels is None


def test_words_are_what_is_replaced(model: VisionLanguageModel, meme: xai.Meme) -> None:
    e = xai.explain(model, meme, method="occlusion")
    tokens, inputs = e.tokens, inputs_of(model, e)
    for word in e.words.itertuples():
        touching = (tokens["segment"] == "text") & (tokens["start"] < word.end) & (tokens["end"] > word.start)
        variant = Variant(frozenset(np.flatnonzero(touching).tolist()))
        (without,) = score_variants(model.model, inputs, [variant], [target_of(e)])[0]
        assert word.relevance == pytest.approx(e.target_value - without, abs=1e-3)
    assert e.settings["units"] == "words"
    assert e.word_table.gap == 0
    gained = e.target_value - e.baseline_value
    assert e.baseline_value != 0
    assert e.quality.conservation == pytest.approx(e.tokens["relevance"].sum() / gained)


def test_groups_that_are_given_are_not_replaced_by_words(model: VisionLanguageModel, meme: xai.Meme) -> None:
    e = xai.explain(model, meme, mode="text", method="occlusion", groups=[[1, 2]])
    assert np.flatnonzero(e.tokens["relevance"]).tolist() == [1, 2]
    assert "units" not in e.settings


def prompt_of(spans: Sequence[Span], before: int = 2) -> EncodedPrompt:
    """A prompt with text tokens at ``spans`` behind ``before`` tokens of the template."""
    return EncodedPrompt(
        inputs={},
        tokens=("x",) * (before + len(spans)),
        segments=("template",) * before + ("text",) * len(spans),
        text_spans=(NOWHERE,) * before + tuple(spans),
        grid=None,
        image_size=None,
    )


@pytest.mark.parametrize(
    ("text", "words", "spans", "groups"),
    [
        ("ab cd", [(0, 2), (3, 5)], [(0, 1), (1, 2), (2, 5)], [[2, 3], [4]]),
        ("ab, cd", [(0, 2), (4, 6)], [(0, 2), (2, 3), (3, 6)], [[2], [4]]),
        ("仇恨言", [(0, 1), (1, 2), (2, 3)], [(0, 2), (2, 3)], [[2], [3]]),
        ("仇恨言", [(2, 3), (1, 2), (0, 1)], [(0, 2), (1, 3)], [[2, 3]]),
        ("a😀b", [(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 2), (1, 2), (1, 3)], [[2], [3, 4, 5]]),
        ("ab cd", [(0, 2), (3, 5)], [(0, 2)], [[2]]),
        ("ab", [], [(0, 2)], []),
    ],
    ids=["space with its word", "gap", "two words in a token", "out of order", "emoji", "cut off", "no words"],
)
def test_the_tokens_of_words_are_found_and_never_twice(
    text: str, words: list[Span], spans: list[Span], groups: list[list[int]]
) -> None:
    given = [Word(text=text[start:end], start=start, end=end) for start, end in words]
    assert word_groups(given, prompt_of(spans)) == groups


def test_the_stored_quantity_is_the_one_that_was_explained(
    model: VisionLanguageModel, meme: xai.Meme, labels: tuple[str, ...]
) -> None:
    for kind in ("logit", "log_probability", "contrastive"):
        e = xai.explain(model, meme, target=labels[1], target_kind=kind)  # type: ignore[arg-type]
        logits = logits_of(model, e)
        values = logits.log_softmax(-1) if kind == "log_probability" else logits
        value = sum(values[p, t] for p, t in zip(e.target_positions, e.target_token_ids, strict=True))
        if kind == "contrastive":
            value -= sum(values[p, t] for p, t in zip(e.target_positions, e.contrast_ids, strict=True))
        assert (e.target, e.target_kind) == (labels[1], kind)
        assert e.target_value == pytest.approx(float(value), rel=1e-4)
        assert target_values(model.model, inputs_of(model, e), [target_of(e)]) == pytest.approx([e.target_value])
        answered = [e.token_table.token[position] for position in e.target_positions]
        assert kind == "contrastive" or labels[1] in "".join(answered)


def test_a_lead_is_over_the_strongest_label_that_was_not_answered(
    model: VisionLanguageModel, meme: xai.Meme, labels: tuple[str, ...]
) -> None:
    lead = xai.explain(model, meme, target=labels[0], target_kind="contrastive")
    others = [name for name in load_task("ukrmeme").label_names if name not in labels]
    values = {
        other: xai.explain(model, meme, target=labels[0], target_kind="contrastive", against=other).target_value
        for other in others
    }
    assert lead.target_value == pytest.approx(min(values.values()), rel=1e-5)
    assert values[lead.contrast[0]] == pytest.approx(lead.target_value, rel=1e-5)


@pytest.mark.parametrize("method", ["attnlrp", "occlusion"])
def test_a_lead_and_its_reverse_have_negated_maps(model: VisionLanguageModel, meme: xai.Meme, method: str) -> None:
    forth, back = (
        xai.explain(
            model, meme, answer=answer_with([own]), target=own, target_kind="contrastive", against=other, method=method
        )
        for own, other in (("Smears", "Flag-waving"), ("Flag-waving", "Smears"))
    )
    (position,) = forth.target_positions
    assert back.target_positions == (position,)
    assert forth.target_value == -back.target_value
    assert forth.words["relevance"].tolist() == [-value for value in back.words["relevance"]]
    assert (forth.image == -back.image).all()  # type: ignore[operator]


def test_each_lead_is_explained_but_never_their_sum(
    model: VisionLanguageModel, meme: xai.Meme, labels: tuple[str, ...]
) -> None:
    (prediction,) = predict(model, [meme])
    leads = explain_answer(model, meme, prediction, target_kind="contrastive")
    assert [e.target for e in leads] == list(labels)
    over_first = explain_answer(model, meme, prediction, target_kind="contrastive", against=labels[0])
    assert [(e.target, e.contrast) for e in over_first] == [(label, labels[:1]) for label in labels[1:]]
    with pytest.raises(ValueError, match="have no sum"):
        explain_answer(model, meme, prediction, targets="all", target_kind="contrastive")
    with pytest.raises(ValueError, match="cannot be contrasted with itself"):
        xai.explain(model, meme, target=labels[0], target_kind="contrastive", against=labels[0])


def test_the_span_of_a_label_is_its_target_and_any_other_span_is_one_too(
    model: VisionLanguageModel, meme: xai.Meme, labels: tuple[str, ...]
) -> None:
    label = xai.explain(model, meme, target=labels[0])
    place = label.prediction.label_spans[0]
    span = xai.explain(model, meme, span=(place.start, place.end))
    assert span.target == labels[0]
    assert span.target_positions == label.target_positions
    assert span.tokens["relevance"].tolist() == label.tokens["relevance"].tolist()
    start = label.prediction.text.index("referred")
    other = xai.explain(model, meme, span=(start, start + 8), target_kind="log_probability")
    assert (other.target, other.target_kind) == ("referred", "log_probability")
    assert other.config["target"]["span"] == [start, start + 8]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"target_kind": "logits"}, "there are logit, log_probability, contrastive"),
        ({"against": "Smears"}, "needs the target kind 'contrastive'"),
        ({"target_kind": "contrastive", "target": "Smears", "against": "Sarcasm"}, "no label 'Sarcasm'"),
        ({"target_kind": "contrastive"}, "name one label"),
        ({"target": "Smears", "span": (0, 3)}, "leave out the rest"),
        ({"span": (0, 10_000)}, "no characters 0 to 10000"),
    ],
)
def test_what_no_answer_can_satisfy_is_refused_with_what_to_give(
    model: VisionLanguageModel, meme: xai.Meme, choice: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        xai.explain(model, meme, **choice)


def test_an_answer_given_by_its_ids_is_explained_as_the_generated_one(
    model: VisionLanguageModel, meme: xai.Meme
) -> None:
    generated = xai.explain(model, meme)
    ids = generated.prediction.generated_ids
    given = xai.explain(model, meme, answer=ids)
    assert given.prediction.answer_source == "given_ids"
    assert given.prediction.generated_ids == ids
    assert given.prediction.labels == generated.prediction.labels
    assert given.tokens.equals(generated.tokens)
    retokenised = xai.explain(model, meme, answer=generated.prediction.text)
    assert retokenised.prediction.answer_source == "given_text"
    assert retokenised.prediction.generated_ids == ids[:-1]  # the text has no end-of-sequence token
    assert retokenised.target_value == generated.target_value
    assert generated.prediction.answer_source == "generated"


def test_a_label_that_the_model_did_not_give_can_be_asked_for(
    model: VisionLanguageModel, meme: xai.Meme, labels: tuple[str, ...]
) -> None:
    other = next(name for name in load_task("ukrmeme").label_names if name not in labels)
    e = xai.explain(model, meme, answer=answer_with([other]), target=other)
    assert e.prediction.labels == (other,)
    assert e.words["relevance"].any()
    best = logits_of(model, e).argmax(-1)
    changed = sum(int(best[p]) != t for p, t in zip(e.target_positions, e.target_token_ids, strict=True))
    assert e.quality.target_choice_changed == changed >= 1


def test_a_text_that_is_no_answer_can_be_explained_by_a_span(model: VisionLanguageModel, meme: xai.Meme) -> None:
    with pytest.raises(ValueError, match="explain a span of it"):
        xai.explain(model, meme, answer="Smears")
    e = xai.explain(model, meme, answer="Smears", span=(0, 6))
    assert e.target == "Smears"
    assert e.prediction.parse == "unparsed"
    assert e.words["relevance"].any()


@pytest.mark.parametrize(
    ("answer", "message"),
    [("", "no token"), ([], "no token"), ([10**6], "tokens \\[1000000\\]"), ("<|image_pad|>", "image placeholder")],
)
def test_an_answer_that_cannot_be_one_is_refused(
    model: VisionLanguageModel, meme: xai.Meme, answer: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        xai.explain(model, meme, answer=answer)


def test_ids_of_another_tokenizer_are_noticed_by_their_text(model: VisionLanguageModel, meme: xai.Meme) -> None:
    (prediction,) = predict(model, [meme])
    job = Job(model, load_task("ukrmeme"), "image+text", model.style)
    assert job.given(meme, prediction.generated_ids, prediction.text + "<|im_end|>").text == prediction.text
    with pytest.raises(ValueError, match="another tokenizer"):
        job.given(meme, prediction.generated_ids[1:], prediction.text)


def test_an_answer_of_another_attention_or_dtype_is_scored_again(model: VisionLanguageModel, meme: xai.Meme) -> None:
    (prediction,) = predict(model, [meme])
    assert (prediction.attention, prediction.dtype) == ("sdpa", "float32")
    for method in ("attnlrp", "gradient_x_input"):
        assert explain_answer(model, meme, prediction, method=method)[0].quality.target_choice_changed is None
    assert explain_answer(model, meme, prediction, method="attention_rollout")[0].quality.target_choice_changed == 0
    flash = prediction.model_copy(update={"attention": "flash_attention_2"})
    assert explain_answer(model, meme, flash)[0].quality.target_choice_changed == 0
    half = xai.load_model("planted", device="cpu", dtype=torch.bfloat16)
    assert explain_answer(half, meme, prediction, method="gradient_x_input")[0].quality.target_choice_changed == 0
    assert model.model.config._attn_implementation == "sdpa"


def test_a_choice_that_changed_is_counted_where_it_changed(model: VisionLanguageModel, meme: xai.Meme) -> None:
    (prediction,) = predict(model, [meme])
    second = xai.load_model("planted", device="cpu")
    _, first, *_ = explain_answer(model, meme, prediction)
    token = first.target_token_ids[0]
    head = torch.nn.Linear(*reversed(second.model.lm_head.weight.shape), bias=True)  # type: ignore[union-attr, arg-type]
    head.weight.data = second.model.lm_head.weight.data  # type: ignore[union-attr]
    head.bias.data = torch.zeros_like(head.bias).index_fill(0, torch.tensor(token), -1e4)
    second.model.lm_head = head
    stored = prediction.model_copy(update={"dtype": "bfloat16"})
    changed = [e.quality.target_choice_changed for e in explain_answer(second, meme, stored)]
    expected = [e.target_token_ids.count(token) for e in explain_answer(model, meme, prediction)]
    assert changed == expected
    assert expected[0] >= 1


def test_choices_in_json_come_back_as_they_are() -> None:
    choice = TargetChoice("all", span=(1, 2))
    assert json.loads(json.dumps(choice.config())) == choice.config()
    assert replace(choice, span=None).config()["span"] is None

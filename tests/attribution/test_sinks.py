"""Without sinks nothing flows to them through attention, the rest is untouched, and what was dropped is told."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from xai.attribution.families import family_of
from xai.attribution.methods import get_method
from xai.attribution.patching import attnlrp, cplrp
from xai.attribution.relevance import relevance
from xai.attribution.sinks import sinks_dropped
from xai.attribution.targets import Target

from .faults import raising
from .random_models import FAMILY_NAMES, answer_target, build_inputs, build_model

LRP: list[Any] = ["attnlrp", "cplrp"]
CONTEXTS: dict[str, Any] = {"attnlrp": attnlrp, "cplrp": cplrp}


@pytest.mark.parametrize("name", FAMILY_NAMES)
@pytest.mark.parametrize("method", LRP)
def test_the_first_token_has_none_and_the_forward_is_the_same(name: str, method: Any) -> None:
    model, inputs = build_model(name), build_inputs(name)
    (plain,) = relevance(model, inputs, [answer_target(inputs)], method=method)
    (found,) = relevance(model, inputs, [answer_target(inputs)], method=method, without_sinks=True)
    assert plain.text[0] != 0
    assert found.text[0] == 0
    assert found.value == plain.value
    assert found.settings["sink_positions"] == (0,)
    assert found.settings["sinks_dropped_share"] == pytest.approx(found.settings["sinks_dropped"] / found.value)


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_under_cplrp_without_biases_the_total_and_what_was_dropped_are_the_targets_value(name: str) -> None:
    model, inputs = build_model(name, 1, torch.float64, biases=False), build_inputs(name, 1)
    targets = [answer_target(inputs), Target("other", (len(inputs["input_ids"][0]) - 1,), (3,))]
    for found in relevance(model, inputs, targets, method="cplrp", without_sinks=True):
        dropped = found.settings["sinks_dropped"]
        assert isinstance(dropped, float)
        assert abs(dropped) > 1e-3
        assert found.total + dropped == pytest.approx(found.value, rel=1e-6)


@pytest.mark.parametrize("method", LRP)
def test_the_rest_is_what_is_left_when_the_sink_is_a_constant_in_every_layer(method: Any) -> None:
    model, inputs = build_model("Qwen3", dtype=torch.float64), build_inputs("Qwen3")
    target, ids = answer_target(inputs), inputs["input_ids"]

    def as_constant(_module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (torch.cat([args[0][:, :1].detach(), args[0][:, 1:]], dim=1), *args[1:])

    embeds = model.get_input_embeddings()(ids).detach().requires_grad_()
    handles = [layer.register_forward_pre_hook(as_constant) for layer in model.model.layers]
    with CONTEXTS[method](model):
        logits = model(inputs_embeds=embeds).logits[0]
        value = sum(logits[p - 1, t] for p, t in zip(target.positions, target.token_ids, strict=True))
        (gradient,) = torch.autograd.grad(value, embeds)
    for handle in handles:
        handle.remove()
    (found,) = relevance(model, inputs, [target], method=method, without_sinks=True)
    np.testing.assert_allclose(found.text, (embeds * gradient).sum(-1)[0].detach().numpy(), rtol=1e-8, atol=1e-10)


def test_the_token_before_the_target_keeps_its_own_way_past_attention() -> None:
    model, inputs = build_model("Llama", 1, torch.float64, biases=False), build_inputs("Llama")
    target = Target("second", (1,), (5,))
    (plain,) = relevance(model, inputs, [target], method="cplrp")
    (found,) = relevance(model, inputs, [target], method="cplrp", without_sinks=True)
    assert found.text[0] != 0
    assert found.text[0] != pytest.approx(plain.text[0])
    assert found.text[0] + found.settings["sinks_dropped"] == pytest.approx(found.value, rel=1e-6)


def test_more_positions_are_treated_as_the_first() -> None:
    model, inputs = build_model("Qwen3-VL"), build_inputs("Qwen3-VL")
    options: Any = {"without_sinks": True, "sink_positions": [2, 10]}  # the latter is an image token
    (found,) = get_method("cplrp")(model, inputs, [answer_target(inputs)], **options)
    assert found.settings["sink_positions"] == (0, 2, 10)
    assert not found.text[[0, 2]].any()
    assert found.text[[1, 3]].all()
    assert found.image is not None
    place = found.image_positions.tolist().index(10)
    # Deepstack levels join past attention of the first layers, but nothing attends to the position afterwards either.
    assert not found.image[:, place].any()


def test_padding_is_not_taken_for_the_first_token() -> None:
    model, inputs = build_model("Qwen3", dtype=torch.float64), build_inputs("Qwen3")
    target = answer_target(inputs)
    padded = {
        "input_ids": torch.cat([torch.full((1, 3), 7), inputs["input_ids"]], dim=1),
        "attention_mask": torch.cat([torch.zeros(1, 3, dtype=torch.long), inputs["attention_mask"]], dim=1),
    }
    shifted = Target("label", tuple(position + 3 for position in target.positions), target.token_ids)
    (plain,) = relevance(model, inputs, [target], method="attnlrp", without_sinks=True)
    (found,) = relevance(model, padded, [shifted], method="attnlrp", without_sinks=True)
    assert found.settings["sink_positions"] == (3,)
    np.testing.assert_allclose(found.text[3:], plain.text, rtol=1e-5, atol=1e-8)


def test_every_target_is_told_what_was_dropped_for_it() -> None:
    model, inputs = build_model("Qwen3"), build_inputs("Qwen3")
    targets = [Target("a", (9,), (3,)), Target("b", (12,), (4,))]
    together = relevance(model, inputs, targets, method="attnlrp", without_sinks=True)
    for target, result in zip(targets, together, strict=True):
        (alone,) = relevance(model, inputs, [target], method="attnlrp", without_sinks=True)
        assert result.settings["sinks_dropped"] == pytest.approx(alone.settings["sinks_dropped"], rel=1e-4)
        assert result.settings["sinks_dropped"] != 0


def test_it_goes_together_with_pixels() -> None:
    model, inputs = build_model("Qwen3-VL", 1, torch.float64, biases=False), build_inputs("Qwen3-VL", 1)
    inputs["pixel_values"] = inputs["pixel_values"].double()
    (found,) = relevance(model, inputs, [answer_target(inputs)], method="cplrp", depth="pixels", without_sinks=True)
    assert found.pixels is not None
    assert found.image is not None
    assert found.pixels.sum() + found.positions == pytest.approx(found.image.sum(), rel=1e-6)
    assert {"depth", "vision_rule", "sinks_dropped"} <= found.settings.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gradient_x_input", "without_sinks": True}, "for LRP methods, not gradient_x_input"),
        ({"method": "attnlrp", "sink_positions": [1]}, "for without_sinks=True"),
        (
            {"method": "attnlrp", "without_sinks": True, "sink_positions": [3, 14]},
            r"\[14\] are not among the 14 tokens",
        ),
        ({"method": "attnlrp", "without_sinks": True, "sink_positions": [-1]}, r"\[-1\] are not among"),
    ],
)
def test_sinks_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    model, inputs = build_model("Qwen3"), build_inputs("Qwen3")
    with pytest.raises(ValueError, match=message):
        relevance(model, inputs, [answer_target(inputs)], **options)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_as_before(
    fails: bool, build_model: Any, build_inputs: Any, answer_target: Any, state_of: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    before = state_of(model, inputs)
    explain = partial(relevance, model, inputs, [answer_target(inputs)], method="attnlrp", without_sinks=True)
    if fails:
        with raising(model.model.language_model.layers[1], "forward"):
            explain()
    else:
        explain()
    assert state_of(model, inputs) == before


def test_decoding_without_gradients_goes_on_with_its_own_length_meanwhile() -> None:
    model, inputs = build_model("Qwen3"), build_inputs("Qwen3")
    with attnlrp(model), sinks_dropped(family_of(model).attentions(model), [8]), torch.no_grad():
        short = model(input_ids=inputs["input_ids"][:, :4]).logits
    assert torch.equal(short, model(input_ids=inputs["input_ids"][:, :4]).logits)

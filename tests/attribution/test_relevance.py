"""Relevance conserves where it must, is repeatable, and leaves the model exactly as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import Qwen2VLImageProcessor

from xai.attribution.families import UnsupportedModelError
from xai.attribution.grids import patches_to_grid, reading_order
from xai.attribution.patching import AlreadyPatchedError, attnlrp
from xai.attribution.relevance import (
    MissingGradientError,
    Relevance,
    relevance,
    target_values,
)
from xai.attribution.targets import Target

from .faults import raising

METHODS: list[Any] = ["attnlrp", "cplrp", "gradient_x_input", "gradient"]
SEEDS = [0, 1, 2, 3]


def enable_checkpointing(model: Any, options: dict[str, Any] | None = None) -> None:
    """By the name that this version of transformers has for it."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable(options)


def as_bytes(results: list[Relevance]) -> list[bytes]:
    arrays = [(result.text, result.image, *result.pixel_grids) for result in results]
    return [b"".join(array.tobytes() for array in of_one if array is not None) for of_one in arrays]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("image", [True, False], ids=["image+text", "text"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-6)])
def test_cplrp_conserves_with_text_image_and_deepstack_together(
    seed: int,
    image: bool,
    dtype: torch.dtype,
    tolerance: float,
    build_model: Any,
    build_inputs: Any,
    answer_target: Any,
) -> None:
    model, inputs = build_model(seed, dtype, biases=False), build_inputs(seed, image)
    (result,) = relevance(model, inputs, [answer_target(inputs)], method="cplrp")
    assert result.total == pytest.approx(result.value, rel=tolerance)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_deepstack_cplrp_does_not_add_up(
    seed: int, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    inputs = build_inputs(seed)
    (result,) = relevance(build_model(seed), inputs, [answer_target(inputs)], method="cplrp")
    assert result.image is not None
    assert result.image.shape == (3, 24)
    assert abs(result.text.sum() + result.image[0].sum() - result.value) > 0.01 * abs(result.value)


@pytest.mark.parametrize("method", ["attnlrp", "cplrp", "gradient_x_input", "gradient"])
@pytest.mark.parametrize("kind", ["log_probability", "contrastive"])
def test_other_kinds_of_target_are_what_torch_makes_of_the_models_logits(
    method: Any, kind: Any, build_model: Any, build_inputs: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs()
    positions, tokens = ((38, 40), (5, 6)) if kind == "log_probability" else ((38,), (5,))
    extra = ((9,), ("b",)) if kind == "contrastive" else ((), ())
    target = Target("label", positions, tokens, kind, *extra)
    (result,) = relevance(model, inputs, [target], method=method)
    logits = model(**inputs).logits[0].detach()
    if kind == "contrastive":
        expected = float(logits[37, 5] - logits[37, 9])
    else:
        expected = float(torch.log(logits[37].softmax(-1)[5] * logits[39].softmax(-1)[6]))
    assert result.value == pytest.approx(expected, rel=1e-5)
    assert target_values(model, inputs, [target]) == pytest.approx([expected], rel=1e-5)


def test_the_relevance_of_a_lead_is_that_of_one_logit_less_that_of_the_other(
    build_model: Any, build_inputs: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64, biases=False), build_inputs()
    lead = Target("a", (38,), (5,), "contrastive", (9,), ("b",))
    own, other = Target("a", (38,), (5,)), Target("b", (38,), (9,))
    of_lead, of_own, of_other = relevance(model, inputs, [lead, own, other], method="cplrp")
    np.testing.assert_allclose(of_lead.tokens, of_own.tokens - of_other.tokens, rtol=1e-5, atol=1e-7)
    assert of_lead.total == pytest.approx(of_lead.value, rel=1e-5)


def test_attnlrp_reports_what_it_loses_and_never_rescales(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    inputs = build_inputs()
    (result,) = relevance(build_model(biases=False), inputs, [answer_target(inputs)], method="attnlrp")
    assert result.image is not None
    assert result.total == pytest.approx(result.text.sum() + result.image.sum())
    assert abs(result.total - result.value) > 1e-3 * abs(result.value)
    assert result.non_finite == 0


def test_plain_gradient_x_input_equals_autograd_on_a_text_prompt(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs(image=False)
    target = answer_target(inputs)
    embeds = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=embeds, attention_mask=inputs["attention_mask"]).logits[0]
    value = sum(logits[p - 1, t] for p, t in zip(target.positions, target.token_ids, strict=True))
    (gradient,) = torch.autograd.grad(value, embeds)
    (result,) = relevance(model, inputs, [target], method="gradient_x_input")
    assert result.value == pytest.approx(value.item(), rel=1e-10)
    np.testing.assert_allclose(result.text, (embeds * gradient).sum(-1)[0].detach().numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_placeholders_and_what_follows_the_target_carry_nothing(
    method: Any, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    inputs = build_inputs()
    target = answer_target(inputs)
    (result,) = relevance(build_model(), inputs, [target], method=method)
    is_image = (inputs["input_ids"][0] == 60).numpy()
    assert result.text.shape == is_image.shape
    assert not result.text[is_image].any()
    assert not result.text[target.positions[-1] :].any()
    assert result.text[: target.positions[-1]][~is_image[: target.positions[-1]]].all()
    assert result.image_positions.tolist() == np.flatnonzero(is_image).tolist()
    assert result.tokens.sum() == pytest.approx(result.total)


def test_several_targets_share_a_forward_and_equal_each_alone(build_model: Any, build_inputs: Any) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs()
    ids = inputs["input_ids"][0].tolist()
    targets = [Target(str(p), (p,), (ids[p],)) for p in (len(ids) - 4, len(ids) - 1, len(ids) - 3)]
    together = relevance(model, inputs, targets, method="attnlrp")
    for target, result in zip(targets, together, strict=True):
        (alone,) = relevance(model, inputs, [target], method="attnlrp")
        assert result.target is target
        assert result.value == pytest.approx(alone.value, rel=1e-10)
        np.testing.assert_allclose(result.tokens, alone.tokens, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_plain_forward_scores_the_very_quantity_that_was_differentiated(
    method: Any, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    targets = [answer_target(inputs)]
    (result,) = relevance(model, inputs, targets, method=method)
    logits = model(**inputs).logits[0].detach().double()
    expected = sum(float(logits[p - 1, t]) for p, t in zip(targets[0].positions, targets[0].token_ids, strict=True))
    assert target_values(model, inputs, targets) == pytest.approx([result.value], rel=1e-5)
    assert result.value == pytest.approx(expected, rel=1e-5)


def test_padding_on_the_left_carries_nothing_and_changes_nothing(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs()
    target = answer_target(inputs)
    padded = dict(inputs)
    for name, filler in (("input_ids", 7), ("attention_mask", 0), ("mm_token_type_ids", 0)):
        padded[name] = torch.cat([torch.full((1, 3), filler).to(inputs[name].dtype), inputs[name]], dim=1)
    shifted = Target("label", tuple(position + 3 for position in target.positions), target.token_ids)
    (plain,) = relevance(model, inputs, [target], method="attnlrp")
    (result,) = relevance(model, padded, [shifted], method="attnlrp")
    assert not result.tokens[:3].any()
    np.testing.assert_allclose(result.tokens[3:], plain.tokens, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_token_types_are_made_when_the_processor_did_not_return_them(
    method: Any, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    target = answer_target(inputs)
    bare = {name: tensor for name, tensor in inputs.items() if name not in ("mm_token_type_ids", "attention_mask")}
    expected = as_bytes(relevance(model, inputs, [target], method=method))
    assert as_bytes(relevance(model, bare, [target], method=method)) == expected


@pytest.mark.parametrize("method", METHODS)
def test_the_same_explanation_has_the_same_bytes_with_another_in_between(
    method: Any, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs, other = build_model(), build_inputs(0), build_inputs(1, image=False)
    first = relevance(model, inputs, [answer_target(inputs)], method=method)
    relevance(model, other, [answer_target(other)], method="attnlrp")
    again = relevance(model, inputs, [answer_target(inputs)], method=method)
    assert as_bytes(first) == as_bytes(again)


@contextmanager
def autocast() -> Iterator[None]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("caller", [torch.no_grad, torch.inference_mode, autocast])
def test_the_callers_mode_changes_nothing(
    method: Any, caller: Any, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    expected = relevance(model, inputs, [answer_target(inputs)], method=method)
    with caller():
        made_inside = {name: tensor.clone() for name, tensor in inputs.items()}
        found = relevance(model, made_inside, [answer_target(inputs)], method=method)
    assert as_bytes(found) == as_bytes(expected)


DEEP: list[dict[str, Any]] = [
    *({"method": method} for method in METHODS),
    {"method": "attnlrp", "depth": "pixels", "vision_rule": "gamma"},
    {"method": "attnlrp", "without_sinks": True},
]


@pytest.mark.parametrize("options", DEEP, ids=lambda options: " ".join(map(str, options.values())))
@pytest.mark.parametrize("training", [True, False])
def test_frozen_weights_with_checkpointing_give_the_same_relevance(
    options: Any, training: bool, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    targets = [answer_target(inputs), Target("other", (38,), (3,))]
    expected = relevance(model, inputs, targets, **options)
    model.requires_grad_(False)
    enable_checkpointing(model)
    model.train(training)
    found = relevance(model, inputs, targets, **options)
    assert as_bytes(found) == as_bytes(expected)
    assert [one.settings for one in found] == [one.settings for one in expected]
    assert model.training is training


@pytest.mark.parametrize(("reentrant", "times"), [(None, 1), (False, 2), (True, 1)])
def test_checkpointed_layers_run_again_in_the_backward(
    reentrant: bool | None, times: int, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs, calls = build_model(), build_inputs(), []
    if reentrant is not None:
        enable_checkpointing(model, {"use_reentrant": reentrant})
    model.model.language_model.layers[1].mlp.gate_proj.register_forward_hook(lambda *_: calls.append(1))
    relevance(model, inputs, [answer_target(inputs)], method="attnlrp")
    assert len(calls) == times


def test_two_threads_on_one_model_get_what_each_gets_alone(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model = build_model()
    records = [build_inputs(seed) for seed in range(4)]
    alone = [as_bytes(relevance(model, record, [answer_target(record)], method="attnlrp")) for record in records]
    together: dict[int, list[bytes]] = {}

    def explain(index: int) -> None:
        record = records[index]
        together[index] = as_bytes(relevance(model, record, [answer_target(record)], method="attnlrp"))

    threads = [threading.Thread(target=explain, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[index] for index in range(4)] == alone


def works(model: Any, inputs: Any, target: Target) -> Any:
    return nullcontext(), target


def module_raises(model: Any, inputs: Any, target: Target) -> Any:
    return raising(model.model.language_model.layers[1], "forward"), target


def entering_raises(model: Any, inputs: Any, target: Target) -> Any:
    return raising(model.model.visual, "register_forward_hook"), target


def wrong_position(model: Any, inputs: Any, target: Target) -> Any:
    return pytest.raises(ValueError, match="positions"), Target("label", (inputs["input_ids"].shape[1],), (1,))


def wrong_token(model: Any, inputs: Any, target: Target) -> Any:
    return pytest.raises(ValueError, match=r"asks for tokens \[64\]"), Target("label", target.positions[:1], (64,))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", [works, module_raises, entering_raises, wrong_position, wrong_token])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_the_model_is_as_before(
    method: Any, case: Any, training: bool, build_model: Any, build_inputs: Any, answer_target: Any, state_of: Any
) -> None:
    model, second, inputs = build_model(0).train(training), build_model(1), build_inputs()
    model.model.language_model.norm.weight.requires_grad_(False)
    model.lm_head.weight.grad = torch.ones_like(model.lm_head.weight)
    before, before_second = state_of(model, inputs), state_of(second, inputs)
    expectation, target = case(model, inputs, answer_target(inputs))
    with expectation:
        relevance(model, inputs, [target], method=method)
    assert state_of(model, inputs) == before
    assert state_of(second, inputs) == before_second


def test_a_model_that_was_decoding_goes_on_from_its_own_positions(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs, other = build_model(), build_inputs(0), build_inputs(1, image=False)
    model(**inputs)
    before = model.model.rope_deltas
    relevance(model, other, [answer_target(other)], method="attnlrp")
    assert model.model.rope_deltas is before


def test_a_level_that_nothing_reads_raises(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    model, inputs = build_model(), build_inputs()
    # The first level is added after the only layer, where nothing reads image positions any more.
    model.model.language_model.layers = model.model.language_model.layers[:1]
    with pytest.raises(MissingGradientError, match="deepstack level 1 got a gradient of zeros only"):
        relevance(model, inputs, [answer_target(inputs)], method="cplrp")


def test_a_gradient_of_zeros_raises(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    model, inputs = build_model(), build_inputs()
    with torch.no_grad():
        model.lm_head.weight.zero_()
    with pytest.raises(MissingGradientError, match="input embeddings got a gradient of zeros only"):
        relevance(model, inputs, [answer_target(inputs)], method="cplrp")


def test_a_model_that_switches_gradients_off_raises(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    model, inputs = build_model(), build_inputs()
    model.model.language_model.forward = torch.no_grad()(model.model.language_model.forward)
    with pytest.raises(MissingGradientError, match="ran without gradients"):
        relevance(model, inputs, [answer_target(inputs)], method="cplrp")


def test_non_finite_values_are_counted_and_kept(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    model, inputs = build_model(), build_inputs()
    with torch.no_grad():
        model.get_input_embeddings().weight[inputs["input_ids"][0, 0]] = torch.inf
    (result,) = relevance(model, inputs, [answer_target(inputs)], method="attnlrp")
    assert result.non_finite > 0
    assert np.isnan(result.text).any()


def test_a_patched_model_is_refused(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    model, inputs = build_model(), build_inputs()
    with attnlrp(model):
        for method in METHODS:
            with pytest.raises(AlreadyPatchedError):
                relevance(model, inputs, [answer_target(inputs)], method=method)


def test_weights_made_in_inference_mode_are_refused(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    with torch.inference_mode():
        model = build_model()
    inputs = build_inputs()
    with pytest.raises(UnsupportedModelError, match="made in inference mode"):
        relevance(model, inputs, [answer_target(inputs)], method="attnlrp")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": torch.ones(2, 5, dtype=torch.long)}, "one record at a time"),
        ({"attention_mask": torch.ones(1, 3)}, "extend every sequence input"),
        ({"position_ids": torch.ones(1, 3)}, "inputs must be among"),
        ({"image_grid_thw": torch.tensor([[1, 8, 8]])}, "64 patches and 16 image tokens"),
        ({"pixel_values": None}, "whole or not at all"),
    ],
)
def test_inputs_out_of_step_are_refused_with_one_readable_error(
    change: dict[str, Any], message: str, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    inputs = build_inputs()
    changed = {name: tensor for name, tensor in {**inputs, **change}.items() if tensor is not None}
    with pytest.raises(ValueError, match=message):
        relevance(build_model(), changed, [answer_target(inputs)], method="cplrp")


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "no targets"),
        ([Target("a", (), ())], "'a' was not located"),
        ([Target("a", (40,), (1,), "contrastive", (64,), ("b",))], r"asks for tokens \[64\]"),
        ([Target("a", (9,), (1,))], "before the end of the picture"),
    ],
)
def test_targets_that_cannot_be_differentiated_are_refused(
    targets: list[Target], message: str, build_model: Any, build_inputs: Any
) -> None:
    with pytest.raises(ValueError, match=message):
        relevance(build_model(), build_inputs(), targets, method="cplrp")


@pytest.mark.parametrize("cell", [(0, 0), (1, 0), (0, 5), (3, 2), (3, 5)])
def test_a_patch_row_and_its_image_token_light_up_the_same_spot(cell: tuple[int, int]) -> None:
    processor = Qwen2VLImageProcessor(patch_size=16, merge_size=2, temporal_patch_size=2, do_resize=False)
    blank = np.zeros((4 * 32, 6 * 32, 3), dtype=np.uint8)
    marked = blank.copy()
    row, column = 2 * cell[0] + 1, 2 * cell[1]  # the lower left patch of the merged cell
    marked[row * 16 : row * 16 + 16, column * 16 : column * 16 + 16] = 255
    rows = [processor(images=[picture], return_tensors="pt") for picture in (blank, marked)]
    grid = tuple(rows[1]["image_grid_thw"][0].tolist())
    changed = (rows[1]["pixel_values"] - rows[0]["pixel_values"]).abs().numpy()
    assert grid == (1, 8, 12)

    patch_grid = patches_to_grid(changed, grid, 2)
    assert np.argwhere(patch_grid).tolist() == [[row, column]]
    assert patch_grid.sum() == pytest.approx(changed.sum())

    merged = changed.reshape(24, -1).sum(axis=1)  # the merger joins four rows that follow one another
    token_grid = reading_order(np.stack([merged, 2 * merged]), grid, 2)
    assert token_grid.shape == (2, 4, 6)
    assert np.argwhere(token_grid[1]).tolist() == [list(cell)]


def test_grid_of_a_result_is_in_reading_order(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    inputs = build_inputs()
    (result,) = relevance(build_model(), inputs, [answer_target(inputs)], method="attnlrp")
    assert result.image is not None
    assert result.image_grid is not None
    assert result.image_grid.shape == (3, 4, 6)
    assert result.image_grid[2, 1, 0] == result.image[2, 6]


def test_a_grid_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="23 image tokens"):
        reading_order(np.zeros(23), (1, 8, 12), 2)
    with pytest.raises(ValueError, match="95 patch rows"):
        patches_to_grid(np.zeros(95), (1, 8, 12), 2)


def test_a_compiled_or_wrapped_embedding_is_noticed(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    model, inputs = build_model(), build_inputs()
    model.get_input_embeddings = lambda: nn.Embedding(64, 32)
    with pytest.raises(MissingGradientError, match="never called the model's input embeddings"):
        relevance(model, inputs, [answer_target(inputs)], method="cplrp")

"""Relevance goes on to the pixels with nothing lost and nothing else changed, and lands where the picture is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from xai.attribution.grids import merged_cells, pixels_to_grid
from xai.attribution.methods import get_method
from xai.attribution.patching import attnlrp, cplrp
from xai.attribution.relevance import relevance
from xai.attribution.targets import Target

from .faults import raising
from .random_models import END, IMAGE, PATCH, START, VISION_FAMILIES, answer_target, build_inputs, build_model

METHODS: list[Any] = ["attnlrp", "cplrp", "gradient_x_input"]
RULES: list[Any] = ["epsilon", "gamma"]


def in_double(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**inputs, "pixel_values": inputs["pixel_values"].double()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", VISION_FAMILIES)
def test_text_image_tokens_and_value_are_those_of_depth_tokens(name: str, method: Any) -> None:
    model, inputs = build_model(name), build_inputs(name)
    targets = [answer_target(inputs), Target("other", (len(inputs["input_ids"][0]) - 1,), (3,))]
    shallow = relevance(model, inputs, targets, method=method)
    deep = relevance(model, inputs, targets, method=method, depth="pixels")
    for expected, found in zip(shallow, deep, strict=True):
        assert found.value == pytest.approx(expected.value, rel=1e-6)
        np.testing.assert_allclose(found.text, expected.text, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(found.image, expected.image, rtol=1e-5, atol=1e-7)
        assert found.total == pytest.approx(expected.total, rel=1e-5)
        assert expected.pixels is None
        assert expected.position_share is None
        assert expected.settings == {}
        assert found.settings == {"depth": "pixels", "vision_rule": "epsilon"}


@pytest.mark.parametrize("name", VISION_FAMILIES)
@pytest.mark.parametrize("context", [attnlrp, cplrp])
def test_the_total_is_that_of_pixels_times_gradient_by_hand(name: str, context: Any) -> None:
    model, inputs = build_model(name, dtype=torch.float64), in_double(build_inputs(name))
    target = answer_target(inputs)
    pixels = inputs["pixel_values"].clone().requires_grad_()
    with context(model):
        logits = model(**{**inputs, "pixel_values": pixels}).logits[0]
        value = sum(logits[p - 1, t] for p, t in zip(target.positions, target.token_ids, strict=True))
        (gradient,) = torch.autograd.grad(value, pixels)
    (found,) = relevance(model, inputs, [target], method=context.__name__, depth="pixels")
    assert found.pixels is not None
    assert found.pixels.dtype == np.float64
    assert found.pixels.shape == found.grid_thw[0][1:]
    assert found.pixels.sum() == pytest.approx(float((pixels * gradient).detach().sum()), rel=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", VISION_FAMILIES)
def test_without_biases_pixels_and_positions_share_out_the_image_levels_under_cplrp(name: str, rule: Any) -> None:
    model, inputs = build_model(name, 1, torch.float64, biases=False), in_double(build_inputs(name, 1))
    (found,) = relevance(model, inputs, [answer_target(inputs)], method="cplrp", depth="pixels", vision_rule=rule)
    assert found.pixels is not None
    assert found.image is not None
    learned = name in ("Qwen3-VL", "Qwen3-VL-MoE", "Gemma 3")
    assert (found.positions != 0) == learned
    assert found.position_share == pytest.approx(found.positions / found.image.sum())
    tolerance = 1e-6 if rule == "epsilon" else 1e-4  # zennit's stabilizer takes its part in every layer
    assert found.pixels.sum() + found.positions == pytest.approx(found.image.sum(), rel=tolerance)


@pytest.mark.parametrize("name", VISION_FAMILIES)
@pytest.mark.parametrize("patch", [(0, 0), (0, 5), (3, 2), (5, 4)])
def test_a_picture_with_one_patch_that_is_not_zero_lights_up_that_patch(name: str, patch: tuple[int, int]) -> None:
    model, inputs = build_model(name), build_inputs(name)
    row, column = patch
    pixels = torch.zeros_like(inputs["pixel_values"])
    if name == "Gemma 3":
        there = (..., slice(row * PATCH, (row + 1) * PATCH), slice(column * PATCH, (column + 1) * PATCH))
        pixels[there] = 1.0
    else:
        # Rows of merge blocks of 2 x 2 patches, 6 blocks to a row.
        pixels[4 * (6 * (row // 2) + column // 2) + 2 * (row % 2) + column % 2] = 1.0
    inputs["pixel_values"] = pixels
    (found,) = relevance(model, inputs, [answer_target(inputs)], method="attnlrp", depth="pixels")
    assert np.argwhere(found.pixels).tolist() == [[row, column]]


def test_both_copies_of_a_frame_are_added() -> None:
    model, inputs = build_model("Qwen3-VL", dtype=torch.float64), in_double(build_inputs("Qwen3-VL"))
    target, pixels = answer_target(inputs), inputs["pixel_values"].clone().requires_grad_()
    logits = model(**{**inputs, "pixel_values": pixels}).logits[0]
    value = sum(logits[p - 1, t] for p, t in zip(target.positions, target.token_ids, strict=True))
    (gradient,) = torch.autograd.grad(value, pixels)
    by_frame = (pixels * gradient).detach().reshape(-1, 3, 2, PATCH * PATCH).sum(dim=(1, 3))
    (found,) = relevance(model, inputs, [target], method="gradient_x_input", depth="pixels")
    assert found.pixels is not None
    assert by_frame.abs().sum(dim=0).all()
    # Rows of the processor: the second is the right neighbour of the first, the third stands below it.
    corner = [found.pixels[0, 0], found.pixels[0, 1], found.pixels[1, 0], found.pixels[1, 1]]
    assert corner == pytest.approx(by_frame.sum(dim=1)[:4].tolist(), rel=1e-8)


@pytest.mark.parametrize("rule", RULES)
def test_every_picture_has_a_grid_of_its_own(rule: Any) -> None:
    model, inputs = build_model("Qwen3-VL"), build_inputs("Qwen3-VL")
    second = torch.tensor([[START, *[IMAGE] * 4, END]])
    ids = torch.cat([inputs["input_ids"][:, :1], second, inputs["input_ids"][:, 1:]], dim=1)
    small = torch.randn(16, inputs["pixel_values"].shape[1])
    both = {
        "input_ids": ids,
        "pixel_values": torch.cat([small, inputs["pixel_values"]]),
        "image_grid_thw": torch.tensor([[1, 4, 4], [1, 8, 12]]),
    }
    (found,) = relevance(model, both, [answer_target(both)], method="attnlrp", depth="pixels", vision_rule=rule)
    assert [grid.shape for grid in found.pixel_grids] == [(4, 4), (8, 12)]
    assert all(grid.any() for grid in found.pixel_grids)
    with pytest.raises(ValueError, match="2 pictures have no common grid"):
        _ = found.pixels


def test_gamma_changes_the_pixels_only_and_is_recorded_by_layer_type() -> None:
    model, inputs = build_model("Qwen3-VL"), build_inputs("Qwen3-VL")
    targets = [answer_target(inputs)]
    (plain,) = relevance(model, inputs, targets, method="attnlrp", depth="pixels")
    (found,) = relevance(
        model, inputs, targets, method="attnlrp", depth="pixels", vision_rule="gamma", gamma={"linear": 1.0}
    )
    assert found.settings["gamma"] == {"linear": 1.0, "conv": 0.0}
    np.testing.assert_allclose(found.tokens, plain.tokens, rtol=1e-5, atol=1e-7)
    assert plain.pixels is not None
    assert found.pixels is not None
    assert np.abs(found.pixels - plain.pixels).max() > 0.01 * np.abs(plain.pixels).max()


@pytest.mark.parametrize("rule", RULES)
def test_several_targets_equal_each_alone(rule: Any) -> None:
    model, inputs = build_model("Qwen3-VL", dtype=torch.float64), build_inputs("Qwen3-VL")
    length = len(inputs["input_ids"][0])
    targets = [Target(str(position), (position,), (3,)) for position in (length - 4, length - 1)]
    together = relevance(model, inputs, targets, method="attnlrp", depth="pixels", vision_rule=rule)
    for target, result in zip(targets, together, strict=True):
        (alone,) = relevance(model, inputs, [target], method="attnlrp", depth="pixels", vision_rule=rule)
        np.testing.assert_allclose(result.pixels, alone.pixels, rtol=1e-5, atol=1e-9)
        assert result.positions == pytest.approx(alone.positions, rel=1e-5)


@pytest.mark.parametrize("name", ["attnlrp", "cplrp", "gradient_x_input"])
def test_the_registered_methods_pass_the_depth_on(name: Any) -> None:
    model, inputs = build_model("Qwen3-VL"), build_inputs("Qwen3-VL")
    (found,) = get_method(name)(model, inputs, [answer_target(inputs)], depth="pixels")
    (expected,) = relevance(model, inputs, [answer_target(inputs)], method=name, depth="pixels")
    assert found.pixels is not None
    assert expected.pixels is not None
    assert found.pixels.tobytes() == expected.pixels.tobytes()


def test_a_prompt_without_a_picture_has_no_pixels() -> None:
    model, inputs = build_model("Qwen3-VL"), build_inputs("Qwen3-VL", image=False)
    (found,) = relevance(model, inputs, [answer_target(inputs)], method="attnlrp", depth="pixels", vision_rule="gamma")
    assert found.pixels is None
    assert found.pixel_grids == ()
    assert found.settings == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gradient", "depth": "pixels"}, "cannot be added over pixels"),
        ({"method": "attnlrp", "depth": "patches"}, "depth must be one of tokens, pixels, not 'patches'"),
        ({"method": "attnlrp", "vision_rule": "zplus", "depth": "pixels"}, "must be one of epsilon, gamma"),
        ({"method": "attnlrp", "vision_rule": "gamma"}, "with depth='pixels'"),
        ({"method": "gradient_x_input", "vision_rule": "gamma", "depth": "pixels"}, "an LRP method"),
        ({"method": "attnlrp", "depth": "pixels", "gamma": -1.0}, "0 or more"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    inputs = build_inputs("Qwen3-VL")
    with pytest.raises(ValueError, match=message):
        relevance(build_model("Qwen3-VL"), inputs, [answer_target(inputs)], **options)


@pytest.mark.parametrize("fault", ["none", "block", "hooking", "layer"])
@pytest.mark.parametrize("rule", RULES)
def test_the_model_is_as_before(
    fault: str, rule: Any, build_model: Any, build_inputs: Any, answer_target: Any, state_of: Any
) -> None:
    model, inputs = build_model().train(), build_inputs()
    before, visual = state_of(model, inputs), model.model.visual
    places = {
        "block": (visual.blocks[1], "forward"),
        "hooking": (visual, "register_forward_hook"),
        "layer": (visual.merger.linear_fc1, "forward"),
    }

    def explain() -> None:
        relevance(model, inputs, [answer_target(inputs)], method="attnlrp", depth="pixels", vision_rule=rule)

    if fault == "none":
        explain()
    else:
        with raising(*places[fault]):
            explain()
    assert state_of(model, inputs) == before


def test_non_finite_pixels_are_counted() -> None:
    model, inputs = build_model("Qwen3-VL"), build_inputs("Qwen3-VL")
    inputs["pixel_values"][5, 3] = torch.inf
    (found,) = relevance(model, inputs, [answer_target(inputs)], method="gradient_x_input", depth="pixels")
    assert found.pixels is not None
    assert found.non_finite > np.count_nonzero(~np.isfinite(found.tokens))


def test_merged_cells_add_patches_and_keep_the_total() -> None:
    patches = np.arange(24.0).reshape(4, 6)
    assert merged_cells(patches, 2).tolist() == [[14.0, 22.0, 30.0], [62.0, 70.0, 78.0]]
    assert merged_cells(np.stack([patches, patches]), 2).shape == (2, 2, 3)
    with pytest.raises(ValueError, match="4 x 6 patches does not consist of cells of 4 x 4"):
        merged_cells(patches, 4)


def test_pixels_past_the_last_whole_patch_belong_to_none() -> None:
    picture = np.ones((3, 5, 8))
    assert pixels_to_grid(picture, 4).tolist() == [[48.0, 48.0]]

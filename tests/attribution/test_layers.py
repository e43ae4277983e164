"""Relevance layer by layer and block by block: nothing is lost on the way, and it ends where relevance does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from xai.attribution.layers import block_relevance, layer_relevance
from xai.attribution.relevance import relevance

from .faults import raising
from .random_models import VISION_FAMILIES, answer_target, build_inputs, build_model


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("image", [True, False], ids=["image+text", "text"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-6)])
def test_the_relevance_that_passes_every_layer_under_cplrp_is_the_targets_value(
    seed: int,
    image: bool,
    dtype: torch.dtype,
    tolerance: float,
    build_model: Any,
    build_inputs: Any,
    answer_target: Any,
) -> None:
    model, inputs = build_model(seed, dtype, biases=False), build_inputs(seed, image)
    target = answer_target(inputs)
    (result,) = relevance(model, inputs, [target], method="cplrp")
    layers = layer_relevance(model, inputs, target, method="cplrp")
    assert layers.shape == (4, len(result.text))
    assert layers.sum(axis=1) == pytest.approx([result.value] * 4, rel=tolerance)
    np.testing.assert_allclose(layers[0], result.tokens, rtol=1e-5, atol=1e-6)
    # Past the last layer nothing moves between positions any more.
    assert np.flatnonzero(layers[-1]).tolist() == [position - 1 for position in target.positions]


def test_gradients_of_layers_are_not_added_up(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    inputs = build_inputs()
    with pytest.raises(ValueError, match="no common sum"):
        layer_relevance(build_model(), inputs, answer_target(inputs), method="gradient")


def test_layers_leave_the_model_as_it_was(
    build_model: Any, build_inputs: Any, answer_target: Any, state_of: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    before = state_of(model, inputs)
    layer_relevance(model, inputs, answer_target(inputs), method="attnlrp")
    with raising(model.model.language_model.layers[1], "forward"):
        layer_relevance(model, inputs, answer_target(inputs), method="attnlrp")
    assert state_of(model, inputs) == before


def bias_free(name: str, *, positions: bool = True) -> Any:
    """A model in double precision without biases, and without learned positions where asked for."""
    model = build_model(name, 1, torch.float64, biases=False)
    with torch.no_grad():
        for path, parameter in model.model.named_parameters():
            if not positions and ("pos_embed" in path or "position_embedding" in path):
                parameter.zero_()
    return model


@pytest.mark.parametrize("name", VISION_FAMILIES)
def test_the_relevance_that_passes_every_vision_block_under_cplrp_is_that_of_all_image_levels(name: str) -> None:
    model, inputs = bias_free(name), build_inputs(name, 1)
    target = answer_target(inputs)
    (result,) = relevance(model, inputs, [target], method="cplrp")
    assert result.image is not None
    blocks = block_relevance(model, inputs, target, method="cplrp")
    n_patches = sum(t * h * w for t, h, w in result.grid_thw)
    assert blocks.shape == (3, n_patches)
    assert blocks.sum(axis=1) == pytest.approx([result.image.sum()] * 3, rel=1e-6)


@pytest.mark.parametrize("name", VISION_FAMILIES)
@pytest.mark.parametrize("method", ["attnlrp", "cplrp"])
def test_what_enters_the_first_block_is_what_reaches_the_pixels_patch_by_patch(name: str, method: Any) -> None:
    model, inputs = bias_free(name, positions=False), build_inputs(name, 1)
    inputs["pixel_values"] = inputs["pixel_values"].double()
    target = answer_target(inputs)
    (result,) = relevance(model, inputs, [target], method=method, depth="pixels")
    assert result.pixels is not None
    blocks = block_relevance(model, inputs, target, method=method)
    np.testing.assert_allclose(blocks[0].reshape(result.pixels.shape), result.pixels, rtol=1e-6, atol=1e-10)


def test_blocks_of_a_prompt_without_a_picture_are_refused() -> None:
    inputs = build_inputs("Qwen3-VL", image=False)
    with pytest.raises(ValueError, match="there is no picture"):
        block_relevance(build_model("Qwen3-VL"), inputs, answer_target(inputs), method="cplrp")


def test_gradients_of_blocks_are_not_added_up() -> None:
    inputs = build_inputs("Qwen3-VL")
    with pytest.raises(ValueError, match="cannot be added over pixels"):
        block_relevance(build_model("Qwen3-VL"), inputs, answer_target(inputs), method="gradient")


def test_blocks_leave_the_model_as_it_was(
    build_model: Any, build_inputs: Any, answer_target: Any, state_of: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    before = state_of(model, inputs)
    block_relevance(model, inputs, answer_target(inputs), method="attnlrp", vision_rule="gamma")
    with raising(model.model.visual.merger, "forward"):
        block_relevance(model, inputs, answer_target(inputs), method="attnlrp", vision_rule="gamma")
    assert state_of(model, inputs) == before

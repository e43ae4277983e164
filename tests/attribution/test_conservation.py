"""Without biases CP-LRP hands on all relevance: across each block, through the vision tower, from logit to input."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from xai.attribution.families import family_of
from xai.attribution.patching import ATTENTION_NAMES, attnlrp, cplrp
from xai.attribution.relevance import relevance
from xai.attribution.verify import block_checks

from .random_models import FAMILY_NAMES, VISION_FAMILIES, answer_target, build_inputs, build_model

PRECISIONS = [(torch.float64, 1e-6), (torch.float32, 1e-4)]


def blocks_of(model: Any) -> dict[str, nn.Module]:
    """The family's blocks, and each mixture of experts by itself."""
    experts = {path: module for path, module in model.named_modules() if hasattr(module, "experts")}
    return {**family_of(model).blocks(model), **experts}


def typed(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}


@pytest.mark.parametrize("name", FAMILY_NAMES)
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_cplrp_conserves_across_every_block(name: str, dtype: torch.dtype, tolerance: float) -> None:
    model, inputs = build_model(name, 1, dtype, biases=False), typed(build_inputs(name, 1), dtype)
    with cplrp(model):
        checks = block_checks(model, inputs, blocks_of(model))
    assert len(checks) == len(blocks_of(model))
    assert {check.name: check.error for check in checks if abs(check.error) > tolerance} == {}


@pytest.mark.parametrize("name", FAMILY_NAMES)
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_attnlrp_with_constant_attention_weights_conserves_across_every_block(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    model, inputs = build_model(name, 1, dtype, biases=False), typed(build_inputs(name, 1), dtype)
    with attnlrp(model):
        model.set_attn_implementation(ATTENTION_NAMES["cplrp"])  # queries and keys detached, all else AttnLRP
        checks = block_checks(model, inputs, blocks_of(model))
    assert {check.name: check.error for check in checks if abs(check.error) > tolerance} == {}


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_attnlrp_as_it_is_loses_relevance_in_the_softmax_and_nowhere_else(name: str) -> None:
    model, inputs = build_model(name, 1, torch.float64, biases=False), typed(build_inputs(name, 1), torch.float64)
    with attnlrp(model):
        checks = block_checks(model, inputs, blocks_of(model))
    for check in checks:
        has_attention = any("attn" in path for path, _ in blocks_of(model)[check.name].named_modules())
        assert (abs(check.error) > 1e-4) == has_attention, check


def test_with_biases_a_block_does_not_conserve() -> None:
    model, inputs = build_model("Qwen2-VL", 1, torch.float64), typed(build_inputs("Qwen2-VL", 1), torch.float64)
    with cplrp(model):
        errors = {check.name: abs(check.error) for check in block_checks(model, inputs, blocks_of(model))}
    assert all(error > 1e-4 for error in errors.values())


@pytest.mark.parametrize("name", FAMILY_NAMES)
@pytest.mark.parametrize("image", [True, False], ids=["image+text", "text"])
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_cplrp_conserves_from_logit_to_input(
    name: str, image: bool, dtype: torch.dtype, tolerance: float, seed: int
) -> None:
    model, inputs = build_model(name, seed, dtype, biases=False), typed(build_inputs(name, seed, image), dtype)
    (result,) = relevance(model, inputs, [answer_target(inputs)], method="cplrp")
    assert (result.image is not None) == (image and name in VISION_FAMILIES)
    assert result.total == pytest.approx(result.value, rel=tolerance)


@pytest.mark.parametrize("name", VISION_FAMILIES)
def test_all_that_reaches_the_image_features_reaches_the_pixels(name: str) -> None:
    model, inputs = build_model(name, 2, torch.float64, biases=False), typed(build_inputs(name, 2), torch.float64)
    with torch.no_grad():
        for path, parameter in model.model.named_parameters():
            if "pos_embed" in path or "position_embedding" in path:
                parameter.zero_()  # takes a share of its own
    vision = family_of(model).vision
    assert vision is not None
    features: list[torch.Tensor] = []
    model.get_submodule(vision.source).register_forward_hook(
        lambda _m, _a, output: features.extend(vision.features(output))
    )
    pixels = inputs["pixel_values"].requires_grad_()
    with cplrp(model):
        target = answer_target(inputs)
        logits = model(**inputs).logits[0]
        value = sum(logits[p - 1, t] for p, t in zip(target.positions, target.token_ids, strict=True))
        gradients = torch.autograd.grad(value, (pixels, *features))
    at_pixels = float((pixels * gradients[0]).sum().detach())
    at_features = sum(
        float((level * gradient).sum().detach()) for level, gradient in zip(features, gradients[1:], strict=True)
    )
    assert at_pixels == pytest.approx(at_features, rel=1e-6)


def test_the_router_carries_none_of_the_relevance() -> None:
    model, inputs = build_model("Qwen3-VL-MoE"), build_inputs("Qwen3-VL-MoE", image=False)
    read: list[torch.Tensor] = []

    def take_input(_module: nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        read.append(args[0].detach().requires_grad_())
        return (read[-1],)

    model.model.language_model.layers[1].mlp.gate.register_forward_pre_hook(take_input)
    found = {}
    for name, context in {"attnlrp": attnlrp, "cplrp": cplrp, "plain": nullcontext}.items():
        with context(model):
            logits = model(**inputs).logits
            (found[name],) = torch.autograd.grad(logits.sum(), read[-1], allow_unused=True)
    assert found["attnlrp"] is None
    assert found["cplrp"] is None
    assert found["plain"].any()

"""Patching touches instances only, is audited on entry, and leaves nothing behind, whatever happens."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AttentionInterface
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen

from xai.attribution import families, patching, rules
from xai.attribution.families import QWEN3_VL, UnsupportedModelError, family_of
from xai.attribution.patching import AlreadyPatchedError, attnlrp, audit_model, cplrp
from xai.attribution.rules import RuleKind

CONTEXTS = {"attnlrp": attnlrp, "cplrp": cplrp}


@pytest.fixture(params=CONTEXTS)
def context(request: pytest.FixtureRequest) -> Any:
    return CONTEXTS[request.param]


def test_outputs_do_not_change_by_a_bit_while_patched(context: Any, build_model: Any, build_inputs: Any) -> None:
    model, inputs = build_model(), build_inputs()
    plain = model(**inputs).logits
    with context(model):
        assert torch.equal(model(**inputs).logits, plain)


def test_padding_is_masked_while_patched(context: Any, build_model: Any, build_inputs: Any) -> None:
    model, inputs = build_model(), build_inputs(image=False)
    padded = {
        "input_ids": torch.cat([torch.full((1, 3), 7), inputs["input_ids"]], dim=1),
        "attention_mask": torch.cat([torch.zeros(1, 3, dtype=torch.long), inputs["attention_mask"]], dim=1),
    }
    plain = model(**padded).logits
    with context(model):
        assert torch.equal(model(**padded).logits, plain)


def test_every_kind_of_module_is_patched_as_often_as_the_model_has_it(context: Any, build_model: Any) -> None:
    model = build_model()
    classes = [type(module) for module in model.modules()]
    with context(model) as audit:
        replaced = [type(module) for module in model.modules() if "forward" in module.__dict__]
    assert audit.counts == {
        RuleKind.RMS_NORM: classes.count(qwen.Qwen3VLTextRMSNorm),
        RuleKind.LAYER_NORM: classes.count(nn.LayerNorm),
        RuleKind.GATED_MLP: classes.count(qwen.Qwen3VLTextMLP),
        RuleKind.ATTENTION: classes.count(qwen.Qwen3VLTextAttention) + classes.count(qwen.Qwen3VLVisionAttention),
        RuleKind.ACTIVATION: 3 + 3 + 3,  # decoder layers, vision blocks, mergers
    }
    assert len(replaced) == sum(audit.counts.values()) - audit.counts[RuleKind.ATTENTION]


def test_classes_and_library_functions_stay_as_they_are(context: Any, build_model: Any) -> None:
    def shared() -> list[Any]:
        return [
            qwen.Qwen3VLTextRMSNorm.forward,
            qwen.Qwen3VLTextMLP.forward,
            nn.LayerNorm.forward,
            qwen.eager_attention_forward,
            AttentionInterface()["sdpa"],
        ]

    before = shared()
    with context(build_model()):
        assert shared() == before


@pytest.mark.parametrize("implementation", ["sdpa", "eager", {"text_config": "eager", "vision_config": "sdpa"}])
def test_leaving_restores_everything(
    context: Any, implementation: Any, build_model: Any, build_inputs: Any, state_of: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    model.set_attn_implementation(implementation)
    before = state_of(model, inputs)
    with context(model):
        pass
    assert state_of(model, inputs) == before
    with pytest.raises(ZeroDivisionError), context(model):
        _ = 1 / 0
    assert state_of(model, inputs) == before


def test_entering_that_fails_half_way_leaves_nothing_behind(
    context: Any, build_model: Any, build_inputs: Any, state_of: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    last_norm = model.model.language_model.norm
    last_norm.forward = last_norm.forward
    before = state_of(model, inputs)
    with pytest.raises(AlreadyPatchedError, match="norm has a forward of its own"), context(model):
        pytest.fail("entered")
    assert state_of(model, inputs) == before


def test_one_failing_undo_never_skips_the_next() -> None:
    first, last = nn.GELU(), nn.GELU()
    stack = ExitStack()
    patching.replace_forward("first", first, lambda x: x, stack)
    stack.callback(lambda: 1 / 0)
    patching.replace_forward("last", last, lambda x: x, stack)
    with pytest.raises(ZeroDivisionError):
        stack.close()
    assert "forward" not in first.__dict__
    assert "forward" not in last.__dict__


@pytest.mark.parametrize("inner", CONTEXTS.values(), ids=CONTEXTS)
def test_a_patched_model_is_not_patched_again(context: Any, inner: Any, build_model: Any) -> None:
    model = build_model()
    with context(model) as audit:
        with pytest.raises(AlreadyPatchedError, match="leave that block first"), inner(model):
            pytest.fail("entered")
        assert sum("forward" in module.__dict__ for module in model.modules()) > 0
        assert audit.counts
    with inner(model):
        pass


def test_a_second_model_never_notices(context: Any, build_model: Any, build_inputs: Any, state_of: Any) -> None:
    first, second, inputs = build_model(0), build_model(1), build_inputs()
    before = state_of(second, inputs)
    with context(first):
        assert state_of(second, inputs) == before
    assert state_of(second, inputs) == before


def test_an_unknown_module_is_refused_by_name(context: Any, build_model: Any) -> None:
    class Sharpen(nn.Module):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden**3

    model = build_model()
    model.model.language_model.layers[1].mlp.sharpen = Sharpen()
    with pytest.raises(UnsupportedModelError, match=r"layers\.1\.mlp\.sharpen \(Sharpen\)"), context(model):
        pytest.fail("entered")


def test_a_subclass_of_linear_is_not_taken_for_linear(build_model: Any) -> None:
    class Gated(nn.Linear):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return super().forward(hidden).sigmoid()

    model = build_model()
    model.model.language_model.layers[0].self_attn.o_proj = Gated(32, 32)
    with pytest.raises(UnsupportedModelError, match=r"layers\.0\.self_attn\.o_proj \(Gated\)"):
        audit_model(model)


@pytest.mark.parametrize("kind", QWEN3_VL.rules)
def test_a_rule_table_emptied_for_one_kind_refuses(
    context: Any, kind: RuleKind, build_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied = dataclasses.replace(QWEN3_VL, rules={**QWEN3_VL.rules, kind: frozenset()})
    monkeypatch.setattr(families, "FAMILIES", (emptied,))
    with pytest.raises(UnsupportedModelError, match=f"needs a rule for {kind}"), context(build_model()):
        pytest.fail("entered")


@pytest.mark.parametrize("method", CONTEXTS)
def test_a_method_without_a_forward_for_one_kind_refuses(
    method: Any, build_model: Any, build_inputs: Any, state_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = {kind: forward for kind, forward in rules.FORWARDS[method].items() if kind is not RuleKind.GATED_MLP}
    monkeypatch.setattr(patching, "FORWARDS", {method: without})
    model, inputs = build_model(), build_inputs()
    before = state_of(model, inputs)
    with pytest.raises(UnsupportedModelError, match="no forward for modules of kind gated MLP"):
        CONTEXTS[method](model).__enter__()
    assert state_of(model, inputs) == before


def test_a_model_of_no_family_is_refused_with_the_families_that_exist() -> None:
    with pytest.raises(UnsupportedModelError, match=r"model type None \(Linear\).*Qwen3-VL \(qwen3_vl\)"):
        family_of(nn.Linear(2, 2))


def test_a_model_without_language_head_is_refused(build_model: Any) -> None:
    with pytest.raises(UnsupportedModelError, match="AutoModelForImageTextToText"):
        family_of(build_model().model)


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn], ids=["8 bits", "4 bits packed", "fp8"]
)
def test_quantised_weights_are_refused(context: Any, dtype: torch.dtype, build_model: Any) -> None:
    model = build_model()
    weight = torch.zeros(32, 32, dtype=dtype)
    model.model.language_model.layers[0].self_attn.o_proj.weight = nn.Parameter(weight, requires_grad=False)
    message = rf"o_proj\.weight \({dtype}\) is quantised: load the model in bfloat16"
    with pytest.raises(UnsupportedModelError, match=message), context(model):
        pytest.fail("entered")


def test_a_quantised_configuration_is_refused_whatever_the_weights_look_like(context: Any, build_model: Any) -> None:
    model = build_model()
    model.config.quantization_config = {"load_in_4bit": True}
    with pytest.raises(UnsupportedModelError, match="without a quantization_config"), context(model):
        pytest.fail("entered")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_vision_tower_conserves_under_cplrp(seed: int, build_model: Any, build_inputs: Any) -> None:
    model, inputs = build_model(seed, torch.float64, biases=False), build_inputs(seed)
    with torch.no_grad():
        model.model.visual.pos_embed.weight.zero_()  # takes a share of its own
    pixels = inputs["pixel_values"].double().requires_grad_()
    with cplrp(model):
        output = model.model.visual(pixels, grid_thw=inputs["image_grid_thw"])
        features = torch.stack([output.pooler_output, *output.deepstack_features])
        gradient = torch.randn_like(features)
        (pixel_gradient,) = torch.autograd.grad(features, pixels, gradient)
    torch.testing.assert_close((pixels * pixel_gradient).sum(), (features * gradient).sum(), rtol=1e-6, atol=1e-9)

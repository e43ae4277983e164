"""``verify`` lists the rule of every module, says what is not covered, and its self-check finds what is wrong."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from functools import partial

import pytest
import torch
import transformers
from torch import nn

from xai.attribution import rules
from xai.attribution import verify as verification
from xai.attribution.families import UnsupportedModelError
from xai.attribution.patching import AlreadyPatchedError, audit_model, cplrp
from xai.attribution.rules import RuleKind
from xai.attribution.verify import Check, block_checks, verify, without_biases

from .random_models import FAMILY_NAMES, VISION_FAMILIES, build_inputs, build_model


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_every_family_passes_its_own_check(name: str) -> None:
    model = build_model(name)
    found = verify(model)
    assert found.ok
    assert found.family == name
    assert found.rules == audit_model(model).rules
    assert found.counts == audit_model(model).counts
    inputs = {check.name.split(", ")[1] for check in found.checks if "conservation" in check.name}
    assert inputs == ({"text", "image+text"} if name in VISION_FAMILIES else {"text"})
    exact = [check for check in found.checks if check.limit == verification.EXACT]
    blocks = {check.name for check in exact if check.name.startswith("model.")}
    assert any(path.endswith("layers.0") for path in blocks)
    assert all(abs(check.error) <= 1e-6 for check in exact)


def test_the_frame_has_one_row_a_module_with_its_rule() -> None:
    model = build_model("Qwen3-VL-MoE")
    frame = verify(model).frame().set_index("module")
    assert list(frame.index) == [name for name, _ in model.named_modules()]
    layer = "model.language_model.layers.1"
    assert frame.loc[f"{layer}.mlp.experts", "rule"] == "experts"
    assert frame.loc[f"{layer}.mlp.experts.act_fn", "rule"] == "expert gate"
    assert frame.loc[f"{layer}.mlp.gate", "rule"] == "router"
    assert frame.loc[f"{layer}.mlp", "rule"] == "passes on"
    assert frame.loc[f"{layer}.self_attn.q_proj", "rule"] == "linear"
    assert frame.loc["model.language_model.layers", "rule"] == "container"
    assert frame.loc["model.language_model.embed_tokens", "rule"] == "embedding"
    linear = frame[frame["rule"] == "linear"]
    assert set(linear["class"]) == {"Linear", "Conv3d"}
    assert set(frame.groupby("rule").size().items()) >= {("experts", 2), ("router", 2), ("gated MLP", 1)}


def test_the_checks_frame_has_the_figures() -> None:
    frame = verify(build_model("Llama")).checks_frame().set_index("check")
    row = frame.loc["conservation, text, double precision without biases"]
    assert row["found"] == pytest.approx(row["expected"], rel=1e-6)
    assert row["passed"] is True
    assert frame.loc["conservation, text", "passed"] is None


def test_what_biases_take_is_reported_and_not_judged() -> None:
    found = verify(build_model("Qwen2"))
    whole = {check.name: check for check in found.checks}
    assert abs(whole["conservation, text"].error) > 1e-3
    assert whole["conservation, text"].passed is None
    assert found.ok


class Cube(nn.Module):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden**3


def test_what_is_not_covered_is_listed_and_nothing_runs() -> None:
    model = build_model("Llama")
    model.model.layers[0].mlp.cube = Cube()
    found = verify(model)
    assert found.uncovered == {"model.layers.0.mlp.cube": "Cube"}
    assert not found.ok
    assert found.checks == ()
    assert found.frame().set_index("module").loc["model.layers.0.mlp.cube", "rule"] == "none"


class LeakingNorm(nn.Module):
    """Called like a passive class, but it multiplies by what depends on the input."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Linear(size, size, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * self.scale(hidden)


def test_a_passive_module_that_is_none_fails_the_exact_check_of_its_block() -> None:
    model = build_model("Llama")
    passive = type("LlamaRotaryEmbedding", (LeakingNorm,), {})
    model.model.layers[1].mlp = nn.Sequential(model.model.layers[1].mlp, passive(32))
    found = verify(model)
    failed = {check.name for check in found.checks if check.passed is False}
    assert failed == {"conservation, text, double precision without biases", "model.layers.1"}
    assert not found.ok


def test_a_rule_that_changes_the_output_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def norm_of_another_kind(module: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        return rules.rms_norm(module, hidden) * 1.01

    forwards = {**rules.FORWARDS["cplrp"], RuleKind.RMS_NORM: norm_of_another_kind}
    monkeypatch.setattr("xai.attribution.patching.FORWARDS", {"cplrp": forwards})
    found = verify(build_model("Llama"))
    assert "outputs, text" in {check.name for check in found.checks if check.passed is False}


@pytest.mark.parametrize("name", ["Qwen2", "Qwen3-VL-MoE", "Gemma 3"])
def test_the_model_is_left_as_it_was(name: str) -> None:
    model = build_model(name).train()
    weights = [(key, value.clone()) for key, value in model.state_dict().items()]
    flags = [(p.requires_grad, p.dtype, p.grad) for p in model.parameters()]
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    verify(model)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in weights)
    assert [(p.requires_grad, p.dtype, p.grad) for p in model.parameters()] == flags
    assert [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()] == hooks
    assert all(module.training for module in model.modules())


def test_a_large_model_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "SMALL", 10)
    found = verify(build_model("Llama"))
    assert {check.name for check in found.checks} == {"outputs, text", "conservation, text"}


def test_a_large_picture_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAX_PATCHES", 10)
    assert not any("image" in check.name for check in verify(build_model("Gemma 3")).checks)


def test_the_copy_has_no_biases_and_shares_no_weight() -> None:
    model = build_model("Qwen2-VL")
    copy = without_biases(model)
    biases = {name: value for name, value in copy.named_parameters() if name.endswith("bias")}
    assert biases
    assert not any(value.any() for value in biases.values())
    assert {value.dtype for value in copy.parameters()} == {torch.float64}
    assert not {p.data_ptr() for p in copy.parameters()} & {p.data_ptr() for p in model.parameters()}


def test_a_block_that_the_forward_never_reaches_is_named() -> None:
    model = build_model("Llama")
    with cplrp(model), pytest.raises(UnsupportedModelError, match="never called nowhere"):
        block_checks(model, build_inputs("Llama"), {"nowhere": nn.Linear(2, 2)})


def test_a_check_with_a_value_that_is_no_number_has_failed() -> None:
    assert Check("x", 1.0, float("nan"), 1e-6).passed is False
    assert Check("x", 2.0, 2.0, 1e-6).passed is True
    assert Check("x", -2.0, -1.0).error == pytest.approx(0.5)
    with pytest.raises(FrozenInstanceError):
        Check("x", 1.0, 1.0).limit = 1.0  # type: ignore[misc]


def test_a_model_of_no_family_is_refused() -> None:
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=10)
    with pytest.raises(UnsupportedModelError, match="'gpt2'"):
        verify(transformers.GPT2LMHeadModel(config))


def test_a_patched_model_is_refused() -> None:
    model = build_model("Llama")
    with cplrp(model), pytest.raises(AlreadyPatchedError):
        verify(model)


def test_quantised_weights_are_refused() -> None:
    model = build_model("Llama")
    model.lm_head.weight = nn.Parameter(torch.zeros(64, 32, dtype=torch.int8), requires_grad=False)
    with pytest.raises(UnsupportedModelError, match="is quantised"):
        verify(model)


def test_a_module_with_a_forward_of_its_own_is_refused() -> None:
    model = build_model("Llama")
    norm = model.model.norm
    norm.forward = partial(type(norm).forward, norm)
    with pytest.raises(AlreadyPatchedError, match="a forward of its own"):
        verify(model)

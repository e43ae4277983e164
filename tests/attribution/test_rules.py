"""Each rule equals a second version of it, written slowly in matrix form from the papers, in double precision.

A rule's forward is run on ``x``; with a random gradient ``g`` at its output ``y`` the relevance that enters is
``y * g`` and the relevance that leaves is ``x * gradient``.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, Qwen3VLMoeTextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRMSNorm
from transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe import Qwen3VLMoeTextExperts, Qwen3VLMoeTextTopKRouter

from xai.attribution import rules
from xai.attribution.rules import RuleKind, kind_by_structure

SEEDS = [0, 1, 2]
SHAPES = [(5,), (3, 8), (2, 4, 6)]


def propagate(forward: object, inputs: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Output, relevance entering at the output, and relevance of the input."""
    leaf = inputs.clone().requires_grad_()
    output = forward(leaf)  # type: ignore[operator]
    gradient = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed + 100), dtype=output.dtype)
    (input_gradient,) = torch.autograd.grad(output, leaf, gradient)
    return output.detach(), (output * gradient).detach(), (leaf * input_gradient).detach()


def z_rule(weight: Tensor, inputs: Tensor, per_output: Tensor) -> Tensor:
    """``R_i = x_i sum_j W_ji R_j / y_j`` for one vector; ``per_output`` is ``R_j / y_j``."""
    relevance = torch.zeros_like(inputs)
    for i in range(len(inputs)):
        for j in range(len(per_output)):
            relevance[i] += inputs[i] * weight[j, i] * per_output[j]
    return relevance


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm_is_a_diagonal_map_with_a_constant_normaliser(seed: int, shape: tuple[int, ...]) -> None:
    module = Qwen3VLTextRMSNorm(shape[-1]).double()
    module.weight.data = randn(seed + 1, shape[-1])
    inputs = randn(seed, *shape)
    output, entering, leaving = propagate(lambda x: rules.rms_norm(module, x), inputs, seed)
    for x, y, r_out, r_in in zip(*(t.reshape(-1, shape[-1]) for t in (inputs, output, entering, leaving)), strict=True):
        scale = 1 / ((x @ x) / len(x) + module.variance_epsilon).sqrt()
        matrix = torch.diag(module.weight.data * scale)
        torch.testing.assert_close(y, matrix @ x, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(r_in, z_rule(matrix, x, r_out / y), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gemmas_rms_norm_is_a_diagonal_map_with_one_more_than_its_weight(seed: int, shape: tuple[int, ...]) -> None:
    module = Gemma3RMSNorm(shape[-1]).double()
    module.weight.data = randn(seed + 1, shape[-1])
    inputs = randn(seed, *shape)
    output, entering, leaving = propagate(lambda x: rules.rms_norm_one_plus(module, x), inputs, seed)
    for x, y, r_out, r_in in zip(*(t.reshape(-1, shape[-1]) for t in (inputs, output, entering, leaving)), strict=True):
        matrix = torch.diag((1 + module.weight.data) / ((x @ x) / len(x) + module.eps).sqrt())
        torch.testing.assert_close(y, matrix @ x, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(r_in, z_rule(matrix, x, r_out / y), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("norm", "rule"), [(Qwen3VLTextRMSNorm, rules.rms_norm), (Gemma3RMSNorm, rules.rms_norm_one_plus)]
)
def test_norms_keep_their_values_to_the_bit(norm: Any, rule: Any, dtype: torch.dtype) -> None:
    module = norm(6).to(dtype)
    module.weight.data = randn(1, 6).to(dtype)
    hidden = randn(0, 20, 6).to(dtype)
    assert torch.equal(rule(module, hidden), module(hidden))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_is_centring_then_a_diagonal_map_with_a_constant_deviation(
    seed: int, shape: tuple[int, ...], affine: bool
) -> None:
    size = shape[-1]
    module = nn.LayerNorm(size, elementwise_affine=affine).double()
    weight, bias = torch.ones(size).double(), torch.zeros(size).double()
    if affine:
        weight, bias = randn(seed + 1, size), randn(seed + 2, size)
        module.weight.data, module.bias.data = weight, bias
    inputs = randn(seed, *shape)
    output, entering, leaving = propagate(lambda x: rules.layer_norm(module, x), inputs, seed)
    assert torch.equal(output, module(inputs))
    centring = torch.eye(size).double() - 1 / size
    for x, y, r_out, r_in in zip(*(t.reshape(-1, size) for t in (inputs, output, entering, leaving)), strict=True):
        matrix = torch.diag(weight / (x.var(correction=0) + module.eps).sqrt()) @ centring
        torch.testing.assert_close(y, matrix @ x + bias, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(r_in, z_rule(matrix, x, r_out / y), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("module", [nn.SiLU(), nn.GELU(), nn.ReLU()], ids=lambda module: type(module).__name__)
def test_activation_hands_on_relevance_unchanged_and_keeps_its_values(seed: int, module: nn.Module) -> None:
    inputs = randn(seed, 4, 7)
    output, entering, leaving = propagate(lambda x: rules.activation(module, x), inputs, seed)
    assert torch.equal(output, module(inputs))
    torch.testing.assert_close(leaving, entering, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_activation_of_exact_zeros_stays_finite_in_half_precision(dtype: torch.dtype) -> None:
    inputs = torch.tensor([0.0, -0.0, 1.0], dtype=dtype, requires_grad=True)
    output = rules.activation(nn.SiLU(), inputs)
    (gradient,) = torch.autograd.grad(output.sum(), inputs)
    assert output.dtype == dtype
    assert torch.isfinite(gradient).all()


class GatedMlp(nn.Module):
    """A gated MLP with an activation that carries its own rule, as in a patched model."""

    def __init__(self, size: int, inner: int, seed: int, bias: bool) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.gate_proj = nn.Linear(size, inner, bias=bias).double()
        self.up_proj = nn.Linear(size, inner, bias=bias).double()
        self.down_proj = nn.Linear(inner, size, bias=bias).double()
        self.silu = nn.SiLU()

    def act_fn(self, x: Tensor) -> Tensor:
        return rules.activation(self.silu, x)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("method", ["attnlrp", "cplrp"])
def test_gated_mlp_splits_its_product_as_the_method_says(seed: int, bias: bool, method: str) -> None:
    module = GatedMlp(6, 9, seed, bias)
    inputs = randn(seed, 6)
    forward = rules.FORWARDS[method][RuleKind.GATED_MLP]  # type: ignore[index]
    output, entering, leaving = propagate(lambda x: forward(module, x), inputs, seed)
    gate_in, up = module.gate_proj(inputs), module.up_proj(inputs)
    product = nn.functional.silu(gate_in) * up
    torch.testing.assert_close(output, module.down_proj(product).detach(), rtol=1e-12, atol=1e-12)
    r_product = z_rule(module.down_proj.weight, product, entering / output)
    through_gate, through_up = (0.5, 0.5) if method == "attnlrp" else (0.0, 1.0)
    expected = z_rule(module.gate_proj.weight, inputs, through_gate * r_product / gate_in)
    expected = expected + z_rule(module.up_proj.weight, inputs, through_up * r_product / up)
    torch.testing.assert_close(leaving, expected.detach(), rtol=1e-6, atol=1e-8)


def build_experts(seed: int, method: str, implementation: str) -> Any:
    """Three gated experts whose activation carries the method's rule, as in a patched model."""
    config = Qwen3VLMoeTextConfig(hidden_size=5, moe_intermediate_size=7, num_experts=3, num_experts_per_tok=2)
    config._experts_implementation = implementation
    module: Any = Qwen3VLMoeTextExperts(config).double()
    module.gate_up_proj.data, module.down_proj.data = randn(seed + 1, 3, 14, 5), randn(seed + 2, 3, 5, 7)
    gate_rule = rules.FORWARDS[method][RuleKind.EXPERT_GATE]  # type: ignore[index]
    module.act_fn.forward = partial(gate_rule, module.act_fn)
    return module


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("implementation", ["eager", "batched_mm"])
@pytest.mark.parametrize("method", ["attnlrp", "cplrp"])
def test_experts_split_their_product_as_the_method_says_and_routing_is_constant(
    seed: int, implementation: str, method: str
) -> None:
    module = build_experts(seed, method, implementation)
    inputs = randn(seed, 4, 5)
    index = torch.tensor([[0, 1], [2, 0], [1, 2], [2, 1]])
    routing = randn(seed + 3, 4, 2).abs().requires_grad_()
    forward = rules.FORWARDS[method][RuleKind.EXPERTS]  # type: ignore[index]
    output, entering, leaving = propagate(lambda x: forward(module, x, index, routing), inputs, seed)
    through_gate, through_up = (0.5, 0.5) if method == "attnlrp" else (0.0, 1.0)
    for token, x in enumerate(inputs):
        expected_output, expected = torch.zeros(5).double(), torch.zeros(5).double()
        for slot, expert in enumerate(index[token].tolist()):
            gate_weight, up_weight = module.gate_up_proj[expert].detach().chunk(2)
            gate_in, up = gate_weight @ x, up_weight @ x
            product = nn.functional.silu(gate_in) * up
            weight = float(routing[token, slot].detach()) * module.down_proj[expert].detach()
            expected_output = expected_output + weight @ product
            r_product = z_rule(weight, product, entering[token] / output[token])
            expected = expected + z_rule(gate_weight, x, through_gate * r_product / gate_in)
            expected = expected + z_rule(up_weight, x, through_up * r_product / up)
        torch.testing.assert_close(output[token], expected_output, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(leaving[token], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", ["attnlrp", "cplrp"])
def test_routing_weights_get_no_gradient_from_the_experts(method: str) -> None:
    module = build_experts(0, method, "eager")
    inputs, routing = randn(0, 1, 5).requires_grad_(), torch.rand(1, 2).double().requires_grad_()
    output = rules.FORWARDS[method][RuleKind.EXPERTS](module, inputs, torch.tensor([[0, 1]]), routing)  # type: ignore[index]
    gradients = torch.autograd.grad(output.sum(), (inputs, routing), allow_unused=True)
    assert gradients[0].any()
    assert gradients[1] is None


def test_a_router_decides_as_ever_and_hands_nothing_back() -> None:
    config = Qwen3VLMoeTextConfig(hidden_size=5, num_experts=3, num_experts_per_tok=2)
    module = Qwen3VLMoeTextTopKRouter(config).requires_grad_(False)
    module.weight.data = randn(0, 3, 5).float()
    hidden = randn(1, 4, 5).float().requires_grad_()
    for found, expected in zip(rules.router(module, hidden), module(hidden), strict=True):
        assert torch.equal(found, expected)
        assert not found.requires_grad


def slow_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One head, AttnLRP in closed form: output and relevance of query, key and value, ``(seq, head_dim)`` each."""
    n = len(q)
    scores = scale * q @ k.T
    allowed = torch.ones(n, n).tril().bool() if causal else torch.ones(n, n).bool()
    weights = torch.where(allowed, scores.exp(), 0.0)
    weights = weights / weights.sum(1, keepdim=True)
    output = weights @ v
    per_output = gradient  # R_jp / O_jp
    r_weights = torch.zeros(n, n).double()
    r_value = torch.zeros_like(v)
    for j in range(n):
        for i in range(n):
            contribution = weights[j, i] * v[i] * per_output[j] / 2
            r_weights[j, i] = contribution.sum()
            r_value[i] += contribution
    r_query, r_key = torch.zeros_like(q), torch.zeros_like(k)
    for j in range(n):
        for i in range(n):
            # R_S = S * (R_A - A * sum R_A), then half of every term q * k of the score to each factor.
            per_score = r_weights[j, i] - weights[j, i] * r_weights[j].sum()
            term = scale * q[j] * k[i] * per_score / 2
            r_query[j] += term
            r_key[i] += term
    return output, r_query, r_key, r_value


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("method", ["attnlrp", "cplrp"])
def test_attention_equals_the_closed_form(seed: int, causal: bool, groups: int, method: str) -> None:
    heads, n, size, scale = 2, 5, 4, 0.7
    query = randn(seed, 1, heads, n, size).requires_grad_()
    key = randn(seed + 1, 1, heads // groups, n, size).requires_grad_()
    value = randn(seed + 2, 1, heads // groups, n, size).requires_grad_()
    module = nn.Module()
    module.num_key_value_groups = groups  # type: ignore[assignment]
    attend = rules.ATTENTION_WRAPPERS[method](AttentionInterface()["sdpa"])  # type: ignore[index]
    output, _ = attend(module, query, key, value, None, scaling=scale, is_causal=causal)
    gradient = randn(seed + 3, 1, n, heads, size)
    found = torch.autograd.grad(output, (query, key, value), gradient, allow_unused=True)
    expected = [torch.zeros_like(tensor) for tensor in (query, key, value)]
    for head in range(heads):
        arguments = query[0, head], key[0, head // groups], value[0, head // groups]
        slow_output, *slow = slow_attention(*(t.detach() for t in arguments), scale, causal, gradient[0, :, head])
        torch.testing.assert_close(output[0, :, head].detach(), slow_output, rtol=1e-10, atol=1e-12)
        for total, part, index in zip(expected, slow, (head, head // groups, head // groups), strict=True):
            total[0, index] += part
    if method == "attnlrp":
        for leaf, grad, slow_relevance in zip((query, key, value), found, expected, strict=True):
            torch.testing.assert_close((leaf * grad).detach(), slow_relevance.detach(), rtol=1e-9, atol=1e-12)
    else:
        assert found[0] is None
        assert found[1] is None
        torch.testing.assert_close((value * found[2]).detach(), 2 * expected[2].detach(), rtol=1e-9, atol=1e-12)


def test_structure_alone_tells_the_kinds_apart() -> None:
    attention = nn.Module()
    attention.qkv = nn.Linear(2, 6)
    assert kind_by_structure(GatedMlp(2, 3, 0, bias=False)) is RuleKind.GATED_MLP
    assert kind_by_structure(attention) is RuleKind.ATTENTION
    assert kind_by_structure(nn.LayerNorm(2)) is RuleKind.LAYER_NORM
    assert kind_by_structure(Qwen3VLTextRMSNorm(2)) is RuleKind.RMS_NORM
    assert kind_by_structure(Gemma3RMSNorm(2)) is RuleKind.RMS_NORM_ONE_PLUS
    assert kind_by_structure(nn.MultiheadAttention(2, 1)) is RuleKind.ATTENTION
    assert kind_by_structure(build_experts(0, "cplrp", "eager")) is RuleKind.EXPERTS
    assert kind_by_structure(Qwen3VLMoeTextTopKRouter(Qwen3VLMoeTextConfig(hidden_size=2))) is RuleKind.ROUTER
    assert kind_by_structure(nn.GELU()) is RuleKind.ACTIVATION
    assert kind_by_structure(nn.Linear(2, 2)) is None


def test_loading_the_rules_leaves_no_trace_of_lxt_behind() -> None:
    code = (
        "import sys, xai.attribution.rules as rules\n"
        "assert rules._lxt.__name__ == 'lxt.efficient.rules'\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'lxt'], 'left behind'\n"
        "import lxt.efficient.models as maps\n"
        "assert maps.__file__\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last_line = run.stderr.strip().rpartition("\n")[2]
    lxt_itself_fails = last_line.startswith(("ImportError", "ModuleNotFoundError")) and "'transformers." in last_line
    assert run.returncode == 0 or lxt_itself_fails, run.stderr


def test_the_rules_are_those_of_an_lxt_that_the_user_imported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    users_own = importlib.import_module("types").ModuleType("lxt.efficient.rules")
    monkeypatch.setitem(sys.modules, "lxt.efficient.rules", users_own)
    assert rules.load_lxt_rules() is users_own

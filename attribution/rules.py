"""The AttnLRP and CP-LRP rules as forwards whose gradient × input is relevance.

Both methods are written here in the gradient × input form: a forward computes the very values of the
module that it stands in for, and its backward is changed so that ``input * gradient`` is the relevance
of the input. Sources:

- AttnLRP: Achtibat et al. 2024, "AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for
  Transformers", arXiv:2402.05602;
- CP-LRP: Ali et al. 2022, "XAI for Transformers: Better Explanations through Conservative
  Propagation", arXiv:2202.07304.

The elementary rules come from ``lxt.efficient.rules`` (the reference implementation by the authors of
AttnLRP). ``import lxt.efficient`` itself fails beside current transformers, because lxt's model maps
import modules that transformers has removed; the maps are not needed here, so the import below runs
with an empty ``lxt.efficient.models`` in their place and takes every trace of it back, so that a user
who imports lxt gets lxt.

Gradients of weights mean nothing while these forwards are in place; only gradients of activations do.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType, ModuleType
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from xai.attribution.sinks import stop_at_sinks

LrpMethod = Literal["attnlrp", "cplrp"]
Forward = Callable[..., Any]
AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]


class RuleKind(StrEnum):
    """The kinds of module that need a rule; the value is what reports print."""

    RMS_NORM = "RMSNorm"
    RMS_NORM_ONE_PLUS = "RMSNorm (1 + weight)"
    LAYER_NORM = "LayerNorm"
    ACTIVATION = "activation"
    GATED_MLP = "gated MLP"
    ATTENTION = "attention"
    EXPERTS = "experts"
    EXPERT_GATE = "expert gate"
    ROUTER = "router"


def load_lxt_rules() -> ModuleType:
    """``lxt.efficient.rules``, imported without lxt's model maps (see the module's docstring).

    Raises:
        ImportError: lxt is not installed, or its layout is not that of version 2.
    """
    if "lxt.efficient.rules" in sys.modules:
        return sys.modules["lxt.efficient.rules"]
    before = set(sys.modules)
    stand_in = ModuleType("lxt.efficient.models")
    stand_in.get_default_map = lambda *_, **__: {}  # type: ignore[attr-defined]
    sys.modules.setdefault(stand_in.__name__, stand_in)
    try:
        return importlib.import_module("lxt.efficient.rules")
    finally:
        for name in set(sys.modules) - before:
            if name == "lxt" or name.startswith("lxt."):
                del sys.modules[name]


_lxt = load_lxt_rules()


def rms_norm(module: nn.Module, hidden: Tensor) -> Tensor:
    """RMSNorm with its normaliser taken as a constant, ``(..., hidden) -> (..., hidden)``.

    The identity rule on normalisation (AttnLRP, section 3.3.3; CP-LRP, section 4.2): what is left is
    linear, so relevance passes unchanged in total. Double precision stays double here, where transformers
    rounds to single; in all others the values are those of transformers to the last bit.
    """
    return cast(Tensor, module.weight) * _root_mean_square_normalised(hidden, module.variance_epsilon).to(hidden.dtype)


def rms_norm_one_plus(module: nn.Module, hidden: Tensor) -> Tensor:
    """Gemma's RMSNorm, whose gain is ``1 + weight``, under the rule of :func:`rms_norm`.

    The gain is applied before rounding to the dtype of ``hidden``, and not after it.
    """
    normalised = _root_mean_square_normalised(hidden, module.eps)
    gain = 1.0 + cast(Tensor, module.weight).to(normalised.dtype)
    return (normalised * gain).to(hidden.dtype)


def layer_norm(module: nn.LayerNorm, hidden: Tensor) -> Tensor:
    """LayerNorm with its standard deviation taken as a constant, ``(..., hidden) -> (..., hidden)``.

    Subtracting the mean is linear and keeps its gradient (CP-LRP, section 4.2). The values are those of
    torch's own kernel to the last bit.
    """
    arguments = hidden, list(module.normalized_shape), module.weight, module.bias, module.eps
    return _LayerNormDetachedStd.apply(*arguments)  # type: ignore[no-any-return]


def activation(module: nn.Module, hidden: Tensor) -> Tensor:
    """An element-wise activation under the identity rule (AttnLRP, equation 9): relevance passes unchanged.

    The rule's ratio output / input is taken in float32 at least: in half precision an input of exactly
    zero would divide zero by zero. The output is the module's own, bit by bit.
    """
    own_forward = type(module).forward
    computed_dtype = torch.promote_types(hidden.dtype, torch.float32)

    def compute(computed: Tensor) -> Tensor:
        output: Tensor = own_forward(module, computed.to(hidden.dtype))
        return output.to(computed_dtype)

    output: Tensor = _lxt.identity_rule_implicit(compute, hidden.to(computed_dtype))
    return output.to(hidden.dtype)


def gated_mlp_attnlrp(module: nn.Module, hidden: Tensor) -> Tensor:
    """A gated MLP whose product gives half to each factor, ``(..., hidden) -> (..., hidden)``.

    The uniform rule for products (AttnLRP, equation 7); ``act_fn`` carries its own rule.
    """
    product = module.act_fn(module.gate_proj(hidden)) * module.up_proj(hidden)  # type: ignore[operator]
    output: Tensor = module.down_proj(_lxt.divide_gradient(product, 2))  # type: ignore[operator]
    return output


def gated_mlp_cplrp(module: nn.Module, hidden: Tensor) -> Tensor:
    """A gated MLP whose gate is a constant, ``(..., hidden) -> (..., hidden)``; all goes through ``up_proj``."""
    gate = module.act_fn(module.gate_proj(_lxt.stop_gradient(hidden)))  # type: ignore[operator]
    output: Tensor = module.down_proj(gate * module.up_proj(hidden))  # type: ignore[operator]
    return output


def experts_attnlrp(module: nn.Module, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Fused experts, gated MLPs whose product gives half to each factor, ``(n_tokens, hidden) -> (n_tokens, hidden)``.

    The uniform rule for products (AttnLRP, equation 7). Gate and up projection share one weight, and every
    path through an expert crosses its product exactly once, so halving the gradient at the input halves it
    at the product, whichever implementation of the experts runs. ``act_fn`` carries its own rule; the
    routing ``weights``, ``(n_tokens, top_k)``, are constants as in :func:`router`.
    """
    output: Tensor = type(module).forward(module, _lxt.divide_gradient(hidden, 2), index, _lxt.stop_gradient(weights))
    return output


def experts_cplrp(module: nn.Module, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Fused experts with constant gates, see :func:`expert_gate_cplrp`; all goes through the up projection."""
    output: Tensor = type(module).forward(module, hidden, index, _lxt.stop_gradient(weights))
    return output


def expert_gate_cplrp(module: nn.Module, hidden: Tensor) -> Tensor:
    """The activation inside fused experts as a constant: gate and up projection are one product there."""
    gate: Tensor = _lxt.stop_gradient(type(module).forward(module, hidden))
    return gate


def router(module: nn.Module, hidden: Tensor) -> tuple[Tensor, ...]:
    """A router whose choice and weights are constants: its gradient is stopped, in both methods.

    Which experts run is no differentiable function of the input, and the weights of those that do are a
    softmax over them, which no rule of either paper covers. What is left, a sum of experts times constants,
    is linear in the experts, so relevance is conserved; that the router read the token is not shown.
    """
    outputs: tuple[Tensor, ...] = type(module).forward(module, _lxt.stop_gradient(hidden))
    return outputs


def attention_attnlrp(attend: AttentionFunction) -> AttentionFunction:
    """Wrap an attention function of transformers so that its backward follows AttnLRP.

    The uniform rule gives half of the product ``A @ V`` to each factor (AttnLRP, equation 7); the softmax
    is taken to first order (equation 13), which is its plain gradient; ``Q @ K.T`` halves once more. So
    the gradient of the value is halved, and those of query and key are quartered.
    """

    def attention_with_attnlrp(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        key, value = stop_at_sinks(module, key), stop_at_sinks(module, value)
        query, key = _lxt.divide_gradient(query, 4), _lxt.divide_gradient(key, 4)
        return attend(module, query, key, _lxt.divide_gradient(value, 2), *args, **kwargs)

    return attention_with_attnlrp


def attention_cplrp(attend: AttentionFunction) -> AttentionFunction:
    """Wrap an attention function of transformers so that its weights are constants (CP-LRP, section 4.1)."""

    def attention_with_cplrp(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        value = stop_at_sinks(module, value)
        return attend(module, _lxt.stop_gradient(query), _lxt.stop_gradient(key), value, *args, **kwargs)

    return attention_with_cplrp


def _root_mean_square_normalised(hidden: Tensor, eps: Any) -> Tensor:
    """``hidden`` over its root mean square, a constant, in float32 at least, ``(..., hidden) -> (..., hidden)``."""
    computed = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    scale = torch.rsqrt(computed.pow(2).mean(-1, keepdim=True) + eps)
    normalised: Tensor = computed * _lxt.stop_gradient(scale)
    return normalised


class _LayerNormDetachedStd(torch.autograd.Function):
    """LayerNorm whose backward takes the standard deviation as a constant."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        # rstd comes from the kernel that gives the output, so both agree in every precision.
        output, _, rstd = torch.native_layer_norm(hidden, shape, weight, bias, eps)
        ctx.save_for_backward(rstd, weight)
        ctx.dims = tuple(range(-len(shape), 0))
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        rstd, weight = ctx.saved_tensors
        scaled = gradients[0] * rstd if weight is None else gradients[0] * weight * rstd
        centred = scaled - scaled.mean(ctx.dims, keepdim=True)
        return centred.to(gradients[0].dtype), None, None, None, None


_SHARED_FORWARDS: Mapping[RuleKind, Forward] = MappingProxyType(
    {
        RuleKind.RMS_NORM: rms_norm,
        RuleKind.RMS_NORM_ONE_PLUS: rms_norm_one_plus,
        RuleKind.LAYER_NORM: layer_norm,
        RuleKind.ACTIVATION: activation,
        RuleKind.ROUTER: router,
    }
)

FORWARDS: Mapping[LrpMethod, Mapping[RuleKind, Forward]] = MappingProxyType(
    {
        "attnlrp": MappingProxyType(
            {
                **_SHARED_FORWARDS,
                RuleKind.GATED_MLP: gated_mlp_attnlrp,
                RuleKind.EXPERTS: experts_attnlrp,
                RuleKind.EXPERT_GATE: activation,
            }
        ),
        "cplrp": MappingProxyType(
            {
                **_SHARED_FORWARDS,
                RuleKind.GATED_MLP: gated_mlp_cplrp,
                RuleKind.EXPERTS: experts_cplrp,
                RuleKind.EXPERT_GATE: expert_gate_cplrp,
            }
        ),
    }
)
"""What stands in for ``module.forward``, by method and kind; attention goes through the attention registry."""

ATTENTION_WRAPPERS: Mapping[LrpMethod, Callable[[AttentionFunction], AttentionFunction]] = MappingProxyType(
    {"attnlrp": attention_attnlrp, "cplrp": attention_cplrp}
)

# Linear maps, look-ups and containers: gradient × input is relevance there without a rule. Exact types only,
# since a subclass may compute something else.
LINEAR_TYPES: frozenset[type[nn.Module]] = frozenset(
    {
        nn.Linear,
        nn.Conv1d,
        nn.Conv2d,
        nn.Conv3d,
        nn.AvgPool2d,
        nn.Embedding,
        nn.Identity,
        nn.Dropout,
        nn.ModuleList,
        nn.Sequential,
    }
)


def kind_by_structure(module: nn.Module) -> RuleKind | None:
    """Which rule a module looks to need, judged by what it is made of and not by any family's table."""
    children = dict(module.named_children()).keys()
    parameters = dict(module.named_parameters(recurse=False)).keys()
    if {"gate_proj", "up_proj", "down_proj"} <= children:
        return RuleKind.GATED_MLP
    if {"gate_up_proj", "down_proj"} <= parameters:
        return RuleKind.EXPERTS
    if "weight" in parameters and hasattr(module, "top_k"):
        return RuleKind.ROUTER
    if "qkv" in children or {"q_proj", "k_proj", "v_proj"} <= children or isinstance(module, nn.MultiheadAttention):
        return RuleKind.ATTENTION
    if isinstance(module, nn.LayerNorm):
        return RuleKind.LAYER_NORM
    if not children and type(module).__name__.endswith("RMSNorm"):
        return RuleKind.RMS_NORM if hasattr(module, "variance_epsilon") else RuleKind.RMS_NORM_ONE_PLUS
    if type(module).__module__ in {"torch.nn.modules.activation", "transformers.activations"}:
        return RuleKind.ACTIVATION
    return None

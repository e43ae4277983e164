"""The Gamma rule on the linear layers of a vision tower, scoped: zennit's rule, in the gradient × input form used here.

zennit hands relevance from layer to layer, the patches of this package hand on relevance over input, so that plain
autograd carries it in between. :class:`GradientGamma` translates at both ends of a layer. zennit itself, its classes
and the weights of the model stay as they are.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from zennit.composites import LayerMapComposite
from zennit.core import RemovableHandleList
from zennit.rules import Gamma

from xai.attribution.families import UnsupportedModelError

LayerType = Literal["linear", "conv"]
Gammas = Mapping[LayerType, float]
LAYER_CLASSES: Mapping[LayerType, tuple[type[nn.Module], ...]] = {
    "linear": (nn.Linear,),
    "conv": (nn.Conv2d, nn.Conv3d),
}


@contextmanager
def gamma_rule(tower: nn.Module, gamma: Gammas) -> Iterator[None]:
    """Within the block the layers of ``tower`` follow the Gamma rule; their outputs do not change.

    Montavon et al. 2019, "Layer-Wise Relevance Propagation: An Overview", in zennit's form for inputs of either
    sign. A layer type whose gamma is 0 gets no hook: gradient × input is LRP-0 there already.

    Args:
        gamma: how much more what agrees with the sign of a layer's output counts, by layer type.

    Raises:
        UnsupportedModelError: on leaving, a layer that should follow the rule was never called (named).
    """
    composite = LayerMapComposite(
        [(LAYER_CLASSES[kind], GradientGamma(value)) for kind, value in gamma.items() if value]
    )
    with ExitStack() as stack:
        stack.callback(composite.remove)
        composite.register(tower)
        hooks = list(composite.hook_refs)
        yield
        names = {module: name for name, module in tower.named_modules()}
        missed = sorted(names[hook.module] for hook in hooks if "input" not in hook.stored_tensors)
        if missed:
            raise UnsupportedModelError(
                f"the vision tower never called {', '.join(missed)}, so the Gamma rule did not reach them; "
                "use vision_rule='epsilon'"
            )


def gamma_by_layer(gamma: float | Gammas) -> dict[LayerType, float]:
    """One gamma for each layer type, from one for all or from some by name (the others get 0).

    Raises:
        ValueError: an unknown layer type, or a gamma that is negative or not finite.
    """
    known: tuple[LayerType, ...] = get_args(LayerType)
    given: Mapping[Any, float] = gamma if isinstance(gamma, Mapping) else dict.fromkeys(known, gamma)
    unknown = [kind for kind in given if kind not in known]
    if unknown:
        raise ValueError(f"gamma is given for {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    values: dict[LayerType, float] = {kind: float(given.get(kind, 0.0)) for kind in known}
    if any(not math.isfinite(value) or value < 0 for value in values.values()):
        raise ValueError(f"gamma must be 0 or more and finite, got {values}")
    return values


class GradientGamma(Gamma):  # type: ignore[misc]
    """zennit's Gamma rule on a layer whose neighbours hand on relevance over input, not relevance.

    Computed in float32 at least, on a copy of the layer, since the model may generate in another thread meanwhile;
    calls from other threads are not looked at.
    """

    module: nn.Module
    owner: int

    def register(self, module: nn.Module) -> RemovableHandleList:
        """Hook into ``module``, for calls from this thread."""
        self.module, self.owner = module, threading.get_ident()
        return super().register(module)

    def pre_forward(self, module: nn.Module, input: Any) -> Any:
        """Mark where the input enters the graph."""
        return super().pre_forward(module, input) if threading.get_ident() == self.owner else None

    def post_forward(self, module: nn.Module, input: Any, output: Any) -> Any:
        """Mark where the output leaves the graph."""
        return super().post_forward(module, input, output) if threading.get_ident() == self.owner else None

    def forward(self, module: nn.Module, input: Any, output: Any) -> None:
        """Keep the input."""
        if threading.get_ident() == self.owner:
            super().forward(module, input, output)

    def backward(self, module: nn.Module, grad_input: Any, grad_output: Any) -> tuple[Tensor]:
        """The relevance of the input over the input, from that of the output over the output."""
        (given,) = self.stored_tensors["input"]
        given = given.detach().to(torch.promote_types(given.dtype, torch.float32))
        layer = _copy_of(module, given.dtype)
        parts = [modify(given).requires_grad_() for modify in self.input_modifiers]
        with torch.enable_grad():
            outputs = [_call(layer, modify, part) for modify, part in zip(self.param_modifiers, parts, strict=True)]
        relevance = grad_output[0].to(given.dtype) * outputs[-1].detach()
        gradients = torch.autograd.grad(outputs, parts, self.gradient_mapper(relevance, outputs))
        # Each part is the input or 0, so that relevance over input is a sum of gradients and nothing is divided.
        present = [(part != 0).to(given.dtype) for part in parts]
        over_input: Tensor = self.reducer(present, gradients)
        return (over_input.to(grad_input[0].dtype),)


def _copy_of(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A shallow copy with parameters of its own, which zennit may replace without touching the model's."""
    layer = copy.copy(module)
    layer.__dict__["_parameters"] = {
        name: None if parameter is None else nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
        for name, parameter in module._parameters.items()
    }
    return layer


def _call(layer: nn.Module, modify: Any, part: Tensor) -> Tensor:
    with modify(layer):
        # Not the module's own call: the copy shares its hooks.
        output: Tensor = layer.forward(part)
    return output

"""Methods that read the attention weights of the decoder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from xai.attribution.families import Family, UnsupportedModelError
from xai.attribution.inputs import Batch, borrow
from xai.attribution.methods.registry import method
from xai.attribution.patching import attention_set_to, refuse_patched
from xai.attribution.relevance import (
    Relevance,
    differentiate,
    forward_logits,
    leaves_of,
    placed,
    resolved_score,
)
from xai.attribution.targets import Target

Inputs = Mapping[str, Tensor]


@method(
    name="attention_rollout",
    needs=["attention weights"],
    sign="unsigned",
    source="Abnar and Zuidema 2020, arXiv:2005.00928",
)
def attention_rollout(model: nn.Module, inputs: Inputs, targets: Sequence[Target]) -> list[Relevance]:
    """How much of each input reaches the target's positions if attention weights alone moved it.

    Needs: attention weights, one forward (with eager attention, which is set and put back). Baseline: none. Sign:
    none; it knows the positions of a target but neither its tokens nor its kind. Source: Abnar and Zuidema 2020,
    arXiv:2005.00928: weights averaged over heads, half of every layer for the residual path, multiplied up; the
    mean over the target's positions, so that the total is 1. Deepstack levels enter past the first layers, where
    attention cannot tell them from the image features, and get 0.
    """
    with borrow(model, inputs, targets, gradients=False) as (family, batch), eager_attention(model):
        with leaves_of(model, family) as leaves:
            logits, weights = _attend(model, family, batch)
        steps = [(mean + _identity(mean)) / 2 for mean in map(_mean_over_heads, weights)]
        results = []
        for target in targets:
            found, value = resolved_score(target, logits, batch)
            rows = _trace(found, steps, lambda row, step: row @ step)
            results.append(_placed(batch, found, value, rows.mean(dim=0), len(leaves.image)))
        return results


@method(
    name="attention_x_gradient",
    needs=["attention weights", "gradients"],
    sign="unsigned",
    source="Chefer et al. 2021, arXiv:2103.15679",
)
def attention_x_gradient(model: nn.Module, inputs: Inputs, targets: Sequence[Target]) -> list[Relevance]:
    """Attention weights times their gradients, positive part, followed through the layers to the target's positions.

    Needs: attention weights and gradients, one forward and one backward a target (with eager attention, which is
    set and put back). Baseline: none. Sign: none, only what raises the target counts. Source: Chefer et al. 2021,
    arXiv:2103.15679, equations 5 and 6, without the identity that stands for a position itself; the sum over the
    target's positions. Deepstack levels get 0, as in ``attention_rollout``.
    """
    with borrow(model, inputs, targets, gradients=True) as (family, batch), eager_attention(model):
        with leaves_of(model, family) as leaves:
            logits, weights = _attend(model, family, batch)
        named = {f"attention of layer {index}": layer for index, layer in enumerate(weights)}
        results = []
        for index, target in enumerate(targets):
            found, value = resolved_score(target, logits, batch)
            gradients = differentiate(found, value, named, last=index == len(targets) - 1)
            pairs = zip(weights, gradients, strict=True)
            steps = [_mean_over_heads((layer.detach() * gradient).clamp(min=0)) for layer, gradient in pairs]
            rows = _trace(found, steps, lambda row, step: row + row @ step)
            rows[range(len(rows)), [position - 1 for position in found.positions]] -= 1
            results.append(_placed(batch, found, value, rows.sum(dim=0), len(leaves.image)))
        return results


@contextmanager
def eager_attention(model: nn.Module) -> Iterator[None]:
    """Within the block attention is computed so that its weights can be read; afterwards as it was.

    Raises:
        AlreadyPatchedError: the model is inside an LRP block.
    """
    refuse_patched(model)
    with attention_set_to(model, "eager"):
        yield


def _attend(model: nn.Module, family: Family, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    """Logits at the kept positions ``(n_kept, vocab)``, and each layer's attention weights ``(1, heads, seq, seq)``.

    Asking the model itself for its attention weights would leave hooks of transformers behind.
    """
    weights: list[Tensor] = []
    owner = threading.get_ident()

    def take_weights(_module: nn.Module, _args: object, output: tuple[Tensor, Tensor | None]) -> None:
        if threading.get_ident() == owner and output[1] is not None:
            weights.append(output[1])

    attentions = family.attentions(model)
    with ExitStack() as stack:
        for module in attentions:
            stack.callback(module.register_forward_hook(take_weights).remove)
        logits = forward_logits(model, batch)
    if not attentions or len(weights) != len(attentions):
        raise UnsupportedModelError(f"{type(model).__name__} does not return attention weights; use another method")
    return logits, weights


def _mean_over_heads(weights: Tensor) -> Tensor:
    """``(1, heads, seq, seq) -> (seq, seq)`` in float32 at least."""
    return weights[0].to(torch.promote_types(weights.dtype, torch.float32)).mean(dim=0)


def _identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def _trace(target: Target, steps: Sequence[Tensor], through: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The rows of the product of all layers that belong to the target, ``(n_positions, seq)``, last layer first."""
    rows = _identity(steps[0])[[position - 1 for position in target.positions]]
    for step in reversed(steps):
        rows = through(rows, step)
    return rows


def _placed(batch: Batch, target: Target, value: Tensor, row: Tensor, n_levels: int) -> Relevance:
    text = row.double().cpu().numpy()
    levels = np.zeros((n_levels, len(batch.image_positions)))
    levels[:1] = text[batch.image_positions]
    return placed(batch, target, float(value.detach()), [text, *levels])

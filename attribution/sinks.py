"""Takes attention sinks out of the backward: what would flow to them through attention is dropped, and counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_ATTRIBUTE = "xai_sinks"


class Sinks:
    """Positions that no relevance reaches through attention, and the relevance that was dropped there.

    Attributes:
        positions: indices in the sequence.
    """

    def __init__(self, positions: Sequence[int]) -> None:
        self.positions = tuple(positions)
        self._dropped: list[Tensor] = []

    def add(self, relevance: Tensor) -> None:
        """Count a scalar as dropped."""
        self._dropped.append(relevance)

    def settings(self, value: float) -> dict[str, object]:
        """What was dropped in the backward of a target of this value, and where; the next one starts at 0."""
        dropped = sum(map(float, self._dropped))
        self._dropped.clear()
        share = dropped / value if value else None
        return {"sink_positions": self.positions, "sinks_dropped": dropped, "sinks_dropped_share": share}


@contextmanager
def sinks_dropped(attentions: Iterable[nn.Module], positions: Sequence[int]) -> Iterator[Sinks]:
    """Within the block relevance stops at keys and values of ``positions`` in these patched attention modules.

    A sink is a position that attention falls back on whatever it holds (Xiao et al. 2023, "Efficient Streaming
    Language Models with Attention Sinks", arXiv:2309.17453). The forward does not change. What a position hands on
    to itself past attention stays its own.
    """
    sinks = Sinks(positions)
    with ExitStack() as stack:
        for module in attentions:
            stack.callback(module.__dict__.pop, _ATTRIBUTE, None)
            module.__dict__[_ATTRIBUTE] = sinks
        yield sinks


def stop_at_sinks(module: nn.Module, states: Tensor) -> Tensor:
    """Keys or values ``(batch, heads, seq, head_dim)`` of an attention module, stopped at its sinks if it has any.

    Without a gradient there is nothing to stop: another thread may generate with its own sequence meanwhile.
    """
    sinks: Sinks | None = module.__dict__.get(_ATTRIBUTE)
    if sinks is None or not states.requires_grad:
        return states
    stopped: Tensor = _StopAtSinks.apply(states, sinks)
    return stopped


class _StopAtSinks(torch.autograd.Function):
    """The identity, whose backward sets the gradient at the sinks to zero."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, sinks: Sinks) -> Tensor:
        ctx.sinks = sinks
        ctx.save_for_backward(states[..., sinks.positions, :])
        return states.view_as(states)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (states,) = ctx.saved_tensors
        (gradient,) = gradients
        computed = torch.promote_types(states.dtype, torch.float32)
        ctx.sinks.add((states.to(computed) * gradient[..., ctx.sinks.positions, :].to(computed)).sum())
        index = torch.tensor(ctx.sinks.positions, device=gradient.device)
        return gradient.index_fill(-2, index, 0), None

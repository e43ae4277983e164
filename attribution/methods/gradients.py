"""Methods of one backward, and averages of them over noise or over a path from a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

from xai.attribution.methods.options import Count, Noise, Seed
from xai.attribution.methods.registry import method
from xai.attribution.perturb import Baseline, OpenModel, baselines, open_model
from xai.attribution.relevance import (
    Depth,
    Floats,
    LrpOptions,
    Relevance,
    check_options,
    differentiate,
    gradient_x_input,
    leaf_names,
    placed,
    relevance,
)
from xai.attribution.targets import Target

Inputs = Mapping[str, Tensor]


@method(name="attnlrp", needs=["gradients"], source="Achtibat et al. 2024, arXiv:2402.05602", check=check_options)
def attnlrp_relevance(
    model: nn.Module, inputs: Inputs, targets: Sequence[Target], **options: Unpack[LrpOptions]
) -> list[Relevance]:
    """Layer-wise relevance propagation through attention, softmax included; does not conserve exactly.

    Needs: gradients, one backward a target. Baseline: none. Sign: positive speaks for the target, negative
    against it. Source: Achtibat et al. 2024, arXiv:2402.05602.

    Args:
        options: ``depth``, ``vision_rule``, ``gamma``, ``without_sinks``, ``sink_positions``; see
            :func:`xai.attribution.relevance.relevance`.
    """
    return relevance(model, inputs, targets, method="attnlrp", **options)


@method(
    name="cplrp",
    needs=["gradients"],
    source="Ali et al. 2022, arXiv:2202.07304",
    check=check_options,
    max_residual=1e-3,
)
def cplrp_relevance(
    model: nn.Module, inputs: Inputs, targets: Sequence[Target], **options: Unpack[LrpOptions]
) -> list[Relevance]:
    """Layer-wise relevance propagation with attention weights and gates as constants; conserves without biases.

    Needs: gradients, one backward a target. Baseline: none. Sign: positive speaks for the target, negative
    against it; of a logit or a lead between logits, the total is its value. Source: Ali et al. 2022,
    arXiv:2202.07304.

    Args:
        options: as for ``attnlrp``.
    """
    return relevance(model, inputs, targets, method="cplrp", **options)


@method(name="gradient", needs=["gradients"], sign="unsigned", source="Simonyan et al. 2013, arXiv:1312.6034")
def gradient_relevance(model: nn.Module, inputs: Inputs, targets: Sequence[Target]) -> list[Relevance]:
    """Length of the gradient: how far a small change of an input could move the target, either way.

    Needs: gradients, one backward a target. Baseline: none. Sign: none, the L2 norm over hidden, as is usual for
    embeddings (the sum over hidden of a gradient means nothing). Source: Simonyan et al. 2013, arXiv:1312.6034.
    """
    return relevance(model, inputs, targets, method="gradient")


@method(name="gradient_x_input", needs=["gradients"], source="Shrikumar et al. 2016, arXiv:1605.01713")
def gradient_x_input_relevance(
    model: nn.Module, inputs: Inputs, targets: Sequence[Target], *, depth: Depth = "tokens"
) -> list[Relevance]:
    """Plain gradient times input, no rules: the baseline that LRP must beat.

    Needs: gradients, one backward a target. Baseline: none (zeros, to first order). Sign: positive speaks for
    the target, negative against it. Source: Shrikumar et al. 2016, arXiv:1605.01713.
    """
    return relevance(model, inputs, targets, method="gradient_x_input", depth=depth)


@method(name="smooth_gradients", needs=["gradients"], source="Smilkov et al. 2017, arXiv:1706.03825")
def smooth_gradients(
    model: nn.Module,
    inputs: Inputs,
    targets: Sequence[Target],
    *,
    n_samples: Count = 16,
    noise: Noise = 0.1,
    seed: Seed = 0,
    batch_size: Count = 8,
) -> list[Relevance]:
    """Gradient times input, averaged over inputs with noise.

    Needs: gradients, ``n_samples`` backwards a target. Baseline: none. Sign: as gradient times input. Source:
    Smilkov et al. 2017, arXiv:1706.03825 (SmoothGrad), with the map of gradient times input taken at each noisy
    input. The noise is normal; on embeddings, image features and each deepstack level it is ``noise`` times the
    standard deviation of that tensor. It depends on the seed and not on the batch size.

    Raises:
        ValueError: fewer than one sample, or negative noise.
    """
    if n_samples < 1 or batch_size < 1 or noise < 0:
        raise ValueError(f"n_samples and batch_size must be 1 or more and noise 0 or more, got {n_samples}, {noise}")
    generator = torch.Generator().manual_seed(seed)
    settings = {"n_samples": n_samples, "noise": noise, "seed": seed}
    with open_model(model, inputs, targets, gradients=True) as opened:
        sums: list[list[Floats]] = [[] for _ in opened.targets]
        for start in range(0, n_samples, batch_size):
            noisy = _noisy(opened, min(batch_size, n_samples - start), noise, generator)
            for index, maps in enumerate(_maps(opened, noisy)):
                sums[index] = [old + new for old, new in zip(sums[index], maps, strict=True)] if start else maps
        return [
            placed(opened.batch, target, value, [total / n_samples for total in totals], settings=settings)
            for target, value, totals in zip(opened.targets, opened.values, sums, strict=True)
        ]


def _noisy(opened: OpenModel, n: int, noise: float, generator: torch.Generator) -> list[Tensor]:
    """``n`` noisy copies of embeddings and image levels, as leaves; drawn one sample after the other."""
    samples = []
    for _ in range(n):
        drawn = [torch.randn(tensor.shape, generator=generator).to(tensor) for tensor in opened.tensors]
        pairs = zip(opened.tensors, drawn, strict=True)
        samples.append([tensor + noise * tensor.std() * draw for tensor, draw in pairs])
    return [torch.cat(copies).requires_grad_() for copies in zip(*samples, strict=True)]


def _maps(opened: OpenModel, leaves: Sequence[Tensor]) -> list[list[Floats]]:
    """For each target, the sum over the batch of gradient times input of each leaf."""
    scores = opened.scores(*leaves).sum(dim=0)
    named = dict(zip(leaf_names(len(leaves)), leaves, strict=True))
    maps = []
    for index, target in enumerate(opened.targets):
        gradients = differentiate(target, scores[index], named, last=index == len(opened.targets) - 1)
        maps.append([gradient_x_input(*pair).sum(axis=0) for pair in zip(leaves, gradients, strict=True)])
    return maps


NODES = 8
"""Points of the Gauss-Legendre rule on each piece of a path."""
COMPLETE = 0.01
"""How far the pieces of a path may be off together, relative to what the target gained over the whole of it."""


@method(
    name="integrated_gradients",
    needs=["gradients"],
    baseline="mean embedding, mean image cell",
    source="Sundararajan et al. 2017, arXiv:1703.01365",
    max_residual=COMPLETE,
)
def integrated_gradients(
    model: nn.Module,
    inputs: Inputs,
    targets: Sequence[Target],
    *,
    n_steps: Count = 32,
    max_steps: Count = 256,
    baseline: Baseline = "mean",
    batch_size: Count = 8,
) -> list[Relevance]:
    """Gradients integrated on the straight path from a baseline to the input; the total is what the target gained.

    Needs: gradients, ``n_steps`` backwards a target or more, by captum. Baseline: every text token as the mean of the
    embedding matrix and every image cell, all levels, as the mean of its picture, or what ``baseline`` says; all
    move together, and image placeholders stay placeholders. The path is cut into pieces of :data:`NODES` steps. What
    each must add up to is known, the target's value at its end less that at its start; the piece that is farthest off
    is halved until all together are off by :data:`COMPLETE` of the gain at most. From ``"zero"`` that takes more steps
    than the default allows: norms in a row make the target swing within the first thousandth of the path. Sign:
    positive speaks for the target, negative against it. Source: Sundararajan et al. 2017, arXiv:1703.01365.

    Args:
        n_steps: to begin with, rounded up to whole pieces.
        max_steps: where the path is not halved any more, whether it adds up or not; compare the total with ``value -
            baseline_value``. ``n_steps`` or less for evenly spread steps and no more. What was used is in the result's
            ``settings``.
    """
    settings = {"baseline": baseline}
    with open_model(model, inputs, targets, gradients=True) as opened:
        path = _Path(opened, baselines(opened, baseline), batch_size)
        results = []
        for index, target in enumerate(opened.targets):
            rows, n_used = path.integrated(index, n_steps, max_steps)
            results.append(
                placed(
                    opened.batch,
                    target,
                    opened.values[index],
                    rows,
                    baseline_value=path.value(0.0, index),
                    settings=settings | {"n_steps": n_used},
                )
            )
        return results


@dataclass(frozen=True, eq=False)
class _Piece:
    """A part of a path, what is integrated on it, and how far that is from what the target gained there."""

    start: float
    end: float
    rows: list[Floats]
    error: float


class _Path:
    """The straight path from a baseline, at 0, to the input, at 1."""

    def __init__(self, opened: OpenModel, origin: Sequence[Tensor], batch_size: int) -> None:
        self._opened, self._origin, self._batch_size = opened, tuple(origin), batch_size
        self._integrator: Any = IntegratedGradients(opened.scores)
        self._values: dict[float, list[float]] = {}

    def value(self, at: float, index: int) -> float:
        """That of a target at a point of the path."""
        if at not in self._values:
            with torch.no_grad():
                self._values[at] = self._opened.scores(*self._point(at))[0].tolist()
        return self._values[at][index]

    def integrated(self, index: int, n_steps: int, max_steps: int) -> tuple[list[Floats], int]:
        """Relevance of each tensor, and the steps that it took."""
        n_pieces, nodes = -(-n_steps // NODES), min(n_steps, NODES)
        ends = [(number / n_pieces, (number + 1) / n_pieces) for number in range(n_pieces)]
        pieces, n_used = [self._piece(index, *pair, nodes) for pair in ends], n_pieces * nodes
        allowed = COMPLETE * abs(self.value(1.0, index) - self.value(0.0, index))
        while sum(piece.error for piece in pieces) > allowed and n_used + 2 * nodes <= max_steps:
            worst = pieces.pop(max(range(len(pieces)), key=lambda number: pieces[number].error))
            middle = (worst.start + worst.end) / 2
            pieces += [self._piece(index, worst.start, middle, nodes), self._piece(index, middle, worst.end, nodes)]
            n_used += 2 * nodes
        return [np.sum(rows, axis=0) for rows in zip(*(piece.rows for piece in pieces), strict=True)], n_used

    def _piece(self, index: int, start: float, end: float, nodes: int) -> _Piece:
        parts = self._integrator.attribute(
            self._point(end), self._point(start), target=index, n_steps=nodes, internal_batch_size=self._batch_size
        )
        rows = [part.detach().double().sum(dim=-1).cpu().numpy() for part in parts]
        gained = self.value(end, index) - self.value(start, index)
        return _Piece(start, end, rows, abs(sum(float(row.sum()) for row in rows) - gained))

    def _point(self, at: float) -> tuple[Tensor, ...]:
        pairs = zip(self._origin, self._opened.tensors, strict=True)
        return tuple(torch.lerp(origin, tensor, at) for origin, tensor in pairs)

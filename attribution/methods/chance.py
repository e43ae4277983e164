"""The method that knows nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor, nn

from xai.attribution.inputs import Batch, borrow
from xai.attribution.methods.options import Seed
from xai.attribution.methods.registry import method
from xai.attribution.relevance import Relevance, forward_logits, leaves_of, placed, resolved_score
from xai.attribution.targets import Target


@method(name="random", needs=["forwards"], source="the floor of any comparison")
def random_relevance(
    model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target], *, seed: Seed = 0
) -> list[Relevance]:
    """Standard normal noise in the shape of an explanation: what a method without knowledge would score.

    Needs: one forward, for the target's value. Baseline: none. Sign: either, without meaning. Source: the floor of
    any comparison. The draw depends on ``seed``, the target and the sequence's length only, never on what ran before.
    """
    with borrow(model, inputs, targets, gradients=False) as (family, batch):
        with leaves_of(model, family) as leaves:
            logits = forward_logits(model, batch)
        results = []
        for target in targets:
            found, value = resolved_score(target, logits, batch)
            rows = _noise(batch, found, len(leaves.image), seed)
            results.append(placed(batch, found, float(value), rows, settings={"seed": seed}))
        return results


def _noise(batch: Batch, target: Target, n_levels: int, seed: int) -> list[np.ndarray]:
    length = batch.sequence_length
    generator = np.random.default_rng([seed, length, *target.positions, *target.token_ids, *target.contrast_ids])
    text = generator.standard_normal(length)
    text[max(target.positions) :] = 0.0
    return [text, *generator.standard_normal((n_levels, len(batch.image_positions)))]

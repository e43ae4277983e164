"""How far explanations in single and half precision agree with those in double; run with ``-s`` to read the figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from xai.attribution.relevance import Relevance, relevance

from .random_models import answer_target, build_inputs, build_model

SEEDS = [0, 1, 2]
OPTIONS: dict[str, dict[str, Any]] = {
    "attnlrp": {"method": "attnlrp", "depth": "pixels"},
    "attnlrp, gamma": {"method": "attnlrp", "depth": "pixels", "vision_rule": "gamma"},
    "cplrp": {"method": "cplrp", "depth": "pixels"},
    "gradient x input": {"method": "gradient_x_input", "depth": "pixels"},
}
# Largest distance of a map, as a share of its norm.
LIMITS = {torch.float32: 1e-4, torch.float16: 0.04, torch.bfloat16: 0.1}


def explained(dtype: torch.dtype, seed: int, options: dict[str, Any]) -> Relevance:
    """From weights and pixels that every dtype holds exactly, so that only the arithmetic differs."""
    model, inputs = build_model("Qwen3-VL", seed), build_inputs("Qwen3-VL", seed)
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().half().float()
    inputs["pixel_values"] = inputs["pixel_values"].bfloat16().half()
    inputs["pixel_values"] = inputs["pixel_values"].to(dtype)
    (result,) = relevance(model.to(dtype), inputs, [answer_target(inputs)], **options)
    return result


def distance(found: Any, exact: Any) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_explanations_agree_with_double_precision_and_are_finite(dtype: torch.dtype, name: str) -> None:
    rows = []
    for seed in SEEDS:
        found, exact = (explained(one, seed, OPTIONS[name]) for one in (dtype, torch.float64))
        rows.append((distance(found.tokens, exact.tokens), distance(found.pixels, exact.pixels), found.non_finite))
    tokens, pixels, non_finite = np.array(rows).T
    print(f"\n{dtype}, {name}: tokens {tokens.max():.1e}, pixels {pixels.max():.1e}, non-finite {non_finite.sum():.0f}")
    assert non_finite.sum() == 0
    assert max(tokens.max(), pixels.max()) < LIMITS[dtype]

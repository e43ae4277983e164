"""AttnLRP and CP-LRP as wholes equal lxt's own patches on the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import Tensor

from xai.attribution.relevance import relevance

from .lxt_itself import relevance_by_lxt
from .random_models import answer_target, build_inputs, build_model

FAMILIES = ["Llama", "Qwen3"]
METHODS: list[Any] = ["attnlrp", "cplrp"]


@pytest.fixture(scope="module")
def by_lxt(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Tensor]:
    inputs = {name: build_inputs(name, 3) for name in FAMILIES}
    cases = {name: (build_model(name, 3), inputs[name]["input_ids"], answer_target(inputs[name])) for name in FAMILIES}
    return relevance_by_lxt(tmp_path_factory.mktemp("lxt"), cases)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_the_whole_model_equals_lxts_own_patches(name: str, method: Any, by_lxt: dict[tuple[str, str], Tensor]) -> None:
    model, inputs = build_model(name, 3), build_inputs(name, 3)
    (result,) = relevance(model, inputs, [answer_target(inputs)], method=method)
    expected = by_lxt[name, method].double().numpy()
    assert abs(expected).max() > 0.1
    np.testing.assert_allclose(result.text, expected, rtol=1e-5, atol=1e-5 * abs(expected).max())
    assert not np.allclose(result.text, by_lxt[name, other(method)].numpy(), atol=1e-3)


def other(method: str) -> str:
    return METHODS[1 - METHODS.index(method)]

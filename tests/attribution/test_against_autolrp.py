"""AttnLRP and CP-LRP equal autoLRP, which knows nothing of modules and walks the graph of torch operations.

It shares no code and no idea with this package: it finds normalisers, attention weights and constants by itself
and divides relevance by outputs where we multiply gradients. Two of its defaults are other rules than the papers':
it splits sums by magnitude, ``|a| / (|a| + |b|)``, and gives products shares by magnitude too. So sums get the
epsilon rule here, and the one product of two inputs outside attention, the gated MLP's, gets the uniform rule
(AttnLRP, equation 7) or a constant gate (CP-LRP). Biases take a share of their own in autoLRP, so the models
have none. In double precision it multiplies the causal mask's smallest number by zero and gets NaN: single only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xai.attribution.relevance import relevance
from xai.attribution.targets import Target

from .random_models import build_inputs, build_model

autolrp = pytest.importorskip("autolrp")

TEXT_FAMILIES = ["Llama", "Qwen2", "Qwen3", "Gemma 3 text"]


def split_sum(a: Any, b: Any, relevance_out: Any, eps: float, *_: Any, attribute: str = "both") -> tuple[Any, Any]:
    if attribute != "both":
        return (relevance_out, None) if attribute == "lhs" else (None, relevance_out)
    total = a + b + eps * ((a + b >= 0) * 2.0 - 1)
    return a / total * relevance_out, b / total * relevance_out


def split_product(a: Any, b: Any, relevance_out: Any, eps: float, *_: Any, attribute: str = "both") -> tuple[Any, Any]:
    if attribute != "both":
        return (relevance_out, None) if attribute == "lhs" else (None, relevance_out)
    return relevance_out / 2, relevance_out / 2


def constant_gate(a: Any, b: Any, relevance_out: Any, eps: float, *_: Any, attribute: str = "both") -> tuple[Any, Any]:
    return (relevance_out, None) if attribute == "lhs" else (None, relevance_out)


RULES: dict[str, dict[str, Any]] = {
    "attnlrp": {**autolrp.ATTNLRP, "AddBackward": split_sum, "MulBackward": split_product},
    "cplrp": {**autolrp.CPLRP, "AddBackward": split_sum, "MulBackward": constant_gate},
}


@pytest.mark.parametrize("name", TEXT_FAMILIES)
@pytest.mark.parametrize("method", RULES)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_the_whole_model_equals_autolrp(name: str, method: Any) -> None:
    model, inputs = build_model(name, biases=False).requires_grad_(False), build_inputs(name)
    position, token = inputs["input_ids"].shape[1] - 4, int(inputs["input_ids"][0, -4])
    (result,) = relevance(model, inputs, [Target("label", (position,), (token,))], method=method)
    model.set_attn_implementation("eager")
    embeds = autolrp.tensor(model.get_input_embeddings()(inputs["input_ids"]).detach())
    value = model(inputs_embeds=embeds, use_cache=False).logits[0, position - 1, token]
    value.lrp(config=autolrp.LRPConfig(rule={**autolrp.BASE, **RULES[method]}, eps=1e-12))
    # It starts from a relevance of 1, we from the logit.
    expected = float(value) * np.array(embeds.relevance.sum(-1)[0].tolist())
    np.testing.assert_allclose(result.text, expected, rtol=1e-4, atol=1e-5 * abs(expected).max())

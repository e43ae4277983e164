"""AttnLRP and CP-LRP as wholes equal lxt's own patches on the same weights.

lxt patches classes and the shared attention registry of the process that it runs in, and its model maps do not
import beside current transformers; so its patch functions are put on the classes here, as its maps for Llama and
Qwen3 would, in a process of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xai.attribution.relevance import relevance

from .random_models import answer_target, build_inputs, build_model

FAMILIES = ["Llama", "Qwen3"]
METHODS: list[Any] = ["attnlrp", "cplrp"]
PATCHED_BY_LXT = """
import importlib, sys, types
import torch
torch.set_num_threads(1)
folder = sys.argv[1]
maps = types.ModuleType("lxt.efficient.models")
maps.get_default_map = lambda *_, **__: {}
sys.modules[maps.__name__] = maps
from lxt.efficient import patches

registry = importlib.import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
own_attention, own_forwards = registry["sdpa"], {}
methods = {
    "attnlrp": (patches.wrap_attention_forward, patches.gated_mlp_forward),
    "cplrp": (patches.cp_wrap_attention_forward, patches.cp_gated_mlp_forward),
}
for method, (wrap, gated_mlp) in methods.items():
    registry["sdpa"] = wrap(own_attention)
    for family in ("Llama", "Qwen3"):
        modeling = importlib.import_module(f"transformers.models.{family.lower()}.modeling_{family.lower()}")
        for name, forward in (("MLP", gated_mlp), ("RMSNorm", patches.rms_norm_forward)):
            patched = getattr(modeling, family + name)
            patched.forward = own_forwards.setdefault(patched, patched.forward)
            assert patches.patch_method(forward, patched)
        saved = torch.load(f"{folder}/{family}.pt", weights_only=False)
        model = getattr(modeling, family + "ForCausalLM")(saved["config"]).eval()
        model.load_state_dict(saved["weights"])
        embeds = model.get_input_embeddings()(saved["input_ids"]).detach().requires_grad_()
        logits = model(inputs_embeds=embeds, use_cache=False).logits[0]
        value = sum(logits[p - 1, t] for p, t in zip(saved["positions"], saved["token_ids"]))
        (gradient,) = torch.autograd.grad(value, embeds)
        torch.save((embeds * gradient).sum(-1)[0].detach(), f"{folder}/{family}-{method}.pt")
"""


@pytest.fixture(scope="module")
def saved_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lxt")
    for name in FAMILIES:
        model, inputs = build_model(name, 3), build_inputs(name, 3)
        target = answer_target(inputs)
        contents = {
            "config": model.config,
            "weights": model.state_dict(),
            "input_ids": inputs["input_ids"],
            "positions": target.positions,
            "token_ids": target.token_ids,
        }
        torch.save(contents, folder / f"{name}.pt")
    command = [sys.executable, "-c", PATCHED_BY_LXT, str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return folder


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_the_whole_model_equals_lxts_own_patches(name: str, method: Any, saved_models: Path) -> None:
    model, inputs = build_model(name, 3), build_inputs(name, 3)
    (result,) = relevance(model, inputs, [answer_target(inputs)], method=method)
    expected = torch.load(saved_models / f"{name}-{method}.pt").double().numpy()
    assert abs(expected).max() > 0.1
    np.testing.assert_allclose(result.text, expected, rtol=1e-5, atol=1e-5 * abs(expected).max())
    assert not np.allclose(result.text, torch.load(saved_models / f"{name}-{other(method)}.pt").numpy(), atol=1e-3)


def other(method: str) -> str:
    return METHODS[1 - METHODS.index(method)]

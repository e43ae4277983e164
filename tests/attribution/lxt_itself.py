"""Relevance by lxt's own patches, in a process of its own.

lxt patches classes and the shared attention registry of the process that it runs in, and its model maps do not
import beside current transformers; so its patch functions are put on the classes here, as its maps for Llama and
Qwen3 would.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from xai.attribution.targets import Target

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
    for family in sys.argv[2:]:
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


def relevance_by_lxt(folder: Path, cases: Mapping[str, tuple[Any, Tensor, Target]]) -> dict[tuple[str, str], Tensor]:
    """(family, method) → ``(seq,)`` relevance of the input embeddings of a whole sequence.

    Args:
        folder: where models and results are written.
        cases: family (``Llama`` or ``Qwen3``) → model, ``input_ids`` ``(1, seq)`` and a target of logits.
    """
    for family, (model, ids, target) in cases.items():
        contents = {
            "config": model.config,
            "weights": model.state_dict(),
            "input_ids": ids,
            "positions": target.positions,
            "token_ids": target.token_ids,
        }
        torch.save(contents, folder / f"{family}.pt")
    command = [sys.executable, "-c", PATCHED_BY_LXT, str(folder), *cases]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    methods = ("attnlrp", "cplrp")
    return {(name, method): torch.load(folder / f"{name}-{method}.pt") for name in cases for method in methods}

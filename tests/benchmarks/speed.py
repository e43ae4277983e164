"""What AttnLRP costs beside the model's own forward and backward, and beside the recipe that was published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks.harness import MIB, Peak, Record, Run, Settings, figure, paired, peak_memory, ratios
from tests.benchmarks.models import Case, build_case, build_model, size_of
from xai.attribution.patching import attnlrp
from xai.attribution.relevance import relevance

ARMS = ("plain", "attnlrp", "recipe")
N_TOKENS = 750


def measure(settings: Settings) -> Iterator[Record]:
    """Seconds and peak memory of the three arms, and the ratios that have a bar."""
    yield from _memory({arm: _peaks(arm, settings) for arm in ARMS})
    model, case = _build(settings)
    runs = {arm: run_of(arm, model, case) for arm in ARMS}
    yield from _arithmetic(runs)
    close = paired({arm: runs[arm] for arm in ("plain", "attnlrp")}, settings.rounds(15))
    yield figure("plain forward + backward", close["plain"], "s")
    yield figure("attnlrp", close["attnlrp"], "s")
    yield figure("attnlrp / plain, time", ratios(close["attnlrp"], close["plain"]), at_most=1.10)
    far = paired({arm: runs[arm] for arm in ("attnlrp", "recipe")}, settings.rounds(5))
    yield figure("published recipe", far["recipe"], "s")
    yield figure("published recipe / attnlrp, time", ratios(far["recipe"], far["attnlrp"]), at_least=10)
    yield _difference(model, case)


def prepare(arm: str, settings: Settings) -> Run:
    """One arm by itself, for a process of its own."""
    return run_of(arm, *_build(settings))


def run_of(arm: str, model: Any, case: Case) -> Run:
    """``plain``, ``attnlrp`` or ``recipe`` on one model and prompt."""
    if arm == "plain":
        return lambda: forward_and_backward(model, case)
    if arm == "recipe":
        return lambda: published_recipe(model, case)
    return lambda: relevance(model, case.inputs, [case.last_target], method="attnlrp")


def forward_and_backward(model: Any, case: Case) -> Tensor:
    """The least that any gradient method does: one forward, one backward to the input embeddings, ``(1, seq, hidden)``.

    Frozen parameters, and logits at the target only.
    """
    inputs, token = _read_by_target(case)
    with _embeddings(model, lambda output: output.detach().requires_grad_()) as taken:
        logits = model(**inputs, use_cache=False, logits_to_keep=1).logits
    (gradient,) = torch.autograd.grad(logits[0, -1, token], taken[0])
    return gradient


def published_recipe(model: Any, case: Case) -> Tensor:
    """Relevance ``(1, seq)`` by the recipe that was published for AttnLRP on such models.

    The model stays as it was loaded, so that all its parameters require gradients; the patched model runs over the
    whole sequence with logits at every position; ``backward()`` from one logit fills the gradient of the
    embeddings, which is kept, *and* those of every weight; relevance is the embeddings times their gradient. The
    rules are those of this package, since lxt has none for this family: what is compared is the recipe and not the
    rules. Gradients of weights are dropped before and after, as with ``zero_grad``.
    """
    inputs, token = _read_by_target(case)
    model.requires_grad_(True)
    model.zero_grad(set_to_none=True)
    try:
        with attnlrp(model), _embeddings(model, _keeping_gradient) as taken:
            logits = model(**inputs, use_cache=False).logits
            logits[0, -1, token].backward()
        gradient = taken[0].grad
        assert gradient is not None
        return (taken[0] * gradient).sum(-1)
    finally:
        model.zero_grad(set_to_none=True)
        model.requires_grad_(False)


def _arithmetic(runs: dict[str, Run]) -> Iterator[Record]:
    """Floating-point operations of matrix products, attention and convolutions: what no busy machine changes."""
    operations = {arm: _operations(run) / 1e9 for arm, run in runs.items()}
    for arm in ARMS:
        yield figure(f"{arm}, arithmetic", [operations[arm]], "GFLOP")
    yield figure("attnlrp / plain, arithmetic", [operations["attnlrp"] / operations["plain"]])
    yield figure("published recipe / attnlrp, arithmetic", [operations["recipe"] / operations["attnlrp"]])


def _operations(run: Run) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def _difference(model: Any, case: Case) -> Record:
    """Both ways to the same relevance of the text, so that their seconds can be compared."""
    (ours,) = relevance(model, case.inputs, [case.last_target], method="attnlrp")
    theirs = published_recipe(model, case)[0].double().detach().numpy()
    is_text = case.inputs["input_ids"][0, :-1].numpy() != model.config.image_token_id
    difference = np.abs(ours.text[:-1] - theirs)[is_text].max() / np.abs(theirs[is_text]).max()
    return figure("published recipe against attnlrp, largest relative difference", [float(difference)], at_most=1e-3)


def _build(settings: Settings) -> tuple[Any, Case]:
    size = size_of(settings)
    return build_model(size), build_case(size, 100 if settings.small else N_TOKENS)


def _read_by_target(case: Case) -> tuple[dict[str, Tensor], int]:
    """The inputs without the last token, which is the one that is predicted, and that token."""
    token = int(case.inputs["input_ids"][0, -1])
    names = ("input_ids", "attention_mask", "mm_token_type_ids")
    return {name: tensor[:, :-1] if name in names else tensor for name, tensor in case.inputs.items()}, token


def _keeping_gradient(embeddings: Tensor) -> Tensor:
    embeddings.retain_grad()
    return embeddings


@contextmanager
def _embeddings(model: Any, prepare: Callable[[Tensor], Tensor]) -> Iterator[list[Tensor]]:
    """Within the block the model reads its embeddings as ``prepare`` returns them; yields them, once they are there."""
    taken: list[Tensor] = []

    def take(_module: Any, _args: Any, output: Tensor) -> Tensor:
        taken.append(prepare(output))
        return taken[0]

    hook = model.get_input_embeddings().register_forward_hook(take)
    try:
        yield taken
    finally:
        hook.remove()


def _peaks(arm: str, settings: Settings) -> list[Peak]:
    return [peak_memory("speed", arm, settings) for _ in range(settings.rounds(3))]


def _memory(peaks: dict[str, list[Peak]]) -> Iterator[Record]:
    whole = {arm: [float(peak.peak) for peak in found] for arm, found in peaks.items()}
    above = {arm: [float(peak.above) for peak in found] for arm, found in peaks.items()}
    for arm in ARMS:
        yield figure(f"{arm}, peak memory", [peak / MIB for peak in whole[arm]], "MiB")
        yield figure(f"{arm}, peak memory above the loaded model", [peak / MIB for peak in above[arm]], "MiB")
    yield figure("attnlrp / plain, peak memory", ratios(whole["attnlrp"], whole["plain"]), at_most=1.10)
    yield figure(
        "attnlrp / plain, peak memory above the loaded model", ratios(above["attnlrp"], above["plain"]), at_most=1.10
    )
    yield figure("published recipe / attnlrp, peak memory", ratios(whole["recipe"], whole["attnlrp"]))

"""How time and peak memory grow with the number of tokens, with and without gradient checkpointing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.benchmarks.harness import MIB, Peak, Record, Run, Settings, exponent, figure, paired, peak_memory, ratios
from tests.benchmarks.models import Case, build_case, build_model, size_of
from tests.benchmarks.speed import forward_and_backward
from xai.attribution.relevance import relevance

ARMS = ("plain", "attnlrp", "checkpointed")
LENGTHS, SMALL_LENGTHS = (250, 500, 1000, 2000, 4000), (60, 120)


def measure(settings: Settings) -> Iterator[Record]:
    """Seconds and peak memory at every length, and the exponents; ``plain`` is the model's own forward and backward."""
    lengths = SMALL_LENGTHS if settings.small else LENGTHS
    for arm in ARMS:
        peaks = [peak_memory("length", f"{arm} {length}", settings) for length in lengths]
        yield from _memory(arm, lengths, peaks)
    model = build_model(size_of(settings))
    cases = {length: build_case(size_of(settings), length) for length in lengths}
    arms = {(arm, length): partial(run, arm, model, case) for length, case in cases.items() for arm in ARMS}
    seconds = paired(arms, settings.rounds(3))
    for arm in ARMS:
        for length in lengths:
            yield figure(f"{arm}, {length} tokens", seconds[arm, length], "s")
        rounds = zip(*(seconds[arm, length] for length in lengths), strict=True)
        yield figure(f"{arm}, exponent of time", [exponent(lengths, one) for one in rounds])
    longest = lengths[-1]
    for arm, other in (("attnlrp", "plain"), ("checkpointed", "attnlrp")):
        pairs = ratios(seconds[arm, longest], seconds[other, longest])
        yield figure(f"{arm} / {other}, {longest} tokens, time", pairs)


def prepare(arm: str, settings: Settings) -> Run:
    """One arm at one length, e.g. ``"attnlrp 1000"``."""
    name, length = arm.split()
    size = size_of(settings)
    return partial(run, name, build_model(size), build_case(size, int(length)))


def run(arm: str, model: Any, case: Case) -> object:
    """Explain the last token; ``checkpointed`` runs every layer again in the backward instead of keeping it."""
    if arm == "plain":
        return forward_and_backward(model, case)
    if arm == "checkpointed":
        model.activation_checkpointing_enable()
    try:
        return relevance(model, case.inputs, [case.last_target], method="attnlrp")
    finally:
        model.activation_checkpointing_disable()


def _memory(arm: str, lengths: tuple[int, ...], peaks: list[Peak]) -> Iterator[Record]:
    for length, peak in zip(lengths, peaks, strict=True):
        metric, note = (
            f"{arm}, {length} tokens, peak memory above the loaded model",
            f"in all {peak.peak / MIB:.0f} MiB",
        )
        yield figure(metric, [peak.above / MIB], "MiB", note=note)
    yield figure(f"{arm}, exponent of peak memory", [exponent(lengths, [peak.above for peak in peaks])])

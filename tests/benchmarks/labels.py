"""Whether several labels of one answer share one forward: seconds against their number."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.benchmarks.harness import Record, Run, Settings, figure, line, paired, ratios
from tests.benchmarks.models import Case, build_case, build_model, size_of
from xai.attribution.relevance import relevance, target_values
from xai.attribution.targets import Target

COUNTS = (1, 2, 4, 8)
N_TOKENS = 750


def measure(settings: Settings) -> Iterator[Record]:
    """Seconds of 1 to 8 labels together, of 8 one after the other, and the line through the former."""
    size = size_of(settings)
    model, case = build_model(size), build_case(size, 100 if settings.small else N_TOKENS)
    targets = label_targets(case, COUNTS[-1])
    n_forwards = forwards(model, case, targets)
    yield Record(f"forwards of the decoder for {len(targets)} labels", n_forwards, wanted="= 1", held=n_forwards == 1)
    arms: dict[str, Run] = {str(n): partial(explain, model, case, targets[:n]) for n in COUNTS}
    arms |= {
        "forward": partial(target_values, model, case.inputs, targets),
        "apart": partial(_apart, model, case, targets),
    }
    seconds = paired(arms, settings.rounds(5))
    yield figure("one forward alone, without gradients", seconds["forward"], "s")
    for n in COUNTS:
        yield figure(f"{n} label{'s' if n > 1 else ''} together", seconds[str(n)], "s")
    yield from _fitted([statistics.median(seconds[str(n)]) for n in COUNTS])
    yield figure("8 labels one by one", seconds["apart"], "s")
    yield figure("8 labels one by one / together, time", ratios(seconds["apart"], seconds["8"]))


def label_targets(case: Case, n: int) -> list[Target]:
    """``n`` labels of two tokens each, one token apart, as they stand in an answer; the last label comes first.

    So every number of labels reads the same sequence, and only the number of backwards differs.
    """
    return [case.target(3 * index, 2) for index in reversed(range(n))]


def explain(model: Any, case: Case, targets: list[Target]) -> object:
    """One explanation a target, in one call."""
    return relevance(model, case.inputs, targets, method="attnlrp")


def forwards(model: Any, case: Case, targets: list[Target]) -> int:
    """How often the decoder runs to explain ``targets`` together."""
    calls: list[int] = []
    hook = model.model.language_model.register_forward_hook(lambda *_: calls.append(1))
    try:
        explain(model, case, targets)
    finally:
        hook.remove()
    return len(calls)


def _apart(model: Any, case: Case, targets: list[Target]) -> None:
    for target in targets:
        explain(model, case, [target])


def _fitted(medians: list[float]) -> Iterator[Record]:
    paid_once, each, explained = line(COUNTS, medians)
    note = f"least squares through the medians of {', '.join(map(str, COUNTS))} labels"
    yield figure("forward and all that is paid once, fitted", [paid_once], "s", note=note)
    yield figure("each label, fitted", [each], "s", note=note)
    yield figure("straightness of the line (R²)", [explained], at_least=0.99, note=note)

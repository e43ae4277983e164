"""Every attribution method on the same planted memes: what it finds, whether the model agrees, and what it costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import Tensor, nn

from xai.analysis.faithfulness.curves import Curve, curves, measures
from xai.analysis.faithfulness.ground_truth import ground_truth_frame, localise
from xai.analysis.faithfulness.rescoring import rescoring
from xai.analysis.faithfulness.units import ranked, unit_values, units_of
from xai.attribution.families import family_of
from xai.models import VisionLanguageModel
from xai.pipeline import explain, explain_answer, predict
from xai.planted.truth import truth_of
from xai.schema import Explanation, Meme, Mode, Prediction
from xai.tasks import Task

SCALE = "probability"
CURVE_MEASURES = ("comprehensiveness@20", "sufficiency@20", "area_between")
Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Bench:
    """What was measured of some methods on some memes.

    Attributes:
        truth: one row an explanation and kind of unit, a :class:`~xai.analysis.faithfulness.ground_truth.Localisation`.
        curves: one row an explanation: meme_id, mode, method, target, and :data:`CURVE_MEASURES`.
        costs: one row a meme, mode and method: n_explanations, seconds, and the fields of :class:`Work`.
        explanations: of the labels that were measured.
    """

    truth: pd.DataFrame
    curves: pd.DataFrame
    costs: pd.DataFrame
    explanations: tuple[Explanation, ...]


@dataclass
class Work:
    """What the decoder did: each row of a batch is a sequence, and a cached prefix is not run again.

    Attributes:
        forwards: sequences that went through it, whole or behind a cached prefix.
        tokens: of these sequences, without what was cached.
        backwards: sequences that came back.
    """

    forwards: int = 0
    tokens: int = 0
    backwards: int = 0


def bench(
    model: VisionLanguageModel,
    memes: Sequence[Meme],
    methods: Sequence[str],
    mode: Mode = "image+text",
    *,
    with_curves: bool = True,
    on_progress: Progress = lambda done: None,
) -> Bench:
    """Explain every label that the model answers rightly by every method, and measure each explanation.

    Args:
        on_progress: called with 1 for each meme and method.
    """
    truth, curve_rows, costs, kept = [], [], [], []
    for meme, prediction in zip(memes, predict(model, memes, mode=mode), strict=True):
        known = truth_of(meme)
        of_meme: list[Explanation] = []
        for method in methods:
            if {cause.label for cause in known.causes} & set(prediction.labels):
                explanations, cost = _explained(model, meme, prediction, method)
                rows = {e.target: localise(e, known) for e in explanations}
                truth += [row for found in rows.values() for row in found]
                measured = [e for e in explanations if rows[e.target]]
                of_meme += measured
                costs.append(cost)
            on_progress(1)
        kept += of_meme
        if with_curves and of_meme:
            curve_rows += curve_figures(model, of_meme)
    return Bench(ground_truth_frame(truth), pd.DataFrame(curve_rows), pd.DataFrame(costs), tuple(kept))


def joined(parts: Sequence[Bench]) -> Bench:
    """The measurements of several modes as one."""
    return Bench(
        truth=pd.concat([part.truth for part in parts]),
        curves=pd.concat([part.curves for part in parts]),
        costs=pd.concat([part.costs for part in parts]),
        explanations=tuple(explanation for part in parts for explanation in part.explanations),
    )


def bench_answers(
    model: VisionLanguageModel,
    questions: Sequence[tuple[Meme, str, tuple[int, int]]],
    methods: Sequence[str],
    task: Task,
    *,
    on_progress: Progress = lambda done: None,
) -> Bench:
    """The same in mode ``text`` without a truth, of a span of an answer that is given.

    Args:
        questions: meme, answer, and the characters of the answer that are explained.
    """
    curve_rows, costs, kept = [], [], []
    for meme, answer, span in questions:
        of_meme = []
        for method in methods:
            with counted(model.model) as work:
                begin = time.perf_counter()
                found = explain(model, meme, task=task, mode="text", method=method, answer=answer, span=span)
                seconds = time.perf_counter() - begin
            of_meme.append(found)
            costs.append(_cost(meme, "text", method, [found], seconds, work))
            on_progress(1)
        curve_rows += curve_figures(model, of_meme, task)
        kept += of_meme
    return Bench(ground_truth_frame(()), pd.DataFrame(curve_rows), pd.DataFrame(costs), tuple(kept))


def curve_figures(
    model: VisionLanguageModel, explanations: Sequence[Explanation], task: Task | None = None
) -> list[dict[str, Any]]:
    """Figures of the curves of explanations of one meme and answer; words and cells in one ranking, signed.

    The score is the probability of the target's tokens; inputs that several methods need are run once.
    """
    units = units_of(explanations[0], "both")
    rows = []
    with rescoring(model, explanations, task=task) as rescorer:
        for explanation in explanations:
            order = ranked(unit_values(units, explanation))
            found, target = curves(rescorer, units, order), rescorer.target_index(explanation)
            rows.append(_curve_row(explanation, found[target, SCALE], found[target, "margin"]))
    return rows


@contextmanager
def counted(model: nn.Module) -> Iterator[Work]:
    """Within the block, what this thread makes the decoder do is counted at its first layer."""
    work, owner = Work(), threading.get_ident()
    first = next(iter(model.get_submodule(family_of(model).decoder_layers).children()))

    def on_backward(gradient: Tensor) -> None:
        work.backwards += gradient.shape[0]

    def on_forward(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() == owner:
            hidden: Tensor = args[0] if args else kwargs["hidden_states"]
            work.forwards += hidden.shape[0]
            work.tokens += hidden.shape[0] * hidden.shape[1]
            if hidden.requires_grad:
                hidden.register_hook(on_backward)  # type: ignore[no-untyped-call]

    hook = first.register_forward_pre_hook(on_forward, with_kwargs=True)
    try:
        yield work
    finally:
        hook.remove()


def _explained(
    model: VisionLanguageModel, meme: Meme, prediction: Prediction, method: str
) -> tuple[list[Explanation], dict[str, Any]]:
    with counted(model.model) as work:
        begin = time.perf_counter()
        explanations = explain_answer(model, meme, prediction, method=method, targets="each")
        seconds = time.perf_counter() - begin
    return explanations, _cost(meme, prediction.mode, method, explanations, seconds, work)


def _cost(
    meme: Meme, mode: Mode, method: str, explanations: Sequence[Explanation], seconds: float, work: Work
) -> dict[str, Any]:
    whole = max(max(e.target_positions) for e in explanations)
    return {
        "meme_id": meme.id,
        "mode": mode,
        "method": method,
        "n_explanations": len(explanations),
        "seconds": seconds,
        "forwards": work.forwards,
        "whole_forwards": work.tokens / whole,
        "backwards": work.backwards,
    }


def _curve_row(explanation: Explanation, score: Curve, margin: Curve) -> dict[str, Any]:
    found = measures(score, margin)
    return {
        "meme_id": explanation.meme.id,
        "mode": explanation.mode,
        "method": explanation.method,
        "target": explanation.target,
    } | {name: found[name] for name in CURVE_MEASURES}

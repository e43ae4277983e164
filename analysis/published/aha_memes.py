"""AHA-Memes (Arabic hateful memes): hateful or not, ten categories below, errors by the length of the caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from xai.analysis.detection.answered import answers_of
from xai.analysis.detection.confusion import label_errors
from xai.analysis.detection.scored import Settings
from xai.analysis.published.aha_answers import (
    MEASURES,
    OTHER,
    Answered,
    at_random,
    errors_by_length,
    inconsistencies,
    majority,
    measures_of,
)
from xai.analysis.published.comparing import between_runs, comparison_table
from xai.analysis.published.measures import columns_of, measured
from xai.analysis.published.records import captions
from xai.analysis.published.registry import Published, Scoring
from xai.analysis.published.sides import COUNTED, Layout, TwoSided
from xai.analysis.report import Chart, Section, Series, Table
from xai.analysis.statistics import LEVEL
from xai.store import Run

_STREAM = 31
"""Of the random baseline, so that it draws other numbers than those of the same seed elsewhere."""


def sections(run: Run, scoring: Scoring) -> Published:
    """The published scores of a run, and of what it is compared with.

    Raises:
        ValueError: no gold labels name one side.
    """
    judged = judged_modes(run, scoring.settings)
    if not judged:
        return Published((), ())
    texts = {mode: captions(run, mode, one.ids) for mode, one in judged.items()}
    found = [
        _scores(judged, scoring.settings),
        _labels(judged),
        _lengths(judged, texts),
        _inconsistent(judged),
    ]
    others = {name: judged_modes(other, scoring.settings) for name, other in scoring.against.items()}
    pairs = between_runs(scoring.name, judged, others)
    compared = comparison_table("aha_against", "Runs compared", pairs, measures_of, MEASURES, scoring.settings)
    if compared is not None:
        found.append(Section(title="AHA-Memes: runs compared", tables=(compared,)))
    return Published(found, ["aha_scores", "aha_baselines", *([compared.name] if compared else [])])


def judged_modes(run: Run, settings: Settings) -> dict[str, TwoSided]:
    """The answers of every mode that can be scored; raises as :func:`sections` does."""
    layout = Layout.of(settings.task)
    return {mode: TwoSided.of(mode, answers, layout) for mode, answers in answers_of(run, settings.task).items()}


def _scores(judged: Mapping[str, TwoSided], settings: Settings) -> Section:
    rows = []
    for mode, one in judged.items():
        found = measured(measures_of(one), n_draws=settings.n_draws, seed=settings.seed)
        row = {"mode": mode, "memes": len(one), "unparsed": int(one.unparsed.sum())}
        rows.append(row | columns_of(found, MEASURES))
    positive, negative = next(iter(judged.values())).layout.sides
    return Section(
        title="AHA-Memes: scores as published",
        text=(
            f"Binary: {positive} against {negative}. Fine: the ten categories below them, the {OTHER} of both sides "
            "being one; macro is over all ten, also those that never occur, which count 0. An unparsed answer claims "
            f"nothing and is wrong for its meme. In brackets: {LEVEL:.0%} bootstrap intervals over memes.\n\n"
            "Majority answers every meme with the side that most gold is on and its commonest category there. Random "
            "answers a side by a fair coin and one of its categories, all as likely: mean and standard deviation (sd) "
            f"of {settings.n_baseline_draws} draws."
        ),
        tables=(
            Table.of("aha_scores", "Scores as published", pd.DataFrame(rows), short=_SHORT),
            Table.of("aha_baselines", "Answers that never look at a meme", _baselines(judged, settings), short=_SHORT),
        ),
        charts=(_scores_chart(pd.DataFrame(rows)),),
    )


_SHORT = {
    "binary_macro_f1": "binary", "recall_hateful": "recall", "fine_macro_f1": "fine macro", "fine_micro_f1": "micro",
    **{f"{name}_sd": "" for name in MEASURES.values()},
}  # fmt: skip


def _baselines(judged: Mapping[str, TwoSided], settings: Settings) -> pd.DataFrame:
    """The baselines, once for modes with the same memes."""
    same: dict[tuple[str, ...], list[str]] = {}
    for mode, one in judged.items():
        same.setdefault(one.ids, []).append(mode)
    rows = []
    for modes in same.values():
        one, rng = judged[modes[0]], np.random.default_rng((settings.seed, _STREAM))
        most, named = majority(one)
        drawn = [_values(one, at_random(one, rng)) for _ in range(settings.n_baseline_draws)]
        shared = {"modes": ", ".join(modes), "memes": len(one)}
        rows.append(shared | {"baseline": "majority", "answer": named} | _spread([_values(one, most)]))
        rows.append(shared | {"baseline": "random", "answer": "a side and one category"} | _spread(drawn))
    return pd.DataFrame(rows)


def _values(judged: TwoSided, answered: Answered) -> list[float]:
    found = measures_of(judged, answered).values()
    return [float(found[kind, name, ""]) for kind, name in MEASURES]


def _spread(drawn: Sequence[Sequence[float]]) -> dict[str, float]:
    """Mean and standard deviation of a draw, 0 for what is not drawn."""
    table, columns = np.array(drawn), dict[str, float]()
    for name, values in zip(MEASURES.values(), table.T, strict=True):
        columns |= {name: float(values.mean()), f"{name}_sd": float(values.std(ddof=1)) if len(table) > 1 else 0.0}
    return columns


def _labels(judged: Mapping[str, TwoSided]) -> Section:
    frames, charts = [], []
    for mode, one in judged.items():
        errors = label_errors(one.sets)
        errors.insert(0, "mode", mode)
        frames.append(errors)
        series = [
            Series(name=said, x=tuple(errors["label"]), y=tuple(errors[column].astype(float)))
            for said, column in (("gold", "gold"), ("answers", "predicted"))
        ]
        charts.append(
            Chart(
                name=f"aha_labels_{mode}", title=f"Memes with each label, {mode}", kind="bars", x_label="label",
                y_label="memes", series=tuple(series),
            )
        )  # fmt: skip
    return Section(
        title="AHA-Memes: labels that are answered and that are right",
        text="Over is predicted minus gold: above 0 a label is answered too often, below too seldom.",
        tables=(Table.of("aha_labels", "Predicted against gold counts", pd.concat(frames, ignore_index=True)),),
        charts=tuple(charts),
    )


def _lengths(judged: Mapping[str, TwoSided], texts: Mapping[str, Sequence[str]]) -> Section:
    frames = {mode: errors_by_length(one, texts[mode]) for mode, one in judged.items()}
    rows = pd.concat([frame.assign(mode=mode) for mode, frame in frames.items()], ignore_index=True)
    filled = {mode: frame[frame["memes"] > 0] for mode, frame in frames.items()}
    series = [Series.of(mode, frame["characters"], frame, "error_rate") for mode, frame in filled.items()]
    return Section(
        title="AHA-Memes: errors by the length of the caption",
        text=(
            "Share of memes whose side is answered wrongly, by the characters of the caption as the run has it, spaces "
            "included. The paper has the bins from 21 characters; shorter captions stand in a row of their own, "
            "so that every meme is in one. An unparsed answer is an error. In brackets: Wilson intervals."
        ),
        tables=(Table.of("aha_lengths", "Errors by caption length", rows[["mode", *rows.columns.drop("mode")]]),),
        charts=(
            Chart(
                name="aha_error_rates", title="Error rate by caption length", kind="bars", x_label="characters",
                y_label="share of wrong answers", series=tuple(series), y_range=(0, 1), note="Bars: Wilson intervals.",
            ),
        ),
    )  # fmt: skip


def _inconsistent(judged: Mapping[str, TwoSided]) -> Section:
    rows = []
    for mode, one in judged.items():
        found = inconsistencies(one)
        counts = {name.replace(" ", "_"): int(answers.sum()) for name, answers in found.items()}
        any_of = int(np.any(list(found.values()), axis=0).sum())
        rows.append({"mode": mode, "answers": len(one), **counts, "any_of_these": any_of})
    return Section(
        title="AHA-Memes: what was counted",
        text=(
            "Fine labels must agree with the side, and Other excludes the rest on its side. Answers that contradict "
            "themselves are counted as they stand: their types are claimed, and their side is the one they name, or "
            "none where they name both."
        ),
        tables=(
            Table.of("aha_inconsistent", "Answers that contradict themselves", pd.DataFrame(rows)),
            Table.of(
                "aha_counted", "What was scored", pd.DataFrame([one.counted() for one in judged.values()]), note=COUNTED
            ),
        ),
    )


def _scores_chart(rows: pd.DataFrame) -> Chart:
    series = [Series.of(name.replace("_", " "), rows["mode"], rows, name) for name in MEASURES.values()]
    return Chart(
        name="aha_scores_by_mode", title="Scores by mode", kind="bars", x_label="mode", y_label="score",
        series=tuple(series), y_range=(0, 1), note=f"Bars: {LEVEL:.0%} bootstrap intervals over memes.",
    )  # fmt: skip

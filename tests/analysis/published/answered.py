"""Runs that tests of published scores share, made of gold labels and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xai.analysis.detection.scored import Settings
from xai.schema import Meme, Mode, Prediction
from xai.store import Run, RunWriter, open_run
from xai.tasks import load_task

Labels = tuple[str, ...]


class Row(NamedTuple):
    """One meme and the answer to it; labels ``None``: an answer that could not be parsed."""

    gold: Labels | None
    labels: Labels | None
    text: str = "a caption of more than twenty characters"
    rationale: Any = None
    reasons: Labels = ()


def run_of(path: Path, task: str, answers: Mapping[Mode, Sequence[Row]]) -> Run:
    """A run of answers by mode; memes are called by their number."""
    with RunWriter(path, {"task": task}) as writer:
        for mode, rows in answers.items():
            for number, row in enumerate(rows):
                answer = Prediction(
                    meme_id=f"m{number}", mode=mode, generated_ids=(1,), text="", labels=row.labels or (),
                    reasons=row.reasons, parse="unparsed" if row.labels is None else "strict",
                )  # fmt: skip
                metadata = {} if row.rationale is None else {"rationale": row.rationale}
                meme = Meme(id=f"m{number}", text=row.text, labels=row.gold, metadata=metadata)
                writer.add(answer, meme=meme)
    return open_run(path)


def fast(task: str, **options: Any) -> Settings:
    """Settings with few draws."""
    return Settings(load_task(task), **({"n_draws": 40, "n_swaps": 64, "n_baseline_draws": 20} | options))

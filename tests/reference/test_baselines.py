"""Baselines of the published annotations: what answers by label frequency score there.

The figures that are known are means and standard deviations of 30 draws, of a seed that is not. So each is compared
with the mean of many draws: a mean of 30 lies within four standard errors, sd / √30, and the standard deviation of 30
within a half of that of many (six standard errors and more, sd / √60).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from xai.analysis.detection.baselines import baseline_scores
from xai.analysis.detection.labelsets import NoneLabel, indicator
from xai.datasets import read_memes
from xai.tasks import load_task

N_DRAWS = 1000
TASK = load_task("ukrmeme")


def weighted_random(dataset: Path, none_label: NoneLabel) -> pd.DataFrame:
    gold = indicator([meme.labels for meme in read_memes(dataset / "test.jsonl")], TASK.label_names)
    frame = baseline_scores(
        gold, TASK.label_names, TASK.expand, none=TASK.none_label, none_label=none_label, n_draws=N_DRAWS
    )
    frame = frame[(frame["kind"] == "hierarchical") & (frame["baseline"] == "weighted random")]
    return frame.set_index("measure")[["mean", "sd"]]


@pytest.mark.parametrize(
    ("name", "measure", "mean", "sd"),
    [
        ("ukrmeme", "micro_f1", 0.251, 0.024),
        ("ukrmeme", "macro_f1", 0.100, 0.013),
        ("ptm-ua", "micro_f1", 0.517, 0.013),
    ],
)
def test_weighted_random_with_none_empty_on_both_sides(
    shared_data: Path, name: str, measure: str, mean: float, sd: float
) -> None:
    found = weighted_random(shared_data / name, "empty on both sides").loc[measure]
    assert found["mean"] == pytest.approx(mean, abs=4 * found["sd"] / 30**0.5)
    assert found["sd"] == pytest.approx(sd, rel=0.5)


def test_the_figures_tell_the_conventions_apart(shared_data: Path) -> None:
    kept, gold_only = (
        weighted_random(shared_data / "ukrmeme", convention).loc["micro_f1"]
        for convention in ("kept", "empty in gold only")
    )
    assert abs(kept["mean"] - 0.251) > 4 * kept["sd"] / 30**0.5
    assert abs(gold_only["mean"] - 0.251) > 4 * gold_only["sd"] / 30**0.5

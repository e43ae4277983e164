"""What is scored: the answers of a run under a convention, the settings that the numbers depend on, their measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from xai.analysis.detection import baselines
from xai.analysis.detection.answered import Answers, answers_of
from xai.analysis.detection.baselines import label_frequencies
from xai.analysis.detection.calibration import N_BINS
from xai.analysis.detection.comparison import N_SWAPS
from xai.analysis.detection.labelsets import Ancestors, LabelSets, NoneLabel
from xai.analysis.detection.scores import EACH, Additive, Kind, exact, intervals, measures
from xai.analysis.statistics import N_DRAWS
from xai.datasets import read_memes
from xai.schema import Meme, Mode
from xai.store import Run
from xai.tasks import Task, load_task


class Frequencies(NamedTuple):
    """Label frequencies for the baselines and where they come from."""

    source: str
    shares: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Settings:
    """What the numbers depend on beside the answers."""

    task: Task
    none_label: NoneLabel = "empty on both sides"
    frequencies: Frequencies | None = None
    n_baseline_draws: int = baselines.N_DRAWS
    n_bins: int = N_BINS
    n_draws: int = N_DRAWS
    n_swaps: int = N_SWAPS
    seed: int = 0

    @property
    def none_in_words(self) -> str:
        """What becomes of the label that says "none of these", or that the task has no such label."""
        none = self.task.none_label
        return "no label says none of these" if none is None else f"{none}: {self.none_label}"


@dataclass(frozen=True, eq=False)
class Scored:
    """The answers of one mode under the convention, and their measures."""

    name: str
    answers: Answers
    settings: Settings = field(repr=False)

    @cached_property
    def sets(self) -> LabelSets:
        """Label sets under the convention."""
        return self.answers.sets.under(self.settings.none_label, self.settings.task.none_label)

    @cached_property
    def nodes(self) -> LabelSets:
        """The same, extended by ancestors."""
        return self.sets.with_ancestors(Ancestors.of(self.sets.names, self.settings.task.expand))

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """All measures with their intervals: kind, measure, name, value, low, high."""
        return intervals(measures(self.sets, self.nodes), n_draws=self.settings.n_draws, seed=self.settings.seed)

    @cached_property
    def right(self) -> np.ndarray:
        """Whether each answer's whole label set is right, bool ``(n,)``."""
        return exact(self.sets)

    def of(self, rows: Sequence[int]) -> Additive:
        """All measures, hierarchical and flat, of some of the memes, in that order.

        Made anew each time: what 66,000 memes add takes 90 MB, and as much again for each mode that were kept.
        """
        return measures(self.sets.of(rows), self.nodes.of(rows))

    def overall(self, kind: Kind, names: Sequence[str]) -> dict[str, float]:
        """Measures of whole sets as columns, each followed by its interval: x, x_low, x_high."""
        frame = self.intervals
        found = frame[(frame["kind"] == kind) & (frame["name"] == "")].set_index("measure")
        columns = (("", "value"), ("_low", "low"), ("_high", "high"))
        return {f"{name}{end}": float(found[column][name]) for name in names for end, column in columns}

    def each(self, kind: Kind) -> pd.DataFrame:
        """One row a label (flat) or node: mode, name, support (memes whose gold has it), predicted, and EACH.

        Precision, recall and F1 come with their intervals.
        """
        sets = self.sets if kind == "flat" else self.nodes
        frame = pd.DataFrame(
            {"label": sets.names, "support": sets.gold.sum(axis=0), "predicted": sets.predicted.sum(axis=0)}
        )
        found = self.intervals[(self.intervals["kind"] == kind) & (self.intervals["name"] != "")]
        for measure in EACH:
            # In the order of the names, as every measure is.
            values = found[found["measure"] == measure]
            for end, column in (("", "value"), ("_low", "low"), ("_high", "high")):
                frame[f"{measure}{end}"] = values[column].to_numpy()
        frame.insert(0, "mode", self.name)
        return frame


def task_of_run(run: Run, file: str | Path | None = None) -> Task:
    """The task of a run: one that ships, or that of ``file``, which must be the task that the run names.

    Raises:
        ValueError: there is no such task, or the file holds another one.
    """
    name, version = run.config["task"], run.config.get("task_version")
    if file is None:
        try:
            return load_task(name)
        except ValueError:
            raise ValueError(f"run {run.path.name!r} is of task {name!r}, which does not ship; give its file") from None
    task = load_task(file)
    if task.name != name or version not in (None, task.version):
        raise ValueError(
            f"run {run.path.name!r} is of task {name!r} version {version}, not {task.name!r} version {task.version}; "
            "give the file that it was made with"
        )
    return task


def frequencies_of(dataset: Path, task: Task) -> Frequencies:
    """The label frequencies of a dataset, over its memes whose labels are known.

    Raises:
        ValueError: it has none, or they are not labels of the task.
    """
    memes = [meme for meme in read_memes(dataset) if isinstance(meme, Meme) and meme.labels is not None]
    sets = [[task.match_label(label) or label for label in meme.labels or ()] for meme in memes]
    return Frequencies(f"{dataset.name} ({len(sets)} memes)", label_frequencies(sets, task.label_names))


def scored_modes(run: Run, settings: Settings) -> dict[Mode, Scored]:
    """The modes of a run that can be scored.

    Raises:
        ValueError: there are none, or a label is not in the inventory.
    """
    found = answers_of(run, settings.task)
    if not found:
        raise ValueError(
            f"run {run.path.name!r} has no gold labels to score against; add a 'labels' column to its dataset"
        )
    return {mode: Scored(mode, answers, settings) for mode, answers in found.items()}

"""The answers of a run beside the gold labels, by mode: what every score of a run is computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xai.analysis.calibration import sequence_confidence
from xai.analysis.labelsets import LabelSets, indicator
from xai.schema import MODES, Mode
from xai.store import Run
from xai.tasks import Task

_COLUMNS = (
    "mode, meme_id, gold_labels, labels, len(unknown_labels), parse, confidence, log_probability, len(generated_ids)"
)


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of one mode to the memes whose gold labels are known, in the order of the run.

    An answer that could not be parsed is one without labels. Memes that failed before they had an answer are not
    here; ``n_failed`` counts them. ``n_without_gold`` answers had no gold labels, and ``n_unknown_labels`` labels were
    outside the inventory and do not count. ``unparsed`` is bool ``(n,)``. ``verbalised`` is the confidence that the
    answer states, and ``sequence`` that of the generated tokens; floats ``(n,)``, NaN where not known.
    """

    ids: tuple[str, ...]
    sets: LabelSets
    n_without_gold: int
    n_failed: int
    n_unknown_labels: int
    unparsed: np.ndarray
    verbalised: np.ndarray
    sequence: np.ndarray


def answers_of(run: Run, task: Task) -> dict[Mode, Answers]:
    """The answers of every mode that has some to memes with known labels.

    Raises:
        ValueError: a label is not in the task's inventory.
    """
    rows: dict[str, list[tuple[Any, ...]]] = {mode: [] for mode in MODES}
    for mode, *row in run.predictions().filter("gold_labels IS NOT NULL").project(_COLUMNS).fetchall():
        rows[mode].append(tuple(row))
    unknown = _counts(run, "predictions", "gold_labels IS NULL")
    failed = _counts(run, "failures", "stage IN ('read', 'predict')")
    return {
        mode: _answers(task, rows[mode], unknown.get(mode, 0), failed.get(mode, 0) + failed.get(None, 0))
        for mode in MODES
        if rows[mode]
    }


def _counts(run: Run, kind: str, condition: str) -> Mapping[str | None, int]:
    relation = run.predictions() if kind == "predictions" else run.failures()
    return dict(relation.filter(condition).aggregate("mode, count(*)", "mode").fetchall())


def _answers(task: Task, rows: Sequence[tuple[Any, ...]], n_without_gold: int, n_failed: int) -> Answers:
    ids, gold, labels, n_unknown, parse, confidence, log_probability, n_tokens = zip(*rows, strict=True)
    names = task.label_names
    spelt = {label: task.match_label(label) or label for one in gold for label in one}
    gold_sets = indicator([[spelt[label] for label in one] for one in gold], names)
    return Answers(
        ids=ids,
        sets=LabelSets(names, gold_sets, indicator(labels, names)),
        n_without_gold=n_without_gold,
        n_failed=n_failed,
        n_unknown_labels=sum(n_unknown),
        unparsed=np.array([one == "unparsed" for one in parse]),
        verbalised=np.array(confidence, dtype=float),
        sequence=sequence_confidence(log_probability, n_tokens),
    )

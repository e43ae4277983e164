"""The answers of a run beside the gold labels, by mode: what every score of a run is computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xai.analysis.detection.calibration import sequence_confidence
from xai.analysis.detection.labelsets import LabelSets, indicator
from xai.schema import ALL_MODES, Mode
from xai.store import Run
from xai.tasks import Task

_COLUMNS = (
    "mode, meme_id, gold_labels, labels, len(unknown_labels) AS n_unknown_labels, parse, confidence, log_probability, "
    "len(generated_ids) AS n_tokens"
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
    # In columns, since as many Python objects as a large run has cells take longer than all that is computed of them.
    table = run.predictions().project(_COLUMNS).to_arrow_table()
    failed = _failed(run)
    found = {}
    for mode in ALL_MODES:
        rows = table.filter(pc.equal(table["mode"], mode))
        known = rows.filter(pc.is_valid(rows["gold_labels"])).combine_chunks()
        if known.num_rows:
            n_failed = failed.get(mode, 0) + failed.get(None, 0)
            found[mode] = _answers(task, known, rows.num_rows - known.num_rows, n_failed)
    return found


def _failed(run: Run) -> Mapping[str | None, int]:
    """Records that failed before they had an answer, by mode; under ``None``, those that failed before any.

    An answer that cannot be read is a failure, too, and there to be scored.
    """
    answered = run.predictions().project("meme_id, mode").set_alias("p")
    failures = run.failures().filter("stage IN ('read', 'predict')").set_alias("f")
    early = failures.join(answered, "f.meme_id = p.meme_id AND f.mode = p.mode", how="anti")
    return dict(early.aggregate("mode, count(*)", "mode").fetchall())


def _answers(task: Task, rows: pa.Table, n_without_gold: int, n_failed: int) -> Answers:
    names = task.label_names

    def numbers(name: str) -> np.ndarray:
        return np.asarray(rows[name].cast(pa.float64()).fill_null(np.nan).to_numpy())

    return Answers(
        ids=tuple(rows["meme_id"].to_pylist()),
        sets=LabelSets(
            names,
            _indicator(rows["gold_labels"], names, lambda label: task.match_label(label) or label),
            _indicator(rows["labels"], names, lambda label: label),
        ),
        n_without_gold=n_without_gold,
        n_failed=n_failed,
        n_unknown_labels=int(pc.sum(rows["n_unknown_labels"]).as_py()),
        unparsed=np.asarray(pc.equal(rows["parse"], "unparsed").to_numpy()),
        verbalised=numbers("confidence"),
        sequence=sequence_confidence(numbers("log_probability"), numbers("n_tokens")),
    )


def _indicator(lists: pa.ChunkedArray, names: Sequence[str], named: Callable[[str], str]) -> np.ndarray:
    """Bool ``(n, n_names)``: which list has which name, ``named`` giving the name of what is written."""
    row = pc.list_parent_indices(lists).to_numpy()
    written = pc.list_flatten(lists).combine_chunks().dictionary_encode()
    spelt = indicator([[named(label)] for label in written.dictionary.to_pylist()], names)
    matrix = np.zeros((len(lists), len(names)), dtype=bool)
    if len(row):
        matrix[row, spelt.argmax(axis=1)[written.indices.to_numpy()]] = True
    return matrix

"""Measures the explanations of a run, meme by meme in a random order, into parts; resumes and keeps to a budget."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from xai.analysis.faithfulness.one_input import Settings, infidelity_row, measure_input, seed_of
from xai.analysis.faithfulness.rescoring import rescoring
from xai.analysis.faithfulness.robustness import N_NOISES, max_sensitivity, stability
from xai.analysis.faithfulness.stored import SETTINGS
from xai.database import connect
from xai.models import VisionLanguageModel
from xai.parts import explanation_from_rows, lock_folder, to_json, unlock, write_part, write_text
from xai.schema import ALL_LABELS, Explanation, Mode
from xai.store import Run
from xai.tasks import Task, load_task

PART_SIZE = 8
FORMAT = 1
Key = tuple[str, Mode]


@dataclass(frozen=True)
class Budget:
    """What one call may spend: seconds, or forwards (sequences run); ``None`` is no limit."""

    seconds: float | None = None
    forwards: int | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """``90s``, ``10m``, ``2h``, or ``5000f`` for forwards.

        Raises:
            ValueError: it reads otherwise.
        """
        number, unit = text[:-1], text[-1:]
        factor = {"s": 1, "m": 60, "h": 3600}.get(unit)
        try:
            if unit == "f":
                return cls(forwards=int(number))
            if factor is not None:
                return cls(seconds=float(number) * factor)
        except ValueError:
            pass
        raise ValueError(f"a budget reads like 90s, 10m, 2h or 5000f (forwards), not {text!r}")


@dataclass(frozen=True)
class Measured:
    """What was measured of a run.

    Attributes:
        curves: one row a meme, mode, target and order; see :func:`measure_input`.
        rationales: one row a meme, mode and target whose rationale names words of the caption.
        robustness: one row a meme, mode and target; empty unless it was asked for.
        failures: meme_id, mode, reason.
        n_all: memes × modes that the run could have measured.
        n_forwards: sequences run, those of earlier calls included.
    """

    curves: pd.DataFrame
    rationales: pd.DataFrame
    robustness: pd.DataFrame
    failures: pd.DataFrame
    n_all: int
    n_forwards: int


def measure_run(
    run: Run,
    model: VisionLanguageModel,
    settings: Settings,
    *,
    budget: Budget | None = None,
    task: Task | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Measured:
    """Measure a run's explanations on a random sample as large as the budget lets it be; goes on where it stopped.

    A meme that cannot be measured is a failure with its reason, tried again by the next call; nothing else is lost.

    Args:
        task: that of the run, where it is none that ships.

    Raises:
        ValueError: the model is not that of the run, or another process measures it.
    """
    _refuse_other_model(run, model)
    folder, budget = parts_folder(run, settings), budget or Budget()
    begin, n_forwards, pending = time.monotonic(), 0, list[dict[str, Any]]()
    with _locked(folder):
        write_text(folder / SETTINGS, to_json(asdict(settings)))
        done = _done(folder)
        on_progress(len(done))
        try:
            for key in (key for key in sampled_keys(run, settings) if key not in done):
                if _spent(budget, time.monotonic() - begin, n_forwards):
                    break
                pending.append(_measured_or_failed(run, model, key, settings, task))
                n_forwards += pending[-1]["n_forwards"]
                on_progress(1)
                if len(pending) == PART_SIZE:
                    _flush(folder, pending)
        finally:
            _flush(folder, pending)
    return read_measured(run, settings)


def read_measured(run: Run, settings: Settings) -> Measured:
    """What is measured already."""
    rows = _stored(parts_folder(run, settings))
    records = {name: [row for one in rows for row in json.loads(one[name])] for name in _TABLES}
    failed = [{name: row[name] for name in ("meme_id", "mode", "reason")} for row in rows if row["reason"]]
    return Measured(
        pd.DataFrame(records["curves"]),
        pd.DataFrame(records["rationales"]),
        pd.DataFrame(records["robustness"]),
        pd.DataFrame(failed, columns=["meme_id", "mode", "reason"]),
        len(sampled_keys(run, settings)),
        sum(row["n_forwards"] for row in rows),
    )


def parts_folder(run: Run, settings: Settings) -> Path:
    """Where the parts of these settings are; other settings have another folder."""
    name = hashlib.sha256(to_json([FORMAT, asdict(settings)]).encode()).hexdigest()[:12]
    return run.reports / "faithfulness" / name


def sampled_keys(run: Run, settings: Settings) -> list[Key]:
    """(meme id, mode) of all that the run explains, in the random order in which they are measured.

    A larger budget measures the same sample and more.
    """
    found = set(run.explanations().select("meme_id", "mode").fetchall())
    keys = sorted(key for key in found if not settings.modes or key[1] in settings.modes)
    order = np.random.default_rng(settings.seed).permutation(len(keys))
    return [keys[index] for index in order]


def measured_explanations(run: Run, measured: Measured, targets: str = "each") -> Iterator[Explanation]:
    """The explanations that were measured, read as they are asked for."""
    keys = measured.curves[["meme_id", "mode"]].drop_duplicates() if len(measured.curves) else pd.DataFrame()
    for meme_id, mode in keys.itertuples(index=False, name=None):
        yield from explanations_of(run, (meme_id, mode), targets)


def explanations_of(run: Run, key: Key, targets: str = "each") -> list[Explanation]:
    """The explanations of one meme and mode: of each label, or where there are none, of all labels together."""
    answer = _rows_of(run.predictions(), key)[0]
    rows = _rows_of(run.explanations(), key)
    alone = [row for row in rows if row["target"] != ALL_LABELS]
    together = [row for row in rows if row["target"] == ALL_LABELS]
    chosen = (alone or together) if targets == "each" else (together or alone)
    return [explanation_from_rows(row, answer) for row in chosen]


def _measured_or_failed(
    run: Run, model: VisionLanguageModel, key: Key, settings: Settings, task: Task | None
) -> dict[str, Any]:
    try:
        return _measured(run, model, key, settings, task)
    except (ValueError, RuntimeError) as error:
        return _stored_row(key, [], [], 0, str(error) or type(error).__name__)


def _measured(run: Run, model: VisionLanguageModel, key: Key, settings: Settings, task: Task | None) -> dict[str, Any]:
    explanations = explanations_of(run, key, settings.targets)
    if not settings.with_none:
        none = (task or load_task(explanations[0].config["task"])).none_label
        explanations = [one for one in explanations if one.target != none and one.prediction.labels != (none,)]
    if not explanations:
        return _stored_row(key, [], [], 0, "")
    with rescoring(model, explanations, settings.perturbation, task=task) as rescorer:
        rows, rationales = measure_input(rescorer, explanations, settings)
        robust = [infidelity_row(rescorer, one, settings) for one in explanations] if settings.robustness else []
        n_forwards = rescorer.n_forwards
    for row, explanation in zip(robust, explanations, strict=False):
        seed = seed_of(explanation, settings, "")
        row |= {"max_sensitivity": max_sensitivity(model, explanation, seed=seed, task=task)}
        row |= stability(model, explanation, seed=seed, task=task)
        n_forwards += N_NOISES + 3
    return _stored_row(key, rows, rationales, n_forwards, "", robust)


_TABLES = ("curves", "rationales", "robustness")
_SCHEMA = pa.schema(
    {
        "meme_id": pa.string(),
        "mode": pa.string(),
        "n_forwards": pa.int64(),
        "reason": pa.string(),
        "curves": pa.string(),
        "rationales": pa.string(),
        "robustness": pa.string(),
    }
)


def _stored_row(
    key: Key,
    rows: Sequence[dict[str, Any]],
    rationales: Sequence[dict[str, Any]],
    n_forwards: int,
    reason: str,
    robust: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    return {
        "meme_id": key[0],
        "mode": key[1],
        "n_forwards": n_forwards,
        "reason": reason,
        "curves": to_json(list(rows)),
        "rationales": to_json(list(rationales)),
        "robustness": to_json(list(robust)),
    }


def _flush(folder: Path, pending: list[dict[str, Any]]) -> None:
    if pending:
        number = len(list(folder.glob("part-*.parquet")))
        write_part(folder / f"part-{number:05d}.parquet", pa.Table.from_pylist(pending, schema=_SCHEMA))
        pending.clear()


def _stored(folder: Path) -> list[dict[str, Any]]:
    files = sorted(map(str, folder.glob("part-*.parquet")))
    if not files:
        return []
    relation = connect().read_parquet(files)
    rows = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    # A failure that was tried again is followed by what came of it.
    return list({(row["meme_id"], row["mode"]): row for row in rows}.values())


def _done(folder: Path) -> set[Key]:
    return {(row["meme_id"], row["mode"]) for row in _stored(folder) if not row["reason"]}


def _spent(budget: Budget, seconds: float, n_forwards: int) -> bool:
    over_time = budget.seconds is not None and seconds >= budget.seconds
    return over_time or (budget.forwards is not None and n_forwards >= budget.forwards)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The folder of the parts, made and held while it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = lock_folder(folder)
    except BlockingIOError:
        raise ValueError("another process is measuring this run in the same way; wait for it") from None
    try:
        yield
    finally:
        unlock(lock)


def _rows_of(relation: duckdb.DuckDBPyRelation, key: Key) -> list[dict[str, Any]]:
    for name, value in zip(("meme_id", "mode"), key, strict=True):
        relation = relation.filter(duckdb.ColumnExpression(name) == duckdb.ConstantExpression(value))
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def _refuse_other_model(run: Run, model: VisionLanguageModel) -> None:
    wanted = run.config["model"]["fingerprint"]
    if model.fingerprint != wanted:
        raise ValueError(
            f"run {run.path.name!r} was made with model {run.config['model']['name']!r} ({wanted}), "
            f"and {model.name!r} has other weights ({model.fingerprint}); name the run's model with --model"
        )

"""Measures the explanations of a run, meme by meme in a random order, into parts; resumes and keeps to a budget."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from xai.analysis.faithfulness.curves import MAX_POINTS, SCALES, Curve, Scale, curves, measures
from xai.analysis.faithfulness.ground_truth import touched_by_any
from xai.analysis.faithfulness.rescoring import Perturbation, Rescorer, Scores, rescoring
from xai.analysis.faithfulness.robustness import N_NOISES, infidelity, max_sensitivity, stability
from xai.analysis.faithfulness.stored import GRID, RANDOM, RATIONALE, REVERSED, SETTINGS, TRUTH
from xai.analysis.faithfulness.units import Order, Unit, UnitKind, named_units, ranked, unit_values, units_of
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
class Settings:
    """What decides the figures, whatever the sample.

    Attributes:
        units: words, cells, or both in one ranking.
        order: of relevance; signed by default.
        targets: each label alone, or all labels of an answer together.
        with_none: measure the answer that there is no label, too, for which no word speaks.
        n_draws: random orders an input, the same for all of its targets and methods.
        seed: of the sample, the random orders, and what decides between equal values.
        modes: only these; all of a run by default.
        robustness: infidelity, sensitivity and stability, too, for which memes are explained again.
    """

    units: UnitKind = "both"
    words: Literal["replace", "mean", "delete", "mask"] = "replace"
    cells: Literal["mean_token", "mean_colour", "blur"] = "mean_token"
    order: Order = "signed"
    targets: Literal["each", "all"] = "each"
    with_none: bool = False
    n_draws: int = 10
    max_points: int = MAX_POINTS
    seed: int = 0
    modes: tuple[Mode, ...] = ()
    robustness: bool = False

    @property
    def perturbation(self) -> Perturbation:
        """How units are taken away."""
        return Perturbation(self.words, self.cells)

    def __post_init__(self) -> None:
        if self.n_draws < 1:
            raise ValueError(f"n_draws must be 1 or more, not {self.n_draws}")


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


def measure_input(
    rescorer: Rescorer, explanations: Sequence[Explanation], settings: Settings
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of curves and of rationales, for the explanations of one input.

    A row of curves holds meme_id, mode, target, method, draw, n_units, constant and all_negative (of the map), every
    measure as ``measure:scale``, and ``morf:scale`` and ``lerf:scale`` at the shares of :data:`GRID`. ``method`` is
    the method of the explanation; ``METHOD reversed``; or ``random order``, ``rationale``, ``truth``.
    """
    units = units_of(explanations[0], settings.units)
    rows = []
    for explanation in explanations:
        values = unit_values(units, explanation)
        orders = dict(_orders(units, explanation, values, settings))
        for (method, draw), order in orders.items():
            if units:
                shared = {"draw": draw, "constant": bool(np.ptp(values) == 0), "all_negative": bool((values < 0).all())}
                rows += _curve_rows(rescorer, units, order, explanation, method, shared, settings)
    words = units_of(explanations[0], "words")
    named = named_units(words, explanations[0].prediction.referred_words, explanations[0].meme.text)
    rationales = [_rationale_row(rescorer, words, named, one, settings) for one in explanations if named]
    return rows, rationales


def _orders(
    units: Sequence[Unit], explanation: Explanation, values: np.ndarray, settings: Settings
) -> Iterator[tuple[tuple[str, int], tuple[int, ...]]]:
    seed = _seed(explanation, settings, explanation.target)
    yield (explanation.method, 0), ranked(values, settings.order, seed=seed)
    for name, chosen in ((RATIONALE, _named(units, explanation)), (TRUTH, true_units(units, explanation))):
        if chosen:
            yield (name, 0), ranked([float(index in chosen) for index in range(len(units))], seed=seed)
    for draw in range(settings.n_draws):
        yield (RANDOM, draw), random_order(len(units), _seed(explanation, settings, ""), draw)


def random_order(n_units: int, seed: int, draw: int) -> tuple[int, ...]:
    """A random order; every second one is the reverse of the one before, which costs no forward of its own."""
    order = np.random.default_rng([seed, draw // 2]).permutation(n_units).tolist()
    return tuple(order[::-1] if draw % 2 else order)


def true_units(units: Sequence[Unit], explanation: Explanation) -> tuple[int, ...]:
    """The units that cause the target in the planted world; none of a meme that carries no truth."""
    from xai.planted.truth import truth_of

    if "truth" not in explanation.meme.metadata:
        return ()
    causes = truth_of(explanation.meme).causes
    causes = tuple(one for one in causes if explanation.target in (ALL_LABELS, one.label))
    spans = {span for cause in causes for span in cause.words}
    image, size = explanation.image, explanation.image_size
    touched: set[tuple[int, int]] = set()
    if image is not None and size is not None:
        boxes = (box for cause in causes for box in cause.boxes)
        found = touched_by_any(boxes, size, (image.shape[0], image.shape[1]))
        touched = {(row, column) for row, column in np.argwhere(found).tolist()}
    return tuple(
        index for index, unit in enumerate(units) if set(unit.spans) & spans or (unit.cell and unit.cell in touched)
    )


def _named(units: Sequence[Unit], explanation: Explanation) -> tuple[int, ...]:
    return named_units(units, explanation.prediction.referred_words, explanation.meme.text)


def _seed(explanation: Explanation, settings: Settings, target: str) -> int:
    name = f"{settings.seed}/{explanation.meme.id}/{explanation.mode}/{target}"
    return zlib.crc32(name.encode())


def _curve_rows(
    rescorer: Rescorer,
    units: Sequence[Unit],
    order: Sequence[int],
    explanation: Explanation,
    method: str,
    shared: Mapping[str, Any],
    settings: Settings,
) -> list[dict[str, Any]]:
    found = curves(rescorer, units, order, max_points=settings.max_points)
    target = rescorer.target_index(explanation)
    margin, names = found[target, "margin"], _names(explanation) | {"n_units": len(units)}
    both = [(method, {scale: found[target, scale] for scale in SCALES}, margin)]
    if method == explanation.method:
        turned = {scale: found[target, scale].reversed for scale in SCALES}
        both.append((f"{method} {REVERSED}", turned, margin.reversed))
    return [{**names, "method": name, **shared} | _figures(by_scale, own_margin) for name, by_scale, own_margin in both]


def _names(explanation: Explanation) -> dict[str, Any]:
    return {"meme_id": explanation.meme.id, "mode": explanation.mode, "target": explanation.target}


def _figures(by_scale: Mapping[Scale, Curve], margin: Curve) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for scale, one in by_scale.items():
        figures |= {f"{name}:{scale}": value for name, value in measures(one, margin).items()}
        for side in ("morf", "lerf"):
            resampled = np.interp(GRID, one.fractions, getattr(one, side))
            figures[f"{side}:{scale}"] = [round(float(value), 6) for value in resampled]
    return figures


def _rationale_row(
    rescorer: Rescorer, words: Sequence[Unit], named: Sequence[int], explanation: Explanation, settings: Settings
) -> dict[str, Any]:
    """What the target loses without the words that the rationale names, and without as many others."""
    seed, count = _seed(explanation, settings, explanation.target), len(named)
    top = ranked(unit_values(words, explanation), settings.order, seed=seed)[:count]
    chosen = [(), named, top]
    drawn = _seed(explanation, settings, "")
    chosen += [random_order(len(words), drawn, draw)[:count] for draw in range(settings.n_draws)]
    scores = rescorer([rescorer.without(words[index] for index in indices) for indices in chosen])
    column = rescorer.target_index(explanation)
    row = _names(explanation) | {
        "method": explanation.method,
        "n_named": count,
        "n_words": len(words),
        "n_shared": len(set(named) & set(top)),
        "named": [words[index].name for index in named],
        "top": [words[index].name for index in top],
    }
    return row | _losses(scores, column)


def _losses(scores: Scores, column: int) -> dict[str, float]:
    losses: dict[str, float] = {}
    for scale in SCALES:
        values = scores.on(scale)[:, column]
        lost = values[0] - values[1:]
        losses |= {f"rationale:{scale}": float(lost[0]), f"relevance:{scale}": float(lost[1])}
        losses[f"random:{scale}"] = float(lost[2:].mean())
    flips = (scores.margin[1:, column] < 0).astype(float)
    return losses | {
        "rationale:flip": float(flips[0]),
        "relevance:flip": float(flips[1]),
        "random:flip": float(flips[2:].mean()),
    }


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
        robust = [_infidelity_row(rescorer, one, settings) for one in explanations] if settings.robustness else []
        n_forwards = rescorer.n_forwards
    for row, explanation in zip(robust, explanations, strict=False):
        seed = _seed(explanation, settings, "")
        row |= {"max_sensitivity": max_sensitivity(model, explanation, seed=seed, task=task)}
        row |= stability(model, explanation, seed=seed, task=task)
        n_forwards += N_NOISES + 3
    return _stored_row(key, rows, rationales, n_forwards, "", robust)


def _infidelity_row(rescorer: Rescorer, explanation: Explanation, settings: Settings) -> dict[str, Any]:
    units = units_of(explanation, settings.units)
    row = _names(explanation) | {"method": explanation.method, "infidelity": float("nan")}
    if units:
        values, target = unit_values(units, explanation), rescorer.target_index(explanation)
        row["infidelity"] = infidelity(rescorer, units, values, target, seed=_seed(explanation, settings, ""))
    return row


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

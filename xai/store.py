"""A run folder: predictions, explanations and failures in part files that are whole or not there.

::

    run.json                     configuration, versions, seed, counts, state
    explanations/part-*.parquet  one row a meme, mode, target and method
    failures/part-*.parquet      record, stage, reason
    checksums/part-*.json        rows, bytes and SHA-256 of the files of a number
    predictions/part-*.parquet   one row a meme and mode, with the meme itself

What makes a stop at any instant harmless: everything about one meme and mode is added in one call and
lands in parts of one number, and the predictions part of that number is written last, even when it has
no rows. It is the commit. Readers and a resuming writer see only the numbers that have one; other parts
of an uncommitted number are removed on resuming and their memes are done again. So a meme is done with
all its rows or not at all, and a run that was stopped holds, in the same order, the rows of one that was not.

On resuming, every part is held against its checksums. A number that does not keep to them is set aside, and the first
memes that are done again, which are its own, take its place.
"""

from __future__ import annotations

import errno
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa

from xai.checksums import Examined, examine, row_counts, write_number
from xai.database import connect
from xai.environment import computing_environment, installed_versions
from xai.parts import (
    KINDS,
    SCHEMAS,
    Key,
    Kind,
    RowTables,
    RunWarning,
    committed,
    explanation_from_rows,
    lock_folder,
    part_paths,
    remove_leftovers,
    row_tables,
    set_aside,
    sync_folder,
    to_json,
    unlock,
    write_text,
)
from xai.schema import ALL_LABELS, Explanation, Failure, Meme, Mode, Prediction

FORMAT = 2
"""Version of the folder's layout and columns.

It rises when what is there changes its place or meaning. A column that may be null can be added without: parts that
were written before have null there, whatever they are read with."""
FOLDERS = (*KINDS, "checksums", "reports")


class RunError(ValueError):
    """A folder cannot be written or read as a run; the message says what to do."""


class RunWriter:
    """Creates or resumes a run folder and adds to it; the only writer of that folder while it is open.

    Use it as a context manager: what was added completely is kept when the block raises, and the run is
    marked finished only when it does not.

    Args:
        path: the folder; made if missing.
        config: what determines the rows, of JSON values; ``config["seed"]`` is shown in ``run.json``.
        part_size: memes a part file; at most so many are done again after a kill.

    Raises:
        RunError: the folder holds something else or a run of another configuration, another process is writing it,
            or it cannot be written: no space, no permission, a file system that is read-only. Later calls raise it
            for the latter, too; what was written before is kept, and what was added is written by the next call that
            can.
    """

    def __init__(self, path: str | Path, config: Mapping[str, Any], *, part_size: int = 16) -> None:
        if part_size < 1:
            raise ValueError(f"part_size must be at least 1, not {part_size}")
        self.path = Path(path)
        self._part_size = part_size
        self._buffer: list[RowTables] = []
        self._is_broken = False
        with _telling_what_to_do(self.path):
            _refuse_foreign(self.path)
            _make_folders(self.path)
            self._lock: int | None = _locked(self.path)
            try:
                self._info = _opened_info(self.path, _plain(config))
                remove_leftovers(self.path)
                self._take_up()
                self._write_info("running")
            except BaseException:
                self._release()
                raise

    def numbers(self) -> set[int]:
        """The numbers of the parts that are whole."""
        return set(committed(self.path))

    def done(self) -> set[Key]:
        """Every (meme id, mode) that the run has, explained or failed; mode ``None``: failed before any mode."""
        return set(self._done)

    def add(
        self,
        prediction: Prediction | None,
        explanations: Sequence[Explanation] = (),
        failures: Sequence[Failure] = (),
        *,
        meme: Meme | None = None,
    ) -> None:
        """Adds everything about one meme in one mode; written when a part is full.

        Args:
            prediction: ``None`` if the meme failed before one was made.
            meme: needed when there is a prediction but no explanation; else taken from the explanations.

        Raises:
            ValueError: the records are not of one meme and mode, the meme is missing, or it is in the run
                already. Nothing is added then.
        """
        key = _key(prediction, explanations, failures)
        if key in self._done:
            raise ValueError(f"meme {key[0]!r} is in this run already in mode {key[1]!r}; skip what done() names")
        meme = meme or next((e.meme for e in explanations), None)
        if prediction is not None and (meme is None or meme.id != prediction.meme_id):
            raise ValueError(f"the prediction for meme {key[0]!r} needs the meme itself; pass meme=…")
        # Converted at once, so that a record that cannot be stored fails alone and not with its whole part.
        self._buffer.append(row_tables(prediction, explanations, failures, meme))
        self._done.add(key)
        if len(self._buffer) >= self._place()[1]:
            self.flush()

    def flush(self) -> None:
        """Writes what was added so far as one part."""
        if not self._buffer:
            return
        with self._writing():
            write_block(self.path, self._place()[0], self._buffer)
        if self._gaps:
            self._gaps.pop(0)
        else:
            self._next += 1
        self._buffer.clear()

    def close(self, *, finished: bool = True) -> None:
        """Writes what is left, brings ``run.json`` up to date and gives the folder free; may be called twice."""
        if self._lock is None:
            return
        try:
            if self._is_broken and not finished:
                return
            # A gap that is filled in part only would leave the rest of its memes at the end of the run.
            if finished or not self._gaps:
                self.flush()
            with self._writing():
                self._write_info("finished" if finished else "running")
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _telling_what_to_do(self.path):
            self.close(finished=error is None)
            if isinstance(error, OSError) and error.errno in _REFUSALS:
                raise error  # of who writes parts by itself

    def _place(self) -> tuple[int, int]:
        """The number that is written next, and how many memes it is to have."""
        if self._gaps:
            return self._gaps[0]
        return self._next, self._part_size

    def _take_up(self) -> None:
        """Learns what the run has; numbers that are damaged are set aside, to be filled again."""
        self._done: set[Key] = set()
        self._gaps: list[tuple[int, int]] = []
        there = set(committed(self.path))
        self._next = max(there, default=-1) + 1
        for number in range(self._next):
            found = examine(self.path, number, ("predictions", "failures"))
            if number in there and not found.problems:
                self._done |= found.keys()
                continue
            # As many as it held, so that no meme of another number comes to stand among its own.
            self._gaps.append((number, found.n_records or self._part_size))
            if number in there:
                self._redo(found)

    def _redo(self, found: Examined) -> None:
        problems = "; ".join(f"{file} {what}" for file, what in found.problems)
        warnings.warn(
            f"run {self.path.name!r}: {problems}; the memes of this part are explained again, and its files are kept "
            "beside it as *.damaged",
            RunWarning,
            stacklevel=5,
        )
        set_aside(self.path, found.number)
        self._info["redone_parts"] = sorted({*self._info.get("redone_parts", []), found.number})

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Within the block, what cannot be written is said in one line; closing after an error does not try again."""
        self._is_broken = True
        with _telling_what_to_do(self.path):
            yield
        self._is_broken = False

    def _write_info(self, state: str) -> None:
        self._info |= {"state": state, "counts": row_counts(self.path)}
        text = json.dumps(self._info, ensure_ascii=False, indent=2) + "\n"
        write_text(self.path / "run.json", text)

    def _release(self) -> None:
        if self._lock is not None:
            unlock(self._lock)
            self._lock = None


def write_block(path: Path, number: int, rows: Sequence[RowTables]) -> None:
    """Writes rows as the part of a number: whole or not at all, since its predictions come last."""
    tables = {
        kind: pa.concat_tables([SCHEMAS[kind].empty_table(), *(tables[kind] for tables in rows)]) for kind in KINDS
    }
    write_number(path, number, tables, len(rows))


def open_run(path: str | Path) -> Run:
    """Opens a run folder for reading, also while it is being written.

    Raises:
        RunError: the folder is no run, or one of another layout.
    """
    return Run(path)


def run_names(paths: Sequence[Path]) -> list[str]:
    """Names that tell run folders apart: the folder's own, with as many of its parents as that takes.

    Raises:
        ValueError: a folder is given twice.
    """
    parts = [path.resolve().parts for path in paths]
    if len(set(parts)) < len(parts):
        raise ValueError("a run is given twice; name each once")
    depth = 1
    while len({found[-depth:] for found in parts}) < len(parts):
        depth += 1
    return ["/".join(found[-depth:]) for found in parts]


class Run:
    """A run folder, read only; tables are DuckDB relations (``.df()`` makes them pandas).

    Rows of parts that are not committed yet are not seen.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.info: dict[str, Any] = _read_info(self.path)
        """What ``run.json`` says: config, versions, seed, counts, state."""
        self._connection = connect()

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that the run was made with."""
        config: dict[str, Any] = self.info["config"]
        return config

    @property
    def reports(self) -> Path:
        """The folder for what is computed from the run."""
        return self.path / "reports"

    def predictions(self) -> duckdb.DuckDBPyRelation:
        """One row a meme and mode, in the order of the run, with the meme's own columns."""
        return self._relation("predictions")

    def explanations(self) -> duckdb.DuckDBPyRelation:
        """One row a meme, mode, target and method, in the order of the run; tables are list columns."""
        return self._relation("explanations")

    def failures(self) -> duckdb.DuckDBPyRelation:
        """One row a failure: meme_id, mode, stage, reason."""
        return self._relation("failures")

    def explanation(
        self, meme_id: str, mode: Mode | None = None, target: str = ALL_LABELS, method: str | None = None
    ) -> Explanation:
        """Rebuilds one explanation exactly; mode and method may be left out where the run has one only.

        Raises:
            KeyError: the run has none that fits, or several; the message names what there is.
        """
        wanted = {"mode": mode, "target": target, "method": method}
        rows = _rows(_where(self.explanations(), {"meme_id": meme_id, **wanted}))
        if len(rows) != 1:
            raise KeyError(self._choice(meme_id, len(rows), wanted))
        row = rows[0]
        answer = _rows(_where(self.predictions(), {"meme_id": meme_id, "mode": row["mode"]}))[0]
        return explanation_from_rows(row, answer)

    def _choice(self, meme_id: str, n: int, wanted: Mapping[str, str | None]) -> str:
        columns = _where(self.explanations(), {"meme_id": meme_id}).select("mode", "target", "method").fetchall()
        if not columns:
            failed = [f"{mode}: {reason}" for _, mode, _, reason in self._failed(meme_id)]
            return f"run {self.path.name!r} has no explanation of meme {meme_id!r}" + "".join(f"; {f}" for f in failed)
        asked = ", ".join(f"{name}={value!r}" for name, value in wanted.items() if value is not None)
        there = "; ".join(f"mode={m!r} target={t!r} method={how!r}" for m, t, how in columns)
        return f"{n or 'no'} explanations of meme {meme_id!r} have {asked}; choose one of: {there}"

    def _failed(self, meme_id: str) -> list[tuple[str, str | None, str, str]]:
        return _where(self.failures(), {"meme_id": meme_id}).fetchall()

    def _relation(self, kind: Kind) -> duckdb.DuckDBPyRelation:
        files = [str(path) for path in part_paths(self.path, kind)]
        columns = self._connection.from_arrow(SCHEMAS[kind].empty_table())
        if not files:
            return columns
        # Parts are only ever added behind others, so that columns which came later are seen at the ends. Looking at
        # every part takes seconds and a gigabyte where there are 10,000.
        differ = len({tuple(self._connection.read_parquet(file).columns) for file in (files[0], files[-1])}) > 1
        relation = self._connection.read_parquet(files, union_by_name=differ)
        later = [
            f'CAST(NULL AS {type_}) AS "{name}"'
            for name, type_ in zip(columns.columns, columns.types, strict=True)
            if name not in relation.columns
        ]
        return relation.project(", ".join(["*", *later])) if later else relation


def _key(prediction: Prediction | None, explanations: Sequence[Explanation], failures: Sequence[Failure]) -> Key:
    if explanations and prediction is None:
        raise ValueError(f"explanations of meme {explanations[0].meme.id!r} need their prediction beside them")
    keys: set[Key] = {(e.meme.id, e.mode) for e in explanations} | {(f.meme_id, f.mode) for f in failures}
    if prediction is not None:
        keys.add((prediction.meme_id, prediction.mode))
    if len(keys) != 1:
        raise ValueError(f"add() takes the records of one meme in one mode, not of {sorted(map(str, keys)) or 'none'}")
    return keys.pop()


def _where(relation: duckdb.DuckDBPyRelation, values: Mapping[str, str | None]) -> duckdb.DuckDBPyRelation:
    for name, value in values.items():
        if value is not None:
            relation = relation.filter(duckdb.ColumnExpression(name) == duckdb.ConstantExpression(value))
    return relation


def _rows(relation: duckdb.DuckDBPyRelation) -> list[dict[str, Any]]:
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def _refuse_foreign(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise RunError(f"{path.name!r} is a file; give a folder for the run")
    ours = {*FOLDERS, "run.json", ".lock", ".run.json.tmp"}
    if path.is_dir() and not (path / "run.json").exists():
        foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in ours)
        if foreign:
            raise RunError(f"folder {path.name!r} is not a run and not empty ({foreign[0]!r}); give an empty one")


def _locked(path: Path) -> int:
    try:
        return lock_folder(path)
    except BlockingIOError:
        raise RunError(
            f"run {path.name!r} is being written by another process; wait for it or write to another folder"
        ) from None


def _make_folders(path: Path) -> None:
    for name in FOLDERS:
        (path / name).mkdir(parents=True, exist_ok=True)
    sync_folder(path.resolve().parent)


@contextmanager
def _telling_what_to_do(path: Path) -> Iterator[None]:
    """Within the block, what the system refuses becomes one line that says what to do, without the folder's path."""
    try:
        yield
    except OSError as error:
        reason = _REFUSALS.get(error.errno or 0, f"{error.strerror or type(error).__name__}; see to it")
        raise RunError(
            f"run {path.name!r} cannot be written: {reason}, and start the same command again; nothing that the run "
            "has is lost"
        ) from error


_REFUSALS = {
    errno.ENOSPC: "no space is left on its disk; make some",
    errno.EDQUOT: "your quota of its disk is used up; make some space",
    errno.EFBIG: "a file would be larger than is allowed here; raise the limit (ulimit -f)",
    errno.EROFS: "its file system is read-only; give another folder",
    errno.EACCES: "you may not write there; give another folder, or yourself the permission",
    errno.EPERM: "you may not write there; give another folder, or yourself the permission",
}
"""By error number what is the matter, and what to do."""


def _opened_info(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    versions, environment = installed_versions(), computing_environment()
    if not (path / "run.json").exists():
        made = {"format": FORMAT, "config": config, "seed": config.get("seed")}
        return made | {"versions": versions, "environment": environment}
    info = _read_info(path)
    differing = sorted(_differences(info["config"], config))
    if differing:
        raise RunError(
            f"run {path.name!r} was made with another configuration (differing: {', '.join(differing)}); "
            "use the same one to resume it, or another folder"
        )
    for first, later, now in (("versions", "resumed_with", versions), ("environment", "resumed_in", environment)):
        if now not in [info.get(first), *info.get(later, [])]:
            info[later] = [*info.get(later, []), now]
    return info


def _differences(old: object, new: object, name: str = "") -> set[str]:
    """Dotted names of the keys whose values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = old.keys() | new.keys()
        missing = object()
        parts = (_differences(old.get(k, missing), new.get(k, missing), f"{name}.{k}" if name else k) for k in keys)
        return set().union(*parts)
    return set() if old == new else {name}


def _read_info(path: Path) -> dict[str, Any]:
    try:
        info: dict[str, Any] = json.loads((path / "run.json").read_text(encoding="utf-8"))
        layout = info["format"]
    except (OSError, ValueError, KeyError, TypeError):
        stages = ", ".join(f"{path.name}/{run.parent.name}" for run in sorted(path.glob("*/run.json")))
        remedy = f"it holds runs; give one of {stages}" if stages else "make one with xai explain"
        raise RunError(f"{path.name!r} is not a run folder (no readable run.json); {remedy}") from None
    if layout != FORMAT:
        raise RunError(f"run {path.name!r} has layout {layout}, this version reads {FORMAT}; explain it again")
    return info


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(to_json(config))
    return plain

"""The part files of one number: written together with their checksums, and examined by them.

::

    checksums/part-*.json        how many records a number holds, and of each of its files the rows, bytes and SHA-256

The checksums are written before the predictions, which commit the number; so every committed part has them, and what
stands in the files afterwards can be held against what was to be written. Parts that an earlier version wrote have
none: of them it shows whether they can be read, but not whether they were changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from xai.parts import KINDS, Key, Kind, committed, part_content, part_path, write_bytes, write_text

KEY_COLUMNS: Mapping[Kind, Sequence[str]] = {
    "explanations": ("meme_id", "mode", "target", "method"),
    "failures": ("meme_id", "mode"),
    "predictions": ("meme_id", "mode"),
}
"""The columns that say what a row is about."""


@dataclass(frozen=True)
class FileSum:
    """What a part file was when it was written."""

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Checksums:
    """What the files of a number were when they were written; a kind without rows has no file."""

    records: int
    files: Mapping[str, FileSum]


@dataclass(frozen=True)
class Examined:
    """The files of a number as they are now.

    Attributes:
        checksums: ``None`` where an earlier version wrote the number.
        problems: ``(file, what is wrong)``; empty where all is sound.
        tables: the columns that say what a row is about, of the kinds that were asked for, have a file and are sound.
        rows: how many each kind has, as far as it is sound.
        n_bytes: of all files together.
    """

    number: int
    checksums: Checksums | None
    problems: tuple[tuple[str, str], ...]
    tables: Mapping[Kind, pa.Table] = field(repr=False)
    rows: Mapping[Kind, int]
    n_bytes: int

    @property
    def n_records(self) -> int:
        """How many memes and modes were written, as far as it can still be told."""
        return self.checksums.records if self.checksums else len(self.keys())

    def keys(self) -> set[Key]:
        """Every meme and mode that it holds, explained or failed."""
        kinds: tuple[Kind, ...] = ("predictions", "failures")
        return {(meme_id, mode) for kind in kinds for meme_id, mode in self.rows_of(kind)}

    def rows_of(self, kind: Kind) -> Iterator[tuple[Any, ...]]:
        """What each row of a kind is about, by :data:`KEY_COLUMNS`; no row where the kind has no file."""
        if kind not in self.tables:
            return iter(())
        return zip(*(self.tables[kind].column(name).to_pylist() for name in KEY_COLUMNS[kind]), strict=True)


def write_number(run: Path, number: int, tables: Mapping[Kind, pa.Table], n_records: int) -> None:
    """Writes all files of a number, the predictions last: when they are there, everything is."""
    kept = {kind: tables[kind] for kind in KINDS if tables[kind].num_rows or kind == "predictions"}
    contents = {kind: part_content(table) for kind, table in kept.items()}
    sums: dict[str, FileSum] = {
        kind: FileSum(kept[kind].num_rows, len(content), _digest(content)) for kind, content in contents.items()
    }
    for kind, content in contents.items():
        if kind == "predictions":
            checksums_path(run, number).parent.mkdir(exist_ok=True)
            text = json.dumps(asdict(Checksums(n_records, sums)), indent=1) + "\n"
            write_text(checksums_path(run, number), text)
        write_bytes(part_path(run, kind, number), content)


def checksums_path(run: Path, number: int) -> Path:
    """Where the checksums of a number stand in the run folder."""
    return run / "checksums" / f"part-{number:05d}.json"


def read_checksums(run: Path, number: int) -> Checksums | None:
    """The checksums of a number, or ``None`` where there are none.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        found = json.loads(checksums_path(run, number).read_bytes())
        return Checksums(found["records"], {kind: FileSum(**one) for kind, one in found["files"].items()})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("cannot be read") from None


def row_counts(run: Path) -> dict[str, int]:
    """Rows of every kind in the committed parts, as they were written."""
    counts: dict[str, int] = dict.fromkeys(sorted(KINDS), 0)
    for number in committed(run):
        sums = read_checksums(run, number)
        for kind in KINDS:
            path = part_path(run, kind, number)
            if sums is not None:
                counts[kind] += _rows_then(sums, kind)
            elif path.exists():
                counts[kind] += pq.read_metadata(path).num_rows
    return counts


def examine(run: Path, number: int, kinds: Sequence[Kind] = KINDS) -> Examined:
    """Reads every byte of a number's files once and holds them against their checksums.

    Without checksums, what can be read is taken to be sound.

    Args:
        kinds: those whose rows are wanted.
    """
    problems: list[tuple[str, str]] = []
    tables: dict[Kind, pa.Table] = {}
    rows: dict[Kind, int] = {}
    n_bytes, sums = 0, None
    try:
        sums = read_checksums(run, number)
    except ValueError as error:
        problems.append((f"checksums/{checksums_path(run, number).name}", str(error)))
    for kind in KINDS:
        path = part_path(run, kind, number)
        content = _content(path)
        n_bytes += len(content or b"")
        try:
            if sums is not None:
                _compare(content, sums.files.get(kind))
            if content is not None and (sums is None or kind in kinds):
                tables[kind] = _table(kind, content)
            rows[kind] = tables[kind].num_rows if kind in tables else _rows_then(sums, kind)
        except ValueError as error:
            problems.append((f"{kind}/{path.name}", str(error)))
    return Examined(number, sums, tuple(problems), tables, rows, n_bytes)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _rows_then(sums: Checksums | None, kind: Kind) -> int:
    return sums.files[kind].rows if sums is not None and kind in sums.files else 0


def _compare(content: bytes | None, expected: FileSum | None) -> None:
    """Raises ValueError with what differs."""
    if content is None and expected is None:
        return
    if content is None:
        raise ValueError("is missing")
    if expected is None:
        raise ValueError("was not written with this part")
    if len(content) != expected.bytes:
        raise ValueError(f"has {len(content):,} of {expected.bytes:,} bytes")
    if _digest(content) != expected.sha256:
        raise ValueError("was changed after it was written (another SHA-256)")


def _table(kind: Kind, content: bytes) -> pa.Table:
    """What the rows of a file are about."""
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        return file.read(columns=list(KEY_COLUMNS[kind]), use_threads=False)
    except (OSError, KeyError, pa.ArrowException):
        raise ValueError("cannot be read as a part file") from None


def _digest(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()

"""What there is of a part that is not whole yet, so that a stop costs seconds and not the whole part.

In ``unfinished/<number>`` of a run folder, laid out like the parts of a run: readers do not look there, and the process
that goes on with the run reads it. It is written when the last writing is some time ago, or the process is stopped.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from xai.checksums import examine
from xai.parts import (
    KINDS,
    SCHEMAS,
    Key,
    Kind,
    RowTables,
    committed,
    part_paths,
    remove_leftovers,
    write_text,
)
from xai.store import write_block

FOLDER = "unfinished"
SECONDS = 20.0
"""Rows that took longer than this to make are not made twice."""


class Unfinished:
    """The rows of one part so far.

    Args:
        run: the folder of the run.
        number: of the part.
    """

    def __init__(self, run: Path, number: int) -> None:
        self._folder = run / FOLDER / f"{number:05d}"
        self._waiting: dict[Key, RowTables] = {}
        self._written = time.monotonic()
        self.keys: frozenset[Key] = frozenset(self._found())
        """Rows that are there from an earlier start."""

    def add(self, key: Key, row: RowTables) -> None:
        """Remember a row, and write what there is if that was last done a while ago."""
        self._waiting[key] = row
        if time.monotonic() - self._written > SECONDS:
            self.keep()

    def keep(self) -> None:
        """Write what was added since the last time."""
        if self._waiting:
            for kind in KINDS:
                (self._folder / kind).mkdir(parents=True, exist_ok=True)
            write_block(self._folder, max(committed(self._folder), default=-1) + 1, list(self._waiting.values()))
            self._waiting.clear()
        self._written = time.monotonic()

    def begin(self, key: Key) -> int:
        """Note that a row is being made; how often that was begun before, without an end."""
        path = self._folder / "begun.json"
        earlier, times = json.loads(path.read_text(encoding="utf-8")) if path.exists() else (None, 0)
        times = int(times) if earlier == list(key) else 0
        self._folder.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps([key, times + 1]))
        return times

    def tables(self) -> dict[Key, RowTables]:
        """The rows of earlier starts."""
        tables = {kind: _tables(self._folder, kind) for kind in KINDS}
        return {key: {kind: _rows_of(table, key) for kind, table in tables.items()} for key in self.keys}

    def remove(self) -> None:
        """Delete it all: the part is written."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _found(self) -> set[Key]:
        """The rows that are there; all are made again where a file is damaged."""
        if not self._folder.is_dir():
            return set()
        remove_leftovers(self._folder)
        found = [examine(self._folder, number, ("predictions", "failures")) for number in committed(self._folder)]
        if any(one.problems for one in found):
            self.remove()
            return set()
        return set().union(*(one.keys() for one in found))


def _tables(folder: Path, kind: Kind) -> pa.Table:
    parts = (pq.read_table(part, partitioning=None) for part in part_paths(folder, kind))
    return pa.concat_tables([SCHEMAS[kind].empty_table(), *parts])


def _rows_of(table: pa.Table, key: Key) -> pa.Table:
    name, mode = key
    of_mode = pc.is_null(table["mode"]) if mode is None else pc.equal(table["mode"], mode)
    return table.filter(pc.and_(pc.equal(table["meme_id"], name), of_mode))

"""A file to which lines are added and nothing else, by any number of processes: what people and the explicator said."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class LedgerError(ValueError):
    """An entry cannot be stored or read; the message says what to do."""


class Ledger:
    """The entries of a JSONL file. A line counts when its line break is there: what a stop cut short is dropped.

    Args:
        path: made with the first entry.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, entry: Mapping[str, Any]) -> Entry:
        """Keep an entry of JSON values with the time (UTC); when this returns, no stop loses it.

        Raises:
            LedgerError: the file cannot be written.
        """
        stored = {"time": now(), **entry}
        line = json.dumps(stored, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
        try:
            with self._locked() as descriptor:
                _drop_torn(descriptor)
                view = memoryview(line)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
        except OSError as error:
            raise LedgerError(f"{self.path.name!r} cannot be written ({error.strerror}); nothing was stored") from None
        return stored

    def entries(self) -> list[Entry]:
        """All entries, in the order of storing.

        Raises:
            LedgerError: a line is no entry.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            raise LedgerError(
                f"{self.path.name!r} holds a line that is no entry; correct or remove that line"
            ) from None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, open for appending, held against other writers, for whom a moment's wait is enough."""
        import fcntl  # absent on Windows

        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def now() -> str:
    """The time in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _drop_torn(descriptor: int) -> None:
    """Remove what stands behind the last line break."""
    size = end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - 4096)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)

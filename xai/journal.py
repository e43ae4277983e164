"""A file that is made line by line and stopped at any instant: its lines wait beside it until all are there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xai.parts import write_atomically

Entry = dict[str, Any]
_HEAD = b'{"journal": 1, '
"""How a journal begins, with the version of its layout."""


class JournalError(ValueError):
    """A journal cannot be gone on with; the message says what to do."""


class Journal:
    """The entries of ``out`` that are there already, in ``out.part``; the only writer of both while it is open.

    The first line of the journal is the configuration, every other an entry, and a line counts when its line break is
    on the disk: what a stop cut short is dropped when it is opened again. :meth:`finish` writes ``out``, whole or not
    at all, and only then removes the journal. Use it as a context manager; when the block raises, the journal stays.

    Args:
        out: the file to be made; its folder is made if missing.
        config: what decides the entries, of JSON values.

    Raises:
        JournalError: the journal is of another configuration, which the message names, is none of ours, or is being
            written by another process.
    """

    def __init__(self, out: Path, config: Mapping[str, Any]) -> None:
        self._out, self._path = out, out.with_name(f"{out.name}.part")
        out.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab")
        try:
            self._lock()
            self._open(dict(config))
        except BaseException:
            self._file.close()
            raise

    def entries(self) -> Iterator[Entry]:
        """What was added, now and by earlier starts, in order."""
        with self._path.open("rb") as lines:
            next(lines)
            for line in lines:
                yield json.loads(line)

    def add(self, entry: Entry) -> None:
        """Keep an entry of JSON values; when this returns, no stop loses it."""
        self._write(json.dumps(entry, ensure_ascii=False, allow_nan=False).encode("utf-8"))

    def finish(self, line_of: Callable[[Entry], str | None]) -> None:
        """Write the file: of every entry its line, or nothing where that is ``None``; and remove the journal."""
        lines = filter(None, map(line_of, self.entries()))
        write_atomically(self._out, lambda temporary: _write_lines(temporary, lines))
        self._path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _lock(self) -> None:
        import fcntl  # absent on Windows

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(
                f"{self._out.name!r} is being written by another process; wait for it or write to another file"
            ) from None

    def _open(self, config: dict[str, Any]) -> None:
        kept = self._path.read_bytes()
        if kept[: len(_HEAD)] != _HEAD[: len(kept)]:
            raise JournalError(f"{self._path.name!r} is no journal of ours; move it away or write to another file")
        whole = kept[: kept.rfind(b"\n") + 1]
        if not whole:
            self._file.truncate(0)
            self._write(_HEAD + json.dumps({"config": config}, ensure_ascii=False).encode("utf-8")[1:])
            return
        self._check(json.loads(whole[: whole.index(b"\n")])["config"], config)
        self._file.truncate(len(whole))

    def _check(self, earlier: dict[str, Any], config: dict[str, Any]) -> None:
        differing = sorted(name for name in earlier.keys() | config.keys() if earlier.get(name) != config.get(name))
        if differing:
            changes = "; ".join(f"{name}: {earlier.get(name)!r}, now {config.get(name)!r}" for name in differing)
            raise JournalError(
                f"{self._out.name!r} was begun with another configuration ({changes}); use the same one to go on, "
                f"write to another file, or delete {self._path.name!r} to begin anew"
            )

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _write_lines(path: Path, lines: Iterator[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)

"""Stores what auditors think of memes: an append-only SQLite file beside the run, written at once, never changed.

Every answer to a question is a row of its own, so that two tabs of one auditor, or two auditors, never overwrite each
other. The current verdict is the last answer to each question. A verdict is on an answer of the model; when the run was
made anew and the answer differs, it stays in the history and no longer counts.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

Question = Literal["relevance", "rationale", "label", "note"]

ANSWERS: Mapping[Question, tuple[str, ...]] = {
    "relevance": ("plausible", "not plausible", "unclear"),
    "rationale": ("plausible", "not plausible", "unclear"),
    "label": ("right", "wrong", "unclear"),
    "note": (),
}
"""The questions and what may be answered; a note is free text."""
MAX_NOTE = 5_000
MAX_NAME = 100
WAIT_SECONDS = 30.0
"""How long a writer waits for another one."""
COLUMNS = ("meme_id", "mode", "method", "auditor", "relevance", "rationale", "label", "note", "time")
"""Of the current verdicts and of what is exported."""
HISTORY = ("number", "time", "auditor", "meme_id", "mode", "method", "question", "answer", "of")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL, auditor TEXT NOT NULL, meme_id TEXT NOT NULL, mode TEXT NOT NULL, method TEXT NOT NULL,
    question TEXT NOT NULL, answer TEXT, of TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_meme ON answers (meme_id);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON answers BEGIN SELECT raise(ABORT, 'append only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON answers BEGIN SELECT raise(ABORT, 'append only'); END;
"""


class VerdictError(ValueError):
    """Verdicts cannot be read or stored; the message says what to do."""


class Subject(NamedTuple):
    """What is judged: a meme, as one mode and method explain it, and the model's answer (see :func:`digest`)."""

    meme_id: str
    mode: str
    method: str
    of: str


class Agreement(NamedTuple):
    """How far two auditors agree on a question: over n subjects, the share of equal answers, and Cohen's kappa.

    ``kappa`` is ``None`` where it is not defined: both gave one and the same answer throughout, or there is nothing.
    """

    question: str
    first: str
    second: str
    n: int
    equal: float | None
    kappa: float | None


def digest(answer: str) -> str:
    """What tells one answer of a model from another."""
    return hashlib.sha256(answer.encode("utf-8")).hexdigest()[:16]


class VerdictStore:
    """The verdicts on one run.

    Args:
        path: the file; made when the first verdict is stored.
        read_only: refuse to store.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only

    def add(self, subject: Subject, auditor: str, question: Question, answer: str | None) -> None:
        """Store one answer; ``None`` takes the earlier one back. When this returns, it is on disk.

        Raises:
            VerdictError: it cannot be stored; the message says why.
        """
        auditor = auditor.strip()
        if self.read_only:
            raise VerdictError("the explorer was started read-only; verdicts are not stored")
        if not auditor or len(auditor) > MAX_NAME:
            raise VerdictError(f"a verdict needs the name of its auditor, at most {MAX_NAME} characters")
        _check(question, answer)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        values = (now, auditor, *subject[:3], question, answer, subject.of)
        sql = f"INSERT INTO answers ({', '.join(HISTORY[1:])}) VALUES ({', '.join('?' * len(values))})"
        with self._writing() as connection:
            connection.execute(sql, values)

    def history(self, meme_id: str | None = None) -> list[dict[str, Any]]:
        """Every answer in the order of storing, of one meme or of all."""
        condition = "" if meme_id is None else "WHERE meme_id = ?"
        sql = f"SELECT {', '.join(HISTORY)} FROM answers {condition} ORDER BY number"
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(sql, () if meme_id is None else (meme_id,)).fetchall()
        return [dict(zip(HISTORY, row, strict=True)) for row in rows]

    def current(self, answers: Mapping[tuple[str, str], str] | None = None) -> list[dict[str, Any]]:
        """One row an auditor and subject, of :data:`COLUMNS`: the last answer to each question, ``None`` without one.

        Args:
            answers: by meme and mode, the :func:`digest` of what the model answers now; verdicts on other answers
                are left out.
        """
        rows: dict[tuple[str, ...], dict[str, Any]] = {}
        for event in self.history():
            if answers is not None and answers.get((event["meme_id"], event["mode"])) != event["of"]:
                continue
            key = tuple(event[name] for name in COLUMNS[:4])
            row = rows.setdefault(key, {name: event.get(name) for name in COLUMNS})
            row[event["question"]], row["time"] = event["answer"], event["time"]
        return [row for row in rows.values() if any(row[question] for question in ANSWERS)]

    def of(self, subject: Subject, auditor: str) -> dict[str, str | None]:
        """An auditor's last answer to each question about a subject."""
        found: dict[str, str | None] = dict.fromkeys(ANSWERS)
        for event in self.history(subject.meme_id):
            about = Subject(*(event[name] for name in Subject._fields))
            if (about, event["auditor"]) == (subject, auditor):
                found[event["question"]] = event["answer"]
        return found

    def version(self) -> int:
        """The number of the last answer; it grows with every one."""
        with self._reading() as connection:
            if connection is None:
                return 0
            return int(connection.execute("SELECT coalesce(max(number), 0) FROM answers").fetchone()[0])

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
                _prepare(connection)
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise VerdictError(f"the verdict was not stored in {self.path.name!r}: {error}") from None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection that cannot write, or ``None`` where nothing was stored yet."""
        if not self.path.is_file():
            yield None
            return
        try:
            uri = f"{self.path.resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS)) as connection:
                there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'answers'").fetchone()
                yield connection if there else None
        except sqlite3.Error as error:
            reason = f"{self.path.name!r} cannot be read as verdicts ({error}); move it away or restore it"
            raise VerdictError(reason) from None


def agreement(rows: Sequence[Mapping[str, Any]]) -> list[Agreement]:
    """Cohen's kappa (1960) of every two auditors and each question with fixed answers, from current verdicts.

    Only what both answered counts. "unclear" is an answer like the others.
    """
    found = []
    for question in [name for name, answers in ANSWERS.items() if answers]:
        by_auditor: dict[str, dict[tuple[Any, ...], str]] = {}
        for row in rows:
            if row[question]:
                by_auditor.setdefault(row["auditor"], {})[(row["meme_id"], row["mode"], row["method"])] = row[question]
        for first, second in combinations(sorted(by_auditor), 2):
            both = sorted(by_auditor[first].keys() & by_auditor[second].keys())
            pairs = [(by_auditor[first][key], by_auditor[second][key]) for key in both]
            found.append(Agreement(question, first, second, len(pairs), *_kappa(pairs)))
    return found


def as_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> bytes:
    """Rows as CSV, UTF-8 with a mark so that spreadsheets read every script.

    A text that a spreadsheet would take for a formula is led by an apostrophe; JSONL has it as it is.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(columns)
    writer.writerows([_inert(row[name]) for name in columns] for row in rows)
    return buffer.getvalue().encode("utf-8-sig")


def as_jsonl(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> bytes:
    """Rows as JSONL, exactly."""
    lines = (json.dumps({name: row[name] for name in columns}, ensure_ascii=False) + "\n" for row in rows)
    return "".join(lines).encode("utf-8")


def _check(question: Question, answer: str | None) -> None:
    if question not in ANSWERS:
        raise VerdictError(f"{question!r} is no question; ask for {', '.join(ANSWERS)}")
    if answer is None:
        return
    if question == "note" and len(answer) > MAX_NOTE:
        raise VerdictError(f"the note has {len(answer)} characters; at most {MAX_NOTE} are stored")
    if question != "note" and answer not in ANSWERS[question]:
        raise VerdictError(f"{answer!r} does not answer {question!r}; choose {', '.join(ANSWERS[question])}")


def _prepare(connection: sqlite3.Connection) -> None:
    """Bring the file into the mode in which readers and a writer do not wait for each other, and make its table."""
    deadline = time.monotonic() + WAIT_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = wal")
        except sqlite3.OperationalError:  # SQLite does not wait for this lock by itself
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    connection.execute("PRAGMA synchronous = FULL")
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'no_delete'").fetchone() is None:
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")


def _kappa(pairs: Sequence[tuple[str, str]]) -> tuple[float | None, float | None]:
    """Share of equal answers, and kappa as of annotators with one label an item."""
    if not pairs:
        return None, None
    from xai.analysis.annotators.multilabel import augmented_kappa
    from xai.analysis.detection.labelsets import indicator

    names = sorted({answer for pair in pairs for answer in pair})
    first, second = (indicator([{pair[side]} for pair in pairs], names) for side in (0, 1))
    equal, _, kappa = augmented_kappa(first, second)(np.ones((1, len(pairs))))[0, 0].tolist()
    return equal, None if math.isnan(kappa) else kappa


def _inert(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value

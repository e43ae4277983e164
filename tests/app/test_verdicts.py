"""Verdicts are kept whatever happens: two tabs, two processes, a kill; and they can be handed in and compared."""

from __future__ import annotations

import csv
import io
import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.metrics import cohen_kappa_score

from xai.app.verdicts import Subject, VerdictError, VerdictStore, agreement, as_csv, as_jsonl, digest

ONE = Subject("m1", "image+text", "attnlrp", digest("answer"))
TWO = Subject("m2", "image+text", "attnlrp", digest("answer"))
WRITER = """
import sys
from pathlib import Path
from xai.app.verdicts import Subject, VerdictStore
store = VerdictStore(Path(sys.argv[1]))
for n in range(int(sys.argv[3])):
    store.add(Subject(f"m{n}", "text", "attnlrp", "x"), sys.argv[2], "note", f"{sys.argv[2]} {n}")
    print(n, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> VerdictStore:
    return VerdictStore(tmp_path / "run.verdicts.sqlite")


def test_nothing_is_written_before_the_first_verdict(store: VerdictStore) -> None:
    assert (store.history(), store.current(), store.version()) == ([], [], 0)
    assert not store.path.exists()


def test_the_last_answer_to_each_question_counts_and_the_history_has_all(store: VerdictStore) -> None:
    store.add(ONE, "ann", "relevance", "plausible")
    store.add(ONE, "ann", "label", "wrong")
    store.add(ONE, "ann", "relevance", "unclear")
    store.add(ONE, "bo", "relevance", "not plausible")
    assert store.of(ONE, "ann") == {"relevance": "unclear", "rationale": None, "label": "wrong", "note": None}
    assert [row["answer"] for row in store.history("m1")] == ["plausible", "wrong", "unclear", "not plausible"]
    assert [(row["auditor"], row["relevance"]) for row in store.current()] == [
        ("ann", "unclear"),
        ("bo", "not plausible"),
    ]
    assert store.version() == 4


def test_an_answer_can_be_taken_back(store: VerdictStore) -> None:
    store.add(ONE, "ann", "relevance", "plausible")
    store.add(ONE, "ann", "relevance", None)
    assert store.of(ONE, "ann")["relevance"] is None
    assert store.current() == []
    assert len(store.history()) == 2


def test_a_verdict_on_an_earlier_answer_of_the_model_no_longer_counts(store: VerdictStore) -> None:
    store.add(ONE, "ann", "relevance", "plausible")
    changed = {("m1", "image+text"): digest("another answer")}
    assert store.current(changed) == []
    assert store.of(ONE._replace(of=digest("another answer")), "ann")["relevance"] is None
    assert store.current({("m1", "image+text"): ONE.of})[0]["relevance"] == "plausible"


@pytest.mark.parametrize(
    ("question", "answer", "auditor", "message"),
    [
        ("relevance", "right", "ann", "does not answer"),
        ("mood", "good", "ann", "no question"),
        ("note", "x" * 5001, "ann", "at most 5000"),
        ("label", "right", " ", "needs the name"),
    ],
)
def test_what_makes_no_sense_is_refused(
    store: VerdictStore, question: str, answer: str, auditor: str, message: str
) -> None:
    with pytest.raises(VerdictError, match=message):
        store.add(ONE, auditor, question, answer)  # type: ignore[arg-type]
    assert store.history() == []


def test_read_only_stores_nothing_and_reads_all(store: VerdictStore) -> None:
    store.add(ONE, "ann", "label", "right")
    reader = VerdictStore(store.path, read_only=True)
    with pytest.raises(VerdictError, match="read-only"):
        reader.add(ONE, "ann", "label", "wrong")
    assert reader.of(ONE, "ann")["label"] == "right"


def test_rows_can_be_neither_changed_nor_deleted(store: VerdictStore) -> None:
    store.add(ONE, "ann", "label", "right")
    with sqlite3.connect(store.path) as connection:
        for sql in ("UPDATE answers SET answer = 'wrong'", "DELETE FROM answers"):
            with pytest.raises(sqlite3.IntegrityError, match="append only"):
                connection.execute(sql)


def test_a_file_that_is_something_else_is_refused_and_left_alone(store: VerdictStore) -> None:
    store.path.write_text("these are my notes, not a database")
    with pytest.raises(VerdictError, match="cannot be read as verdicts"):
        store.history()
    with pytest.raises(VerdictError, match="was not stored"):
        store.add(ONE, "ann", "label", "right")
    assert store.path.read_text() == "these are my notes, not a database"


def test_processes_that_write_at_once_lose_nothing(store: VerdictStore) -> None:
    names = ("ann", "bo", "cy")
    command = [sys.executable, "-c", WRITER, str(store.path)]
    writers = [subprocess.Popen([*command, name, "40"], stdout=subprocess.DEVNULL) for name in names]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    for name in names:
        notes = [row["answer"] for row in store.history() if row["auditor"] == name]
        assert notes == [f"{name} {n}" for n in range(40)]
    assert store.version() == 120


def test_a_kill_loses_nothing_that_was_stored(store: VerdictStore) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store.path), "ann", "100000"], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    confirmed = [int(writer.stdout.readline()) for _ in range(25)]
    writer.send_signal(signal.SIGKILL)
    writer.wait(timeout=60)
    assert {row["answer"] for row in store.history()} >= {f"ann {n}" for n in confirmed}
    store.add(ONE, "bo", "label", "right")
    assert store.history()[-1]["auditor"] == "bo"


def test_csv_and_jsonl_hold_every_script_and_no_formula(store: VerdictStore) -> None:
    store.add(ONE, "ann", "note", '=HYPERLINK("x") "quoted", не 不\nnext line')
    rows = store.current()
    (line,) = as_jsonl(rows).decode("utf-8").splitlines()
    assert json.loads(line)["note"] == '=HYPERLINK("x") "quoted", не 不\nnext line'
    (row,) = csv.DictReader(io.StringIO(as_csv(rows).decode("utf-8-sig"), newline=""))
    assert row["note"] == '\'=HYPERLINK("x") "quoted", не 不\nnext line'
    assert (row["meme_id"], row["auditor"], row["relevance"]) == ("m1", "ann", "")


def test_kappa_is_over_what_both_judged(store: VerdictStore) -> None:
    first = ["plausible"] * 6 + ["not plausible"] * 3 + ["unclear"]
    second = ["plausible"] * 5 + ["not plausible"] * 4 + ["unclear"]
    for n, (a, b) in enumerate(zip(first, second, strict=True)):
        store.add(ONE._replace(meme_id=f"m{n}"), "ann", "relevance", a)
        store.add(ONE._replace(meme_id=f"m{n}"), "bo", "relevance", b)
    store.add(TWO._replace(meme_id="only ann"), "ann", "relevance", "plausible")
    (found,) = agreement(store.current())
    # Of 10, 9 are equal; by chance 0.6 · 0.5 + 0.3 · 0.4 + 0.1 · 0.1 = 0.43 would be; (0.9 - 0.43) / 0.57.
    assert (found.question, found.first, found.second, found.n, found.equal) == ("relevance", "ann", "bo", 10, 0.9)
    assert found.kappa == pytest.approx(0.47 / 0.57)
    assert found.kappa == pytest.approx(cohen_kappa_score(first, second))


def test_kappa_is_not_defined_where_all_answers_are_one(store: VerdictStore) -> None:
    for auditor in ("ann", "bo"):
        store.add(ONE, auditor, "label", "right")
        store.add(TWO, auditor, "label", "right")
    (found,) = agreement(store.current())
    assert (found.n, found.equal, found.kappa) == (2, 1.0, None)

"""A file to which lines are added: kept at once, by several processes, whatever a stop cuts short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xai.annotation.ledger import Ledger, LedgerError


def test_what_was_added_is_there_in_order_with_its_time(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "a.jsonl")
    assert ledger.entries() == []
    ledger.add({"n": 1})
    ledger.add({"n": 2, "text": "две строки\r\n \u2028"})
    found = Ledger(tmp_path / "a.jsonl").entries()
    assert [entry["n"] for entry in found] == [1, 2]
    assert found[1]["text"] == "две строки\r\n \u2028"
    assert found[0]["time"] <= found[1]["time"]
    assert found[0]["time"].endswith("+00:00")


@pytest.mark.parametrize("torn", ['{"n": 2', '{"n": "' + "x" * 10_000, "{"])
def test_a_line_that_a_stop_cut_short_does_not_count_and_goes_with_the_next_entry(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "a.jsonl"
    Ledger(path).add({"n": 1})
    with path.open("a", encoding="utf-8") as file:
        file.write(torn)
    assert [entry["n"] for entry in Ledger(path).entries()] == [1]
    Ledger(path).add({"n": 3})
    assert [entry["n"] for entry in Ledger(path).entries()] == [1, 3]


def test_a_file_of_one_torn_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1', encoding="utf-8")
    Ledger(path).add({"n": 2})
    assert [entry["n"] for entry in Ledger(path).entries()] == [2]


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    source = (
        "import sys; from pathlib import Path; from xai.annotation.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "for n in range(40): ledger.add({'who': sys.argv[2], 'n': n, 'text': 'x' * 5000})\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", source, str(path), who]) for who in "abc"]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    found = Ledger(path).entries()
    assert len(found) == 120
    for who in "abc":
        assert [entry["n"] for entry in found if entry["who"] == who] == list(range(40))


def test_a_line_that_is_no_entry_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("no entry\n", encoding="utf-8")
    with pytest.raises(LedgerError, match=r"'a\.jsonl' holds a line that is no entry"):
        Ledger(path).entries()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").mkdir()
    with pytest.raises(LedgerError, match="nothing was stored"):
        Ledger(tmp_path / "a.jsonl").add({"n": 1})

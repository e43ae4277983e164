"""What a journal kept is kept, whatever stopped the writing; what is of something else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from xai.journal import Entry, Journal, JournalError

CONFIG = {"engine": "one", "languages": ["uk"]}
ENTRIES = [{"n": 0, "text": "ї\u2028"}, {"n": 1, "text": None}, {"n": 2, "text": "two\nlines"}]


def line(entry: Entry) -> str | None:
    return entry["text"] and f"{entry['n']} {entry['text']!a}"


def write(out: Path) -> bytes:
    """Go on to the end; what the file then holds."""
    with Journal(out, CONFIG) as journal:
        for entry in ENTRIES[len(list(journal.entries())) :]:
            journal.add(entry)
        journal.finish(line)
    return out.read_bytes()


def test_a_file_is_there_only_when_it_is_whole_and_its_journal_only_before(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.jsonl"
    with Journal(out, CONFIG) as journal:
        journal.add(ENTRIES[0])
        assert [path.name for path in out.parent.iterdir()] == ["out.jsonl.part"]
    assert write(out) == b"0 '\\u0457\\u2028'\n2 'two\\nlines'\n"
    assert [path.name for path in out.parent.iterdir()] == ["out.jsonl"]


def test_cut_off_at_any_byte_it_is_gone_on_with_to_the_same_file(tmp_path: Path) -> None:
    out, part = tmp_path / "out", tmp_path / "out.part"
    with Journal(out, CONFIG) as journal:
        for entry in ENTRIES:
            journal.add(entry)
    whole = part.read_bytes()
    undisturbed = write(out)
    for length in range(len(whole) + 1):
        part.write_bytes(whole[:length])
        assert write(out) == undisturbed, length


def test_another_configuration_is_refused_with_what_differs_and_nothing_is_lost(tmp_path: Path) -> None:
    out, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part"
    with Journal(out, CONFIG) as journal:
        journal.add(ENTRIES[0])
    kept = part.read_bytes()
    with pytest.raises(JournalError, match=r"\(engine: 'one', now 'two'\); use the same .* delete 'out.jsonl.part'"):
        Journal(out, {**CONFIG, "engine": "two"})
    assert part.read_bytes() == kept


def test_a_second_writer_and_a_file_of_something_else_are_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "out", CONFIG), pytest.raises(JournalError, match="written by another process"):
        Journal(tmp_path / "out", CONFIG)
    (tmp_path / "other.part").write_text("my notes")
    with pytest.raises(JournalError, match=r"'other.part' is no journal of ours"):
        Journal(tmp_path / "other", CONFIG)
    assert (tmp_path / "other.part").read_text() == "my notes"


def test_what_json_cannot_hold_is_refused_and_leaves_no_line(tmp_path: Path) -> None:
    with Journal(tmp_path / "out", CONFIG) as journal:
        with pytest.raises(ValueError, match="JSON"):
            journal.add({"n": float("nan")})
        assert list(journal.entries()) == []

"""Dataset files with records that break things, in three formats, with what is to become of them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from .cases import Case

TEXT = "Slowpokes bicycles one umbrella"
NO_ID = "the id is missing or no string; give every meme an id of its own, as a string"
TWICE = "was already used"
HALF = "it holds half a character (a lone surrogate); correct the text"
NOT_UTF8 = "not UTF-8; save the file as UTF-8"


def line(name: str, **columns: object) -> bytes:
    return json.dumps({"id": name, "text": TEXT, **columns}, ensure_ascii=False).encode()


JSONL = [
    Case("plain", "a plain line, behind a byte-order mark", b"\xef\xbb\xbf" + line("plain")),
    Case("line 2", "a broken line", b'{"id": "broken", "text": ', whole=True, reason="not valid JSON (Expecting value"),
    Case("line 3", "a list", b"[1, 2]", whole=True, reason="not a JSON object; write one object a line"),
    Case("plain (line 4)", "an id that was there before", line("plain"), whole=True, reason=TWICE),
    Case("PLAIN", "an id that differs in case only", line("PLAIN")),
    Case("line 6", "no id", json.dumps({"text": TEXT}).encode(), whole=True, reason=NO_ID),
    Case("no-text", "no text", b'{"id": "no-text"}', reason="has no text; use mode 'image' or fill its text"),
    Case("line 8", "NaN", b'{"id": "nan", "text": "x", "year": NaN}', whole=True, reason="NaN is not JSON"),
    Case("half", "a lone surrogate", b'{"id": "half", "text": "\\ud83d"}', whole=True, reason=HALF),
    Case(
        "line 10",
        "a line in another encoding",
        '{"id": "ї", "text": "їжак"}'.encode("cp1251"),
        whole=True,
        reason=NOT_UTF8,
    ),
    Case("line 11", "the same key twice", b'{"id": "a", "id": "b"}', whole=True, reason="a key is given twice"),
    Case("line 12", "100,000 brackets", b"[" * 100_000, whole=True, reason="not valid JSON"),
    Case("deep", "metadata nested 300 deep", line("deep")[:-1] + b', "x": ' + b"[" * 300 + b"]" * 300 + b"}"),
    Case("../a/b\\c", "an id with slashes", line("../a/b\\c")),
    Case('it\'s "q"; <b>`', "an id with quotation marks and HTML", line('it\'s "q"; <b>`')),
    Case("17", "a number as id", b'{"id": 17, "text": "Slowpokes bicycles"}'),
    Case(
        "foreign",
        "gold labels that the task does not have: kept, and refused by name in `xai score`",
        line("foreign", labels=["Sarcasm"]),
    ),
    Case(
        "wrong-type",
        "labels that are no list",
        line("wrong-type", labels="Smears"),
        whole=True,
        reason="give the labels as a list",
    ),
    Case(
        "moved",
        "words that are not in the text",
        line("moved", words=[{"text": "x", "start": 0, "end": 1}]),
        whole=True,
        reason="correct the words' offsets",
    ),
    Case(
        "nowhere",
        "an infinite number (1e999)",
        line("nowhere", words=[{"text": "S", "start": 0, "end": 1, "box": [0, 0, 1, 1e999]}]).replace(
            b"Infinity", b"1e999"
        ),
        whole=True,
        reason="it holds an infinite number; correct it",
    ),
    Case(
        "away",
        "a picture outside of the folder",
        line("away", image="../../etc/passwd"),
        whole=True,
        reason="leads out of the folder of the pictures",
    ),
    Case("last", "a plain line behind all of these", line("last")),
]


def write_jsonl(folder: Path) -> Path:
    path = folder / "memes.jsonl"
    path.write_bytes(b"\n".join(case.content for case in JSONL))
    return path


def row(*cells: str) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerow(cells)
    return out.getvalue().encode()


CSV = [
    Case("plain", "a plain row", row("plain", TEXT, "", "Smears")),
    Case("line 3", "too few cells", b"short\n", whole=True, reason="1 cells where the first line names 4 columns"),
    Case("plain (line 4)", "an id that was there before", row("plain", TEXT, "", ""), whole=True, reason=TWICE),
    Case("line 5", "no id", row("", TEXT, "", ""), whole=True, reason=NO_ID),
    Case("nan", "`nan` in a cell is text", row("nan", "nan slowpokes", "nan", "")),
    Case("cp1251", "a row in another encoding", "cp1251,їжак,,\n".encode("cp1251"), whole=True, reason=NOT_UTF8),
    Case("breaks", "a line break in a cell", row("breaks", "Slowpokes\nbicycles", "", "")),
    Case(
        "list",
        "labels as numpy prints them",
        row("list", TEXT, "", "['Smears' 'Doubt']"),
        whole=True,
        reason="labels: not a list of strings",
    ),
    Case(
        "line 11",
        "a cell of 200,000 characters",
        row("large", "x" * 200_000, "", ""),
        whole=True,
        reason="field larger than field limit (131072)); shorten it or write JSONL",
    ),
    Case("last", "a plain row behind all of these", row("last", TEXT, "", "")),
    Case(
        "line 13",
        "a quotation mark that is never closed: what follows cannot be told apart",
        b'open,"Slowpokes,,\nlost,x,,\n',
        whole=True,
        reason="lines 13 to 14 were read as one record: close its quotation mark",
    ),
]


def write_csv(folder: Path) -> Path:
    path = folder / "memes.csv"
    path.write_bytes(b"\xef\xbb\xbfid,text,year,labels\n" + b"".join(case.content for case in CSV))
    return path


NUMBER = float("nan")
PARQUET = [
    Case("plain", "a plain row", {"id": "plain", "text": TEXT, "year": 2023.0}),
    Case("nan", "NaN in a column: unknown", {"id": "nan", "text": TEXT, "year": NUMBER}),
    Case(
        "plain (row 3)",
        "an id that was there before",
        {"id": "plain", "text": TEXT, "year": 1.0},
        whole=True,
        reason=TWICE,
    ),
    Case("row 4", "no id", {"id": None, "text": TEXT, "year": 1.0}, whole=True, reason=NO_ID),
    Case(
        "row 5",
        "text in another encoding",
        {"id": "cp1251", "text": "їжак".encode("cp1251"), "year": 1.0},
        whole=True,
        reason=NOT_UTF8,
    ),
    Case("last", "a row with a time, kept as text", {"id": "last", "text": TEXT, "year": 1.0}),
]


def write_parquet(folder: Path) -> Path:
    path = folder / "memes.parquet"
    records = [case.content for case in PARQUET]
    texts = pa.array([r["text"] if isinstance(r["text"], bytes) else r["text"].encode() for r in records], pa.binary())
    columns = {
        "id": pa.array([r["id"] for r in records], pa.string()),
        "text": texts.view(pa.string()),
        "year": pa.array([r["year"] for r in records], pa.float64()),
        "posted": pa.array([0] * len(records), pa.timestamp("s")),
    }
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


WHOLE_FILES = [
    Case(
        "a.jsonl",
        "a file of which no line is UTF-8",
        '{"id": "ї"}'.encode("cp1251"),
        reason="is not UTF-8 (at byte 8); save it as UTF-8",
    ),
    Case("b.jsonl", "UTF-16", '{"id": "a"}'.encode("utf-16"), reason="is not UTF-8 (at byte 0); save it as UTF-8"),
    Case("c.csv", "a table without the column id", b"name,text\n", reason="has no column 'id'"),
    Case("d.parquet", "no Parquet by that name", b"PAR1", reason="cannot be read as Parquet"),
    Case("e.xlsx", "a format that is not read", b"PK", reason="is not supported; give .jsonl, .csv, .parquet"),
]

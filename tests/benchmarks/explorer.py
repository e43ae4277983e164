"""The explorer on a run of 66,000 memes: time to the first page against an empty one, filters, memory.

Run it by itself, ``python -m tests.benchmarks.explorer``; it makes such a run from one of the shipped samples, which
takes minutes, and keeps it in ``--run`` for the next time. ``--memes`` makes a smaller one. The times to a page need
chromium and chromium-driver, and are left out where there are none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from tests.app.browser import Browser, missing
from tests.benchmarks.harness import ROOT, Record, figure
from tests.benchmarks.tables import print_record

MEMES, ROUNDS = 66_000, 9
PART = 256
"""Memes a part file; `xai explain` writes 16, which only makes the start longer."""
EMPTY = "import streamlit as st\nst.set_page_config(layout='wide')\nst.write('empty')\n"


def main() -> None:
    """Make the run, measure, print."""
    arguments = _arguments()
    if not (arguments.run / "run.json").is_file():
        made = time.perf_counter()
        make_run(arguments.run, arguments.memes, arguments.part)
        print(f"made a run of {arguments.memes:,} memes in {time.perf_counter() - made:.0f} s", flush=True)
    for record in [*_index(arguments.run), *_pages(arguments.run)]:
        print_record(record)
        if record.note:
            print(f"    {record.note}", flush=True)


def make_run(path: Path, n: int, part: int) -> None:
    """A run folder of n memes, made of the explained samples under other names, captions and agreements."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "run"
        command = [sys.executable, "-m", "xai.cli", "explain", "samples", "--out", str(small)]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        predictions, explanations = (
            pa.concat_tables([pq.read_table(file) for file in sorted((small / kind).glob("part-*.parquet"))])
            for kind in ("predictions", "explanations")
        )
        info = json.loads((small / "run.json").read_text(encoding="utf-8"))
    for kind in ("predictions", "explanations", "failures", "reports"):
        (path / kind).mkdir(parents=True, exist_ok=True)
    names = predictions["meme_id"].to_pylist()
    for number, start in enumerate(range(0, n, part)):
        answers, explained = [], []
        for index in range(start, min(start + part, n)):
            source = names[index % len(names)]
            for tables, rows in ((predictions, answers), (explanations, explained)):
                rows.append(_renamed(tables, source, index))
        pq.write_table(pa.concat_tables(explained), path / "explanations" / f"part-{number:05d}.parquet")
        pq.write_table(pa.concat_tables(answers), path / "predictions" / f"part-{number:05d}.parquet")
    _write_agreement(path, n)
    write_categories(path, n)
    (path / "run.json").write_text(json.dumps(info), encoding="utf-8")


def _renamed(table: pa.Table, source: str, index: int) -> pa.Table:
    rows = table.filter(pa.compute.equal(table["meme_id"], source))
    rows = rows.set_column(rows.schema.get_field_index("meme_id"), "meme_id", [[f"meme-{index:06d}"] * rows.num_rows])
    if "meme_text" in rows.column_names:
        texts = [f"{text} {index}" for text in rows["meme_text"].to_pylist()]
        rows = rows.set_column(rows.schema.get_field_index("meme_text"), "meme_text", [texts])
    return rows


def _write_agreement(path: Path, n: int) -> None:
    columns: dict[str, Any] = {
        "meme_id": [f"meme-{index:06d}" for index in range(n)],
        "mode": ["image+text"] * n,
        "method": ["attnlrp"] * n,
        "jaccard": [(index * 7919 % 101) / 100 for index in range(n)],
        "invented": [["word"] * (index % 3 == 0) for index in range(n)],
    }
    pq.write_table(pa.table(columns), path / "reports" / "agreement.parquet")


def write_categories(path: Path, n: int) -> None:
    """Two words a meme, as `xai analyze --category-memes` stores them."""
    categories = ("Entity", "Emotional", "Rhetoric", "Content", "Other")
    columns = {
        "meme_id": [f"meme-{index // 2:06d}" for index in range(2 * n)],
        "mode": ["image+text"] * (2 * n),
        "method": ["attnlrp"] * (2 * n),
        "group": ["shared" if index % 3 else "relevance only" for index in range(2 * n)],
        "word": [f"word{index}" for index in range(2 * n)],
        "category": [categories[index * 31 % 5] for index in range(2 * n)],
        "tagger": ["rules"] * (2 * n),
        "tagger_version": ["generated"] * (2 * n),
    }
    pq.write_table(pa.table(columns), path / "reports" / "categories.parquet")


def _index(path: Path) -> list[Record]:
    from xai.app.filters import Filter
    from xai.app.library import Key, Library

    begin = time.perf_counter()
    library = Library([path])
    records = [figure("opening the run", [time.perf_counter() - begin], "s")]
    wanted = {
        "label": Filter(label=("Doubt",)),
        "agreement": Filter(low=0.0, high=0.2, sort="agreement"),
        "text": Filter(text="6599"),
        "category": Filter(category=("Rhetoric",), side="shared"),
        "share": Filter(share="image", least=0.2, sort="image"),
        "flags": Filter(flag=("invented",), sort="image", reverse=True),
        "verdict": Filter(verdict="missing", sort="agreement"),
    }
    for name, one in wanted.items():
        runs = [_timed(lambda one=one: (library.count(one, "ann"), library.page(one, start=0, size=12, auditor="ann")))
                for _ in range(ROUNDS)]  # fmt: skip
        records.append(figure(f"filter by {name}: count and first page", runs, "s", at_most=1.0))
    key = Key(*library.page(Filter(), start=30_000 % library.count(Filter()), size=1)[list(Key._fields)].iloc[0])
    runs = [_timed(lambda: library.place(key, wanted["agreement"])) for _ in range(ROUNDS)]
    records.append(figure("place of a meme in a filter", runs, "s", at_most=1.0))
    runs = [_timed(lambda: library.explanation(key, "*")) for _ in range(ROUNDS)]
    return [*records, figure("reading one explanation", runs, "s", at_most=1.0)]


def _pages(path: Path) -> list[Record]:
    if reason := missing():
        return [Record("time to the first page", "not measured", note=reason)]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "empty.py"
        script.write_text(EMPTY, encoding="utf-8")
        options = [
            "--server.headless",
            "true",
            "--browser.gatherUsageStats",
            "false",
            "--server.fileWatcherType",
            "none",
        ]
        empty = _Server([sys.executable, "-m", "streamlit", "run", str(script), *options, "--server.port"], 8741)
        explorer = _Server([sys.executable, "-m", "xai.cli", "app", str(path), "--port"], 8742)
        try:
            return _times(empty, explorer, Path(folder) / "profile")
        finally:
            empty.stop()
            explorer.stop()


def _times(empty: _Server, explorer: _Server, profile: Path) -> list[Record]:
    window = Browser(explorer.address, profile)
    try:
        seconds: dict[str, list[float]] = {"empty": [], "explorer": [], "filter": []}
        for turn in range(ROUNDS + 1):
            for name, server in (("empty", empty), ("explorer", explorer)):
                window.address = server.address
                seconds[name].append(_timed(lambda: window.open(calm=1)))
            seconds["filter"].append(_timed(lambda turn=turn: _search(window, f"659{turn}")))
        # The first round fills the browser's cache and makes the thumbnails.
        without_first = {name: runs[1:] for name, runs in seconds.items()}
    finally:
        window.close()
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    ratio = [a / b for a, b in zip(without_first["explorer"], without_first["empty"], strict=True)]
    return [
        figure("empty Streamlit page", without_first["empty"], "s"),
        figure("first page of the explorer", without_first["explorer"], "s"),
        figure("first page over empty page", ratio, at_most=3.0, note=f"load average {load}"),
        figure("searching in the browser, until the list has changed", without_first["filter"], "s", at_most=1.0),
        figure("memory of the explorer at its highest", [explorer.peak()], "GB", at_most=1.5),
    ]


def _search(window: Browser, text: str) -> None:
    """Type a text into the search field, and wait until the list has what contains it."""
    window.find("input[type=text]")[_place_of_search(window)].send_keys(f"{text}\n")
    deadline = time.monotonic() + 60
    while f"“{text}”" not in window.text():
        if time.monotonic() > deadline:
            raise RuntimeError("the list does not change")
        time.sleep(0.01)


def _place_of_search(window: Browser) -> int:
    labels = [element.get_attribute("aria-label") or "" for element in window.find("input[type=text]")]
    return next(index for index, label in enumerate(labels) if label.startswith("Search"))


class _Server:
    def __init__(self, command: list[str], port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        import urllib.request

        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.address}/_stcore/health", timeout=5).close()
                return
            except OSError:
                time.sleep(0.5)
        raise RuntimeError("the server does not start")

    def peak(self) -> float:
        """Highest resident memory so far, in units of 10^9 bytes."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("VmHWM"))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)


def _timed(run: Any) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.explorer", description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("runs/explorer-bench"), help="where the run is kept")
    parser.add_argument("--memes", type=int, default=MEMES)
    parser.add_argument("--part", type=int, default=PART, help="memes a part file")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Measures the rows one after another, each in a process of its own; prints the figures and keeps them as JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import PACKAGE, ROOT, Record, Settings, child_command, report_peak
from tests.benchmarks.tables import print_markdown, print_record, print_summary

ROWS = ("speed", "labels", "length", "methods", "occlusion", "curves", "alignment", "analysis", "pipeline", "flat")
PACKAGES = ("meme-xai", "torch", "transformers", "captum", "lxt", "zennit", "numpy", "inseq")
OUT = Path("runs/bench.json")
INTERRUPTED = 130


def main() -> int:
    """0 when all rows ran, 1 when one failed (or, with ``--strict``, missed a bar), 130 when interrupted."""
    arguments = _arguments()
    settings = Settings(small=arguments.small, threads=arguments.threads)
    if arguments.memory or arguments.measure:
        return _child(arguments, settings)
    results = _earlier(arguments.out)
    if arguments.markdown:
        print_markdown(results)
        return 0
    failed = []
    try:
        for row in arguments.row or ROWS:
            if not measure_row(row, settings, results, arguments.out):
                failed.append(row)
    except KeyboardInterrupt:
        print(f"interrupted; what was measured is in {arguments.out}")
        return INTERRUPTED
    judged = [(row, Record(**one)) for row in arguments.row or ROWS for one in results[row]["records"]]
    n_missed = print_summary(judged)
    print(f"figures, notes and versions in {arguments.out}")
    for row in failed:
        print(f"row {row} failed; what it measured before is kept")
    return 1 if failed or (n_missed and arguments.strict) else 0


def measure_row(row: str, settings: Settings, results: dict[str, Any], out: Path) -> bool:
    """Measure one row in a process of its own and keep every figure as it comes; whether the row came to its end."""
    print(f"{row}{' (smoke run: the figures mean nothing)' if settings.small else ''}", flush=True)
    entry: dict[str, Any] = {"environment": environment(settings), "complete": False, "records": []}
    results[row] = entry
    command = [*child_command(settings), "--measure", row]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                record = Record(**json.loads(line))
                print_record(record)
                entry["records"].append(asdict(record))
                _write(out, results)
        except KeyboardInterrupt:
            child.terminate()
            raise
    entry["complete"] = child.returncode == 0
    _write(out, results)
    return child.returncode == 0


def environment(settings: Settings) -> dict[str, Any]:
    """What the figures depend on: versions, machine, threads, and how busy the machine was at the start."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cpu_count": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        **asdict(settings),
    }


def _child(arguments: argparse.Namespace, settings: Settings) -> int:
    try:
        import torch
        from transformers.utils import logging

        logging.disable_progress_bar()
        torch.set_num_threads(settings.threads)
        row = arguments.measure or arguments.memory[0]
        module = importlib.import_module(f"{PACKAGE}.{row}")
        if arguments.memory:
            report_peak(module.prepare(arguments.memory[1], settings))
        else:
            for record in module.measure(settings):
                print(json.dumps(asdict(record)), flush=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {PACKAGE}", description=__doc__)
    parser.add_argument("--row", action="append", choices=ROWS, help="a row to measure; all of them by default")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that the rows run")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (1)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where the JSON goes ({OUT}); other rows there stay")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--markdown", action="store_true", help="measure nothing; print what is in --out as tables")
    parser.add_argument("--measure", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--memory", nargs=2, metavar=("ROW", "ARM"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _earlier(out: Path) -> dict[str, Any]:
    if not out.is_file():
        return {}
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def _write(out: Path, results: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(out)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


if __name__ == "__main__":
    sys.exit(main())

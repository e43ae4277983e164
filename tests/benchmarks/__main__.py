"""Measures the rows one after another, each in a process of its own; prints the figures and keeps them as JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import PACKAGE, ROOT, Record, Settings, child_command, report_peak

ROWS = ("speed", "labels", "length", "methods", "occlusion")
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
    failed = []
    try:
        for row in arguments.row or ROWS:
            if not measure_row(row, settings, results, arguments.out):
                failed.append(row)
    except KeyboardInterrupt:
        print(f"interrupted; what was measured is in {arguments.out}")
        return INTERRUPTED
    missed = _summary(results, arguments.row or ROWS, arguments.out)
    for row in failed:
        print(f"row {row} failed; what it measured before is kept")
    return 1 if failed or (missed and arguments.strict) else 0


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
                print(_printed(record), flush=True)
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
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (2)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where the JSON goes ({OUT}); other rows there stay")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--measure", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--memory", nargs=2, metavar=("ROW", "ARM"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _printed(record: Record) -> str:
    value = record.value if isinstance(record.value, str) else _number(record.value)
    spread = "" if record.spread is None else f"{_number(record.spread[0])} to {_number(record.spread[1])}"
    verdict = {None: "", True: "held", False: "MISSED"}[record.held]
    judged = f"{record.wanted or '':<8} {verdict}"
    return f"  {record.metric:<66} {value:>10} {record.unit:<5} {spread:<20} {judged}".rstrip()


def _number(value: float) -> str:
    return f"{value:.4g}"


def _summary(results: dict[str, Any], rows: Sequence[str], out: Path) -> int:
    """Print how many bars were held and which were not; the number of the latter."""
    judged = [(row, one) for row in rows for one in results[row]["records"] if one["held"] is not None]
    missed = [(row, one) for row, one in judged if not one["held"]]
    print(f"{len(judged) - len(missed)} of {len(judged)} bars held; figures, notes and versions in {out}")
    for row, one in missed:
        print(f"MISSED {row}: {one['metric']} is {_number(one['value'])}, wanted {one['wanted']}")
    return len(missed)


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

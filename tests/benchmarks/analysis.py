"""Whether `xai score` and `xai analyze` come to an end in a minute and two gigabytes on a run of 66,000 memes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.benchmarks.harness import ROOT, Record, Settings, figure

N_MEMES, N_SMALL = 66_000, 300
SECONDS, GIB = 60, 2
POLL = 0.1
"""Seconds between two looks at the memory."""
COMMANDS = ("score", "analyze")


def measure(settings: Settings) -> Iterator[Record]:
    """Seconds and peak memory of each command, as a user starts it: a process of its own, once, imports and all."""
    from tests.benchmarks.generated import generated_run  # not in the processes that are measured

    n = N_SMALL if settings.small else N_MEMES
    run = generated_run(ROOT / "runs" / f"generated-{n}", n)
    counts = run.info["counts"]
    note = f"{counts['predictions']} memes and {counts['explanations']} explanations, made up; in mode image+text"
    for command in COMMANDS:
        wall, cpu, peak = _measured(command, run.path)
        yield figure(f"xai {command}, {n} memes", [wall], "s", at_most=SECONDS, note=note)
        yield figure(f"xai {command}, {n} memes, seconds of a processor", [cpu], "s", note=note)
        yield figure(f"xai {command}, {n} memes, peak memory", [peak / 2**30], "GiB", at_most=GIB, note=note)


def _measured(command: str, run: Path) -> tuple[float, float, float]:
    """Wall-clock seconds, processor seconds, and the largest resident memory of all its processes together, in bytes.

    What processes share is counted in each.

    Raises:
        RuntimeError: the command failed; the message ends with what it wrote.
    """
    before, start, highest = os.times(), time.perf_counter(), 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = psutil.Popen(
            [sys.executable, "-m", "xai.cli", command, str(run)], stdout=subprocess.DEVNULL, stderr=said, cwd=ROOT
        )
        while process.poll() is None:
            highest = max(highest, _resident(process))
            time.sleep(POLL)
        wall, after = time.perf_counter() - start, os.times()
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"xai {command} failed: {said.read()[-2000:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, float(highest)


def _resident(process: psutil.Process) -> int:
    total = 0
    try:
        for one in [process, *process.children(recursive=True)]:
            total += one.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total

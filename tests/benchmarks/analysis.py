"""Whether `xai score` and `xai analyze` come to an end in a minute and two gigabytes on a run of 66,000 memes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.harness import PACKAGE, ROOT, Record, Settings, figure, highest_of_children, highest_resident

N_MEMES, N_SMALL = 66_000, 300
SECONDS, GIB = 60, 2
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
    """Wall-clock seconds, processor seconds and the largest resident memory in bytes.

    Raises:
        RuntimeError: the command failed; the message ends with what it wrote.
    """
    before, start = os.times(), time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-m", f"{PACKAGE}.analysis", command, str(run)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    wall, after = time.perf_counter() - start, os.times()
    if result.returncode:
        raise RuntimeError(f"xai {command} failed: {result.stderr[-2000:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, float(result.stderr.splitlines()[-1])


if __name__ == "__main__":
    from xai.cli import main

    try:
        main()
    finally:
        # Asked from within: seen from outside, a process has at least the memory of the one that started it. The
        # two workers of xai analyze are counted as if both were as large as the larger one, at the same time.
        print(highest_resident() + 2 * highest_of_children(), file=sys.stderr)

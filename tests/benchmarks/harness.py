"""Measures arms side by side: seconds of runs in turn, and peak memory in a fresh process an arm."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

Run = Callable[[], object]
Arm = TypeVar("Arm")
PACKAGE = "tests.benchmarks"
ROOT = Path(__file__).parents[2]
MIB = 2**20
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Settings:
    """How a row is measured.

    Attributes:
        small: tiny models and few rounds, to see that a row runs; its figures mean nothing.
        threads: of torch, in every process. With one, a busy neighbour slows a run by its share of the machine; with
            more, all of them wait for the one that was held up.
    """

    small: bool = False
    threads: int = 1

    def rounds(self, full: int) -> int:
        """``full`` rounds, or as few as a smoke run needs."""
        return 2 if self.small else full


@dataclass(frozen=True)
class Record:
    """One figure of a row.

    Attributes:
        metric: what was measured, with its arms.
        value: the figure, a median where there are several runs; a text where there is no figure.
        unit: of ``value`` and ``spread``; empty for ratios and exponents.
        spread: first and third quartile of the runs.
        runs: every run, or pair of runs, in the order of measuring.
        wanted: the bar, as it reads.
        held: whether ``value`` keeps to it; ``None`` without a bar.
        note: what was called, or why there is no figure.
    """

    metric: str
    value: float | str
    unit: str = ""
    spread: tuple[float, float] | None = None
    runs: tuple[float, ...] = ()
    wanted: str | None = None
    held: bool | None = None
    note: str = ""


def figure(
    metric: str,
    runs: Sequence[float],
    unit: str = "",
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    note: str = "",
) -> Record:
    """The median of ``runs`` with their quartiles, judged by a bar where one is given."""
    value = statistics.median(runs)
    low, high = np.quantile(runs, [0.25, 0.75]).tolist()
    wanted = held = None
    if at_most is not None:
        wanted, held = f"≤ {at_most:g}", value <= at_most
    if at_least is not None:
        wanted, held = f"≥ {at_least:g}", value >= at_least
    return Record(metric, value, unit, (low, high) if len(runs) > 1 else None, tuple(runs), wanted, held, note)


def paired(arms: Mapping[Arm, Run], rounds: int, *, budget: float = float("inf")) -> dict[Arm, list[float]]:
    """Seconds of every run of each arm; the arms run in turn, after one turn that is not counted.

    What slows the machine down for a while slows all arms of a round, so ratios within a round stay true.

    Args:
        budget: no new round begins after so many seconds, once there were three.
    """
    seconds: dict[Arm, list[float]] = {name: [] for name in arms}
    for run in arms.values():
        run()
    begin = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - begin > budget:
            break
        for name, run in arms.items():
            seconds[name].append(_seconds(run))
    return seconds


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratio of each pair."""
    return [one / other for one, other in zip(above, below, strict=True)]


def line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float, float]:
    """Least squares ``y = intercept + slope · x``: intercept, slope, and the share of variance explained (R²)."""
    slope, intercept = np.polyfit(xs, ys, 1).tolist()
    residual = np.array(ys) - (intercept + slope * np.array(xs))
    return intercept, slope, 1.0 - float(residual.var() / np.var(ys))


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The ``k`` of ``y ∝ x^k``, by least squares on logarithms."""
    return line(np.log(xs).tolist(), np.log(ys).tolist())[1]


@dataclass(frozen=True)
class Peak:
    """Resident memory of a process in bytes: with everything loaded, and at most during one run."""

    loaded: int
    peak: int

    @property
    def above(self) -> int:
        """What the run took on top of what was loaded."""
        return self.peak - self.loaded


def peak_memory(row: str, arm: str, settings: Settings) -> Peak:
    """The peak of one cold run of an arm in a fresh process.

    glibc is told to give large blocks back as soon as they are free. Left to itself it keeps what it deems worth
    keeping, and the peaks of one and the same run differ by up to a half.

    Raises:
        RuntimeError: the process failed; the message ends with what it wrote.
    """
    command = [*child_command(settings), "--memory", row, arm]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(MIB)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    if result.returncode:
        raise RuntimeError(f"no memory figure for {row} {arm}: {result.stderr[-2000:]}")
    return Peak(**json.loads(result.stdout.splitlines()[-1]))


def child_command(settings: Settings) -> list[str]:
    """The command of a process with the same settings, to be run at the root of the repository."""
    small = ["--small"] if settings.small else []
    return [sys.executable, "-m", PACKAGE, "--threads", str(settings.threads), *small]


def report_peak(run: Run) -> None:
    """Run once and print the :class:`Peak` of this process as JSON."""
    gc.collect()
    _give_back_freed()
    peak_is_reset = _reset_peak()
    loaded = _resident("VmRSS") if peak_is_reset else _highest()
    run()
    print(json.dumps(asdict(Peak(loaded, _resident("VmHWM") if peak_is_reset else _highest()))))


def _seconds(run: Run) -> float:
    gc.collect()
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _give_back_freed() -> None:
    """Return what building the model freed to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _reset_peak() -> bool:
    """Let the peak begin anew at what is resident now; only Linux can, elsewhere loading counts as well."""
    try:
        _RESET.write_text("5")
    except OSError:
        return False
    return True


def _resident(name: str) -> int:
    (found,) = [line for line in _STATUS.read_text().splitlines() if line.startswith(name)]
    return int(found.split()[1]) * 1024


def _highest() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

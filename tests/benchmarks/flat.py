"""Whether memory and open files stay flat while 2,000 explanations are made, with failures among them."""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

import xai
from tests.benchmarks.harness import MIB, Record, Settings, figure
from xai.planted.truth import write_planted

N_MEMES, N_SMALL = 800, 40
BROKEN_EVERY = 10
MOST_MIB = 32
"""What one leaked graph of activations in ten would exceed by far: such a graph has more than 1 MiB."""


@dataclass(frozen=True)
class Watched:
    """What a process held while it explained, after every batch.

    Attributes:
        resident: bytes; what was freed is given back to the system first.
        files: open file descriptors.
        n_explanations, n_failures: what came of the memes.
    """

    resident: tuple[int, ...]
    files: tuple[int, ...]
    n_explanations: int
    n_failures: int

    def growth(self) -> int:
        """How much more was resident in the last eighth than in the second quarter's first, in bytes, by medians.

        The first quarter warms up: kernels are made for every new length, and kept.
        """
        n = len(self.resident) // 8 or 1
        early, late = self.resident[2 * n : 3 * n], self.resident[-n:]
        return sorted(late)[len(late) // 2] - sorted(early)[len(early) // 2]


def measure(settings: Settings) -> Iterator[Record]:
    """The growth after warming up, and the change of open files."""
    with tempfile.TemporaryDirectory() as folder:
        found = watch(xai.load_model("planted", device="cpu"), Path(folder), N_SMALL if settings.small else N_MEMES)
    note = f"{found.n_explanations} explanations, {found.n_failures} failures"
    yield figure("growth of resident memory", [found.growth() / MIB], "MiB", at_most=MOST_MIB, note=note)
    yield figure(
        "open files at the end, more than after the first batch", [found.files[-1] - found.files[0]], at_most=0
    )


def watch(model: xai.VisionLanguageModel, folder: Path, n_memes: int) -> Watched:
    """Explain planted memes, of which every tenth has a picture that is cut short or none at all."""
    dataset = write_planted(folder / "data", n_memes, 11)
    for number, picture in enumerate(sorted((folder / "data" / "images").iterdir())):
        if number % BROKEN_EVERY == 3:
            picture.write_bytes(picture.read_bytes()[:200] if number % 2 else b"no picture")
    resident: list[int] = []
    files: list[int] = []
    process = psutil.Process()

    def look(_: int) -> None:
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        resident.append(process.memory_info().rss)
        files.append(len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else process.num_fds())

    xai.explain_dataset(model, dataset, folder / "run", on_progress=look)
    counts = xai.open_run(folder / "run").info["counts"]
    return Watched(tuple(resident), tuple(files), counts["explanations"], counts["failures"])

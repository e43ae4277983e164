"""Explaining and reading leave nothing behind: memory stays flat and files are closed, failures or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import xai
from tests.benchmarks.flat import MIB, Watched, watch
from xai.engines.local import MOST_THREADS
from xai.store import RunWriter, open_run
from xai.verify import check_run

from ..xai.test_store import CONFIG, fill

N_MEMES = 160
MOST_MIB = 16


@pytest.mark.slow
def test_memory_and_open_files_stay_flat_over_hundreds_of_explanations_with_failures(
    model: xai.VisionLanguageModel, tmp_path: Path
) -> None:
    found = watch(model, tmp_path, N_MEMES)
    assert found.n_explanations > 300
    assert found.n_failures >= N_MEMES // 10
    assert found.growth() < MOST_MIB * MIB
    # A thread that makes prompts may have a picture open while they are counted.
    assert max(found.files) - min(found.files) <= MOST_THREADS
    assert min(found.files[-10:]) == min(found.files[:10])


def test_a_leak_of_one_mebibyte_a_batch_would_be_seen() -> None:
    steady = tuple(1000 * MIB for _ in range(20))
    leaking = tuple(size + MIB * place for place, size in enumerate(steady))
    assert Watched(steady, (), 0, 0).growth() == 0
    assert Watched(leaking, (), 0, 0).growth() == 14 * MIB


def test_opening_reading_and_verifying_runs_closes_their_files(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", CONFIG, part_size=2) as writer:
        fill(writer)

    def read() -> int:
        open_run(tmp_path / "run").explanations().df()
        check_run(tmp_path / "run")
        RunWriter(tmp_path / "run", CONFIG).close()
        return len(os.listdir("/proc/self/fd"))

    first = read()
    assert [read() for _ in range(20)] == [first] * 20

"""Killed by SIGKILL at any moment and started again, a run ends with the rows of one that was left alone."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import xai
from xai.planted import SAMPLES
from xai.store import open_run
from xai.verify import check_run

from .conftest import Explainer, rows

N_BY_CLOCK, N_BY_CALL, N_COMMANDS = 12, 11, 2


def killed_until_done(explainer: Explainer, dataset: Path, run: Path, whole: Any, moments: list[dict[str, Any]]) -> int:
    """Start a run and kill it at one moment after the other until a start comes to its end; how often it was killed."""
    kills = 0
    while moments:
        status = explainer.explain(dataset, run, **moments.pop())
        if status == 0:
            return kills
        assert status == -signal.SIGKILL
        kills += 1
        if (run / "run.json").exists():
            assert is_beginning(rows(run), whole)
    assert explainer.explain(dataset, run) == 0
    return kills


def is_beginning(found: dict[str, list[Any]], whole: dict[str, list[Any]]) -> bool:
    """Whether every table holds the first rows of the whole one and nothing else."""
    return all(found[name] == whole[name][: len(found[name])] for name in whole)


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_with_the_rows_of_an_undisturbed_one(
    explainer: Explainer, dataset: Path, undisturbed: Path, tmp_path: Path
) -> None:
    whole, rng = rows(undisturbed), random.Random(8)
    assert {name: len(table) > 1 for name, table in whole.items()} == dict.fromkeys(whole, True)
    begin = time.perf_counter()
    assert explainer.explain(dataset, tmp_path / "again") == 0
    lasts = time.perf_counter() - begin
    n_calls = int(undisturbed.with_name("run.calls").read_text())
    kills = {"clock": 0, "call": 0}
    for kind, wanted in (("clock", N_BY_CLOCK), ("call", N_BY_CALL)):
        while kills[kind] < wanted:
            drawn = [rng.random() for _ in range(min(4, wanted - kills[kind]))]
            moments = [{"kill_after": x * lasts} if kind == "clock" else {"die_at": int(x * n_calls)} for x in drawn]
            run = tmp_path / f"{kind}-{kills[kind]}-{len(list(tmp_path.iterdir()))}"
            kills[kind] += killed_until_done(explainer, dataset, run, whole, moments)
            assert rows(run) == whole
            assert check_run(run).is_sound
    assert sum(kills.values()) + N_COMMANDS == 25


def test_a_part_that_was_cut_in_half_is_explained_again_in_its_place(
    explainer: Explainer, dataset: Path, undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    cut = run / "explanations" / "part-00002.parquet"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    assert not check_run(run).is_sound
    assert explainer.explain(dataset, run) == 0
    assert rows(run) == rows(undisturbed)
    assert cut.read_bytes() == (undisturbed / "explanations" / "part-00002.parquet").read_bytes()
    assert check_run(run).is_sound


@pytest.mark.slow
def test_the_command_killed_and_given_again_ends_with_the_rows_of_an_undisturbed_run(
    model: xai.VisionLanguageModel, tmp_path: Path
) -> None:
    xai.explain_dataset(model, SAMPLES, tmp_path / "whole", modes=["text", "image+text"], batch_size=8, limit=20)
    run, rng = tmp_path / "killed", random.Random(9)
    command = [sys.executable, "-m", "xai.cli", "explain", "samples", "--limit", "20", "--out", str(run)]
    command += ["--mode", "text", "--mode", "image+text"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    for _ in range(N_COMMANDS):
        before = changed(run / "run.json")
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            while changed(run / "run.json") == before:  # which is when it begins to explain
                assert process.poll() is None
                time.sleep(0.02)
            time.sleep(rng.random())
            process.kill()
        assert process.returncode == -signal.SIGKILL
    assert open_run(run).info["state"] == "running"
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert rows(run) == rows(tmp_path / "whole")


def changed(path: Path) -> int:
    """When a file was last written; 0 where it is not there yet."""
    return path.stat().st_mtime_ns if path.exists() else 0

"""The same memes, model and settings give the same files, byte for byte; a run says what could have changed them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from xai.environment import computing_environment, installed_versions

from .conftest import Explainer


def files(run: Path) -> dict[str, bytes]:
    """What is in every file of a run, by its name; the lock is empty."""
    return {str(file.relative_to(run)): file.read_bytes() for file in sorted(run.rglob("*")) if file.is_file()}


def test_two_undisturbed_runs_have_the_same_bytes_in_every_file(
    explainer: Explainer, dataset: Path, undisturbed: Path, tmp_path: Path
) -> None:
    assert explainer.explain(dataset, tmp_path / "again") == 0
    first, second = files(undisturbed), files(tmp_path / "again")
    assert {"run.json", "checksums/part-00000.json", "explanations/part-00003.parquet"} <= first.keys()
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_a_run_records_what_could_change_its_bytes(undisturbed: Path) -> None:
    info = json.loads((undisturbed / "run.json").read_text(encoding="utf-8"))
    assert info["versions"] == installed_versions()
    assert {"attention": "sdpa", "device": "cpu", "dtype": "float32"}.items() <= info["config"]["model"].items()
    assert info["environment"]["threads"] == 1
    assert info["environment"]["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert info["environment"]["deterministic_algorithms"] is False


def test_a_choice_of_kernels_by_the_environment_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert computing_environment()["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert "ONEDNN_MAX_CPU_ISA" not in computing_environment()


def test_nothing_that_is_recorded_names_the_machine_or_its_user(undisturbed: Path) -> None:
    text = (undisturbed / "run.json").read_text(encoding="utf-8")
    named = {os.uname().nodename, str(Path.home()), str(undisturbed.parent)}
    assert [name for name in named if len(name) > 1 and name in text] == []


def test_without_torch_its_settings_are_not_asked_for() -> None:
    script = (
        "import sys, xai.environment as e; found = e.computing_environment(); "
        "assert 'torch' not in sys.modules and 'threads' not in found"
    )
    subprocess.run([sys.executable, "-c", script], check=True)

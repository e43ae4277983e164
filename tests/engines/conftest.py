"""A planted dataset with a picture that cannot be read, and the run of it that nothing disturbed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import xai
from xai.models import VisionLanguageModel
from xai.pipeline import RunSummary, explain_dataset
from xai.planted.truth import write_planted

N = 21
OPTIONS: dict[str, Any] = {"modes": ["text", "image+text"], "batch_size": 2, "part_size": 4, "targets": "all"}
BROKEN = "planted-77-9"


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines") / "data"
    path = write_planted(folder, N, 77)
    (folder / "images" / f"{BROKEN}.png").write_bytes(b"no picture")
    return path


@pytest.fixture(scope="session")
def undisturbed(model: VisionLanguageModel, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run by one model in this process, with one thread as each of several workers here has."""
    run = tmp_path_factory.mktemp("engines") / "run"
    with_one_thread(lambda: explain_dataset(model, dataset, run, **OPTIONS))
    return run


def with_one_thread(call: Callable[[], RunSummary]) -> RunSummary:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return call()
    finally:
        torch.set_num_threads(before)


def rows(run: Path) -> dict[str, str]:
    """Everything that a run holds, in its order."""
    opened = xai.open_run(run)
    kinds = {"predictions": opened.predictions(), "explanations": opened.explanations(), "failures": opened.failures()}
    return {kind: relation.df().to_json(orient="records") for kind, relation in kinds.items()}

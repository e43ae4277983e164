"""Where the blocks of a run are explained: in this process, in several on this machine, or on a Ray cluster.

An engine is asked for the configuration of the run first, which it has from the model that it loads, and then makes the
parts of the run that are missing. It knows nothing of datasets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from xai.blocks import Block, Count, Work
from xai.models import ModelSource, VisionLanguageModel

EngineName = Literal["local", "ray"]


class WorkerError(RuntimeError):
    """Workers cannot be kept at work; what was done is kept, and the message says how to go on."""


class Engine(Protocol):
    """Something that has models."""

    def config(self) -> dict[str, Any]:
        """What decides the explanations.

        Raises:
            ValueError: the model cannot be loaded, or what is asked of it is of no use.
        """

    def run(self, folder: Path, blocks: Iterable[Block]) -> Generator[Count, None, None]:
        """Make the part of each block, and say as it goes on what has come of memes × modes."""


def choose(
    model: VisionLanguageModel | ModelSource, work: Work, name: EngineName = "local", workers: int | None = None
) -> Engine:
    """The engine of a name.

    Args:
        model: loaded, for work in this process; or where it is, to be loaded by every worker.
        workers: how many models there are at a time; one a GPU by default, else one.

    Raises:
        ValueError: a loaded model is given where workers load their own, or Ray is not installed.
    """
    if name == "ray":
        from xai.engines.on_ray import RayEngine

        return RayEngine(_source(model, "on Ray"), work, workers)
    n = workers or (1 if isinstance(model, VisionLanguageModel) else len(model.devices()))
    if n == 1:
        from xai.engines.local import LocalEngine

        return LocalEngine(model if isinstance(model, VisionLanguageModel) else model.load(), work)
    from xai.engines.processes import ProcessEngine

    return ProcessEngine(_source(model, f"in {n} workers"), work, n)


def loaded_once(model: ModelSource, name: EngineName, workers: int | None) -> ModelSource | VisionLanguageModel:
    """The model loaded, where several runs in turn are made in this process."""
    return model.load() if name == "local" and (workers or len(model.devices())) == 1 else model


def _source(model: VisionLanguageModel | ModelSource, where: str) -> ModelSource:
    if isinstance(model, VisionLanguageModel):
        raise ValueError(
            f"{where}, every worker loads the model itself; give ModelSource({model.name!r}) instead of it"
        )
    return model


def threads_for(workers: int) -> int:
    """How many threads one of so many workers on this machine computes with."""
    return max(1, torch.get_num_threads() // workers)

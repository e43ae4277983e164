"""The engine of several models on this machine: a process for each, on a GPU of its own where there are GPUs."""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from xai.blocks import Block, BlockExplainer, Count, Work
from xai.engines import WorkerError, threads_for
from xai.models import ModelSource, VisionLanguageModel


class ProcessEngine:
    """Processes that take a block each and write its part.

    Args:
        workers: how many; they take the devices of ``source`` in turn.
    """

    def __init__(self, source: ModelSource, work: Work, workers: int) -> None:
        devices = source.devices()
        context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
        places = context.SimpleQueue()
        for index in range(workers):
            places.put(devices[index % len(devices)])
        self._work = work
        self._workers = workers
        self._pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_begin, initargs=(places, source, threads_for(workers))
        )

    def config(self) -> dict[str, Any]:
        """What decides the explanations, from one worker; see :class:`xai.engines.Engine`."""
        try:
            with _advice():
                return self._pool.submit(_config, self._work).result()
        except BaseException:
            self._pool.shutdown(cancel_futures=True)
            raise

    def run(self, folder: Path, blocks: Iterable[Block]) -> Generator[Count, None, None]:
        """Make the part of each block, and say after every block what came of it."""
        waiting = iter(blocks)

        def begun(n: int) -> set[Future[Count]]:
            return {self._pool.submit(_explain, self._work, folder, block) for block in islice(waiting, n)}

        try:
            with _advice():
                running = begun(2 * self._workers)
                while running:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    running |= begun(len(finished))
                    yield sum((one.result() for one in finished), Count())
        finally:
            self._pool.shutdown(cancel_futures=True)


@contextmanager
def _advice() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool:
        raise WorkerError(
            "a worker died, mostly for want of memory: take fewer workers or a smaller batch; "
            "the same command goes on where it was"
        ) from None


_given: dict[str, Any] = {}
"""What this process was begun with, if it is a worker."""


def _begin(places: Any, source: ModelSource, threads: int) -> None:
    torch.set_num_threads(threads)
    _given.update(source=source, place=places.get())


@cache
def _model() -> VisionLanguageModel:
    # Not at the beginning: what a task raises reaches the one who asked, and what an initializer raises does not.
    source: ModelSource = _given["source"]
    return source.load(_given["place"])


def _config(work: Work) -> dict[str, Any]:
    return work.config(_model())


def _explain(work: Work, folder: Path, block: Block) -> Count:
    return sum(BlockExplainer(_model(), work, folder).run([block]), Count())

"""The engine on Ray: blocks go through Ray Data to actors that have a model each and write the parts.

Run folder, pictures and model must lie where every machine of the cluster sees them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from xai.blocks import Block, BlockExplainer, Count, Work
from xai.engines import WorkerError
from xai.models import ModelSource

RETRIES = 1
"""How often a block is done again because its worker died, before it is done record by record."""
_BLOCK = TypeAdapter(Block)


class RayEngine:
    """Actors of a Ray cluster: the one that ``RAY_ADDRESS`` names, else one that is started on this machine.

    A worker that dies is started again, and its block done again without what was kept of it. A block that goes on to
    take its workers along is done record by record, and the record that they die of becomes a failure.

    Args:
        workers: how many actors; by default one a GPU of the cluster, or one where there is none.

    Raises:
        ValueError: Ray is not installed.
    """

    def __init__(self, source: ModelSource, work: Work, workers: int | None = None) -> None:
        if find_spec("ray") is None:
            raise ValueError("the engine 'ray' takes a package that is not here: pip install 'meme-xai[ray]'")
        self._source = source
        self._work = work
        resources = _connected(workers)
        on_gpu = resources.get("GPU", 0) >= 1 and (source.device or "cuda").startswith("cuda")
        self._workers = workers or (int(resources["GPU"]) if on_gpu else 1)
        share = max(1.0, resources.get("CPU", 1) // self._workers)
        self._share: dict[str, float] = {"num_gpus": 1.0} if on_gpu else {"num_cpus": share}

    def config(self) -> dict[str, Any]:
        """What decides the explanations, from a worker; see :class:`xai.engines.Engine`."""
        import ray

        task = ray.remote(**self._share, max_retries=RETRIES)(_config)
        try:
            found: dict[str, Any] | ValueError = ray.get(task.remote(self._source, self._work))
        except ray.exceptions.RayError as error:
            raise WorkerError(f"no Ray worker can be started; see Ray's log ({str(error).splitlines()[0]})") from error
        if isinstance(found, ValueError):
            raise found
        return found

    def run(self, folder: Path, blocks: Iterable[Block]) -> Generator[Count, None, None]:
        """Make the part of each block, and say after every block what came of it."""
        waiting = {block.number: block for block in blocks}
        for carefully in (False, True):
            if waiting:
                for number, count in self._pass(folder.resolve(), list(waiting.values()), carefully=carefully):
                    del waiting[number]
                    yield count
        if waiting:
            raise WorkerError(
                f"{len(waiting)} blocks were not done, since their workers cannot be kept alive; "
                "see Ray's log, and start again: it goes on where it was"
            )

    def _pass(self, folder: Path, blocks: list[Block], *, carefully: bool) -> Iterator[tuple[int, Count]]:
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # it shows the deaths that are dealt with here
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        context.execution_no_progress_timeout_s = -1  # a block takes what it takes
        context.max_errored_blocks = -1  # those whose workers died; errors of ours come back as rows
        items = [{"block": _BLOCK.dump_json(block).decode(), "carefully": carefully} for block in blocks]
        results = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _Worker,
            batch_size=1,
            batch_format="pyarrow",
            fn_constructor_args=(self._source, self._work, folder),
            compute=ray.data.ActorPoolStrategy(size=min(self._workers, len(blocks)), max_tasks_in_flight_per_actor=1),
            ray_remote_args_fn=lambda: {"max_task_retries": -1 if carefully else RETRIES},
            **self._share,
        )
        for row in results.iter_rows():
            if row["error"] is not None:
                raise WorkerError(row["error"])
            yield row["number"], Count(**{name: row[name] for name in asdict(Count())})


class _Worker:
    """An actor."""

    def __init__(self, source: ModelSource, work: Work, folder: Path) -> None:
        self._explainer = BlockExplainer(source.load(), work, folder)

    def __call__(self, batch: pa.Table) -> pa.Table:
        (item,) = batch.to_pylist()
        block = _BLOCK.validate_json(item["block"])
        run = self._explainer.run_carefully if item["carefully"] else self._explainer.run
        error, count = None, Count()
        try:
            count = sum(run([block]), Count())
        except Exception as problem:
            # As a row, since Ray Data cannot tell what a worker raises from a worker that died.
            error = f"{type(problem).__name__}: {problem}"
        schema = pa.schema({"number": pa.int64(), "error": pa.string(), **dict.fromkeys(asdict(count), pa.int64())})
        return pa.Table.from_pylist([{"number": block.number, "error": error, **asdict(count)}], schema=schema)


def _config(source: ModelSource, work: Work) -> dict[str, Any] | ValueError:
    try:
        return work.config(source.load())
    except ValueError as error:
        return error


def _connected(workers: int | None) -> dict[str, float]:
    """What the cluster has; one is started on this machine if none is named."""
    import ray

    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        here = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": max(workers or 1, os.cpu_count() or 1)}
        ray.init(logging_level="error", log_to_driver=False, **here)
    resources: dict[str, float] = ray.cluster_resources()
    return resources

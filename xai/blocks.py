"""Makes the parts of a run out of blocks of a dataset, and keeps what there is of a part when that is stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xai.batches import Batch, Halved, Row, died, encoded, explain_batch, like_length
from xai.choice import TargetChoice
from xai.given import GivenAnswers
from xai.jobs import Job
from xai.limits import DEFAULT_LIMITS, Limits
from xai.models import VisionLanguageModel
from xai.parts import Key, row_tables
from xai.prompts import PromptStyle
from xai.schema import Failure, Meme, Mode
from xai.store import write_block
from xai.tasks import Task
from xai.unfinished import Unfinished

AHEAD = 2
"""Batches whose prompts are made while the model works on another: so many are in memory at once."""

DEATHS = 2
"""So often may a process die of a record."""


@dataclass(frozen=True)
class Work:
    """What a run asks about every meme. It holds no model, so that it can be sent to the processes that have one."""

    task: Task
    modes: tuple[Mode, ...]
    style: PromptStyle
    method: str
    options: dict[str, Any]
    max_new_tokens: int
    choice: TargetChoice
    given: GivenAnswers | None
    batch_size: int
    limits: Limits = DEFAULT_LIMITS

    def jobs(self, model: VisionLanguageModel) -> tuple[Job, ...]:
        """The question in each mode.

        Raises:
            ValueError: no meme could be explained: a method, an option, a prompt or the model is of no use.
        """
        jobs = tuple(
            Job(
                model,
                self.task,
                mode,
                self.style,
                self.method,
                self.options,
                self.max_new_tokens,
                self.choice,
                self.limits,
            )
            for mode in self.modes
        )
        for job in jobs:
            job.check()
        return jobs

    def config(self, model: VisionLanguageModel) -> dict[str, Any]:
        """What decides the explanations of a model, in JSON values; raises as :meth:`jobs` does."""
        return self.jobs(model)[0].config()


@dataclass(frozen=True)
class Block:
    """Records that follow each other in the dataset and make one part of the run.

    Attributes:
        number: of the part.
        records: of which each becomes rows in every mode; a record that cannot be read is one row of no mode.
        done: rows that the run has in other parts already.
    """

    number: int
    records: tuple[Meme | Failure, ...]
    done: frozenset[Key] = frozenset()

    def keys(self, modes: Sequence[Mode]) -> list[Key]:
        """Every row that the records become, in the order of the run."""
        return [key for record in self.records for key in keys_of(record, modes)]


@dataclass(frozen=True)
class Count:
    """What came of memes × modes: explained, failed, there already; and batches that did not fit into memory."""

    explained: int = 0
    failed: int = 0
    resumed: int = 0
    halved: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.explained + other.explained,
            self.failed + other.failed,
            self.resumed + other.resumed,
            self.halved + other.halved,
        )

    @property
    def total(self) -> int:
        """Memes × modes."""
        return self.explained + self.failed + self.resumed


class BlockExplainer:
    """Has the model, and makes the parts of a run out of blocks.

    Args:
        folder: of the run, whose lock somebody holds.
        threads: that make prompts (open pictures, split texts into tokens) while the model works.
    """

    def __init__(self, model: VisionLanguageModel, work: Work, folder: Path, threads: int = 1) -> None:
        self._work = work
        self._jobs = work.jobs(model)
        self._folder = folder
        self._threads = threads

    def run(self, blocks: Iterable[Block]) -> Iterator[Count]:
        """Make the part of each block; what there is of it is kept when that is stopped."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="prompts") as pool:
            steps = self._steps(blocks, pool)
            open_block: _OpenBlock | None = None
            try:
                for open_block, batch in _ahead(steps, AHEAD):
                    if batch is None:
                        yield open_block.close(self._folder)
                        open_block = None
                    else:
                        yield from map(open_block.add, explain_batch(batch, self._work.given))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                if open_block is not None:
                    open_block.keep()

    def run_carefully(self, blocks: Iterable[Block]) -> Iterator[Count]:
        """The same meme by meme and mode by mode, each noted first, so that one which the process dies of is known.

        One that it died of as often as :data:`DEATHS` becomes a failure.
        """
        for block in blocks:
            opened = _OpenBlock(block, self._work.modes, Unfinished(self._folder, block.number))
            for meme in (record for record in block.records if isinstance(record, Meme)):
                for job in self._jobs:
                    if opened.lacks([(meme.id, job.mode)]):
                        deaths = opened.unfinished.begin((meme.id, job.mode))
                        if deaths < DEATHS:
                            batch = Batch(job, [meme], [encoded(job, meme)], [meme.id])
                            yield from map(opened.add, explain_batch(batch, self._work.given))
                        else:
                            yield opened.add(died(job, meme, deaths))
                        opened.keep()
            yield opened.close(self._folder)

    def _steps(self, blocks: Iterable[Block], pool: ThreadPoolExecutor) -> Iterator[tuple[_OpenBlock, Batch | None]]:
        """Every batch of every block with its prompts on the way, and ``None`` at the end of a block."""
        for block in blocks:
            opened = _OpenBlock(block, self._work.modes, Unfinished(self._folder, block.number))
            memes = [record for record in block.records if isinstance(record, Meme)]
            for job in self._jobs:
                for batch in like_length(memes, job.mode, self._work.batch_size):
                    if wanted := [meme.id for meme in batch if opened.lacks([(meme.id, job.mode)])]:
                        yield opened, Batch(job, batch, [pool.submit(encoded, job, meme) for meme in batch], wanted)
            yield opened, None


def keys_of(record: Meme | Failure, modes: Sequence[Mode]) -> list[Key]:
    """The rows that a record becomes: one a mode, or one of no mode where it could not be read."""
    return [(record.meme_id, record.mode)] if isinstance(record, Failure) else [(record.id, mode) for mode in modes]


@dataclass
class _OpenBlock:
    """A block of which some rows are there: in another part, kept from an earlier start, or made now."""

    block: Block
    modes: tuple[Mode, ...]
    unfinished: Unfinished
    made: dict[Key, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for record in self.block.records:
            if isinstance(record, Failure) and self.lacks(keys_of(record, self.modes)):
                (key,) = keys_of(record, self.modes)
                self.made[key] = Row(key, row_tables(None, (), [record], None), failed=True)

    def lacks(self, keys: Iterable[Key]) -> bool:
        """Whether any of these rows is not there."""
        return any(key not in self.block.done and key not in self.unfinished.keys for key in keys)

    def add(self, made: Row | Halved) -> Count:
        """Take a row, and say what it is; or what else is to be counted."""
        if isinstance(made, Halved):
            return Count(halved=made.times)
        self.made[made.key] = made
        self.unfinished.add(made.key, made.tables)
        return Count(failed=1) if made.failed else Count(explained=1)

    def close(self, folder: Path) -> Count:
        """Write the part, and count what was not counted batch by batch."""
        keys = self.block.keys(self.modes)
        kept = self.unfinished.tables()
        tables = [
            self.made[key].tables if key in self.made else kept[key] for key in keys if key in self.made or key in kept
        ]
        write_block(folder, self.block.number, tables)
        self.unfinished.remove()
        unread = sum(key in self.made and key[1] is None for key in keys)
        return Count(failed=unread, resumed=len(keys) - len(self.made))

    def keep(self) -> None:
        self.unfinished.keep()


def _ahead(steps: Iterator[tuple[_OpenBlock, Batch | None]], n: int) -> Iterator[tuple[_OpenBlock, Batch | None]]:
    """The same steps, of which n more are begun already."""
    window: deque[tuple[_OpenBlock, Batch | None]] = deque()
    for step in steps:
        window.append(step)
        if len(window) > n:
            yield window.popleft()
    yield from window

"""Explains memes end to end: predict, attribute, align, store; one meme in a notebook or a whole dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from xai.attribution.targets import TargetKind
from xai.blocks import Block, Count, Work
from xai.choice import TargetChoice, Targets, choice_of
from xai.datasets import read_memes
from xai.engines import Engine, EngineName, choose, loaded_once
from xai.given import Answer, read_answers
from xai.jobs import Job
from xai.limits import DEFAULT_LIMITS, Limits
from xai.models import ModelSource, VisionLanguageModel
from xai.ocr import TextSource, with_text
from xai.prompts import PromptStyle
from xai.schema import ALL_LABELS, Explanation, Failure, Meme, Mode, Prediction
from xai.stages import (
    Labels,
    NothingToAskError,
    Source,
    answered_labels,
    context_config,
    stage_name,
    with_context,
)
from xai.store import RunWriter, open_run
from xai.tasks import Task, load_stages, load_task


@dataclass(frozen=True)
class RunSummary:
    """What a run came to: memes × modes explained, failed, and left from an earlier start; of stages, their sum.

    ``halved`` is how often a batch of answers did not fit into memory and was halved.
    """

    explained: int
    failed: int
    resumed: int
    halved: int = 0

    def __add__(self, other: RunSummary) -> RunSummary:
        return RunSummary(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


def explain(
    model: VisionLanguageModel,
    meme: Meme,
    *,
    task: str | Task = "ukrmeme",
    mode: Mode = "image+text",
    method: str = "attnlrp",
    target: str = ALL_LABELS,
    target_kind: TargetKind = "logit",
    against: str | None = None,
    span: tuple[int, int] | None = None,
    answer: Answer | None = None,
    style: PromptStyle | None = None,
    max_new_tokens: int = 512,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> Explanation:
    """Let the model label one meme and explain the labels that it wrote.

    Args:
        target: a label of the answer, or ``"*"`` for all of them together.
        target_kind: ``logit`` (the sum of the logits of the label's tokens), ``log_probability``, or ``contrastive``:
            the lead over another label at the first token where the two part. ``"*"`` has no lead.
        against: for ``contrastive``, the other label; the strongest that was not answered by default.
        span: characters ``(start, end)`` of the answer to be explained instead of labels.
        answer: an answer to be explained as if the model had given it ("what would speak for this label?"): token
            ids, used as they are, or a text, which is tokenised and flagged as such in ``prediction.answer_source``.
        method: a name from ``xai methods``. Methods that take the text apart get its words.
        options: of the method, by name; ``xai methods`` lists them.
        style: prompt language and variant; by default the model's own, where the task has it, or ``full``.
        limits: how large picture, text and prompt may be; see :mod:`xai.limits`.

    Raises:
        ValueError: the meme lacks what the mode needs, the answer does not hold what is to be explained, a name
            is unknown, or the model cannot be explained.
    """
    choice = choice_of(target, target_kind, against, span)
    asked = _task(task)
    style = style or _own_style(model, asked)
    job = Job(model, asked, mode, style, method, options, max_new_tokens, choice, limits)
    job.check()
    prompt = job.encode(meme)
    (prediction,) = job.answer([meme], [prompt]) if answer is None else [job.given(meme, answer)]
    (explanation,) = job.explain(meme, prompt, prediction)
    return explanation


def explain_answer(
    model: VisionLanguageModel,
    meme: Meme,
    prediction: Prediction,
    *,
    task: str | Task = "ukrmeme",
    method: str = "attnlrp",
    targets: Targets = "each",
    target_kind: TargetKind = "logit",
    against: str | None = None,
    style: PromptStyle | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> list[Explanation]:
    """Explain an answer that the model gave already, by the ids that it generated: all labels together, then each.

    Leads (``target_kind="contrastive"``) have no sum, and so come for each label only. If the answer was generated
    with another attention or dtype than it is explained with, ``quality.target_choice_changed`` says whether the
    model would still have chosen the target's tokens.

    Raises:
        ValueError: the answer holds no label to explain, or a name is unknown.
    """
    choice = TargetChoice(targets, kind=target_kind, against=against)
    asked = _task(task)
    style = style or _own_style(model, asked)
    job = Job(model, asked, prediction.mode, style, method, options, choice=choice, limits=limits)
    job.check()
    return job.explain(meme, job.encode(meme), prediction)


def predict(
    model: VisionLanguageModel,
    memes: Sequence[Meme],
    *,
    task: str | Task = "ukrmeme",
    mode: Mode = "image+text",
    style: PromptStyle | None = None,
    batch_size: int = 16,
    max_new_tokens: int = 512,
    limits: Limits = DEFAULT_LIMITS,
) -> list[Prediction]:
    """The model's answers to memes, in their order, without explanations.

    Raises:
        ValueError: a meme lacks what the mode needs.
    """
    asked = _task(task)
    job = Job(model, asked, mode, style or _own_style(model, asked), max_new_tokens=max_new_tokens, limits=limits)
    predictions: list[Prediction] = []
    for start in range(0, len(memes), batch_size):
        batch = memes[start : start + batch_size]
        predictions += job.answer(batch, [job.encode(meme) for meme in batch])
    return predictions


def explain_dataset(
    model: VisionLanguageModel | ModelSource,
    dataset: str | Path,
    out: str | Path,
    *,
    task: str | Task = "ukrmeme",
    modes: Sequence[Mode] = ("image+text",),
    method: str = "attnlrp",
    targets: Targets = "each",
    target_kind: TargetKind = "logit",
    against: str | None = None,
    answers: str | Path | None = None,
    text: TextSource = "dataset",
    style: PromptStyle | None = None,
    images: Path | None = None,
    batch_size: int = 8,
    part_size: int = 32,
    limit: int | None = None,
    max_new_tokens: int = 512,
    limits: Limits = DEFAULT_LIMITS,
    options: Mapping[str, Any] | None = None,
    engine: EngineName = "local",
    workers: int | None = None,
    stages_on: Source = "answers",
    on_progress: Callable[[int], None] = lambda done: None,
) -> RunSummary:
    """Explain every meme of a dataset into a run folder; started again, it goes on where it stopped.

    A record that cannot be read, answered or attributed becomes a failure of the run and nothing else is lost. A batch
    that memory is too small for is halved. Batches are formed within blocks of the dataset, also on resuming, so that a
    stopped run ends with the same rows. A task with stages becomes a run for each, in folders of their names.

    Args:
        model: loaded, or a :class:`~xai.models.ModelSource` for work in several processes, which load it themselves.
        dataset: JSONL, CSV, Parquet or a folder of pictures (see ``xai.datasets``).
        targets: ``"each"`` stores every label of an answer and all together, ``"all"`` only the latter.
        target_kind, against: as for :func:`explain`; leads are stored for each label only.
        answers: a JSONL file of answers that were generated elsewhere, which the model is then not asked for: ``id``,
            ``mode`` where they differ by mode, and ``generated_ids`` or ``text`` or both (see :mod:`xai.given`).
        text: what the prompt gets: the dataset's text, that of the OCR, or the dataset's with the places of its words
            that the OCR found; the latter two of memes that ``xai ocr`` wrote (see :mod:`xai.ocr`).
        batch_size: memes answered at once.
        part_size: memes a part of the run; of these, batches are made of memes whose prompts have about one length.
        limits: how large picture, text and prompt may be; a longer text is cut and flagged (see :mod:`xai.limits`).
        options: of the method, by name; ``xai methods`` lists them.
        engine: ``"local"``, or ``"ray"`` for workers on a cluster (see :mod:`xai.engines`).
        workers: models at work at a time; one a GPU by default, else one.
        stages_on: what a stage is told of the earlier ones: what the model answered there, or the gold labels.
        on_progress: called with the number of memes × modes finished since the last call.

    Raises:
        ValueError: the dataset or the run folder cannot be used as a whole.
        RuntimeError: a device (``torch.AcceleratorError``) or the workers failed; the same call goes on.
    """
    stages = (task,) if isinstance(task, Task) else load_stages(task)
    is_staged = len(stages) > 1
    if is_staged and len(modes) > 1:
        raise ValueError(f"task {str(task)!r} is asked in stages, and in one mode at a time; give one")
    if is_staged and isinstance(model, ModelSource):
        model = loaded_once(model, engine, workers)
    work = Work(
        task=stages[0],
        modes=tuple(modes),
        style=style or _own_style(model, stages[0]),
        method=method,
        options=dict(options or {}),
        max_new_tokens=max_new_tokens,
        choice=TargetChoice(targets, kind=target_kind, against=against),
        given=None,
        batch_size=batch_size,
        limits=limits,
    )
    records = _Records(dataset, images, limit, text)
    total, answered = RunSummary(0, 0, 0), dict[str, Labels]()
    for stage in stages:
        name = stage_name(stage) if is_staged else None
        folder = Path(out) / name if name else Path(out)
        work = replace(work, task=stage, given=None if answers is None else read_answers(answers, name))
        settings = _run_config(work, records, part_size) | (context_config(stages_on, answered) if answered else {})
        told = records.prepared(with_context(stages, stage, stages_on, answered)) if name else records
        chosen = choose(model, work, engine, workers)
        total += _run(chosen, work, told, folder, chosen.config() | settings, part_size, on_progress)
        if name:
            answered[name] = answered_labels(open_run(folder))
    return total


def explain_stages(
    model: VisionLanguageModel, meme: Meme, task: str, *, answers: Mapping[str, Answer] | None = None, **settings: Any
) -> dict[str, Explanation]:
    """Let the model label one meme stage by stage, each told what it answered before, and explain every answer.

    Args:
        task: one with stages; see ``xai tasks``.
        answers: answers to be explained as if the model had given them, by stage.
        settings: of :func:`explain`; ``target`` and ``span`` are of no use, since the answers differ.

    Raises:
        ValueError: as for :func:`explain`, or a stage named no label, so that the next one has nothing to ask.
    """
    found: dict[str, Explanation] = {}
    for stage in load_stages(task):
        name = stage_name(stage)
        found[name] = explain(model, meme, task=stage, answer=(answers or {}).get(name), **settings)
        meme = meme.model_copy(update={"context": {**meme.context, name: found[name].prediction.labels}})
    return found


def _run(
    chosen: Engine,
    work: Work,
    records: _Records,
    out: Path,
    config: Mapping[str, Any],
    part_size: int,
    on_progress: Callable[[int], None],
) -> RunSummary:
    """Explain the records into one run folder."""
    count = Count()
    with RunWriter(out, config) as writer:
        todo = _Todo(writer, work, part_size, whole=records.limit is None)
        with closing(chosen.run(out, todo.blocks(records))) as counts:
            for made in counts:
                new = made + todo.taken()
                count += new
                on_progress(new.total)
        count += todo.taken()
    return RunSummary(count.explained, count.failed, count.resumed, count.halved)


@dataclass(frozen=True)
class _Records:
    """The records of a dataset as they are asked about: with the text that is wanted, and what a stage adds."""

    dataset: str | Path
    images: Path | None
    limit: int | None
    text: TextSource
    steps: tuple[Callable[[Meme], Meme], ...] = ()

    def prepared(self, step: Callable[[Meme], Meme]) -> _Records:
        """The same with one more step."""
        return replace(self, steps=(*self.steps, step))

    def __iter__(self) -> Iterator[Meme | Failure]:
        for record in islice(read_memes(self.dataset, images=self.images), self.limit):
            yield record if isinstance(record, Failure) else self._prepare(record)

    def _prepare(self, meme: Meme) -> Meme | Failure:
        try:
            meme = with_text(meme, self.text)
            for step in self.steps:
                meme = step(meme)
            return meme
        except NothingToAskError as error:
            return Failure(meme_id=meme.id, stage="predict", reason=str(error))
        except ValueError as error:
            return Failure(meme_id=meme.id, stage="read", reason=str(error))


class _Todo:
    """The blocks of a dataset that a run lacks.

    Args:
        size: records a block.
        whole: the records are all that the dataset has, so that given answers to others can be named.
    """

    def __init__(self, writer: RunWriter, work: Work, size: int, *, whole: bool) -> None:
        self._numbers, self._done = writer.numbers(), writer.done()
        self._work = work
        self._size = size
        self._whole = whole
        self._resumed = 0

    def blocks(self, records: Iterable[Meme | Failure]) -> Iterator[Block]:
        """Every block of which a row is not there. Its number is its place, so that the rows keep their order.

        Where the dataset has grown or changed, that number can be taken by the earlier rows of the same place. What is
        new comes behind all others then.
        """
        iterator, number, later = iter(records), 0, []
        known: set[str] = set()
        while some := tuple(islice(iterator, self._size)):
            known |= {record.id if isinstance(record, Meme) else record.meme_id for record in some}
            if number in self._numbers:
                later.append(some)
            else:
                yield from self._block(number, some)
            number += 1
        number = max([number, *(taken + 1 for taken in self._numbers)])
        for some in [*later, tuple(self._unused(known))]:
            for block in self._block(number, some):
                yield block
                number += 1

    def taken(self) -> Count:
        """The rows that were there already, of all blocks since this was asked last."""
        resumed, self._resumed = self._resumed, 0
        return Count(resumed=resumed)

    def _block(self, number: int, records: tuple[Meme | Failure, ...]) -> Iterator[Block]:
        block = Block(number, records)
        keys = block.keys(self._work.modes)
        there = frozenset(key for key in keys if key in self._done)
        if len(there) < len(keys):
            yield replace(block, done=there)
        else:
            self._resumed += len(keys)

    def _unused(self, known: set[str]) -> list[Failure]:
        """Failures of the lines that hold no answer and, where all memes are known, of answers to no meme."""
        given = self._work.given
        if given is None:
            return []
        strangers = [name for name in given.ids if name not in known] if self._whole else []
        reason = f"{given.name!r} answers a meme that is not in the dataset; correct its id"
        return [*given.failures, *(Failure(meme_id=name, stage="read", reason=reason) for name in strangers)]


def _task(task: str | Task) -> Task:
    return task if isinstance(task, Task) else load_task(task)


def _own_style(model: VisionLanguageModel | ModelSource, task: Task) -> PromptStyle:
    """The prompts that the model was trained with, where the task has them."""
    style = model.style() if isinstance(model, ModelSource) else model.style
    return replace(style, variant=task.variant(style.variant))


def _run_config(work: Work, records: _Records, part_size: int) -> dict[str, Any]:
    """What decides the rows of a run beside the jobs; a run folder is only resumed under the same."""
    given = work.given
    return {
        "modes": list(work.modes),
        "dataset": Path(records.dataset).name,
        "answers": None if given is None else {"file": given.name, "sha256": given.digest},
        "batch_size": work.batch_size,
        "part_size": part_size,
        "limit": records.limit,
        "text": records.text,
        "seed": 0,
    }

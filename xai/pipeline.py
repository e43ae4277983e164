"""Explains memes end to end: predict, attribute, align, store; one meme in a notebook or a whole dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from xai.attribution.targets import TargetKind
from xai.choice import StageError, TargetChoice, Targets, choice_of
from xai.datasets import read_memes
from xai.given import Answer, GivenAnswers, read_answers
from xai.jobs import Job
from xai.limits import DEFAULT_LIMITS, Limits
from xai.models import VisionLanguageModel
from xai.ocr import TextSource, with_text
from xai.prompts import EncodedPrompt, PromptStyle
from xai.schema import ALL_LABELS, Explanation, Failure, Meme, Mode, Prediction, Stage
from xai.store import RunWriter
from xai.tasks import Task, load_task


@dataclass(frozen=True)
class RunSummary:
    """What a run came to: memes × modes explained, failed, and left from an earlier start."""

    explained: int
    failed: int
    resumed: int


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
        style: prompt language and variant; the model's own by default.
        limits: how large picture, text and prompt may be; see :mod:`xai.limits`.

    Raises:
        ValueError: the meme lacks what the mode needs, the answer does not hold what is to be explained, a name
            is unknown, or the model cannot be explained.
    """
    choice = choice_of(target, target_kind, against, span)
    job = Job(model, _task(task), mode, style or model.style, method, options, max_new_tokens, choice, limits)
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
    job = Job(model, _task(task), prediction.mode, style or model.style, method, options, choice=choice, limits=limits)
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
    job = Job(model, _task(task), mode, style or model.style, max_new_tokens=max_new_tokens, limits=limits)
    predictions: list[Prediction] = []
    for start in range(0, len(memes), batch_size):
        batch = memes[start : start + batch_size]
        predictions += job.answer(batch, [job.encode(meme) for meme in batch])
    return predictions


def explain_dataset(
    model: VisionLanguageModel,
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
    limit: int | None = None,
    max_new_tokens: int = 512,
    limits: Limits = DEFAULT_LIMITS,
    options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> RunSummary:
    """Explain every meme of a dataset into a run folder; started again, it goes on where it stopped.

    A record that cannot be read, answered or attributed becomes a failure of the run and nothing else is lost.
    Batches are formed by position in the dataset, also on resuming, so that a stopped run ends with the same rows.

    Args:
        dataset: JSONL, CSV, Parquet or a folder of pictures (see ``xai.datasets``).
        targets: ``"each"`` stores every label of an answer and all together, ``"all"`` only the latter.
        target_kind, against: as for :func:`explain`; leads are stored for each label only.
        answers: a JSONL file of answers that were generated elsewhere, which the model is then not asked for: ``id``,
            ``mode`` where they differ by mode, and ``generated_ids`` or ``text`` or both (see :mod:`xai.given`).
        text: what the prompt gets: the dataset's text, that of the OCR, or the dataset's with the places of its words
            that the OCR found; the latter two of memes that ``xai ocr`` wrote (see :mod:`xai.ocr`).
        batch_size: memes answered at once.
        limits: how large picture, text and prompt may be; a longer text is cut and flagged (see :mod:`xai.limits`).
        options: of the method, by name; ``xai methods`` lists them.
        on_progress: called with the number of memes finished since the last call.

    Raises:
        ValueError: the dataset or the run folder cannot be used as a whole.
    """
    chosen, style = _task(task), style or model.style
    choice = TargetChoice(targets, kind=target_kind, against=against)
    jobs = [Job(model, chosen, mode, style, method, options or {}, max_new_tokens, choice, limits) for mode in modes]
    for job in jobs:
        job.check()
    given = None if answers is None else read_answers(answers)
    config = _run_config(jobs, dataset, given, batch_size, limit, text)
    counts = {"explained": 0, "failed": 0, "resumed": 0}
    with RunWriter(out, config) as writer:
        done = writer.done()
        known: set[str] = set()
        records = (_with_text(record, text) for record in read_memes(dataset, images=images))
        for batch in _batches(islice(records, limit), batch_size):
            for record in batch:
                if isinstance(record, Failure):
                    _store(writer, done, counts, record, (), (record,), None)
            memes = [record for record in batch if isinstance(record, Meme)]
            known |= {record.id if isinstance(record, Meme) else record.meme_id for record in batch}
            for job in jobs:
                if any((meme.id, job.mode) not in done for meme in memes):
                    for meme, prediction, explanations, failures in _explain_batch(job, memes, given):
                        _store(writer, done, counts, prediction, explanations, failures, meme)
                else:
                    counts["resumed"] += len(memes)
            on_progress(len(batch))
        for failure in _unused(given, known if limit is None else None):
            _store(writer, done, counts, failure, (), (failure,), None)
    return RunSummary(**counts)


def _with_text(record: Meme | Failure, text: TextSource) -> Meme | Failure:
    if isinstance(record, Failure):
        return record
    try:
        return with_text(record, text)
    except ValueError as error:
        return Failure(meme_id=record.id, stage="read", reason=str(error))


Row = tuple[Meme, Prediction | None, list[Explanation], list[Failure]]


def _explain_batch(job: Job, memes: Sequence[Meme], given: GivenAnswers | None) -> Iterator[Row]:
    """Answer a batch at once, or take the answers that are given, and explain each; a failure is of one record."""
    prompts: dict[str, EncodedPrompt] = {}
    failures: dict[str, Failure] = {}
    for meme in memes:
        try:
            prompts[meme.id] = job.encode(meme)
        except (ValueError, RuntimeError, MemoryError) as error:
            failures[meme.id] = _failure(job, meme, "read", error)
    readable = [meme for meme in memes if meme.id in prompts]
    if given is None:
        answers = _answer_or_fail(job, readable, [prompts[meme.id] for meme in readable])
    else:
        answers = {meme.id: _given_or_fail(job, meme, given) for meme in readable}
    for meme in memes:
        answer = failures.get(meme.id) or answers[meme.id]
        if isinstance(answer, Failure):
            yield meme, None, [], [answer]
            continue
        meme = prompts[meme.id].shown(meme)  # as the model was asked about it
        try:
            yield meme, answer, job.explain(meme, prompts[meme.id], answer), []
        except (ValueError, RuntimeError) as error:
            stage = error.stage if isinstance(error, StageError) else "attribute"
            yield meme, answer, [], [_failure(job, meme, stage, error)]


def _failure(job: Job, meme: Meme, stage: Stage, error: Exception) -> Failure:
    return Failure(meme_id=meme.id, mode=job.mode, stage=stage, reason=str(error) or type(error).__name__)


def _answer_or_fail(
    job: Job, memes: Sequence[Meme], prompts: Sequence[EncodedPrompt]
) -> dict[str, Prediction | Failure]:
    """Answers by meme; when a batch cannot be answered (out of memory, say), its memes are tried one by one."""
    if not memes:
        return {}
    try:
        return {prediction.meme_id: prediction for prediction in job.answer(memes, prompts)}
    except (ValueError, RuntimeError) as error:
        if len(memes) == 1:
            return {memes[0].id: _failure(job, memes[0], "predict", error)}
    answers: dict[str, Prediction | Failure] = {}
    for meme, prompt in zip(memes, prompts, strict=True):
        answers |= _answer_or_fail(job, [meme], [prompt])
    return answers


def _given_or_fail(job: Job, meme: Meme, given: GivenAnswers) -> Prediction | Failure:
    try:
        found = given.find(meme.id, job.mode)
        if found.generated_ids:
            return job.given(meme, found.generated_ids, found.text)
        return job.given(meme, found.text or "")
    except ValueError as error:
        return _failure(job, meme, "predict", error)


def _unused(given: GivenAnswers | None, known: set[str] | None) -> list[Failure]:
    """Failures of the lines that hold no answer and, where ``known`` is the whole dataset, of answers to no meme."""
    if given is None:
        return []
    strangers = [] if known is None else [name for name in given.ids if name not in known]
    reason = f"{given.name!r} answers a meme that is not in the dataset; correct its id"
    return [*given.failures, *(Failure(meme_id=name, stage="read", reason=reason) for name in strangers)]


def _store(
    writer: RunWriter,
    done: set[tuple[str, Mode | None]],
    counts: dict[str, int],
    record: Prediction | Failure | None,
    explanations: Sequence[Explanation],
    failures: Sequence[Failure],
    meme: Meme | None,
) -> None:
    """Add one meme and mode unless an earlier start of the run has it."""
    first = record or failures[0]
    if (first.meme_id, first.mode) in done:
        counts["resumed"] += 1
        return
    try:
        writer.add(record if isinstance(record, Prediction) else None, explanations, failures, meme=meme)
    except (ValueError, TypeError, RecursionError) as error:
        reason = f"it cannot be stored: {error}; correct the record or leave it out"
        failures = [Failure(meme_id=first.meme_id, mode=first.mode, stage="store", reason=reason)]
        writer.add(None, (), failures)
    counts["failed" if failures else "explained"] += 1


def _batches(records: Iterable[Meme | Failure], size: int) -> Iterator[list[Meme | Failure]]:
    iterator = iter(records)
    while batch := list(islice(iterator, size)):
        yield batch


def _task(task: str | Task) -> Task:
    return task if isinstance(task, Task) else load_task(task)


def _run_config(
    jobs: Sequence[Job],
    dataset: str | Path,
    given: GivenAnswers | None,
    batch_size: int,
    limit: int | None,
    text: TextSource,
) -> dict[str, Any]:
    """What decides the rows of a run; a run folder is only resumed under the same."""
    return jobs[0].config() | {
        "modes": [job.mode for job in jobs],
        "dataset": Path(dataset).name,
        "answers": None if given is None else {"file": given.name, "sha256": given.digest},
        "batch_size": batch_size,
        "limit": limit,
        "text": text,
        "seed": 0,
    }

"""Explains one batch of memes: of like length, halved where memory is too small, each failure that of one record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from xai.choice import StageError
from xai.given import GivenAnswers
from xai.jobs import Job
from xai.parts import Key, RowTables, row_tables
from xai.pictures import size_of_file
from xai.prompts import EncodedPrompt
from xai.schema import Explanation, Failure, Meme, Mode, Prediction, Stage


@dataclass(frozen=True)
class Batch:
    """Memes that are answered at once, with their prompts, which may be on the way; those of ``wanted`` are explained.

    All are answered even where few are wanted, since the last digits of an answer depend on its batch.
    """

    job: Job
    memes: Sequence[Meme]
    prompts: Sequence[Future[EncodedPrompt | Failure] | EncodedPrompt | Failure]
    wanted: Collection[str]


class Halved(NamedTuple):
    """How often memory was too small for a batch."""

    times: int


@dataclass(frozen=True)
class Row:
    """Everything about one meme in one mode, as it is stored."""

    key: Key
    tables: RowTables
    failed: bool


def like_length(memes: Sequence[Meme], mode: Mode, size: int) -> list[list[Meme]]:
    """Batches of memes whose prompts have about the same length, the longest first; little of them is padding."""
    lengths = {meme.id: _expected_length(meme, mode) for meme in memes}
    ordered = sorted(memes, key=lambda meme: -lengths[meme.id])
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def _expected_length(meme: Meme, mode: Mode) -> float:
    """About how many tokens there are of a meme: a token for four characters, and for 28 × 28 pixels."""
    length = len(meme.text) / 4 if mode != "image" else 0.0
    if mode != "text" and isinstance(meme.image, Path):
        width, height = size_of_file(meme.image) or (0, 0)  # what is wrong with it shows when it is opened
        length += width * height / 28**2
    return length


def explain_batch(batch: Batch, given: GivenAnswers | None = None) -> Iterator[Row | Halved]:
    """The rows of a batch, one a meme that is wanted, as they are made; first, how often the batch was halved, if so.

    Raises:
        torch.AcceleratorError: the device failed, and no record did.
    """
    job = batch.job
    prompts = {
        meme.id: found.result() if isinstance(found, Future) else found
        for meme, found in zip(batch.memes, batch.prompts, strict=True)
    }
    readable = [meme for meme in batch.memes if isinstance(prompts[meme.id], EncodedPrompt)]
    if given is None:
        encodings = [one for one in prompts.values() if isinstance(one, EncodedPrompt)]
        answers, halved = answered(job, readable, encodings)
        if halved:
            yield Halved(halved)
    else:
        answers = {meme.id: _given(job, meme, given) for meme in readable}
    for meme in batch.memes:
        if meme.id in batch.wanted:
            yield _row(job, meme, prompts[meme.id], answers.get(meme.id))


def encoded(job: Job, meme: Meme) -> EncodedPrompt | Failure:
    """The prompt of a meme, or why there is none."""
    try:
        return job.encode(meme)
    except Exception as error:
        return _failure(job, meme, "read", error)


def answered(
    job: Job, memes: Sequence[Meme], prompts: Sequence[EncodedPrompt]
) -> tuple[dict[str, Prediction | Failure], int]:
    """Answers by meme, and how often memory ran out: then the batch is halved; else its memes are tried one by one."""
    if not memes:
        return {}, 0
    try:
        return {prediction.meme_id: prediction for prediction in job.answer(memes, prompts)}, 0
    except Exception as error:
        _refuse_broken_device(error)
        if len(memes) == 1:
            return {memes[0].id: _failure(job, memes[0], "predict", error)}, 0
        no_memory = is_out_of_memory(error)
    # Outside of the handler, whose error would keep the tensors of the failed attempt.
    if no_memory and torch.cuda.is_available():
        torch.cuda.empty_cache()
    size = (len(memes) + 1) // 2 if no_memory else 1
    answers: dict[str, Prediction | Failure] = {}
    halved = int(no_memory)
    for start in range(0, len(memes), size):
        some, times = answered(job, memes[start : start + size], prompts[start : start + size])
        answers, halved = answers | some, halved + times
    return answers, halved


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on whatever device."""
    said = str(error).lower()
    of_host = isinstance(error, RuntimeError) and ("can't allocate memory" in said or "not enough memory" in said)
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or of_host


def _refuse_broken_device(error: Exception) -> None:
    """Stop where a device failed: nothing that runs on it afterwards can be trusted, and each record would fail."""
    if isinstance(error, torch.AcceleratorError):
        raise error


def _given(job: Job, meme: Meme, given: GivenAnswers) -> Prediction | Failure:
    try:
        found = given.find(meme.id, job.mode)
        if found.generated_ids:
            return job.given(meme, found.generated_ids, found.text)
        return job.given(meme, found.text or "")
    except Exception as error:
        return _failure(job, meme, "predict", error)


def _row(job: Job, meme: Meme, prompt: EncodedPrompt | Failure, answer: Prediction | Failure | None) -> Row:
    """Explain one answer; whatever goes wrong is the failure of this record."""
    key = (meme.id, job.mode)
    prediction = answer if isinstance(answer, Prediction) else None
    explanations: list[Explanation] = []
    failures = [problem for problem in (prompt, answer) if isinstance(problem, Failure)]
    if prediction and isinstance(prompt, EncodedPrompt):
        meme = prompt.shown(meme)  # as the model was asked about it
        try:
            explanations = job.explain(meme, prompt, prediction)
        except Exception as error:
            _refuse_broken_device(error)
            failures = [_failure(job, meme, error.stage if isinstance(error, StageError) else "attribute", error)]
    try:
        return Row(key, row_tables(prediction, explanations, failures, meme), bool(failures))
    except (ValueError, TypeError, RecursionError) as error:
        reason = f"it cannot be stored: {error}; correct the record or leave it out"
        failure = Failure(meme_id=meme.id, mode=job.mode, stage="store", reason=reason)
        return Row(key, row_tables(None, (), [failure], None), True)


def died(job: Job, meme: Meme, times: int) -> Row:
    """The row of a meme that took its process along so many times."""
    reason = (
        f"the worker died {times} times while it was at this meme, mostly for want of memory; "
        "make its picture and text smaller, or give workers more memory"
    )
    failure = Failure(meme_id=meme.id, mode=job.mode, stage="attribute", reason=reason)
    return Row((meme.id, job.mode), row_tables(None, (), [failure], None), failed=True)


def _failure(job: Job, meme: Meme, stage: Stage, error: Exception) -> Failure:
    reason = str(error) or type(error).__name__
    if is_out_of_memory(error):
        reason = (
            f"memory ran out ({reason.splitlines()[0]}); make the picture smaller or load the model in a smaller dtype"
        )
    elif not isinstance(error, (ValueError, RuntimeError)):
        reason = f"{type(error).__name__}: {reason}"
    return Failure(meme_id=meme.id, mode=job.mode, stage=stage, reason=reason)

"""Explains memes end to end: predict, attribute, align, store; one meme in a notebook or a whole dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from xai.attribution.align import word_relevance, words_of
from xai.attribution.methods import get_method
from xai.attribution.relevance import Relevance
from xai.attribution.targets import Target, all_labels, label_targets, token_offsets
from xai.datasets import read_memes
from xai.models import VisionLanguageModel
from xai.prompts import NOWHERE, EncodedPrompt, PromptStyle, Span, encode_prompt
from xai.schema import (
    ALL_LABELS,
    SEGMENTS,
    Explanation,
    Failure,
    Meme,
    Mode,
    Prediction,
    Quality,
    Segment,
    Stage,
    TokenTable,
)
from xai.store import RunWriter
from xai.tasks import Task, load_task
from xai.tasks.answers import parse_answer

Targets = Literal["all", "each"]


class StageError(ValueError):
    """A record failed at a stage that is known; the message says what to do."""

    def __init__(self, stage: Stage, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


@dataclass(frozen=True)
class RunSummary:
    """What a run came to: memes × modes explained, failed, and left from an earlier start."""

    explained: int
    failed: int
    resumed: int


@dataclass(frozen=True)
class _Job:
    """One question to one model: everything about an explanation but the meme."""

    model: VisionLanguageModel
    task: Task
    mode: Mode
    style: PromptStyle
    method: str = "attnlrp"
    options: Mapping[str, Any] = field(default_factory=dict)
    max_new_tokens: int = 512

    def check_prompt(self) -> None:
        """Refuse at once a mode, language or variant that the task does not have."""
        self.task.instruction(self.mode, self.style.language, self.style.variant, self.style.with_none)

    def encode(self, meme: Meme) -> EncodedPrompt:
        return encode_prompt(self.model.processor, self.task, meme, self.mode, self.style)


def explain(
    model: VisionLanguageModel,
    meme: Meme,
    *,
    task: str | Task = "ukrmeme",
    mode: Mode = "image+text",
    method: str = "attnlrp",
    target: str = ALL_LABELS,
    style: PromptStyle | None = None,
    max_new_tokens: int = 512,
    **options: Any,
) -> Explanation:
    """Let the model label one meme and explain the labels that it wrote.

    Args:
        target: a label of the answer, or ``"*"`` for all of them together.
        method: a name from ``xai methods``; ``options`` go to it.
        style: prompt language and variant; the model's own by default.

    Raises:
        ValueError: the meme lacks what the mode needs, the answer holds no label to explain, or a name is unknown.
    """
    (prediction,) = predict(model, [meme], task=task, mode=mode, style=style, max_new_tokens=max_new_tokens)
    wanted: Targets = "all" if target == ALL_LABELS else "each"
    explanations = explain_answer(
        model, meme, prediction, task=task, method=method, targets=wanted, style=style, **options
    )
    for explanation in explanations:
        if explanation.target == target:
            return explanation
    raise ValueError(f"the model did not answer {target!r} for meme {meme.id!r}; it answered {prediction.labels}")


def explain_answer(
    model: VisionLanguageModel,
    meme: Meme,
    prediction: Prediction,
    *,
    task: str | Task = "ukrmeme",
    method: str = "attnlrp",
    targets: Targets = "each",
    style: PromptStyle | None = None,
    **options: Any,
) -> list[Explanation]:
    """Explain an answer that the model gave already, by the ids that it generated: all labels together, then each.

    Raises:
        ValueError: the answer holds no label to explain, or a name is unknown.
    """
    job = _Job(model, _task(task), prediction.mode, style or model.style, method, options)
    return _explain_answer(job, meme, job.encode(meme), prediction, targets)


def predict(
    model: VisionLanguageModel,
    memes: Sequence[Meme],
    *,
    task: str | Task = "ukrmeme",
    mode: Mode = "image+text",
    style: PromptStyle | None = None,
    batch_size: int = 16,
    max_new_tokens: int = 512,
) -> list[Prediction]:
    """The model's answers to memes, in their order, without explanations.

    Raises:
        ValueError: a meme lacks what the mode needs.
    """
    job = _Job(model, _task(task), mode, style or model.style, max_new_tokens=max_new_tokens)
    predictions: list[Prediction] = []
    for start in range(0, len(memes), batch_size):
        batch = memes[start : start + batch_size]
        predictions += _answer(job, batch, [job.encode(meme) for meme in batch])
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
    style: PromptStyle | None = None,
    images: Path | None = None,
    batch_size: int = 8,
    limit: int | None = None,
    max_new_tokens: int = 512,
    on_progress: Callable[[int], None] = lambda done: None,
    **options: Any,
) -> RunSummary:
    """Explain every meme of a dataset into a run folder; started again, it goes on where it stopped.

    A record that cannot be read, answered or attributed becomes a failure of the run and nothing else is lost.
    Batches are formed by position in the dataset, also on resuming, so that a stopped run ends with the same rows.

    Args:
        dataset: JSONL, CSV, Parquet or a folder of pictures (see ``xai.datasets``).
        targets: ``"each"`` stores every label of an answer and all together, ``"all"`` only the latter.
        on_progress: called with the number of memes finished since the last call.

    Raises:
        ValueError: the dataset or the run folder cannot be used as a whole.
    """
    chosen, style = _task(task), style or model.style
    jobs = [_Job(model, chosen, mode, style, method, options, max_new_tokens) for mode in modes]
    get_method(method)
    for job in jobs:
        job.check_prompt()
    config = _run_config(jobs, dataset, targets, batch_size, limit)
    counts = {"explained": 0, "failed": 0, "resumed": 0}
    with RunWriter(out, config) as writer:
        done = writer.done()
        for batch in _batches(islice(read_memes(dataset, images=images), limit), batch_size):
            for record in batch:
                if isinstance(record, Failure):
                    _store(writer, done, counts, record, (), (record,), None)
            memes = [record for record in batch if isinstance(record, Meme)]
            for job in jobs:
                if any((meme.id, job.mode) not in done for meme in memes):
                    for meme, prediction, explanations, failures in _explain_batch(job, memes, targets):
                        _store(writer, done, counts, prediction, explanations, failures, meme)
                else:
                    counts["resumed"] += len(memes)
            on_progress(len(batch))
    return RunSummary(**counts)


Row = tuple[Meme, Prediction | None, list[Explanation], list[Failure]]


def _explain_batch(job: _Job, memes: Sequence[Meme], targets: Targets) -> Iterator[Row]:
    """Answer a batch at once and explain each answer; whatever fails is a failure of its own record."""
    prompts: dict[str, EncodedPrompt] = {}
    failures: dict[str, Failure] = {}
    for meme in memes:
        try:
            prompts[meme.id] = job.encode(meme)
        except ValueError as error:
            failures[meme.id] = Failure(meme_id=meme.id, mode=job.mode, stage="read", reason=str(error))
    readable = [meme for meme in memes if meme.id in prompts]
    answers = _answer(job, readable, list(prompts.values())) if readable else []
    predictions = {prediction.meme_id: prediction for prediction in answers}
    for meme in memes:
        if meme.id in failures:
            yield meme, None, [], [failures[meme.id]]
            continue
        prediction = predictions[meme.id]
        try:
            yield meme, prediction, _explain_answer(job, meme, prompts[meme.id], prediction, targets), []
        except (ValueError, RuntimeError) as error:
            stage = error.stage if isinstance(error, StageError) else "attribute"
            reason = str(error) or type(error).__name__
            yield meme, prediction, [], [Failure(meme_id=meme.id, mode=job.mode, stage=stage, reason=reason)]


def _answer(job: _Job, memes: Sequence[Meme], prompts: Sequence[EncodedPrompt]) -> list[Prediction]:
    answers = job.model.generate(prompts, job.max_new_tokens)
    return [_prediction(job, meme, ids) for meme, ids in zip(memes, answers, strict=True)]


def _prediction(job: _Job, meme: Meme, generated_ids: tuple[int, ...]) -> Prediction:
    text, _ = token_offsets(job.model.processor.tokenizer, generated_ids)
    answer = parse_answer(job.task, text, job.mode)
    return Prediction(meme_id=meme.id, mode=job.mode, generated_ids=generated_ids, text=text, **dict(answer))


def _explain_answer(
    job: _Job, meme: Meme, prompt: EncodedPrompt, prediction: Prediction, wanted: Targets
) -> list[Explanation]:
    """Explanations of one answer: all labels together first, then each label where asked for."""
    located, missing = _label_targets(job, prompt, prediction)
    targets = [all_labels(located)] + (located if wanted == "each" else [])
    inputs = _with_answer(prompt, prediction.generated_ids)
    with job.model.lock:
        results = get_method(job.method)(job.model.model, inputs, targets, **job.options)
    return [_explanation(job, meme, prompt, prediction, result, missing) for result in results]


def _label_targets(job: _Job, prompt: EncodedPrompt, prediction: Prediction) -> tuple[list[Target], tuple[str, ...]]:
    if prediction.parse == "unparsed":
        raise StageError(
            "predict", f"the answer could not be read: {prediction.parse_note}; see its raw text in the run"
        )
    found = label_targets(
        job.model.processor.tokenizer,
        prediction.generated_ids,
        prediction.text,
        prediction.label_spans,
        prompt_length=len(prompt),
    )
    located = [target for target in found if target.located]
    if not located:
        raise StageError("predict", "the answer names no label of the task, so there is nothing to explain")
    names = {target.name for target in located}
    return located, tuple(label for label in prediction.labels if label not in names)


def _with_answer(prompt: EncodedPrompt, generated_ids: Sequence[int]) -> dict[str, torch.Tensor]:
    """The prompt followed by exactly the ids that were generated."""
    ids = torch.tensor([list(generated_ids)])
    added = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": torch.zeros_like(ids)}
    return {
        name: torch.cat([tensor, added[name]], dim=1) if name in added else tensor
        for name, tensor in prompt.inputs.items()
    }


def _explanation(
    job: _Job,
    meme: Meme,
    prompt: EncodedPrompt,
    prediction: Prediction,
    result: Relevance,
    missing: tuple[str, ...],
) -> Explanation:
    tokens = _token_table(job, prompt, prediction, result.tokens)
    in_text = [index for index, segment in enumerate(tokens.segment) if segment == "text"]
    spans = [(tokens.start[index], tokens.end[index]) for index in in_text]
    words = words_of(meme.text, meme.words) if job.mode != "image" else ()
    return Explanation(
        meme=meme,
        prediction=prediction,
        mode=job.mode,
        method=job.method,
        target=result.target.name,
        target_kind=result.target.kind,
        target_value=result.value,
        token_table=tokens,
        word_table=word_relevance(words, spans, result.tokens[in_text]),
        image_levels=result.image_grid,
        image_size=prompt.image_size,
        shares=_shares(tokens),
        quality=_quality(tokens, result, prediction, missing),
        config=_job_config(job),
    )


def _token_table(job: _Job, prompt: EncodedPrompt, prediction: Prediction, relevance: np.ndarray) -> TokenTable:
    tokenizer = job.model.processor.tokenizer
    text, offsets = token_offsets(tokenizer, prediction.generated_ids)
    answer = [
        text[start:end] or str(tokenizer.convert_ids_to_tokens(int(token)))
        for token, (start, end) in zip(prediction.generated_ids, offsets, strict=True)
    ]
    answer_spans: list[Span] = [(start, end) if end > start else NOWHERE for start, end in offsets]
    spans = [*prompt.text_spans, *answer_spans]
    answer_segments: list[Segment] = ["answer"] * len(answer)
    return TokenTable(
        token=(*prompt.tokens, *answer),
        start=tuple(start for start, _ in spans),
        end=tuple(end for _, end in spans),
        segment=(*prompt.segments, *answer_segments),
        relevance=tuple(relevance.tolist()),
    )


def _shares(tokens: TokenTable) -> dict[Segment, float]:
    values, segments = np.array(tokens.relevance), np.array(tokens.segment)
    return {segment: float(values[segments == segment].sum()) for segment in SEGMENTS}


def _quality(tokens: TokenTable, result: Relevance, prediction: Prediction, missing: tuple[str, ...]) -> Quality:
    if result.non_finite:
        raise StageError(
            "attribute",
            f"{result.non_finite} relevance values are NaN or infinite; load the model in a wider dtype (float32)",
        )
    size = np.abs(np.array(tokens.relevance))
    template = np.array(tokens.segment) == "template"
    total = float(size.sum()) or 1.0
    return Quality(
        conservation=result.total / result.value if result.value else None,
        sink_share=float(size[0]) / total,
        template_share=float(size[template].sum()) / total,
        labels_located=len(prediction.labels) - len(missing),
        labels_missing=missing,
    )


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
    counts["failed" if failures else "explained"] += 1
    writer.add(record if isinstance(record, Prediction) else None, explanations, failures, meme=meme)


def _batches(records: Iterable[Meme | Failure], size: int) -> Iterator[list[Meme | Failure]]:
    iterator = iter(records)
    while batch := list(islice(iterator, size)):
        yield batch


def _task(task: str | Task) -> Task:
    return task if isinstance(task, Task) else load_task(task)


def _job_config(job: _Job) -> dict[str, Any]:
    return {
        "task": job.task.name,
        "task_version": job.task.version,
        "prompt": asdict(job.style),
        "method": job.method,
        "options": dict(job.options),
        "max_new_tokens": job.max_new_tokens,
        "model": job.model.describe(),
    }


def _run_config(
    jobs: Sequence[_Job], dataset: str | Path, targets: Targets, batch_size: int, limit: int | None
) -> dict[str, Any]:
    """What decides the rows of a run; a run folder is only resumed under the same."""
    return _job_config(jobs[0]) | {
        "modes": [job.mode for job in jobs],
        "dataset": Path(dataset).name,
        "targets": targets,
        "batch_size": batch_size,
        "limit": limit,
        "seed": 0,
    }

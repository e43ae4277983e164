"""One question to one model about one meme: encode, answer, attribute, align."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from xai.attribution.align import word_relevance, words_of
from xai.attribution.methods import get_method
from xai.attribution.relevance import Relevance
from xai.attribution.targets import Target, all_labels, label_targets, token_offsets
from xai.models import VisionLanguageModel
from xai.prompts import NOWHERE, EncodedPrompt, PromptStyle, Span, encode_prompt
from xai.schema import SEGMENTS, Explanation, Meme, Mode, Prediction, Quality, Segment, Stage, TokenTable
from xai.tasks import Task
from xai.tasks.answers import parse_answer

Targets = Literal["all", "each"]
"""Explain all labels of an answer together, or that and every label alone."""


class StageError(ValueError):
    """A record failed at a stage that is known; the message says what to do."""

    def __init__(self, stage: Stage, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


@dataclass(frozen=True)
class Job:
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
        """The prompt of one meme; raises ValueError when the meme lacks what the mode needs."""
        return encode_prompt(self.model.processor, self.task, meme, self.mode, self.style)

    def answer(self, memes: Sequence[Meme], prompts: Sequence[EncodedPrompt]) -> list[Prediction]:
        """Let the model answer a batch."""
        answers = self.model.generate(prompts, self.max_new_tokens)
        return [_prediction(self, meme, ids) for meme, ids in zip(memes, answers, strict=True)]

    def explain(self, meme: Meme, prompt: EncodedPrompt, prediction: Prediction, wanted: Targets) -> list[Explanation]:
        """Explanations of one answer: all labels together first, then each label where asked for.

        Raises:
            StageError: the answer cannot be read or names no label, or relevance is not finite.
        """
        located, missing = _label_targets(self, prompt, prediction)
        targets = [all_labels(located)] + (located if wanted == "each" else [])
        inputs = _with_answer(prompt, prediction.generated_ids)
        with self.model.lock:
            results = get_method(self.method)(self.model.model, inputs, targets, **self.options)
        return [_explanation(self, meme, prompt, prediction, result, missing) for result in results]

    def config(self) -> dict[str, Any]:
        """What decides the explanations, in JSON values."""
        return {
            "task": self.task.name,
            "task_version": self.task.version,
            "prompt": asdict(self.style),
            "method": self.method,
            "options": dict(self.options),
            "max_new_tokens": self.max_new_tokens,
            "model": self.model.describe(),
        }


def _prediction(job: Job, meme: Meme, generated_ids: tuple[int, ...]) -> Prediction:
    text, _ = token_offsets(job.model.processor.tokenizer, generated_ids)
    answer = parse_answer(job.task, text, job.mode)
    return Prediction(meme_id=meme.id, mode=job.mode, generated_ids=generated_ids, text=text, **dict(answer))


def _label_targets(job: Job, prompt: EncodedPrompt, prediction: Prediction) -> tuple[list[Target], tuple[str, ...]]:
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
    job: Job,
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
        config=job.config(),
    )


def _token_table(job: Job, prompt: EncodedPrompt, prediction: Prediction, relevance: np.ndarray) -> TokenTable:
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

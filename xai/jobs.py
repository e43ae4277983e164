"""One question to one model about one meme: encode, answer, attribute, align."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from xai.attribution.align import text_relevance, token_shares, word_relevance, words_of
from xai.attribution.families import family_of, input_embeddings, refuse_unusable_weights
from xai.attribution.inputs import borrow
from xai.attribution.methods import get_method
from xai.attribution.methods.attention import eager_attention
from xai.attribution.patching import ATTENTION_NAMES, audit_model
from xai.attribution.relevance import SCOPES, Relevance, forward_logits
from xai.attribution.targets import encode_answer, token_offsets
from xai.choice import StageError, TargetChoice
from xai.given import Answer
from xai.limits import DEFAULT_LIMITS, Limits
from xai.models import VisionLanguageModel
from xai.parts import to_json
from xai.prompts import NOWHERE, EncodedPrompt, PromptStyle, Span, append_ids, encode_prompt
from xai.schema import (
    SEGMENTS,
    AnswerSource,
    Explanation,
    Meme,
    Mode,
    Prediction,
    Quality,
    Segment,
    TokenTable,
    Word,
    WordTable,
)
from xai.tasks import Task
from xai.tasks.answers import parse_answer, parser_of


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
    choice: TargetChoice = field(default_factory=TargetChoice)
    limits: Limits = DEFAULT_LIMITS

    def check(self) -> None:
        """Refuse at once what no meme can satisfy: method, option, mode, prompt, kind of target, room, or the model.

        Raises:
            ValueError: the message says what there is.
            UnsupportedModelError: the model is quantised, or has a module that the method has no rule for (named).
        """
        get_method(self.method).check_options(self.options)
        self.model.reader.check(self.mode)
        _refuse_unsupported(self)
        self.task.instruction(self.mode, self.style.language, self.style.variant, self.style.with_none)
        parser_of(self.task)
        self.choice.check(self.task)
        self.limits.room(self.context, self.max_new_tokens)

    @property
    def context(self) -> int | None:
        """Tokens that the model takes in all, as its configuration says; ``None`` if it does not."""
        config: Any = self.model.model.config
        length: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)
        return length

    def encode(self, meme: Meme) -> EncodedPrompt:
        """The prompt of one meme, its text cut if it is too long.

        Raises:
            ValueError: the meme lacks what the mode needs, or is too large for the limits.
        """
        room = self.limits.room(self.context, self.max_new_tokens)
        return encode_prompt(self.model.processor, self.task, meme, self.mode, self.style, self.limits, room)

    def answer(self, memes: Sequence[Meme], prompts: Sequence[EncodedPrompt]) -> list[Prediction]:
        """Let the model answer a batch."""
        answers = self.model.generate_scored(prompts, self.max_new_tokens)
        return [
            _prediction(
                self, meme, answer.ids, "generated", log_probability=answer.log_probability, batch_size=len(memes)
            )
            for meme, answer in zip(memes, answers, strict=True)
        ]

    def given(self, meme: Meme, answer: Answer, text: str | None = None) -> Prediction:
        """An answer that the model did not give in this job, as if it had been: by its ids, or by its text.

        Args:
            answer: token ids, used as they are; or a text, which is tokenised and flagged as such.
            text: what the ids are said to mean, for a check.

        Raises:
            ValueError: no token, ids that the model does not have, or ids that mean another text.
        """
        tokenizer = self.model.processor.tokenizer
        source: AnswerSource = "given_text" if isinstance(answer, str) else "given_ids"
        ids = encode_answer(tokenizer, answer) if isinstance(answer, str) else [int(token) for token in answer]
        _check_ids(self.model, ids)
        prediction = _prediction(self, meme, tuple(ids), source)
        meant = {prediction.text.strip(), tokenizer.decode(ids, skip_special_tokens=False).strip()}
        if text is not None and text.strip() not in meant:
            raise ValueError(
                f"the ids of the answer for meme {meme.id!r} mean {prediction.text[:60]!r} to this model and not "
                f"{text[:60]!r}; are they another tokenizer's? Give the text alone to have it tokenised anew"
            )
        return prediction

    def explain(self, meme: Meme, prompt: EncodedPrompt, prediction: Prediction) -> list[Explanation]:
        """Explanations of one answer: all labels together first, then each label where asked for.

        They are of the meme as the prompt has it, with its text cut where the prompt's is.

        Raises:
            StageError: the answer cannot be read or names no label, or relevance is not finite.
            ValueError: the answer does not have the label or span that is asked for, or leaves the model's context.
        """
        meme = prompt.shown(meme)
        n_tokens = len(prompt) + len(prediction.generated_ids)
        if self.context is not None and n_tokens > self.context:
            raise ValueError(
                f"prompt and answer have {n_tokens:,} tokens and the model's context {self.context:,}; allow fewer "
                "with max_tokens"
            )
        tokenizer = self.model.processor.tokenizer
        task, style = self.task, self.style
        targets, missing = self.choice.located(tokenizer, prediction, task, len(prompt), with_none=style.with_none)
        inputs = inputs_of_answer(prompt, prediction.generated_ids)
        method, units = get_method(self.method), self._units(meme, prompt)
        with self.model.lock:
            results = method(self.model.model, inputs, targets, **units, **self.options)
            changed = _changed_choices(self, inputs, prediction, results)
        settings = {"units": "words"} if units else {}
        return [
            _explanation(self, meme, prompt, prediction, result, settings, missing, n_changed)
            for result, n_changed in zip(results, changed, strict=True)
        ]

    def config(self) -> dict[str, Any]:
        """What decides the explanations, in JSON values."""
        return {
            "task": self.task.name,
            "task_version": self.task.version,
            "prompt": asdict(self.style),
            "method": self.method,
            "options": get_method(self.method).complete(self.options),
            "target": self.choice.config(),
            "max_new_tokens": self.max_new_tokens,
            "limits": asdict(self.limits),
            "model": self.model.describe(),
        }

    def _units(self, meme: Meme, prompt: EncodedPrompt) -> dict[str, Any]:
        """The words as ``groups``, for a method that takes the text apart and was not told into what."""
        takes = inspect.signature(get_method(self.method).function).parameters
        if "groups" not in takes or "groups" in self.options:
            return {}
        words = words_of(meme.text, meme.words) if self.mode != "image" else ()
        return {"groups": word_groups(words, prompt)}


def _refuse_unsupported(job: Job) -> None:
    """Refuse a model that the method cannot be used on."""
    model = job.model.model
    if job.method in ATTENTION_NAMES:
        audit_model(model)
    else:
        family_of(model)
        refuse_unusable_weights(model)


def word_groups(words: Sequence[Word], prompt: EncodedPrompt) -> list[list[int]]:
    """The tokens of each word as indices in the prompt; words that share a token are one group.

    A token that holds parts of two words can only be replaced whole. Words without a token are left out, and
    so are tokens between words.
    """
    indices = [index for index, segment in enumerate(prompt.segments) if segment == "text"]
    spans = np.array([prompt.text_spans[index] for index in indices], dtype=np.int64).reshape(-1, 2)
    token, word, _ = token_shares(words, spans)
    group_of: dict[int, set[int]] = {}
    for index in range(len(words)):
        group = {indices[place] for place in token[word == index].tolist()}
        group.update(*(group_of[position] for position in group if position in group_of))
        group_of.update(dict.fromkeys(group, group))
    return sorted({id(group): sorted(group) for group in group_of.values()}.values())


def _prediction(
    job: Job,
    meme: Meme,
    generated_ids: tuple[int, ...],
    source: AnswerSource,
    *,
    log_probability: float | None = None,
    batch_size: int | None = None,
) -> Prediction:
    described = job.model.describe() if source == "generated" else {}
    text, _ = token_offsets(job.model.processor.tokenizer, generated_ids)
    answer = parse_answer(job.task, text, job.mode)
    return Prediction(
        meme_id=meme.id,
        mode=job.mode,
        generated_ids=generated_ids,
        text=text,
        answer_source=source,
        attention=described.get("attention"),
        dtype=described.get("dtype"),
        log_probability=log_probability,
        batch_size=batch_size,
        **dict(answer),
    )


def _check_ids(model: VisionLanguageModel, ids: Sequence[int]) -> None:
    n_tokens = input_embeddings(model.model).weight.shape[0]
    if not ids:
        raise ValueError("the answer has no token; give its text or its token ids")
    unknown = [token for token in ids if not 0 <= token < n_tokens]
    if unknown:
        raise ValueError(
            f"the answer has tokens {unknown[:8]}, but the model has {n_tokens}; are they of its tokenizer?"
        )
    placeholder = model.reader.image_token_id
    if placeholder in ids:
        token = model.processor.tokenizer.convert_ids_to_tokens(placeholder)
        raise ValueError(f"the answer holds the image placeholder {token!r}; leave it out")


def inputs_of_answer(prompt: EncodedPrompt, generated_ids: Sequence[int]) -> dict[str, torch.Tensor]:
    """The prompt followed by exactly the ids that were generated."""
    return append_ids(prompt.inputs, generated_ids)


def _changed_choices(
    job: Job, inputs: Mapping[str, torch.Tensor], prediction: Prediction, results: Sequence[Relevance]
) -> list[int | None]:
    """For each result, at how many target tokens the model, as it explains, would have chosen another token.

    ``None`` where it chose them itself with the same attention and dtype, so that there is nothing to ask.
    """
    attention, scope = _explaining(job)
    if (prediction.attention, prediction.dtype) == (attention, job.model.describe()["dtype"]):
        return [None] * len(results)
    targets = [result.target for result in results]
    with borrow(job.model.model, inputs, targets, gradients=False) as (_, batch), scope:
        best = forward_logits(job.model.model, batch).argmax(dim=-1).tolist()
    chosen = dict(zip(batch.predicted, best, strict=True))
    return [
        sum(chosen[position] != token for position, token in zip(one.positions, one.token_ids, strict=True))
        for one in targets
    ]


def _explaining(job: Job) -> tuple[str, AbstractContextManager[object]]:
    """The attention that the method computes with, and what brings the model there: LRP wraps sdpa."""
    model, method = job.model.model, get_method(job.method)
    if method.name in ATTENTION_NAMES:
        return "sdpa", SCOPES[method.name](model)
    if "attention weights" in method.needs:
        return "eager", eager_attention(model)
    return job.model.describe()["attention"], nullcontext()


def _explanation(
    job: Job,
    meme: Meme,
    prompt: EncodedPrompt,
    prediction: Prediction,
    result: Relevance,
    settings: Mapping[str, object],
    missing: tuple[str, ...],
    n_changed: int | None,
) -> Explanation:
    tokens = _token_table(job, prompt, prediction, result.tokens)
    in_text = [index for index, segment in enumerate(tokens.segment) if segment == "text"]
    spans = [(tokens.start[index], tokens.end[index]) for index in in_text]
    return Explanation(
        meme=meme,
        prediction=prediction,
        mode=job.mode,
        method=job.method,
        target=result.target.name,
        target_kind=result.target.kind,
        target_positions=result.target.positions,
        target_token_ids=result.target.token_ids,
        contrast_ids=result.target.contrast_ids,
        contrast=result.target.contrast,
        target_value=result.value,
        baseline_value=result.baseline_value,
        # As they come back from a run: JSON knows neither tuples nor numpy.
        settings=json.loads(to_json({**settings, **result.settings})),
        token_table=tokens,
        word_table=_word_table(job, meme, spans, result.tokens[in_text]),
        # The pictures of examples come before the meme's own.
        image_levels=result.picture_grid(-1) if prompt.grid is not None else None,
        pixels=result.pixel_grids[-1] if result.pixel_grids else None,
        image_size=prompt.image_size,
        shares=_shares(tokens),
        example_shares=_example_shares(prompt, result.tokens),
        quality=_quality(tokens, result, prompt, prediction, missing, n_changed),
        config=job.config(),
    )


def _word_table(job: Job, meme: Meme, spans: Sequence[Span], relevance: np.ndarray) -> WordTable:
    if job.mode == "image":
        return word_relevance((), spans, relevance)
    if meme.words is None:
        return text_relevance(meme.text, spans, relevance)
    return word_relevance(meme.words, spans, relevance)


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
    """The sum of each segment; of a post and of examples only where there are any."""
    values, segments = np.array(tokens.relevance), np.array(tokens.segment)
    named = [name for name in SEGMENTS if name not in ("post", "examples") or name in tokens.segment]
    return {segment: float(values[segments == segment].sum()) for segment in named}


def _example_shares(prompt: EncodedPrompt, relevance: np.ndarray) -> tuple[float, ...]:
    numbers = np.array(prompt.examples, dtype=int)
    return tuple(float(relevance[: len(numbers)][numbers == one].sum()) for one in range(max(numbers, default=-1) + 1))


def _quality(
    tokens: TokenTable,
    result: Relevance,
    prompt: EncodedPrompt,
    prediction: Prediction,
    missing: tuple[str, ...],
    n_changed: int | None,
) -> Quality:
    if result.non_finite:
        raise StageError(
            "attribute",
            f"{result.non_finite} relevance values are NaN or infinite; load the model in a wider dtype (float32)",
        )
    size = np.abs(np.array(tokens.relevance))
    template = np.array(tokens.segment) == "template"
    total = float(size.sum()) or 1.0
    gained = result.value - result.baseline_value
    return Quality(
        conservation=result.total / gained if gained else None,
        sink_share=float(size[0]) / total,
        template_share=float(size[template].sum()) / total,
        labels_located=len(prediction.labels) - len(missing),
        labels_missing=missing,
        target_choice_changed=n_changed,
        position_share=result.position_share,
        characters_cut=prompt.characters_cut or None,
        picture_frames=prompt.n_frames if prompt.n_frames > 1 else None,
    )

"""Which quantities of an answer are explained: labels, together or alone, a lead over another label, or a span."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from xai.attribution.targets import (
    EncodingTokenizer,
    Target,
    TargetKind,
    all_labels,
    contrastive_target,
    label_targets,
    span_target,
)
from xai.schema import ALL_LABELS, Explanation, Prediction, Stage
from xai.tasks import Task

Targets = Literal["all", "each"]
"""Explain all labels of an answer together, or that and every label alone."""


class StageError(ValueError):
    """A record failed at a stage that is known; the message says what to do."""

    def __init__(self, stage: Stage, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


@dataclass(frozen=True)
class TargetChoice:
    """What of an answer is explained.

    Attributes:
        labels: ``all`` labels together only, or these and ``each`` label by itself. Leads have no sum, so
            ``each`` is each by itself then.
        label: this label by itself and nothing else.
        kind: what is made of the logits; see :class:`xai.attribution.targets.Target`.
        against: for ``contrastive``, the label to be contrasted with. By default it is the strongest of those that
            the answer could have in its place and does not give, chosen at the input as it is.
        span: these characters of the answer instead of labels, ``(start, end)``; the answer need not be readable.
    """

    labels: Targets = "each"
    label: str | None = None
    kind: TargetKind = "logit"
    against: str | None = None
    span: tuple[int, int] | None = None

    def check(self, task: Task) -> None:
        """Refuse at once what no answer can satisfy.

        Raises:
            ValueError: the message says what to give instead.
        """
        if self.kind not in get_args(TargetKind):
            raise ValueError(f"unknown kind of target {self.kind!r}; there are {', '.join(get_args(TargetKind))}")
        contrastive = self.kind == "contrastive"
        if self.against is not None and not contrastive:
            raise ValueError(f"a label to be contrasted with ({self.against!r}) needs the target kind 'contrastive'")
        if self.against is not None and self.against not in task.label_names:
            raise ValueError(
                f"task {task.name!r} has no label {self.against!r} to be contrasted with; "
                f"it has {', '.join(task.label_names)}"
            )
        if self.span is not None and (contrastive or self.label is not None):
            raise ValueError("a span is explained by logits or log-probabilities, without a label; leave out the rest")
        if contrastive and self.label is None and self.labels == "all":
            raise ValueError("contrastive targets have no sum; name one label, or ask for each")

    def located(
        self,
        tokenizer: EncodingTokenizer,
        prediction: Prediction,
        task: Task,
        prompt_length: int,
        *,
        with_none: bool = True,
    ) -> tuple[list[Target], tuple[str, ...]]:
        """The targets of one answer, all labels together first, and its labels that have no token of their own.

        Args:
            with_none: whether the prompt offers the label that says "none of these".

        Raises:
            StageError: the answer cannot be read, or has nothing of what is asked for.
            ValueError: the answer does not give the one label that is asked for, or the span reaches out of it.
        """
        if self.span is not None:
            return [self._span(tokenizer, prediction, prompt_length)], ()
        if prediction.parse == "unparsed":
            raise StageError(
                "predict",
                f"the answer could not be read: {prediction.parse_note}; see its raw text in the run, "
                "or explain a span of it",
            )
        if self.label is not None and self.label not in prediction.labels:
            verb = "did not answer" if prediction.answer_source == "generated" else "was not given the answer"
            raise ValueError(
                f"the model {verb} {self.label!r} for meme {prediction.meme_id!r}; "
                f"the answer names {', '.join(prediction.labels) or 'no label'}"
            )
        withheld = {None if with_none else task.none_label}
        each, missing = self._each(tokenizer, prediction, task, prompt_length, withheld)
        if not each:
            raise StageError("predict", self._nothing(prediction))
        together = [] if self.label is not None or self.kind == "contrastive" else [all_labels(each)]
        return together + (each if self.label is not None or self.labels == "each" else []), missing

    def config(self) -> dict[str, Any]:
        """The choice in JSON values."""
        return asdict(self) | {"span": None if self.span is None else list(self.span)}

    def _each(
        self,
        tokenizer: EncodingTokenizer,
        prediction: Prediction,
        task: Task,
        prompt_length: int,
        withheld: Collection[str | None],
    ) -> tuple[list[Target], tuple[str, ...]]:
        ids, text = prediction.generated_ids, prediction.text
        plain = "logit" if self.kind == "contrastive" else self.kind
        found = label_targets(tokenizer, ids, text, prediction.label_spans, prompt_length=prompt_length, kind=plain)
        names = {target.name for target in found if target.located}
        missing = tuple(label for label in prediction.labels if label not in names)
        wanted = [target for target in found if target.located and self.label in (None, target.name)]
        if self.kind != "contrastive":
            return wanted, missing
        spans = {span.label: span for span in reversed(prediction.label_spans)}
        leads = []
        for target in (one for one in wanted if one.name != self.against):
            others = (
                [name for name in task.alternatives(target.name) if name not in (*prediction.labels, *withheld)]
                if self.against is None
                else [self.against]
            )
            spelled = [task.label(name).spelling for name in others]
            lead = contrastive_target(tokenizer, ids, text, spans[target.name], spelled, prompt_length=prompt_length)
            leads.append(replace(lead, contrast=tuple(others)))
        return leads, missing

    def _span(self, tokenizer: EncodingTokenizer, prediction: Prediction, prompt_length: int) -> Target:
        assert self.span is not None
        start, end = self.span
        kind: Literal["logit", "log_probability"] = "log_probability" if self.kind == "log_probability" else "logit"
        return span_target(tokenizer, prediction.generated_ids, start, end, prompt_length=prompt_length, kind=kind)

    def _nothing(self, prediction: Prediction) -> str:
        if self.against is not None and prediction.labels:
            return f"the answer names {self.against!r} alone, which cannot be contrasted with itself"
        return "the answer names no label of the task, so there is nothing to explain"


def choice_of(target: str, kind: TargetKind, against: str | None, span: tuple[int, int] | None) -> TargetChoice:
    """The choice of one target by its name: a label, or ``"*"`` for all labels together."""
    return TargetChoice("all", None if target == ALL_LABELS else target, kind, against, span)


def target_of(explanation: Explanation) -> Target:
    """The quantity that an explanation is of, to be scored again on other inputs of the same prompt and answer."""
    return Target(
        name=explanation.target,
        positions=explanation.target_positions,
        token_ids=explanation.target_token_ids,
        kind=explanation.target_kind,  # type: ignore[arg-type]  # checked by Target
        contrast_ids=explanation.contrast_ids,
        contrast=explanation.contrast,
    )

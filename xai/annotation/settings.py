"""What a panel is asked and how it decides: everything that must stay the same while a panel's folder is filled."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, StrictStr, model_validator

from xai.annotation.cleaning import OTHER, Cleaning, load_cleaning
from xai.schema import Record
from xai.tasks import Task, load_task

PANEL = "panel"
"""The mode in which a record is shown with its post where it has one and the task's prompt takes it."""
EXPLICATED = {"m3": ("Hate",)}
"""Of which labels the explicator writes phrases, by task, where nobody says otherwise."""


class Rules(Record):
    """When the arbiter accepts, excludes, or hands a record to people; see :mod:`xai.annotation.arbiter`."""

    aligned_jaccard: float = Field(default=0.5, ge=0, le=1)
    aligned_confidence: float = Field(default=0.6, ge=0, le=1)
    hopeless_jaccard: float = Field(default=0.2, ge=0, le=1)
    hopeless_confidence: float = Field(default=0.5, ge=0, le=1)


class Votes(Record):
    """How many people vote on an accepted record, and how many in favour keep it."""

    validators: int = Field(default=3, ge=1)
    keep: int = Field(default=2, ge=1)

    @model_validator(mode="after")
    def _check_keep(self) -> Votes:
        if self.keep > self.validators:
            raise ValueError(
                f"{self.keep} votes in favour cannot come from {self.validators} validators; ask for fewer"
            )
        return self


class Asked(Record):
    """The question to the models: task, what they see, and the style of the prompt.

    ``variant`` is of the task's prompts; ``None``: that which suits a loaded model, and ``full`` for an endpoint.
    """

    task: StrictStr = "m3"
    mode: StrictStr = PANEL
    language: StrictStr = "en"
    variant: StrictStr | None = None
    with_none: bool = True
    max_new_tokens: int = Field(default=512, ge=1)


class Explicator(Record):
    """Who writes phrases, of which labels, and of how many words together; ``model``: an annotator by default."""

    model: StrictStr | None = None
    labels: tuple[StrictStr, ...] | None = None
    max_words: int = Field(default=30, ge=1)


class PanelSettings(Record):
    """All options of a panel.

    ``annotators`` are models as ``xai explain --model`` names them, or endpoints as ``http://host/v1#model``.
    ``ocr_engine`` and ``ocr_languages`` are as for :func:`xai.ocr.plan_ocr`, for pictures whose text is not given.
    """

    annotators: tuple[StrictStr, ...] = Field(min_length=2)
    asked: Asked = Asked()
    platform: StrictStr = OTHER
    cleaning: Cleaning = Field(default_factory=load_cleaning)
    ocr_engine: StrictStr = "auto"
    ocr_languages: tuple[StrictStr, ...] = ()
    rules: Rules = Rules()
    explicator: Explicator = Explicator()
    votes: Votes = Votes()

    @model_validator(mode="after")
    def _check_annotators(self) -> PanelSettings:
        twice = sorted({name for name in self.annotators if self.annotators.count(name) > 1})
        if twice:
            raise ValueError(f"annotator {twice[0]!r} is named twice, which would count its labels twice")
        return self

    @property
    def task(self) -> Task:
        """The task, from its name or file."""
        return load_task(self.asked.task)

    def resolved(self) -> PanelSettings:
        """The same with what is left open filled in from the task, and the task's file by its full path.

        Raises:
            ValueError: a label that the task does not have, or a platform without rules.
        """
        task = self.task
        if not self.cleaning.knows(self.platform):
            raise ValueError(
                f"there are no rules for platform {self.platform!r}; there is {', '.join(self.cleaning.platforms)}"
            )
        labels = EXPLICATED.get(task.name, ()) if self.explicator.labels is None else self.explicator.labels
        matched = {label: task.match_label(label) for label in labels}
        unknown = [label for label, name in matched.items() if name is None]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is no label of task {task.name!r}, so no phrases can be asked for it; its labels: "
                f"{', '.join(task.label_names)}"
            )
        named = tuple(dict.fromkeys(name for name in matched.values() if name is not None))
        explicator = self.explicator.model_copy(
            update={"labels": named, "model": self.explicator.model or self._first_endpoint()}
        )
        path = Path(self.asked.task)
        name = str(path.resolve()) if path.suffix in {".yaml", ".yml"} else self.asked.task
        return self.model_copy(update={"explicator": explicator, "asked": self.asked.model_copy(update={"task": name})})

    def _first_endpoint(self) -> str:
        """The first annotator behind an endpoint, which follows a free instruction sooner, or else the first."""
        return next((name for name in self.annotators if is_endpoint(name)), self.annotators[0])


def is_endpoint(name: str) -> bool:
    """Whether an annotator's name is the address of an endpoint."""
    return name.lower().startswith(("http://", "https://"))

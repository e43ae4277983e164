"""What a task is: its label tree, its prompts and its answer fields, read from one YAML file a task."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import Field, StrictInt, StrictStr, StringConstraints, ValidationError, model_validator

from xai.schema import Mode, Record

__all__ = ["AnswerFields", "Label", "Prompts", "Task", "load_task", "task_names"]

Name = Annotated[StrictStr, StringConstraints(min_length=1, pattern=r"^\S(.*\S)?$")]
Text = Annotated[StrictStr, StringConstraints(min_length=1)]
T = TypeVar("T")


def load_task(name_or_path: str | Path) -> Task:
    """The task of that name (see `task_names`), or the one in that YAML file.

    Raises:
        ValueError: there is no such task or file, or the file is not a valid task; the message names the field.
    """
    if isinstance(name_or_path, str) and name_or_path in task_names():
        return _shipped_task(name_or_path)
    path = Path(name_or_path)
    if path.suffix not in {".yaml", ".yml"}:
        raise ValueError(
            f"there is no task {str(name_or_path)!r}; give one of {', '.join(task_names())} or a YAML file"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"task file {path.name!r} cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise ValueError(f"task file {path.name!r} is not UTF-8; save it as UTF-8") from None
    return _parse_task(text, source=path.name)


def task_names() -> tuple[str, ...]:
    """The tasks that ship with the package."""
    files = (Path(entry.name) for entry in resources.files(__name__).iterdir())
    return tuple(sorted(file.stem for file in files if file.suffix == ".yaml"))


class Label(Record):
    """One label: ``ancestors`` is its path from the top of the tree, root left out; ``definition`` by language."""

    name: Name
    ancestors: tuple[Name, ...] = ()
    aliases: tuple[Name, ...] = ()
    definition: Mapping[Name, Text] = Field(default_factory=dict)


class Prompts(Record):
    """The instructions of one variant in one language.

    In ``modes``, ``{labels}`` stands for the list of labels with their definitions, and ``{none}`` for the
    sentence ``with_none`` or ``without_none``. ``caption`` follows wherever the meme's text is part of the prompt.
    """

    modes: Mapping[Mode, Text] = Field(min_length=1)
    caption: StrictStr = ""
    with_none: StrictStr = ""
    without_none: StrictStr | None = None
    """``None``: this variant always offers the label for "none of these"."""

    @model_validator(mode="after")
    def _check_caption(self) -> Prompts:
        if not self.caption and any("text" in mode for mode in self.modes):
            raise ValueError("caption: needed, since a mode with text must end with what introduces the meme's text")
        return self


class AnswerFields(Record):
    """The keys of the JSON answer, and how many image concepts are asked for at most.

    ``confidence`` is the key of how sure the model says it is, for a task whose prompts ask for that: a number from 0
    to 1, or up to 100, or a percentage.
    """

    labels: Name = "labels"
    referred_words: Name = "referred_words"
    referred_image_concepts: Name = "referred_image_concepts"
    max_image_concepts: StrictInt = Field(default=5, ge=1)
    confidence: Name | None = None


class Task(Record):
    """A labelling task. ``none_label`` names the label that says "none of these"; it comes last in the inventory."""

    name: Name
    version: Name
    labels: tuple[Label, ...] = Field(min_length=1)
    none_label: Name
    prompts: Mapping[Name, Mapping[Name, Prompts]] = Field(min_length=1)
    answer: AnswerFields = Field(default_factory=AnswerFields)

    @model_validator(mode="after")
    def _check_labels(self) -> Task:
        if self.labels[-1].name != self.none_label:
            raise ValueError(f"none_label: {self.none_label!r} must be the name of the last entry of labels")
        seen: dict[str, str] = {}
        for label in self.labels:
            key = _key(label.name)
            if not key:
                raise ValueError(f"labels: the name {label.name!r} has no letter or digit to recognise it by")
            if key in seen:
                raise ValueError(f"labels: {label.name!r} and {seen[key]!r} are the same but for case or punctuation")
            if label.name in label.ancestors:
                raise ValueError(f"labels: {label.name!r} is its own ancestor")
            seen[key] = label.name
        return self

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """Every label in inventory order, the "none of these" label last."""
        return tuple(label.name for label in self.labels)

    def ancestors(self, label: str) -> tuple[str, ...]:
        """The path to a label from the top of the tree, root and label left out.

        Raises:
            ValueError: the label is not in the inventory.
        """
        return self._label(label).ancestors

    def expand(self, labels: Iterable[str]) -> frozenset[str]:
        """The labels together with all their ancestors: what hierarchical F1 compares (Kiritchenko et al., 2006).

        Raises:
            ValueError: a label is not in the inventory.
        """
        found = [self._label(label) for label in labels]
        return frozenset(node for label in found for node in (*label.ancestors, label.name))

    def match_label(self, raw: str) -> str | None:
        """The label that ``raw`` names by its name or an alias, whatever its case, punctuation and spacing.

        ``None`` where nothing matches as a whole, or where an alias belongs to several labels: never a guess.
        """
        if raw in self._by_name:
            return raw
        owners = self._by_key.get(_key(raw), frozenset())
        return next(iter(owners)) if len(owners) == 1 else None

    def instruction(self, mode: Mode, language: str = "en", variant: str = "full", with_none: bool = True) -> str:
        """The instruction for one mode; where the meme has text, that text is to follow directly.

        The prompt's order is picture, instruction, text of the meme.

        Raises:
            ValueError: no such variant, language or mode, or the variant cannot leave out the "none" label.
        """
        languages = _choose("variant", variant, self.prompts, self.name)
        prompts = _choose("language", language, languages, self.name)
        template = _choose("mode", mode, prompts.modes, self.name)
        none = prompts.with_none if with_none else prompts.without_none
        if none is None:
            others = [name for name, known in self.prompts.items() if _can_omit_none(known, language)]
            remedy = f"use variant {' or '.join(map(repr, others))}" if others else "ask with it"
            raise ValueError(f"variant {variant!r} of task {self.name!r} always offers {self.none_label}; {remedy}")
        caption = prompts.caption if "text" in mode else ""
        return template.replace("{none}", none).replace("{labels}", self._inventory(language, with_none)) + caption

    def _inventory(self, language: str, with_none: bool) -> str:
        labels = self.labels if with_none else self.labels[:-1]
        definitions = ((label.name, label.definition.get(language)) for label in labels)
        return "\n".join(f"- {name}: {text}" if text else f"- {name}" for name, text in definitions)

    def _label(self, name: str) -> Label:
        if name not in self._by_name:
            raise ValueError(f"{name!r} is no label of task {self.name!r}; its labels: {', '.join(self.label_names)}")
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Label]:
        return {label.name: label for label in self.labels}

    @cached_property
    def _by_key(self) -> dict[str, frozenset[str]]:
        owners: dict[str, set[str]] = {}
        for label in self.labels:
            for spelling in (label.name, *label.aliases):
                owners.setdefault(_key(spelling), set()).add(label.name)
        return {key: frozenset(names) for key, names in owners.items() if key}


def _key(text: str) -> str:
    """Letters, marks and digits only, case folded: what two spellings of one label share."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(character for character in folded if unicodedata.category(character)[0] in "LMN")


def _choose(kind: str, wanted: str, options: Mapping[Any, T], task: str) -> T:
    if wanted not in options:
        raise ValueError(f"task {task!r} has no {kind} {wanted!r}; it has {', '.join(map(str, options))}")
    return options[wanted]


def _can_omit_none(languages: Mapping[str, Prompts], language: str) -> bool:
    return language in languages and languages[language].without_none is not None


@lru_cache
def _shipped_task(name: str) -> Task:
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return _parse_task(text, source=f"{name}.yaml")


def _parse_task(text: str, source: str) -> Task:
    try:
        content = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"task file {source!r} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"task file {source!r} must be a mapping with the fields {', '.join(Task.model_fields)}")
    try:
        return Task.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(_problem(item["loc"], item["msg"]) for item in error.errors())
        raise ValueError(f"task file {source!r} is not a valid task: {problems}") from None


def _problem(location: tuple[int | str, ...], message: str) -> str:
    place = ".".join(str(part) for part in location if part != "[key]")
    message = message.removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key given twice, of which PyYAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.YAMLError(f"the key {key.value!r} is given twice, the second time on line {line}")
            seen.add(key.value)
        return super().construct_mapping(node, deep)

"""What a task is: its labels, its prompts, and the fields of its answer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, StrictBool, StrictInt, StrictStr, StringConstraints, model_validator

from xai.schema import Meme, Mode, Record, Segment

Name = Annotated[StrictStr, StringConstraints(min_length=1, pattern=r"^\S(.*\S)?$")]
Text = Annotated[StrictStr, StringConstraints(min_length=1)]
Form = Literal["one", "many", "pairs"]
"""How an answer gives labels: one string; a list of them; or an object that gives some of them a value or a list."""
PAIR = ": "
"""Stands in the name of a pair between the label and its value."""
T = TypeVar("T")
_UNDER = re.compile(r"\{labels under ([^{}]+)\}")


class Label(Record):
    """One label: ``ancestors`` is its path from the top of the tree, root left out; ``definition`` by language.

    Attributes:
        written: how prompts and answers write it, where that is not its name: two sides can each have an "Other".
        alone: it goes with no other label that has the same ancestors.
    """

    name: Name
    ancestors: tuple[Name, ...] = ()
    aliases: tuple[Name, ...] = ()
    definition: Mapping[Name, Text] = Field(default_factory=dict)
    written: Name | None = None
    alone: StrictBool = False

    @property
    def spelling(self) -> str:
        """How prompts and answers write it."""
        return self.written or self.name


class Prompts(Record):
    """The instructions of one variant in one language.

    In ``modes``, ``{labels}`` stands for the list of labels with their definitions, and ``{none}`` for the
    sentence ``with_none`` or ``without_none``; ``{labels under Label}`` for those below one label, and the names of the
    task's ``context`` for what the meme has under them. ``caption`` follows wherever the meme's text is part of the
    prompt, and ``post`` wherever its post is.
    """

    modes: Mapping[Mode, Text] = Field(min_length=1)
    caption: StrictStr = ""
    post: StrictStr = ""
    with_none: StrictStr = ""
    without_none: StrictStr | None = None
    """``None``: this variant always offers the label for "none of these"."""

    @model_validator(mode="after")
    def _check_introductions(self) -> Prompts:
        for name, segment in (("caption", "text"), ("post", "post")):
            if not getattr(self, name) and any(segment in mode for mode in self.modes):
                raise ValueError(f"{name}: needed, since a mode with {segment} must end with what introduces it")
        return self


class LabelField(Record):
    """A key of the answer under which labels stand.

    Attributes:
        choices: the labels that may stand there; by default all that no other field chooses.
        under: the key of a field of one label, below which these labels are in the tree.
    """

    key: Name
    form: Form = "many"
    choices: tuple[Name, ...] | None = None
    under: Name | None = None


class AnswerFields(Record):
    """The keys of the JSON answer, and how many image concepts are asked for at most.

    ``labels`` is the key of the list of labels, or several fields. ``None`` for words, concepts or reasons: they are
    not asked for. ``reasons`` are short phrases that say why. ``confidence`` is the key of how sure the model says it
    is, for a task whose prompts ask for that: a number from 0 to 1, or up to 100, or a percentage.
    """

    labels: Name | tuple[LabelField, ...] = "labels"
    referred_words: Name | None = "referred_words"
    referred_image_concepts: Name | None = "referred_image_concepts"
    max_image_concepts: StrictInt = Field(default=5, ge=1)
    reasons: Name | None = None
    confidence: Name | None = None

    @property
    def label_fields(self) -> tuple[LabelField, ...]:
        """The fields of labels, in the order in which they are asked for."""
        return (LabelField(key=self.labels),) if isinstance(self.labels, str) else self.labels


class Pairs(Record):
    """Labels that are pairs: each label of an earlier stage, ``first``, with each value."""

    of: Name
    values: tuple[Label, ...] = Field(min_length=1)
    first: tuple[Label, ...] = Field(min_length=1)

    def labels(self) -> list[Label]:
        """Every pair; the label of the earlier stage is its ancestor, and a value goes alone with it that is so."""
        return [
            Label(
                name=f"{one.name}{PAIR}{value.name}",
                ancestors=(one.name,),
                aliases=value.aliases,
                written=value.spelling,
                alone=value.alone,
            )
            for one in self.first
            for value in self.values
        ]


class Task(Record):
    """A labelling task, or one stage of it.

    ``none_label`` names the label that says "none of these"; it comes last in the inventory. ``None``: there is no
    such label. ``pairs``: the labels are pairs. ``context`` are names that stand in braces in the prompts for what each
    meme's :attr:`xai.schema.Meme.context` has under them, such as the labels of an earlier stage. ``parser`` is
    ``package.module:function``, which reads answers in the place of :func:`xai.tasks.answers.parse_answer`.
    """

    name: Name
    version: Name
    labels: tuple[Label, ...] = Field(min_length=1)
    none_label: Name | None
    prompts: Mapping[Name, Mapping[Name, Prompts]] = Field(min_length=1)
    answer: AnswerFields = Field(default_factory=AnswerFields)
    pairs: Pairs | None = None
    context: tuple[Name, ...] = ()
    parser: Name | None = None

    @model_validator(mode="after")
    def _check_labels(self) -> Task:
        if self.none_label is not None and self.labels[-1].name != self.none_label:
            raise ValueError(f"none_label: {self.none_label!r} must be the name of the last entry of labels")
        seen: dict[str, str] = {}
        for label in self.labels:
            key = label_key(label.name)
            if not key:
                raise ValueError(f"labels: the name {label.name!r} has no letter or digit to recognise it by")
            if key in seen:
                raise ValueError(f"labels: {label.name!r} and {seen[key]!r} are the same but for case or punctuation")
            if label.name in label.ancestors:
                raise ValueError(f"labels: {label.name!r} is its own ancestor")
            seen[key] = label.name
        return self

    @model_validator(mode="after")
    def _check_fields(self) -> Task:
        fields = {field.key: field for field in self.answer.label_fields}
        if len(fields) < len(self.answer.label_fields) or not fields:
            raise ValueError("answer.labels: give at least one field of labels, each with a key of its own")
        for field in fields.values():
            if field.under is not None and (field.under not in fields or fields[field.under].form != "one"):
                raise ValueError(f"answer.labels: {field.key!r} is under {field.under!r}, no field of one label")
            if (field.form == "pairs") != (self.pairs is not None):
                raise ValueError("answer.labels: a field has the form 'pairs' if the labels are pairs, and only then")
            for name in field.choices or ():
                if name not in self.label_names:
                    raise ValueError(f"answer.labels: {field.key!r} has the choice {name!r}, which is no label")
        return self

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """Every label in inventory order, the "none of these" label last."""
        return tuple(label.name for label in self.labels)

    @property
    def branches(self) -> dict[str, tuple[str, ...]]:
        """The labels below each label or node at the top of the tree, in inventory order; empty for a flat task."""
        found: dict[str, tuple[str, ...]] = {}
        for label in self.labels:
            if label.ancestors:
                top = label.ancestors[0]
                found[top] = (*found.get(top, ()), label.name)
        return found

    def ancestors(self, label: str) -> tuple[str, ...]:
        """The path to a label from the top of the tree, root and label left out.

        Raises:
            ValueError: the label is not in the inventory.
        """
        return self.label(label).ancestors

    def expand(self, labels: Iterable[str]) -> frozenset[str]:
        """The labels together with all their ancestors: what hierarchical F1 compares (Kiritchenko et al., 2006).

        Raises:
            ValueError: a label is not in the inventory.
        """
        found = [self.label(label) for label in labels]
        return frozenset(node for label in found for node in (*label.ancestors, label.name))

    def match_label(self, raw: str, among: Collection[str] | None = None) -> str | None:
        """The label that ``raw`` names by its name, spelling or an alias, whatever its case, punctuation and spacing.

        ``None`` where nothing matches as a whole, or where several labels do: never a guess.

        Args:
            among: the labels in question; by default all.
        """
        if raw in self._by_name and (among is None or raw in among):
            return raw
        owners = self._by_key.get(label_key(raw), frozenset())
        if among is not None:
            owners = owners & frozenset(among)
        return next(iter(owners)) if len(owners) == 1 else None

    def match_first(self, raw: str) -> str | None:
        """The label of the earlier stage that ``raw`` names, where labels are pairs; ``None`` as in `match_label`."""
        assert self.pairs is not None
        owners = _owners(self.pairs.first).get(label_key(raw), frozenset())
        return next(iter(owners)) if len(owners) == 1 else None

    def choices(self, field: LabelField) -> tuple[str, ...]:
        """The labels that may stand in a field of the answer."""
        if field.choices is not None:
            return field.choices
        elsewhere = {name for other in self.answer.label_fields for name in other.choices or ()}
        return tuple(name for name in self.label_names if name not in elsewhere)

    def alternatives(self, label: str) -> tuple[str, ...]:
        """The labels that an answer could have in the place of one: of its field, and of its parent or pair there.

        Raises:
            ValueError: the label is not in the inventory.
        """
        own = self.label(label)
        for field in self.answer.label_fields:
            if label in (names := self.choices(field)):
                tied = field.under is not None or self.pairs is not None
                others = [name for name in names if not tied or self.label(name).ancestors == own.ancestors]
                return tuple(name for name in others if name != label)
        return ()

    def contradictions(self, labels: Sequence[str]) -> list[str]:
        """What is odd about labels that stand together, in words: no task has an answer that says both.

        Raises:
            ValueError: a label is not in the inventory.
        """
        found = [self.label(label) for label in labels]
        given = {label.name for label in found}
        notes = [f"{self.none_label} stands beside other labels"] if self.none_label in given and len(given) > 1 else []
        for field in self.answer.label_fields:
            chosen = [name for name in self.choices(field) if name in given]
            if field.form == "one" and len(chosen) > 1:
                notes.append(f"{' and '.join(map(repr, chosen))} exclude each other")
            for name in chosen if field.under else ():
                if not set(self.ancestors(name)) <= given:
                    notes.append(f"label {name!r} does not go with what {field.under!r} says")
        for label in found:
            beside = [other for other in found if other.ancestors == label.ancestors and other is not label]
            if label.alone and beside:
                notes.append(f"label {label.name!r} goes alone and stands beside {beside[0].name!r}")
        return notes

    def instruction(
        self,
        mode: Mode,
        language: str = "en",
        variant: str = "full",
        with_none: bool = True,
        context: Mapping[str, Sequence[str]] | None = None,
    ) -> str:
        """The instruction for one mode; where the meme has a post or a text, the first of them is to follow directly.

        The prompt's order is picture, instruction, post, text of the meme.

        Args:
            context: what the meme has under the names of the task's ``context``, each entry a line; ``None`` leaves
                these names as they are.

        Raises:
            ValueError: no such variant, language or mode, the variant cannot leave out the "none" label, or the prompt
                speaks of what the context does not have.
        """
        prompts = self._prompts(language, variant)
        template = _choose("mode", mode, prompts.modes, self.name)
        none = prompts.with_none if with_none else prompts.without_none
        if none is None:
            others = [name for name, known in self.prompts.items() if _can_omit_none(known, language)]
            remedy = f"use variant {' or '.join(map(repr, others))}" if others else "ask with it"
            raise ValueError(f"variant {variant!r} of task {self.name!r} always offers {self.none_label}; {remedy}")
        text = template.replace("{none}", none).replace("{labels}", _listed(self._inventory(with_none), language))
        text = _UNDER.sub(lambda found: _listed(self._below(found[1]), language), text)
        for name in self.context if context is not None else ():
            text = text.replace(f"{{{name}}}", _given(name, context or {})) if f"{{{name}}}" in text else text
        if "post" in mode:
            return text + prompts.post
        return text + prompts.caption if "text" in mode else text

    def said(
        self,
        meme: Meme,
        mode: Mode,
        language: str = "en",
        variant: str = "full",
        with_none: bool = True,
        *,
        is_first: bool = True,
    ) -> list[tuple[Segment, str]]:
        """What a user says about a meme, by segment: all that a prompt has of it but its picture.

        Args:
            is_first: the turn is the first of its chat. The instruction stands in that one only, the introductions of
                texts in each.

        Raises:
            ValueError: as for :meth:`instruction`.
        """
        parts: list[tuple[Segment, str]] = []
        if is_first:
            parts.append(("instruction", self.instruction(mode, language, variant, with_none, meme.context)))
        texts: list[tuple[Segment, Literal["post", "caption"], str]] = []
        if "post" in mode:
            texts.append(("post", "post", meme.post or ""))
        if "text" in mode:
            texts.append(("text", "caption", meme.text))
        is_introduced = is_first  # The instruction ends with the introduction of what follows it.
        for segment, kind, text in texts:
            if not is_introduced:
                introduction = self.introduction(kind, language, variant)
                # A turn that begins with space would be trimmed by some chat templates, and not by others.
                parts.append(("instruction", introduction if parts else introduction.lstrip()))
            parts.append((segment, text))
            is_introduced = False
        return parts

    def variant(self, preferred: str) -> str:
        """The variant of the prompts that a model prefers, or else ``full``, or else the first that there is."""
        return next(name for name in (preferred, "full", *self.prompts) if name in self.prompts)

    def introduction(self, kind: Literal["post", "caption"], language: str = "en", variant: str = "full") -> str:
        """What introduces the post, or the meme's text, in a prompt.

        Raises:
            ValueError: no such variant or language.
        """
        return str(getattr(self._prompts(language, variant), kind))

    def label(self, name: str) -> Label:
        """A label by its name.

        Raises:
            ValueError: it is not in the inventory.
        """
        if name not in self._by_name:
            raise ValueError(f"{name!r} is no label of task {self.name!r}; its labels: {', '.join(self.label_names)}")
        return self._by_name[name]

    def _prompts(self, language: str, variant: str) -> Prompts:
        languages = _choose("variant", variant, self.prompts, self.name)
        return _choose("language", language, languages, self.name)

    def _inventory(self, with_none: bool) -> Sequence[Label]:
        if self.pairs is not None:
            return self.pairs.values
        return self.labels if with_none or self.none_label is None else self.labels[:-1]

    def _below(self, parent: str) -> Sequence[Label]:
        return [label for label in self.labels if parent in label.ancestors]

    @cached_property
    def _by_name(self) -> dict[str, Label]:
        return {label.name: label for label in self.labels}

    @cached_property
    def _by_key(self) -> dict[str, frozenset[str]]:
        return _owners(self.labels)


def label_key(text: str) -> str:
    """Letters, marks and digits only, case folded: what two spellings of one label share."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(character for character in folded if unicodedata.category(character)[0] in "LMN")


def _owners(labels: Iterable[Label]) -> dict[str, frozenset[str]]:
    """The labels that each spelling may mean."""
    owners: dict[str, set[str]] = {}
    for label in labels:
        for spelling in (label.name, label.spelling, *label.aliases):
            owners.setdefault(label_key(spelling), set()).add(label.name)
    return {key: frozenset(names) for key, names in owners.items() if key}


def _listed(labels: Iterable[Label], language: str) -> str:
    definitions = ((label.spelling, label.definition.get(language)) for label in labels)
    return "\n".join(f"- {name}: {text}" if text else f"- {name}" for name, text in definitions)


def _given(name: str, context: Mapping[str, Sequence[str]]) -> str:
    if not context.get(name):
        raise ValueError(f"the prompt speaks of the meme's {name!r}, which its context does not have; give it")
    return "\n".join(f"- {line}" for line in context[name])


def _choose(kind: str, wanted: str, options: Mapping[Any, T], task: str) -> T:
    if wanted not in options:
        raise ValueError(f"task {task!r} has no {kind} {wanted!r}; it has {', '.join(map(str, options))}")
    return options[wanted]


def _can_omit_none(languages: Mapping[str, Prompts], language: str) -> bool:
    return language in languages and languages[language].without_none is not None

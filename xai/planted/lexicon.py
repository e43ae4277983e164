"""Reads the lexicon of the planted world: which words and icons cause which label, and what never does."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

Kind = Literal["word", "icon", "both"]
Language = Literal["en", "uk"]
Lexemes = tuple[tuple[str, ...], ...]

LANGUAGES: tuple[Language, ...] = ("en", "uk")


class Cause(BaseModel):
    """What causes one label, and what the answer's rationale names for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    words: str | None = None
    icon: str | None = None
    rationale: str

    @property
    def faithful(self) -> bool:
        """Whether the rationale names the cause."""
        return self.rationale == "cause"

    @property
    def named_decoy(self) -> str | None:
        """The class of decoy words that an unfaithful rationale names."""
        return self.rationale.removeprefix("decoy:") if self.rationale.startswith("decoy:") else None


class Vocabulary(BaseModel):
    """The words of one language, by role and class."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    triggers: dict[str, Lexemes]
    decoys: dict[str, Lexemes]
    fillers: dict[str, tuple[str, ...]]
    pattern: tuple[str, ...]


class Lexicon(BaseModel):
    """The whole planted world in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    labels: dict[str, Cause]
    decoy_icons: tuple[str, ...]
    languages: dict[Language, Vocabulary]

    def label_of_words(self, words: str) -> str:
        """The label that a class of trigger words belongs to."""
        return next(label for label, cause in self.labels.items() if cause.words == words)

    def label_of_icon(self, icon: str) -> str | None:
        """The label that an icon belongs to; ``None`` for a decoy."""
        return next((label for label, cause in self.labels.items() if cause.icon == icon), None)

    def by_kind(self, kind: Kind) -> tuple[str, ...]:
        """The labels with this kind of cause."""
        return tuple(label for label, cause in self.labels.items() if cause.kind == kind)


@cache
def load_lexicon() -> Lexicon:
    """The lexicon that ships with the package."""
    path = Path(__file__).with_name("lexicon.yaml")
    return Lexicon.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))

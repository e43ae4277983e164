"""Takes out of a post what belongs to its platform and not to what is said, and says which memes are too short or long.

Only the post is changed. The text in the picture is what the picture shows, and its words have places in it, so that it
stays as it is and only its length is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import Field, StrictStr, ValidationError, model_validator

from xai.schema import Meme, Record

OTHER = "other"
"""The platform of records that name none, or one without rules of its own."""
COLUMN = "platform"
"""The column of a dataset that names the platform."""


class Removal(NamedTuple):
    """What a rule took out of a post, verbatim."""

    rule: str
    text: str


class Cleaned(NamedTuple):
    """A meme with its cleaned post; ``reason`` says why it is left out, empty where it is not."""

    meme: Meme
    platform: str
    removed: tuple[Removal, ...] = ()
    reason: str = ""


class Length(Record):
    """How many characters there may be, both ends included, after runs of white space were made one."""

    least: int = Field(default=0, ge=0)
    most: int = Field(ge=1)

    @classmethod
    def parse(cls, text: str) -> Length:
        """The length that ``20:500`` says.

        Raises:
            ValueError: it says none.
        """
        found = re.fullmatch(r"(\d+):(\d+)", text.strip())
        if found is None:
            raise ValueError(f"{text!r} is no length; give the least and the most characters, as in 20:500")
        return cls(least=int(found[1]), most=int(found[2]))

    @model_validator(mode="after")
    def _check_order(self) -> Length:
        if self.least > self.most:
            raise ValueError(f"least ({self.least}) is above most ({self.most}); exchange them")
        return self

    def problem(self, what: str, text: str) -> str:
        """What is wrong with a text's length; empty where nothing is."""
        n = len(" ".join(text.split()))
        if self.least <= n <= self.most:
            return ""
        return f"{what} has {n} characters; kept are {self.least} to {self.most}"


class Rule(Record):
    """A regular expression of Python, and what stands in place of its matches."""

    pattern: StrictStr
    replace: StrictStr = ""

    @model_validator(mode="after")
    def _check_pattern(self) -> Rule:
        try:
            re.sub(self.pattern, self.replace, "")
        except re.error as error:
            raise ValueError(f"{self.pattern!r} with {self.replace!r} in its place cannot be used: {error}") from None
        return self


class Platform(Record):
    """What is done with posts of one platform; a length that is ``None`` is not looked at."""

    aliases: tuple[StrictStr, ...] = ()
    rules: tuple[StrictStr, ...] = ()
    post: Length | None = None
    picture_text: Length | None = None


class Cleaning(Record):
    """The rules by name, and the platforms with theirs; ``other`` is for all that are not named."""

    version: StrictStr
    rules: Mapping[StrictStr, Rule] = Field(default_factory=dict)
    platforms: Mapping[StrictStr, Platform]

    @model_validator(mode="after")
    def _check_names(self) -> Cleaning:
        if OTHER not in self.platforms:
            raise ValueError(f"platforms: {OTHER!r} is missing, which is for all that have no rules of their own")
        for name, platform in self.platforms.items():
            for rule in platform.rules:
                if rule not in self.rules:
                    raise ValueError(f"platforms.{name}: there is no rule {rule!r}; there is {', '.join(self.rules)}")
        return self

    @cached_property
    def _names(self) -> dict[str, str]:
        return {
            spelling.casefold(): name
            for name, platform in self.platforms.items()
            for spelling in (name, *platform.aliases)
        }

    def knows(self, platform: str) -> bool:
        """Whether there are rules for a platform of this name."""
        return platform.strip().casefold() in self._names

    def platform_of(self, meme: Meme, default: str = OTHER) -> str:
        """The platform that a record names in its column, or else ``default``; ``other`` for one without rules."""
        said = meme.metadata.get(COLUMN)
        name = said if isinstance(said, str) and said.strip() else default
        return self._names.get(name.strip().casefold(), OTHER)

    def clean(self, meme: Meme, default: str = OTHER, *, needs_text: bool = True) -> Cleaned:
        """A meme with its post cleaned, and the reason for which it is left out, if there is one.

        Args:
            default: the platform of a record that names none.
            needs_text: whether the models are shown the picture's text, whose length then counts.
        """
        name = self.platform_of(meme, default)
        platform = self.platforms[name]
        post, removed = self._without(platform, meme.post or "")
        kept = meme if meme.post is None else meme.model_copy(update={"post": post or None})
        return Cleaned(kept, name, removed, self._reason(platform, meme, post, needs_text))

    def with_lengths(self, post: Length | None, picture_text: Length | None) -> Cleaning:
        """The same with other lengths for every platform, where they are given."""
        given = {name: length for name, length in (("post", post), ("picture_text", picture_text)) if length}
        changed = {name: platform.model_copy(update=given) for name, platform in self.platforms.items()}
        return self.model_copy(update={"platforms": changed})

    def _without(self, platform: Platform, text: str) -> tuple[str, tuple[Removal, ...]]:
        removed: list[Removal] = []
        for name in platform.rules:
            rule = self.rules[name]

            def taken(match: re.Match[str], name: str = name, rule: Rule = rule) -> str:
                removed.append(Removal(name, match[0].strip()))
                return match.expand(rule.replace)

            text = re.sub(rule.pattern, taken, text)
        lines = (" ".join(line.split()) for line in text.splitlines())
        return "\n".join(line for line in lines if line), tuple(removed)

    def _reason(self, platform: Platform, meme: Meme, post: str, needs_text: bool) -> str:
        if meme.post is not None and meme.post.strip() and not post:
            return "nothing is left of the post after cleaning"
        problems = []
        if needs_text and platform.picture_text:
            problems.append(platform.picture_text.problem("the picture's text", meme.text))
        if meme.post is not None and platform.post:
            problems.append(platform.post.problem("the post", post))
        return "; ".join(filter(None, problems))


def load_cleaning(path: Path | None = None) -> Cleaning:
    """The rules that ship, or those of a YAML file of the same form.

    Raises:
        ValueError: the file cannot be read, or is no set of rules; the message names the field.
    """
    name = "cleaning.yaml" if path is None else path.name
    try:
        text = _shipped() if path is None else path.read_text(encoding="utf-8-sig")
        return Cleaning.model_validate(yaml.safe_load(text))
    except OSError as error:
        raise ValueError(f"cleaning file {name!r} cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise ValueError(f"cleaning file {name!r} is not UTF-8; save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise ValueError(f"cleaning file {name!r} is not valid YAML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        raise ValueError(f"cleaning file {name!r}: {f'{place}: ' if place else ''}{message}") from None


def _shipped() -> str:
    return resources.files("xai.annotation").joinpath("cleaning.yaml").read_text(encoding="utf-8")

"""Reads answers of IRON-Meme's stages as the benchmark's own evaluation does: whatever stands around the JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from xai.schema import Mode
from xai.strict_json import STRICT, NotStrictError
from xai.tasks.answers import Answer, Quoted, read_answer
from xai.tasks.task import PAIR, Label, LabelField, Task, label_key

__all__ = ["parse", "spelling_key"]

_REASONING = re.compile(r"(?:\A(?:(?!<think>).)*|<think>.*?)</think>|<think>.*\Z", re.DOTALL)
_OBJECT = re.compile(r'\{\s*["}]')
_FENCE = re.compile(r"```\w*")
_WORD = re.compile(r"[^\W_]+")
_IRREGULAR = {"women": "woman", "men": "man", "people": "person"}
_VIEWPOINTS = ("ingroup", "outgroup")
_NO_PLURAL = ("ss", "us", "is")
_WITH_ES = ("ches", "shes", "sses", "xes", "zes", "oes")


def parse(task: Task, text: str, mode: Mode) -> Answer:
    """The labels in the outermost JSON object of ``text``; without a whole one the answer is unparsed.

    Reasoning, also one that does not end, code fences and whatever else stands around the object are passed over; the
    object itself is not repaired. A label is matched whatever its case, punctuation and number, by its name or an
    alias; others are kept as they were written. Spans are offsets in ``text``.
    """
    try:
        start, end = _outermost(_without_reasoning(text))
    except ValueError as error:
        return Answer(parse_note=str(error))
    # What is left out is blank instead, so that every offset still holds.
    return read_answer(task, " " * start + text[start:end], mode, match=_match)


def spelling_key(text: str) -> str:
    """What all spellings of a label share: letters and digits of its words in the singular, case folded."""
    return "".join(_singular(label_key(word)) for word in _WORD.findall(text))


def _without_reasoning(text: str) -> str:
    """``text`` with reasoning and fences blanked; a trace may lack its opening tag, which some templates put in the
    prompt. In an answer that begins with its object, such a tag is one that the meme's own words have.
    """
    blanked = _FENCE.sub(_blank, text)
    if not blanked.lstrip().startswith("{"):
        return _REASONING.sub(_blank, blanked)
    return blanked


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _outermost(text: str) -> tuple[int, int]:
    """``[start, end)`` of the only object in ``text``.

    Raises:
        ValueError: there is none, it is not whole or says something twice, or there are several.
    """
    opening = _OBJECT.search(text)
    if opening is None:
        raise ValueError("there is no JSON object in the answer, outside of reasoning that it may have")
    try:
        end: int = STRICT.raw_decode(text, opening.start())[1]
    except NotStrictError:
        raise
    except (ValueError, RecursionError):
        raise ValueError("the JSON object of the answer is broken, cut or nested too deeply") from None
    if _OBJECT.search(text, end):
        raise ValueError("there is more than one JSON object in the answer")
    return opening.start(), end


def _match(task: Task, field: LabelField, quoted: Quoted, given: Sequence[str]) -> str | None:
    """The label that a string of the answer names, ``None`` where none or several share its spelling."""
    if task.pairs is None:
        return _named(task.labels, quoted.value)
    # The prompt for roles lists identities with their viewpoints, and an answer may copy both.
    name, _, said = quoted.key.rpartition(PAIR)
    first = _named(task.pairs.first, name if spelling_key(said) in _VIEWPOINTS else quoted.key)
    value = _named(task.pairs.values, quoted.value)
    return f"{first}{PAIR}{value}" if first and value else None


def _named(labels: Sequence[Label], raw: str) -> str | None:
    return _owners(tuple((label.name, label.spelling, *label.aliases) for label in labels)).get(spelling_key(raw))


@lru_cache
def _owners(spellings: tuple[tuple[str, ...], ...]) -> dict[str, str]:
    """The label, which is the first of its spellings, of every key that is of one label alone."""
    found: dict[str, set[str]] = {}
    for name, *others in spellings:
        for spelling in (name, *others):
            found.setdefault(spelling_key(spelling), set()).add(name)
    return {key: next(iter(names)) for key, names in found.items() if key and len(names) == 1}


def _singular(word: str) -> str:
    """The singular of an English word; of other words that end alike something else, and always the same."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) < 4 or not word.endswith("s") or word.endswith(_NO_PLURAL):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(_WITH_ES) else word[:-1]

"""Has a model say in a few verb–object phrases what an accepted record does, and checks that it did just that."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from xai.schema import ALL_MODES, is_encodable
from xai.strict_json import STRICT
from xai.tasks import Label, Prompts, Task

VERSION = "1"
"""Of the prompt and of how answers are read; it rises with either."""
KEY = "phrases"
MIN_WORDS = 2
"""A verb and its object."""
_PROMPT = """Annotators gave this meme the labels: {said}. Take the labels as settled.
Say what the meme does that earns them, in short phrases. Each phrase is a verb followed by its object, as in "mocks a
neighbour's accent" or "spreads a false claim". Describe; do not repeat insults. All phrases together have at most
{max_words} words.
Answer with one JSON object and nothing else: {{"phrases": ["verb object", "verb object"]}}
"""
_FENCE = re.compile(r"\s*```(?:json)?\s*(.*?)\s*```\s*", re.DOTALL)
_THOUGHT = re.compile(r"\s*(?:<think>)?.*?</think>", re.DOTALL)
_TRAILING = " \t\n.;,"


class Phrases(NamedTuple):
    """What was read: the phrases that are kept, those that are not with the reason, and why there are none at all."""

    kept: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    refused: str = ""


def explicator_task(labels: Sequence[str], max_words: int, asked: Task) -> Task:
    """The question as a task, so that every model of a panel can be asked it as it is asked the other one.

    Its prompt, in English, has the labels as the panel's task names them; the modes are those of that task.
    """
    prompt = _PROMPT.format(said=", ".join(labels), max_words=max_words)
    known = {mode for languages in asked.prompts.values() for prompts in languages.values() for mode in prompts.modes}
    prompts = Prompts(
        modes={mode: prompt for mode in ALL_MODES if mode in known},
        caption="\nText in the picture: ",
        post="\nPost: ",
    )
    return Task(
        name="explicator",
        version=VERSION,
        labels=(Label(name="phrases"),),
        none_label=None,
        prompts={"full": {"en": prompts}},
    )


def read_phrases(text: str, max_words: int) -> Phrases:
    """The phrases of an answer; nothing of them is changed but white space and a full stop at the end.

    Whole phrases are kept from the first on while they have at most ``max_words`` words together; what comes behind is
    left out and listed, never shortened. A phrase of one word is no verb with an object, and is left out, too.
    """
    found = _listed(text)
    if isinstance(found, str):
        return Phrases(refused=found)
    kept: list[str] = []
    left_out: list[tuple[str, str]] = []
    room, is_full = max_words, False
    for phrase in dict.fromkeys(" ".join(one.split()).strip(_TRAILING) for one in found):
        n = len(phrase.split())
        if n < MIN_WORDS:
            left_out.append((phrase, "no verb with an object: fewer than two words"))
        elif is_full or n > room:
            is_full = True
            left_out.append((phrase, f"beyond {max_words} words"))
        else:
            kept.append(phrase)
            room -= n
    return Phrases(tuple(kept), tuple(left_out), "" if kept else "the answer has no phrase that could be kept")


def _listed(text: str) -> list[str] | str:
    """The strings of the list, or why there is none."""
    body = _THOUGHT.sub("", text, count=1) if "</think>" in text else text
    fenced = _FENCE.fullmatch(body)
    try:
        content = STRICT.decode((fenced[1] if fenced else body).strip())
    except (json.JSONDecodeError, ValueError, RecursionError):
        return "the answer is not one JSON object"
    listed = content.get(KEY) if isinstance(content, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, str) and is_encodable(one) for one in listed):
        return f"the answer has no list of strings {KEY!r}"
    return listed

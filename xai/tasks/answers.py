"""Reads a model's answer: strict JSON first, a flagged repair where nothing is left to guess, else unparsed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NoReturn

import json_repair

from xai.schema import LabelSpan, Mode, Parse, Record
from xai.strict_json import STRICT, NotStrictError
from xai.tasks.task import PAIR, LabelField, Task

__all__ = ["Answer", "Quoted", "parse_answer", "parser_of", "read_answer", "write_answer"]

Parser = Callable[[Task, str, Mode], "Answer"]
Matcher = Callable[[Task, LabelField, "Quoted", Sequence[str]], str | None]
"""The label that a string of a field of the answer names, given those before it; ``None``: none that the task knows."""


class Answer(Record):
    """What was read from one generated text; the fields mean what they mean in `xai.schema.Prediction`.

    ``label_spans`` are offsets in the generated text, of the first mention of each label, as written there
    (with its escapes, without its quotation marks). ``parse_note`` says what was repaired, odd or wrong.
    """

    labels: tuple[str, ...] = ()
    label_spans: tuple[LabelSpan, ...] = ()
    unknown_labels: tuple[str, ...] = ()
    referred_words: tuple[str, ...] = ()
    referred_image_concepts: tuple[str, ...] = ()
    parse: Parse = "unparsed"
    parse_note: str = ""
    confidence: float | None = None
    reasons: tuple[str, ...] = ()


def parse_answer(task: Task, text: str, mode: Mode) -> Answer:
    """Read the answer in ``text``, generated in ``mode``, by the task's own parser or by :func:`read_answer`.

    Raises:
        ValueError: the task names a parser that cannot be imported.
    """
    return parser_of(task)(task, text, mode)


def parser_of(task: Task) -> Parser:
    """What reads the answers to a task.

    Raises:
        ValueError: the task names a parser that cannot be imported.
    """
    return read_answer if task.parser is None else _parser(task.parser)


def read_answer(task: Task, text: str, mode: Mode, match: Matcher | None = None) -> Answer:
    """Read the JSON answer in ``text``, generated in ``mode``; a text that cannot be read gives an unparsed answer.

    Reasoning traces and code fences are passed over. A field that the mode asks for must be there; labels that
    the task does not know are kept apart, as they were written. Labels that contradict each other are kept and noted.

    Args:
        match: by what a string is taken for a label; by default, by its name, spelling or an alias.
    """
    try:
        found = _read(task, _without_reasoning(text), mode)
        return _answer(task, found, mode, match or _matched)
    except _UnreadableError as error:
        return Answer(parse_note=str(error))
    except RecursionError:
        return Answer(parse_note="the answer is nested too deeply to be an answer")


def write_answer(task: Task, labels: Sequence[str]) -> str:
    """The answer that gives these labels and nothing else, as one line of JSON.

    Raises:
        ValueError: a label that the task does not have, labels that contradict each other, or none where one is needed.
    """
    matched = {raw: task.match_label(raw) for raw in labels}
    if unknown := [raw for raw, label in matched.items() if label is None]:
        raise ValueError(f"{unknown[0]!r} is no label of task {task.name!r}; its labels: {', '.join(task.label_names)}")
    given = [label for label in task.label_names if label in matched.values()]
    if not given and task.none_label is not None:
        given = [task.none_label]
    if notes := task.contradictions(given):
        raise ValueError(f"{notes[0]}; correct the labels")
    return json.dumps(
        {field.key: _written(task, field, given) for field in task.answer.label_fields}, ensure_ascii=False
    )


def _written(task: Task, field: LabelField, given: Sequence[str]) -> object:
    chosen = [task.label(name) for name in task.choices(field) if name in given]
    if field.form == "pairs":
        pairs: dict[str, list[str]] = {}
        for label in chosen:
            pairs.setdefault(label.ancestors[0], []).append(label.spelling)
        return {first: values[0] if len(values) == 1 else values for first, values in pairs.items()}
    if field.form == "many":
        return [label.spelling for label in chosen]
    if not chosen:
        raise ValueError(f"no label is given for {field.key!r}; give one of {', '.join(task.choices(field))}")
    return chosen[0].spelling


class _UnreadableError(Exception):
    """The answer cannot be read without guessing; the message says why."""


@dataclass(frozen=True)
class Quoted:
    """One string of the answer: its value, and ``[start, end)`` of what stands between its quotation marks.

    ``key`` is that of an object which gives it as a value.
    """

    value: str
    start: int
    end: int
    key: str = ""


@dataclass(frozen=True)
class _Fields:
    """The fields of an answer before its labels are matched."""

    labels: Mapping[str, Sequence[Quoted]]
    words: Sequence[str]
    concepts: Sequence[str]
    reasons: Sequence[str]
    notes: Sequence[str]
    parse: Parse
    confidence: float | None


# What begins an object with at least one key, in strict JSON or in the loose forms that models write.
_OBJECT_START = re.compile(r"""\{\s*(?:"(?:[^"\\]|\\.)*"|'[^'\n]*'|“[^“”\n]*”|\w+)\s*:""")
_FENCE_END = re.compile(r"```\w*$")
_LOOSE_STRING = re.compile(r"'([^'\\\n]*)'|“([^“”\\\n]*)”")
_BARE_KEY = re.compile(r"\w+")
_OF_NUMBERS = frozenset("0123456789.")
_NUMBER = re.compile(r"\s*(\d{1,3}(?:\.\d+)?|\.\d+)\s*(%?)\s*")
_BARE_CONSTANT = re.compile(r"[\[,:]\s*-?(?:NaN|Infinity)\s*[,\]}]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\n\r]*")
_LONGEST_REPAIR = 8_000
"""Characters: a repair takes seconds at this length, and minutes at twice of it."""


def _read(task: Task, text: str, mode: Mode) -> _Fields:
    """Read the one object in ``text``, which has the generated text's offsets."""
    opening = _OBJECT_START.search(text)
    if opening is None:
        raise _UnreadableError("there is no JSON object in the answer")
    start = opening.start()
    if text[:start].rstrip().endswith("["):
        raise _UnreadableError("the answer is a list, not one JSON object")
    try:
        content, end = STRICT.raw_decode(text, start)
    except NotStrictError as error:
        raise _UnreadableError(str(error)) from None
    except ValueError:
        return _repair(task, text, start, mode)
    if _OBJECT_START.search(text, end):
        raise _UnreadableError("there is more than one JSON object in the answer")
    notes = _around(text[:start].strip(), text[end:].strip())
    return _fields(task, content, (text, start), mode, notes)


def _around(before: str, behind: str) -> list[str]:
    """What is to be noted about the text around a whole object: nothing if it is only a code fence.

    Raises:
        _UnreadableError: no fence sets the object off, and brackets around it may belong to it.
    """
    fence = _FENCE_END.search(before)
    if fence is not None and behind.startswith("```"):
        before, behind = before[: fence.start()], behind[3:]
    elif set(before + behind) & set("{}[]"):
        raise _UnreadableError("the brackets around the JSON object leave unclear where it begins and ends")
    return ["text around the JSON object was passed over"] if before or behind else []


def _repair(task: Task, text: str, start: int, mode: Mode) -> _Fields:
    """Repair a broken object, if its list of labels is whole and the damage lies behind it."""
    fence = text.find("```", start)
    region = text[:fence] if fence >= 0 else text
    if len(region) - start > _LONGEST_REPAIR:
        raise _UnreadableError(
            f"the JSON is broken, and longer than the {_LONGEST_REPAIR:,} characters that are repaired"
        )
    if len(_OBJECT_START.findall(text, start)) > (1 if task.pairs is None else 1 + len(task.answer.label_fields)):
        raise _UnreadableError("there is more than one JSON object in the answer")
    if _BARE_CONSTANT.search(region, start):
        raise _UnreadableError("NaN and Infinity are not JSON")
    asked = (*(field.key for field in task.answer.label_fields), *_lists(task), task.answer.confidence)
    for field in filter(None, asked):
        if len(re.findall(rf"""["'“]?\b{re.escape(field)}["'”]?\s*:""", region[start:])) > 1:
            raise _UnreadableError(f"the key {field!r} is given twice")
    whole = _without_half_word(region[start:])
    content = json_repair.loads(whole)
    if not isinstance(content, dict):
        raise _UnreadableError("the JSON is broken in more than one way")
    notes = ["the JSON was broken and has been repaired"]
    if len(whole) < len(region) - start:
        notes.append("the reply is cut; its last, incomplete string was dropped")
    if whole[-1:] in _OF_NUMBERS and task.answer.confidence in content:
        # Nothing says that a number which ends the reply was not to go on.
        content[task.answer.confidence] = None
    return _fields(task, content, (region, start), mode, notes)


def _fields(
    task: Task, content: Mapping[str, Any], source: tuple[str, int], mode: Mode, notes: Sequence[str]
) -> _Fields:
    """Check the types and gather the fields.

    ``source`` is the text and the offset where the object begins in it, ``notes`` what was already repaired.
    """
    repairs = list(notes)
    fields = task.answer.label_fields
    counts = {field.key: _count(field, content[field.key]) for field in fields if field.key in content}
    labels = _labels_in(task, *source)
    if counts != {key: len(found) for key, found in labels.items()}:
        raise _UnreadableError("the list of labels is damaged")
    repairs += [f"the field {field.key!r} is missing" for field in fields if field.key not in labels]
    lists: dict[str | None, Sequence[str]] = {None: ()}
    for key, is_required in _lists(task, mode).items():
        if key not in content and is_required:
            repairs.append(f"the field {key!r} is missing")
        lists[key] = _strings(key, content.get(key, []))
    confidence, remark = _confidence(task, content)
    return _Fields(
        labels=labels,
        words=lists[task.answer.referred_words],
        concepts=lists[task.answer.referred_image_concepts],
        reasons=lists[task.answer.reasons],
        notes=[*repairs, *remark],
        parse="repaired" if repairs else "strict",
        confidence=confidence,
    )


def _answer(task: Task, found: _Fields, mode: Mode, match: Matcher) -> Answer:
    """Match the labels and note what is odd about them; nothing that the model said is corrected."""
    notes = list(found.notes)
    spans: dict[str, LabelSpan] = {}
    unknown: list[str] = []
    for field in task.answer.label_fields:
        for quoted in found.labels.get(field.key, ()):
            label = match(task, field, quoted, tuple(spans))
            if label is None:
                unknown.append(f"{quoted.key}{PAIR}{quoted.value}" if quoted.key else quoted.value)
            elif label in spans:
                notes.append(f"label {label!r} is given more than once")
            else:
                spans[label] = LabelSpan(label=label, start=quoted.start, end=quoted.end)
    notes += task.contradictions(tuple(spans))
    if unknown and tuple(spans) == (task.none_label,):
        notes.append(f"{task.none_label} stands beside other labels")
    return Answer(
        labels=tuple(spans),
        label_spans=tuple(spans.values()),
        unknown_labels=tuple(unknown),
        referred_words=tuple(found.words),
        referred_image_concepts=tuple(found.concepts),
        parse=found.parse,
        parse_note="; ".join([*notes, *_rationale_notes(task, found, mode)]),
        confidence=found.confidence,
        reasons=tuple(found.reasons),
    )


def _matched(task: Task, field: LabelField, quoted: Quoted, given: Sequence[str]) -> str | None:
    """The label that a string of a field names: below the label ``given`` before, where it is one of those."""
    choices = task.choices(field)
    if task.pairs is not None:
        first = task.match_first(quoted.key)
        return task.match_label(quoted.value, [name for name in choices if task.ancestors(name) == (first,)])
    below = [name for name in choices if field.under is not None and set(task.ancestors(name)) & set(given)]
    return (task.match_label(quoted.value, below) if below else None) or task.match_label(quoted.value, choices)


def _rationale_notes(task: Task, found: _Fields, mode: Mode) -> list[str]:
    """Where the rationale is not what the prompt asked for."""
    notes = []
    if "image" not in mode and found.concepts:
        notes.append("image concepts are named though there was no picture")
    if len(found.concepts) > task.answer.max_image_concepts:
        notes.append(f"more than {task.answer.max_image_concepts} image concepts are named")
    return notes


def _lists(task: Task, mode: Mode | None = None) -> dict[str, bool]:
    """The keys of lists of strings in the answer that are no labels, and whether each is required in the mode."""
    answer = task.answer
    asked = {
        answer.referred_words: mode is not None,
        answer.referred_image_concepts: mode is not None and "image" in mode,
        answer.reasons: mode is not None,
    }
    return {key: is_required for key, is_required in asked.items() if key is not None}


def _confidence(task: Task, content: Mapping[str, Any]) -> tuple[float | None, list[str]]:
    """The confidence that the answer states, 0 to 1, or ``None`` and a note that says why; nothing where not asked.

    A number up to 1 is a share and one above 1 a percentage; with a percent sign it is a percentage in any case.
    """
    field = task.answer.confidence
    if field is None:
        return None, []
    if field not in content:
        return None, [f"the field {field!r} is missing"]
    share = _share(content[field])
    return share, [] if share is not None else [f"the field {field!r} is no number from 0 to 1 and no percentage"]


def _share(value: object) -> float | None:
    is_percentage = False
    if isinstance(value, str):
        number = _NUMBER.fullmatch(value)
        if number is None:
            return None
        value, is_percentage = float(number[1]), bool(number[2])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        return None
    return value / 100 if is_percentage or value > 1 else float(value)


def _strings(field: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise _UnreadableError(f"the field {field!r} is not a list of strings")
    if any(_SURROGATE.search(entry) for entry in value):
        raise _UnreadableError(f"the field {field!r} holds half a character (a lone surrogate)")
    return value


def _labels_in(task: Task, text: str, start: int) -> dict[str, list[Quoted]]:
    """The labels of the object at ``start`` by field, found by walking its structure up to the last of these fields.

    Raises:
        _UnreadableError: the walk meets damage before that, or the object lacks the first of these fields.
    """
    wanted = {field.key: field for field in task.answer.label_fields}
    first, found = next(iter(wanted)), dict[str, list[Quoted]]()
    at = _skip_space(text, start + 1)
    while text[at : at + 1] not in ("}", "") and len(found) < len(wanted):
        key, at = _scan_key(text, at)
        at = _expect(":", text, _skip_space(text, at))
        if key in wanted:
            found[key], at = _scan_labels(text, at, wanted[key])
        else:
            at = _skip_value(text, at)
        at = _skip_space(text, at)
        at = _skip_space(text, at + 1) if text[at : at + 1] == "," else at
    if first not in found:
        raise _UnreadableError(f"the answer has no field {first!r}")
    return found


def _scan_labels(text: str, at: int, field: LabelField) -> tuple[list[Quoted], int]:
    """The strings of a field of labels and the offset behind it."""
    if field.form == "pairs":
        return _scan_pairs(text, at)
    return _scan_one_or_list(text, at) if field.form == "one" else _scan_list(text, at)


def _scan_pairs(text: str, start: int) -> tuple[list[Quoted], int]:
    """The values of the object at ``start``, strings or lists of strings, each with its key."""
    at = _expect("{", text, start)
    entries: list[Quoted] = []
    while text[at : at + 1] != "}":
        key, at = _scan_key(text, at)
        values, at = _scan_one_or_list(text, _expect(":", text, _skip_space(text, at)))
        entries += [replace(value, key=key) for value in values]
        at = _skip_space(text, at)
        if text[at : at + 1] != "}":
            at = _expect(",", text, at)
    return entries, at + 1


def _scan_one_or_list(text: str, at: int) -> tuple[list[Quoted], int]:
    if text[at : at + 1] == "[":
        return _scan_list(text, at)
    entry = _scan_string(text, at)
    return [entry], entry.end + 1


def _count(field: LabelField, value: object) -> int:
    """How many labels a field holds.

    Raises:
        _UnreadableError: it holds something else.
    """
    if field.form == "pairs":
        if not isinstance(value, dict):
            raise _UnreadableError(f"the field {field.key!r} is not an object of labels and their values")
        return sum(_count(LabelField(key=field.key, form="one"), one) for one in value.values())
    return 1 if field.form == "one" and isinstance(value, str) else len(_strings(field.key, value))


def _scan_list(text: str, start: int) -> tuple[list[Quoted], int]:
    """The strings of the list at ``start`` and the offset behind it; a comma may follow the last one."""
    at = _expect("[", text, start)
    entries: list[Quoted] = []
    while text[at : at + 1] != "]":
        entry = _scan_string(text, at)
        entries.append(entry)
        at = _skip_space(text, entry.end + 1)
        if text[at : at + 1] != "]":
            at = _expect(",", text, at)
    return entries, at + 1


def _scan_key(text: str, at: int) -> tuple[str, int]:
    bare = _BARE_KEY.match(text, at)
    if bare:
        return bare.group(), bare.end()
    quoted = _scan_string(text, at)
    return quoted.value, quoted.end + 1


def _scan_string(text: str, at: int) -> Quoted:
    """The string at ``at``: JSON's own, or one in single or typographic quotation marks without escapes."""
    if text[at : at + 1] == '"':
        try:
            value, behind = scanstring(text, at + 1, True)
        except ValueError:
            _fail_walk()
        return Quoted(value, at + 1, behind - 1)
    loose = _LOOSE_STRING.match(text, at)
    if loose is None:
        _fail_walk()
    return Quoted(text[at + 1 : loose.end() - 1], at + 1, loose.end() - 1)


def _skip_value(text: str, at: int) -> int:
    try:
        end: int = STRICT.raw_decode(text, at)[1]
    except NotStrictError as error:
        raise _UnreadableError(str(error)) from None
    except ValueError:
        return _scan_list(text, at)[1]
    return end


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _expect(character: str, text: str, at: int) -> int:
    """The offset of what follows ``character`` and space."""
    if text[at : at + 1] != character:
        _fail_walk()
    return _skip_space(text, at + 1)


def _fail_walk() -> NoReturn:
    raise _UnreadableError("the JSON is damaged or cut before its list of labels is complete")


def _without_half_word(text: str) -> str:
    """``text`` up to the string in which it was cut, if so: half a word is not what the model said."""
    at = text.find('"')
    while at >= 0:
        try:
            at = text.find('"', scanstring(text, at + 1, True)[1])
        except ValueError:
            # Brackets mean that an odd quotation mark put the strings out of step, not that the end is missing.
            return text if set(text[at:]) & set("[]{}") else text[:at]
    return text


@lru_cache
def _parser(name: str) -> Parser:
    module, _, function = name.partition(":")
    try:
        found: Parser = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"the parser {name!r} cannot be imported ({error}); give package.module:function") from None
    return found


def _without_reasoning(text: str) -> str:
    """``text`` with a reasoning trace blanked, so that every offset still holds.

    The trace may lack its opening tag, which some chat templates put in the prompt.
    """
    body = text.lstrip()
    end = 0
    while body.startswith("<think>"):
        close = text.find("</think>", end)
        if close < 0:
            raise _UnreadableError("the reply ends inside its reasoning; allow more new tokens")
        end = close + len("</think>")
        body = text[end:].lstrip()
    if not end and "</think>" in text and not body.startswith(("{", "```")):
        end = text.find("</think>") + len("</think>")
    return " " * end + text[end:]

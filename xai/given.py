"""Answers that were generated elsewhere: a JSONL file of them, by meme and mode, and by stage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, StrictInt, StrictStr, ValidationError, model_validator

from xai.schema import Failure, Mode, Record
from xai.strict_json import STRICT

Answer = str | Sequence[int]
"""An answer as its text or, better, its token ids."""


class GivenAnswer(Record):
    """One line of the file; an answer without a mode is that of every mode which has none of its own."""

    id: StrictStr = Field(min_length=1)
    mode: Mode | None = None
    stage: StrictStr | None = None
    text: StrictStr | None = None
    generated_ids: tuple[StrictInt, ...] | None = None

    @model_validator(mode="after")
    def _check_answer(self) -> GivenAnswer:
        if not self.generated_ids and not self.text:
            raise ValueError("give the answer's generated_ids, its text, or both")
        return self


@dataclass(frozen=True)
class GivenAnswers:
    """The answers of a file, and a failure for every line that holds none."""

    name: str
    digest: str
    answers: Mapping[tuple[str, Mode | None], GivenAnswer]
    failures: tuple[Failure, ...]

    def find(self, meme_id: str, mode: Mode) -> GivenAnswer:
        """The answer for a meme in a mode.

        Raises:
            ValueError: there is none; the message names the modes that there are.
        """
        found = self.answers.get((meme_id, mode)) or self.answers.get((meme_id, None))
        if found is None:
            modes = sorted(other for name, other in self.answers if name == meme_id and other is not None)
            there = f"; it has one in {', '.join(modes)}" if modes else ""
            raise ValueError(f"{self.name!r} has no answer for meme {meme_id!r} in mode {mode!r}{there}")
        return found

    @property
    def ids(self) -> list[str]:
        """The memes that have an answer, in the order of the file."""
        return list(dict.fromkeys(meme_id for meme_id, _ in self.answers))


def read_answers(path: str | Path, stage: str | None = None) -> GivenAnswers:
    """Reads a JSONL file with ``id``, ``mode`` (optional) and ``text`` or ``generated_ids`` or both a line.

    Other columns are passed over. A line that cannot be used is a failure, and the rest goes on.

    Args:
        stage: only lines with this ``stage``, of a task that is asked in stages.

    Raises:
        ValueError: the file cannot be read, or holds no answer at all, or none of the stage.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        lines = data.decode("utf-8-sig").split("\n")
    except OSError as error:
        raise ValueError(f"answers {path.name!r} cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"answers {path.name!r} are not UTF-8 (at byte {error.start}); save them as UTF-8") from None
    answers: dict[tuple[str, Mode | None], GivenAnswer] = {}
    failures = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            answer = _answer(line)
            if stage is not None and answer.stage != stage:
                continue
            if (answer.id, answer.mode) in answers:
                raise ValueError(f"meme {answer.id!r} has an answer in this mode already; leave one out")
            answers[answer.id, answer.mode] = answer
        except ValueError as error:
            place = f"{path.name} line {number}"
            failures.append(Failure(meme_id=place, stage="read", reason=f"{place}: {error}"))
    if not answers:
        first = f": {failures[0].reason}" if failures else ""
        columns = "id and text" if stage is None else f"id, text and the stage {stage!r}"
        raise ValueError(f"{path.name!r} holds no answers{first}; give one JSON object a line with {columns}")
    return GivenAnswers(path.name, hashlib.sha256(data).hexdigest()[:16], answers, tuple(failures))


def _answer(line: str) -> GivenAnswer:
    try:
        columns: Any = STRICT.decode(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error}); write one object a line") from None
    if not isinstance(columns, dict):
        raise ValueError("not a JSON object; write id and text or generated_ids")
    known = {name: columns[name] for name in GivenAnswer.model_fields if columns.get(name) is not None}
    try:
        json.dumps(known, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half a character (a lone surrogate); correct the text") from None
    if not isinstance(known.get("stage"), str):
        known.pop("stage", None)
    if isinstance(known.get("id"), int) and not isinstance(known["id"], bool):
        known["id"] = str(known["id"])  # as datasets have it
    try:
        return GivenAnswer(**known)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][:1]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"].removeprefix("Value error, ")) from None

"""A panel's folder: its configuration, what each stage wrote, and how far every record has come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from xai.annotation.ledger import Entry, Ledger, now
from xai.annotation.settings import PanelSettings
from xai.parts import write_text
from xai.schema import Meme
from xai.tasks import Task

FORMAT = 1
"""Version of the folder's layout."""
CONFIG, RECORDS, DECISIONS = "panel.json", "records.jsonl", "decisions.jsonl"
PHRASES, PEOPLE = "phrases.jsonl", "people.jsonl"
MAX_NAME, MAX_WHY, MAX_SHOWN = 100, 2_000, 80

State = Literal[
    "unread",
    "dropped",
    "unanswered",
    "excluded",
    "people",
    "excluded by people",
    "phrases",
    "votes",
    "kept",
    "voted out",
]
STATES: Mapping[State, str] = {
    "unread": "could not be read",
    "dropped": "left out by the cleaner",
    "unanswered": "not yet answered by all annotators",
    "excluded": "excluded by the arbiter as hopeless",
    "people": "waits for a person's decision",
    "excluded by people": "excluded by a person",
    "phrases": "accepted, waits for the explicator",
    "votes": "accepted, waits for votes",
    "kept": "kept by the validators",
    "voted out": "dropped by the validators",
}
"""How far a record has come, in the order of the stages."""
Vote = Literal["for", "against"]


class PanelError(ValueError):
    """A folder cannot be used as a panel's, or a decision cannot be stored; the message says what to do."""


class Accepted(NamedTuple):
    """The labels that a record was accepted with, by whom, why, and when."""

    labels: tuple[str, ...]
    who: str
    why: str
    time: str


@dataclass(frozen=True)
class Item:
    """One record and everything that was decided about it.

    ``answers`` has one entry an annotator, ``None`` where it was not asked yet. ``decision`` is the arbiter's,
    ``person`` the last one of a person. ``phrases`` are the explicator's for the labels that the record has now.
    ``votes`` are the current ones, by name; votes on other labels or phrases no longer count.
    """

    record: Entry
    state: State
    answers: tuple[Entry | None, ...] = ()
    decision: Entry | None = None
    person: Entry | None = None
    accepted: Accepted | None = None
    phrases: Entry | None = None
    votes: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The record's name in the dataset."""
        return str(self.record["id"])

    @cached_property
    def meme(self) -> Meme:
        """The meme as the models were shown it."""
        return Meme.model_validate(self.record["meme"])

    @property
    def kept_phrases(self) -> tuple[str, ...]:
        """The explicator's phrases that passed the check."""
        return tuple(self.phrases["phrases"]) if self.phrases else ()

    @property
    def basis(self) -> str:
        """What tells the labels and phrases that are voted on from others."""
        return digest([list(self.accepted.labels) if self.accepted else [], list(self.kept_phrases)])

    @property
    def n_for(self) -> int:
        """Votes in favour."""
        return sum(vote["vote"] == "for" for vote in self.votes.values())


class Panel:
    """A panel's folder, for reading, and for what people decide.

    Raises:
        PanelError: it is no such folder, or one of another layout.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.info = _read_config(self.path)
        self.settings = PanelSettings.model_validate(self.info["config"]["settings"])
        self._people, self._phrases = Ledger(self.path / PEOPLE), Ledger(self.path / PHRASES)
        self._read: dict[str, tuple[object, list[Entry]]] = {}

    @cached_property
    def task(self) -> Task:
        """The task as it was when the panel was begun, wherever its file is now."""
        return Task.model_validate(self.info["config"]["task"])

    @property
    def reports(self) -> Path:
        """The folder of the report."""
        return self.path / "reports"

    def state_of_files(self) -> tuple[tuple[str, int, int], ...]:
        """What changes when a stage or a person has written something."""
        found = sorted(path for path in self.path.glob("*.jsonl*") if path.is_file())
        return tuple((path.name, (status := path.stat()).st_size, status.st_mtime_ns) for path in found)

    def items(self) -> list[Item]:
        """Every record, in the order of the dataset."""
        answers = [{entry["id"]: entry for entry in given} for given in self._answers()]
        decisions = {entry["id"]: entry for entry in self._entries(DECISIONS)}
        people, votes = self._by_people()
        phrases = {(one["id"], tuple(one["labels"])): one for one in self._phrases.entries() if not one["failure"]}
        return [
            self._item(
                record,
                tuple(given.get(record["id"]) for given in answers),
                decisions.get(record["id"]),
                people.get(record["id"]),
                phrases,
                votes.get(record["id"], ()),
            )
            for record in self._entries(RECORDS)
        ]

    def item(self, name: str) -> Item:
        """One record by its name.

        Raises:
            KeyError: there is none.
        """
        found = next((item for item in self.items() if item.id == name), None)
        if found is None:
            raise KeyError(f"the panel has no record {name!r}")
        return found

    def decide(
        self, name: str, person: str, verdict: Literal["accepted", "excluded"] | None, labels: Sequence[str], why: str
    ) -> None:
        """Store a person's decision on a record that the arbiter left open; ``None`` takes it back.

        Raises:
            PanelError: no name, no labels or unknown ones, no reason for an exclusion, or a record that is not open.
            LedgerError: it cannot be written.
        """
        item = self.item(name)
        if item.decision is None or item.decision["verdict"] != "people":
            raise PanelError("the arbiter did not leave this record to people")
        _check_person(person, why)
        if verdict == "accepted":
            self._check_labels(labels)
        if verdict == "excluded" and not why.strip():
            raise PanelError("say why the record is excluded")
        given = {"verdict": verdict, "labels": list(labels) if verdict == "accepted" else [], "why": why.strip()}
        self._people.add({"page": "arbiter", "id": name, "person": person.strip(), **given})

    def vote(self, name: str, person: str, vote: Vote | None, why: str = "") -> None:
        """Store a person's vote on an accepted record; ``None`` takes it back. The last one counts.

        Raises:
            PanelError: no name, a record that is not to be voted on, or one that has all its votes.
            LedgerError: it cannot be written.
        """
        item = self.item(name)
        person = person.strip()
        if item.state not in ("votes", "kept", "voted out"):
            raise PanelError(f"this record is not to be voted on: {STATES[item.state]}")
        _check_person(person, why)
        if person not in item.votes and len(item.votes) >= self.settings.votes.validators:
            raise PanelError(f"{self.settings.votes.validators} people have voted on this record; it takes no more")
        given = {"vote": vote, "why": why.strip(), "of": item.basis}
        self._people.add({"page": "validator", "id": name, "person": person, **given})

    def failures(self) -> list[Entry]:
        """What could not be read or answered: record, stage, who, reason; of the explicator what it still owes."""
        found = [
            {"id": one["id"], "stage": "read", "who": one["who"], "reason": one["reason"]}
            for one in self._entries(RECORDS)
            if one["stage"] == "read"
        ]
        found += [
            {"id": one["id"], "stage": "answer", "who": one["annotator"], "reason": one["failure"]}
            for given in self._answers()
            for one in given
            if one["failure"]
        ]
        last = {one["id"]: one for one in self._phrases.entries()}
        return found + [
            {"id": one["id"], "stage": "explicate", "who": one["who"], "reason": one["failure"]}
            for one in last.values()
            if one["failure"]
        ]

    def history(self, name: str) -> list[Entry]:
        """Everything that people ever stored about a record, in order."""
        return [entry for entry in self._people.entries() if entry["id"] == name]

    def _answers(self) -> list[list[Entry]]:
        return [self._entries(answers_name(number)) for number in range(1, len(self.settings.annotators) + 1)]

    def _entries(self, name: str) -> list[Entry]:
        """The entries of a stage's file, read again only when it was written to: a page asks at every click."""
        found = [path for path in (self.path / name, self.path / f"{name}.part") if path.is_file()]
        state = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in found]
        if name not in self._read or self._read[name][0] != state:
            self._read[name] = state, list(entries_of(self.path / name))
        return self._read[name][1]

    def _check_labels(self, labels: Sequence[str]) -> None:
        unknown = [label for label in labels if label not in self.task.label_names]
        if unknown or not labels:
            what = f"{unknown[0]!r} is no label of the task" if unknown else "no label is chosen"
            raise PanelError(f"{what}; choose at least one of {', '.join(self.task.label_names)}")
        if odd := self.task.contradictions(labels):
            raise PanelError(f"the labels contradict each other: {odd[0]}")

    def _by_people(self) -> tuple[dict[str, Entry], dict[str, list[Entry]]]:
        """The standing decision by record, and all events of votes by record."""
        decided: dict[str, Entry] = {}
        votes: dict[str, list[Entry]] = {}
        for entry in self._people.entries():
            if entry["page"] == "validator":
                votes.setdefault(entry["id"], []).append(entry)
            elif entry["verdict"] is None:
                decided.pop(entry["id"], None)
            else:
                decided[entry["id"]] = entry
        return decided, votes

    def _item(
        self,
        record: Entry,
        answers: tuple[Entry | None, ...],
        decision: Entry | None,
        person: Entry | None,
        phrases: Mapping[tuple[str, tuple[str, ...]], Entry],
        votes: Iterable[Entry],
    ) -> Item:
        state: State
        accepted = _accepted(decision, person)
        if record["reason"]:
            state = "unread" if record["stage"] == "read" else "dropped"
        elif decision is None:
            state = "unanswered"
        elif accepted is None:
            state = "excluded by people" if person else "excluded" if decision["verdict"] == "excluded" else "people"
        else:
            found = phrases.get((record["id"], accepted.labels))
            item = Item(record, "phrases", answers, decision, person, accepted, found)
            if found is None and self.wants_phrases(accepted.labels):
                return item
            return self._voted(item, votes)
        return Item(record, state, answers, decision, person)

    def wants_phrases(self, labels: Iterable[str]) -> bool:
        """Whether the explicator is asked about a record with these labels."""
        return not set(labels).isdisjoint(self.settings.explicator.labels or ())

    def _voted(self, item: Item, events: Iterable[Entry]) -> Item:
        wanted = self.settings.votes
        standing: dict[str, Entry] = {}
        for entry in events:
            if entry["of"] != item.basis:
                continue
            if entry["vote"] is None:
                standing.pop(entry["person"], None)
            elif entry["person"] in standing or len(standing) < wanted.validators:
                standing[entry["person"]] = entry
        n_for = sum(entry["vote"] == "for" for entry in standing.values())
        state: State = "votes"
        if n_for >= wanted.keep:
            state = "kept"
        elif len(standing) - n_for > wanted.validators - wanted.keep:
            state = "voted out"
        known = (item.record, state, item.answers, item.decision, item.person, item.accepted, item.phrases)
        return Item(*known, votes=standing)


def is_panel(path: Path) -> bool:
    """Whether a folder is a panel's."""
    return (path / CONFIG).is_file()


def refuse_foreign(path: Path) -> None:
    """Refuse a place that holds something else than a panel.

    Raises:
        PanelError: it does.
    """
    if path.is_file():
        raise PanelError(f"{path.name!r} is a file; give a folder for the panel")
    if path.is_dir() and not is_panel(path) and any(entry.name != ".lock" for entry in path.iterdir()):
        raise PanelError(f"folder {path.name!r} holds something else than a panel; give an empty or a new folder")


def prepare(path: Path, config: Mapping[str, Any], versions: Mapping[str, Any]) -> Panel:
    """The panel in a folder, made with that configuration, or that which is there already with the same one.

    Raises:
        PanelError: the folder holds a panel of another configuration, which the message names.
    """
    if not is_panel(path):
        info = {"format": FORMAT, "made": now(), "versions": dict(versions), "config": dict(config)}
        write_text(path / CONFIG, json.dumps(info, ensure_ascii=False, indent=1) + "\n")
        return Panel(path)
    panel = Panel(path)
    before, given = _flat(panel.info["config"]), _flat(json.loads(json.dumps(config)))
    changed = [name for name in {**before, **given} if before.get(name) != given.get(name)]
    if changed:
        shown = "; ".join(_difference(name, before.get(name), given.get(name)) for name in changed[:5])
        more = f"; and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise PanelError(
            f"panel {path.name!r} was begun with another configuration ({shown}{more}); use the same one to go on, or "
            "write to another folder"
        )
    return panel


def answers_name(number: int) -> str:
    """The file with the answers of the annotator of that number, counted from 1."""
    return f"answers-{number}.jsonl"


def entries_of(path: Path) -> Iterator[Entry]:
    """The entries of a file that a journal makes, also while it is made.

    Raises:
        PanelError: a line is no entry.
    """
    part = path.with_name(f"{path.name}.part")
    # The journal becomes the file at the end, perhaps between the first two looks.
    for candidate, n_head in ((path, 0), (part, 1), (path, 0)):
        try:
            content = candidate.read_bytes()
        except FileNotFoundError:
            continue
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]):
            if number >= n_head:
                yield _entry(candidate, number + 1, line)
        return


def _entry(path: Path, number: int, line: bytes) -> Entry:
    try:
        found: Entry = json.loads(line)
        found["id"]
    except (ValueError, KeyError, TypeError):
        raise PanelError(
            f"line {number} of {path.name!r} is damaged; restore the file, or begin anew elsewhere"
        ) from None
    return found


def digest(value: object) -> str:
    """What tells one JSON value from another."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode("utf-8")).hexdigest()[:16]


def _accepted(decision: Entry | None, person: Entry | None) -> Accepted | None:
    if person is not None:
        why = person["why"] or "decided by a person"
        found = Accepted(tuple(person["labels"]), person["person"], why, person["time"])
        return found if person["verdict"] == "accepted" else None
    if decision is None or decision["verdict"] != "accepted":
        return None
    return Accepted(tuple(decision["labels"]), decision["who"], decision["why"], decision["time"])


def _check_person(person: str, why: str) -> None:
    if not person.strip() or len(person) > MAX_NAME:
        raise PanelError(f"a decision needs the name of who decides, at most {MAX_NAME} characters")
    if len(why) > MAX_WHY:
        raise PanelError(f"the reason has {len(why)} characters; at most {MAX_WHY} are stored")


def _read_config(path: Path) -> dict[str, Any]:
    try:
        info: dict[str, Any] = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        found = info["format"]
        PanelSettings.model_validate(info["config"]["settings"])
    except OSError:
        raise PanelError(
            f"{path.name!r} is not a panel's folder; `xai annotate DATASET --out FOLDER` makes one"
        ) from None
    except (ValueError, KeyError, TypeError, ValidationError):
        raise PanelError(f"the {CONFIG} of {path.name!r} is damaged; restore it, or begin anew elsewhere") from None
    if found != FORMAT:
        raise PanelError(
            f"panel {path.name!r} has layout {found}, and this version reads {FORMAT}; begin anew elsewhere"
        )
    return info


def _difference(name: str, before: object, given: object) -> str:
    if name == "dataset.sha256":
        return "records of the dataset, or the paths or sizes of its pictures, have changed"
    return f"{name}: {_short(before)}, now {_short(given)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _flat(value: object, name: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dots between the names."""
    if not isinstance(value, Mapping):
        return {name: value}
    parts = [_flat(inner, f"{name}.{key}" if name else str(key)) for key, inner in value.items()]
    return {key: inner for part in parts for key, inner in part.items()}

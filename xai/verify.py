"""Whether a run folder holds what was written to it, all of it and nothing else: what ``xai verify`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from xai.checksums import Examined, examine
from xai.parts import KINDS, Key, committed, is_locked, leftovers
from xai.schema import Mode
from xai.store import RunError, open_run

Level = Literal["error", "warning", "note"]
"""An error: rows are wrong or missing; a warning: they may not be what you think; a note: there is nothing to do."""

_GO_ON = "give the same xai explain command again"
_ANEW = "it was changed by hand or by another program: explain into a new folder"
_NAMED = 3


@dataclass(frozen=True)
class Finding:
    """One thing that was found in a run: where, what, and what to do."""

    level: Level
    where: str
    what: str
    remedy: str


@dataclass(frozen=True)
class RunCheck:
    """What came of checking one run.

    Attributes:
        run: the folder's name.
        state: ``finished``; ``running``: a process is writing it; ``stopped``: none is, and it is not finished;
            ``unknown`` where ``run.json`` cannot be read.
        rows: by kind, of all parts that are sound.
        n_sealed: parts with checksums, of ``n_parts``.
        versions: the packages that it was last written with.
    """

    run: str
    state: str
    rows: Mapping[str, int]
    n_parts: int
    n_sealed: int
    n_bytes: int
    versions: Mapping[str, str]
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether there is no error."""
        return all(finding.level != "error" for finding in self.findings)

    def report(self) -> dict[str, Any]:
        """Everything in JSON values."""
        return {"sound": self.is_sound, **asdict(self), "findings": [asdict(one) for one in self.findings]}


def check_run(path: str | Path) -> RunCheck:
    """Reads every byte of a run's parts once and says what is wrong with them, and with the run as a whole.

    Raises:
        RunError: the folder is no run.
    """
    path = Path(path)
    info, findings = _info(path)
    # Before the parts: what is written in the meantime belongs to no finished run.
    is_written = is_locked(path)
    rows: Counter[str] = Counter(dict.fromkeys(sorted(KINDS), 0))
    seen: set[Key] = set()
    numbers = committed(path)
    n_sealed = n_bytes = 0
    for number in numbers:
        found = examine(path, number)
        findings += _of_part(found, seen)
        rows.update(found.rows)
        n_sealed += found.checksums is not None
        n_bytes += found.n_bytes
    is_whole = not any(finding.level == "error" for finding in findings)
    findings += _of_numbers(numbers, n_sealed)
    said = info.get("state", "unknown")
    state = "running" if is_written else "stopped" if said == "running" else said
    findings += _of_state(info, state, rows if is_whole else None)
    findings += _of_leftovers(path, is_written)
    findings += _of_versions(info)
    versions = [info.get("versions", {}), *info.get("resumed_with", [])][-1]
    return RunCheck(path.resolve().name, state, dict(rows), len(numbers), n_sealed, n_bytes, versions, tuple(findings))


def compare_versions(checks: Sequence[RunCheck]) -> list[Finding]:
    """What differs between the packages of several runs, which a comparison of them should not hide."""
    names = sorted({name for check in checks for name in check.versions})
    return [
        Finding(
            "warning",
            "all runs",
            f"{name}: " + ", ".join(f"{check.run} {check.versions.get(name, 'none')}" for check in checks),
            "differences between these runs may come from the versions: make them with the same ones to compare them",
        )
        for name in names
        if len({check.versions.get(name) for check in checks}) > 1
    ]


def _info(path: Path) -> tuple[dict[str, Any], list[Finding]]:
    try:
        return open_run(path).info, []
    except RunError as error:
        if not (path / "run.json").is_file():
            raise
        remedy = "put run.json back from a copy; the parts are checked all the same"
        return {}, [Finding("error", "run.json", str(error), remedy)]


def _of_part(found: Examined, seen: set[Key]) -> Iterator[Finding]:
    """What is wrong with one number; its memes and modes are added to ``seen``."""
    for file, what in found.problems:
        yield Finding("error", file, what, f"{_GO_ON}: the memes of this part are explained anew")
    if found.problems:
        return
    where = f"part {found.number}"
    answered, failed = Counter(found.rows_of("predictions")), set(found.rows_of("failures"))
    explained = Counter(found.rows_of("explanations"))
    about = {(meme_id, mode) for meme_id, mode, *_ in explained}
    groups: dict[str, Iterable[Sequence[str | None]]] = {
        "without an id": [key for key in {*answered, *failed, *about} if not key[0]],
        "in a mode that there is not": [key for key in {*answered, *about} if key[1] not in get_args(Mode)],
        "answered twice": [key for key, n in answered.items() if n > 1],
        "explained twice for one target by one method": [key for key, n in explained.items() if n > 1],
        "explained without a prediction": about - answered.keys(),
        "answered, but neither explained nor failed": answered.keys() - about - failed,
        "in an earlier part, too": seen & found.keys(),
    }
    for what, keys in groups.items():
        if keys:
            yield Finding("error", where, f"{_named(keys)} {what}", _ANEW)
    if found.checksums is not None and found.checksums.records != len(found.keys()):
        yield Finding("error", where, f"{len(found.keys())} of {found.checksums.records} records", _ANEW)
    seen |= found.keys()


def _named(keys: Iterable[Sequence[str | None]]) -> str:
    """How many memes, and the first of them."""
    names = sorted({" ".join(str(value) for value in key) for key in keys})
    return f"{len(names)} of {', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''}"


def _of_numbers(numbers: Sequence[int], n_sealed: int) -> Iterator[Finding]:
    missing = sorted(set(range(max(numbers, default=-1))) - set(numbers))
    for number in missing:
        yield Finding("error", f"part {number}", "is not there", f"{_GO_ON}: its memes are explained anew")
    if n_sealed < len(numbers):
        what = f"{len(numbers) - n_sealed:,} of {len(numbers):,} parts have none, since an earlier version wrote them"
        remedy = "what was cut short is found all the same, what was changed is not"
        yield Finding("note", "checksums", what, remedy)


def _of_state(info: Mapping[str, Any], state: str, rows: Mapping[str, int] | None) -> Iterator[Finding]:
    if state == "running":
        yield Finding("warning", "run.json", "the run is being written now", "verify it again when it is finished")
    if state == "stopped":
        yield Finding("error", "run.json", "the run was stopped before its end", f"{_GO_ON}: it goes on where it was")
    counts = info.get("counts", {})
    # They are brought up to date when a run begins, goes on and ends.
    if state == "finished" and rows is not None and counts != rows:
        counted, said = (", ".join(f"{n:,} {kind}" for kind, n in one.items()) for one in (rows, counts))
        is_less = any(rows.get(kind, 0) < n for kind, n in counts.items())
        remedy = f"{_GO_ON}: what is missing is explained anew" if is_less else _ANEW
        yield Finding("error", "run.json", f"says {said or 'nothing'}; the parts have {counted}", remedy)
    for number in info.get("redone_parts", []):
        remedy = "nothing, unless it happens again: then see to the disk"
        yield Finding("note", f"part {number}", "was damaged once and explained anew", remedy)


def _of_leftovers(path: Path, is_written: bool) -> Iterator[Finding]:
    damaged = sorted(f"{file.parent.name}/{file.name}" for kind in KINDS for file in (path / kind).glob("*.damaged"))
    for name in damaged:
        yield Finding("note", name, "was set aside when its memes were explained anew", "delete it when you like")
    files = [] if is_written else sorted(f"{file.parent.name}/{file.name}" for file in leftovers(path))
    for name in files:
        yield Finding("warning", name, "was left by a stop and is never read", f"{_GO_ON}: it is removed")


def _of_versions(info: Mapping[str, Any]) -> Iterator[Finding]:
    remedy = "rows may differ in their last digits by when they were written: to have all of one, explain anew"
    for first, later in (("versions", "resumed_with"), ("environment", "resumed_in")):
        used = [info.get(first, {}), *info.get(later, [])]
        for name in sorted({name for one in used for name in one}):
            values = list(dict.fromkeys(str(one[name]) if name in one else "none" for one in used))
            if len(values) > 1:
                yield Finding("warning", "run.json", f"{name}: {', then '.join(values)}", remedy)

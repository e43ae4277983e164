"""Takes a dataset through the panel: extract, clean, ask every annotator, arbitrate, explicate; goes on after any stop.

There is no collector. What is on the disk is read; nothing is fetched from a platform.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from xai.annotation.arbiter import VERSION as ARBITER_VERSION
from xai.annotation.arbiter import Answer, arbitrate
from xai.annotation.asking import POST_MODE, PanelModel, Reply
from xai.annotation.explicator import VERSION as EXPLICATOR_VERSION
from xai.annotation.explicator import explicator_task, read_phrases
from xai.annotation.folder import (
    DECISIONS,
    PHRASES,
    RECORDS,
    Item,
    Panel,
    PanelError,
    answers_name,
    entries_of,
    prepare,
    refuse_foreign,
)
from xai.annotation.ledger import Entry, Ledger, now
from xai.annotation.models import panel_model
from xai.annotation.settings import PANEL, Asked, PanelSettings
from xai.datasets import DatasetRecord, read_memes
from xai.journal import Journal
from xai.parts import lock_folder, unlock
from xai.schema import ALL_MODES, Failure, Meme
from xai.tasks import Task
from xai.tasks.answers import parse_answer

T = TypeVar("T")
BATCH_SIZE = 8


@contextmanager
def _silent(what: str, total: int) -> Iterator[Callable[[int], None]]:
    yield lambda n: None


@dataclass(frozen=True)
class Work:
    """How a panel is filled, none of which changes what is decided.

    ``progress`` is called with the name of a stage and how many records it has, and gives a context manager whose value
    is called with how many are done since the last call.
    """

    batch_size: int = BATCH_SIZE
    device: str | None = None
    dtype: str | None = None
    progress: Callable[[str, int], Any] = _silent


def annotate(
    dataset: str | Path,
    out: str | Path,
    settings: PanelSettings,
    *,
    images: str | Path | None = None,
    limit: int | None = None,
    work: Work | None = None,
) -> Panel:
    """Fill a panel's folder as far as it can be filled without people; started again, it goes on where it stopped.

    Models are loaded one after the other. When people have decided what the arbiter left open, the same call asks the
    explicator about what they accepted. A call with nothing left to do loads no model and writes nothing.

    Args:
        dataset: its path, as for :func:`xai.datasets.read_memes`.
        out: the panel's folder.
        images: folder of the pictures, if not the dataset's.
        limit: only the first so many records.

    Raises:
        ValueError: the dataset or a model cannot be used as a whole, an endpoint lets nobody in, or the folder was
            begun with another dataset or other options; what was done until then is kept.
    """
    work, settings, out = work or Work(), settings.resolved(), Path(out)
    task = settings.task
    _check_mode(settings)
    for name in dict.fromkeys((*settings.annotators, _explicator(settings))):
        panel_model(name)  # refuses an address before it is written anywhere
    records = list(islice(read_memes(dataset, images=images), limit))
    config = {
        "settings": settings.model_dump(mode="json"),
        "task": task.model_dump(mode="json"),
        "dataset": _describe_dataset(Path(dataset).name, records),
        "arbiter": ARBITER_VERSION,
        "explicator": EXPLICATOR_VERSION,
    }
    refuse_foreign(out)
    out.mkdir(parents=True, exist_ok=True)
    with _only_one(out):
        panel = prepare(out, config, {"meme-xai": metadata.version("meme-xai")})
        _extract(panel, records, work)
        memes = _memes_to_ask(panel)
        for number, name in enumerate(settings.annotators, start=1):
            _ask(panel, number, name, memes, task, work)
        _arbitrate(panel, memes, task)
        _explicate(panel, task, work)
    return panel


def _explicator(settings: PanelSettings) -> str:
    return settings.explicator.model or settings.annotators[0]


def _check_mode(settings: PanelSettings) -> None:
    modes = (PANEL, *ALL_MODES)
    if settings.asked.mode not in modes:
        raise PanelError(f"there is no mode {settings.asked.mode!r}; there is {', '.join(modes)}")


def _describe_dataset(name: str, records: Sequence[DatasetRecord]) -> dict[str, Any]:
    """What tells a dataset from another: its records, and the sizes of its pictures."""
    found = hashlib.sha256()
    for record in records:
        size = _size(record.image) if isinstance(record, Meme) and isinstance(record.image, Path) else None
        found.update(f"{record.model_dump_json()} {size}\n".encode())
    return {"name": name, "records": len(records), "sha256": found.hexdigest()}


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _extract(panel: Panel, records: Sequence[DatasetRecord], work: Work) -> None:
    """Read the pictures, fill in the text where there is none, and clean the posts."""
    reader: _Extractor | None = None
    with (
        _journal(panel, RECORDS, {"stage": "records"}) as (journal, done),
        work.progress("reading", len(records)) as on,
    ):
        on(done)
        for record in records[done:]:
            reader = reader or _Extractor(panel.settings, records)
            journal.add(reader.entry(record))
            on(1)


class _Extractor:
    """What reads and cleans a record; the OCR engine is only chosen if a picture's text is not given."""

    def __init__(self, settings: PanelSettings, records: Sequence[DatasetRecord]) -> None:
        self._settings = settings
        mode = settings.asked.mode
        self._needs_picture = mode == PANEL or "image" in mode
        self._needs_text = mode == PANEL or "text" in mode
        self._plan = self._plan_for([r for r in records if isinstance(r, Meme) and self._lacks_text(r)])

    def entry(self, record: DatasetRecord) -> Entry:
        """What is kept of a record: as it is asked about, what was taken out, and why it goes no further."""
        if isinstance(record, Failure):
            return _record(record.meme_id, None, "read", record.reason, "dataset")
        try:
            if self._needs_picture:
                record.open_image()
            read, who = self._read(record)
        except (ValueError, RuntimeError, OSError) as error:
            return _record(record.id, record, "read", str(error) or type(error).__name__, "extractor")
        cleaned = self._settings.cleaning.clean(read, self._settings.platform, needs_text=self._needs_text)
        reason, cleaner = cleaned.reason, f"cleaner, rules {self._settings.cleaning.version}"
        if not reason and self._settings.asked.mode == POST_MODE and not cleaned.meme.post:
            reason = f"there is no post, which mode {POST_MODE} shows"
        more = {"platform": cleaned.platform, "removed": [one._asdict() for one in cleaned.removed], "text_from": who}
        return _record(record.id, cleaned.meme, "clean" if reason else "", reason, cleaner) | more

    def _lacks_text(self, meme: Meme) -> bool:
        return self._needs_text and not meme.text.strip() and meme.image is not None

    def _plan_for(self, memes: Sequence[Meme]) -> Any:
        if not memes:
            return None
        from xai.ocr import plan_ocr

        return plan_ocr(memes, engine=self._settings.ocr_engine, languages=self._settings.ocr_languages)

    def _read(self, meme: Meme) -> tuple[Meme, str]:
        """A meme with its text, and where that is from."""
        if not self._lacks_text(meme):
            return meme, "dataset"
        from xai.ocr import language_code, read_meme

        own = (language_code(meme.language),) if meme.language and not self._settings.ocr_languages else None
        found = self._plan.describe()
        return read_meme(meme, self._plan, own), f"{found['engine']} {found.get('version', '')}".strip()


def _record(name: str, meme: Meme | None, stage: str, reason: str, who: str) -> Entry:
    content = None if meme is None else meme.model_dump(mode="json", exclude_none=True)
    return {"id": name, "meme": content, "stage": stage, "reason": reason, "who": who, "time": now()}


def _memes_to_ask(panel: Panel) -> list[Meme]:
    found = entries_of(panel.path / RECORDS)
    return [Meme.model_validate(entry["meme"]) for entry in found if not entry["reason"]]


def _ask(panel: Panel, number: int, name: str, memes: Sequence[Meme], task: Task, work: Work) -> None:
    """The answers of one annotator; it is only loaded where some are missing."""
    if (panel.path / answers_name(number)).exists():
        return
    asked = panel.settings.asked
    with panel_model(name, device=work.device, dtype=work.dtype) as model:
        version = model.version()
        # The last digits of what a model computes depend on its batch.
        config = {"annotator": name, "version": version, "batch size": work.batch_size if model.in_batches else None}
        with (
            _journal(panel, answers_name(number), config) as (journal, done),
            work.progress(f"annotator {number}", len(memes)) as on,
        ):
            on(done)
            for meme, reply in _replies(model, task, memes, asked, done, work.batch_size):
                journal.add(_answer(meme, reply, task) | {"annotator": name, "version": version})
                on(1)


def _replies(
    model: PanelModel, task: Task, memes: Sequence[Meme], asked: Asked, done: int, size: int
) -> Iterator[tuple[Meme, Reply]]:
    """The replies about all memes behind the first ``done``, in the batches in which an undisturbed run asks.

    Where a stop fell into a batch of a model that answers in batches, the whole batch is asked about again.
    """
    for start in range(done - done % size, len(memes), size):
        n_known = max(0, done - start)
        batch = memes[start : start + size]
        some = batch if model.in_batches else batch[n_known:]
        replies = zip(some, model.ask(task, some, asked), strict=True)
        yield from islice(replies, len(some) - len(batch) + n_known, None)


def _answer(meme: Meme, reply: Reply, task: Task) -> Entry:
    """What is kept of a reply: as it was said, and as it was read."""
    kept = {"id": meme.id, "mode": reply.mode, "text": reply.text, "failure": reply.failure, "model": reply.model}
    found = parse_answer(task, reply.text, reply.mode)
    read = {
        "labels": list(found.labels),
        "unknown_labels": list(found.unknown_labels),
        "confidence": found.confidence,
        "reasons": list(found.reasons),
        "parse": found.parse,
        "parse_note": "" if reply.failure else found.parse_note,
    }
    return {**kept, **read, "time": now()}


def _arbitrate(panel: Panel, memes: Sequence[Meme], task: Task) -> None:
    if (panel.path / DECISIONS).exists():
        return
    numbers = range(1, len(panel.settings.annotators) + 1)
    answers = [{entry["id"]: entry for entry in entries_of(panel.path / answers_name(number))} for number in numbers]
    with _journal(panel, DECISIONS, {"stage": "decisions"}) as (journal, done):
        for meme in memes[done:]:
            given = [Answer(frozenset(one[meme.id]["labels"]), one[meme.id]["confidence"]) for one in answers]
            ruling = arbitrate(given, task, panel.settings.rules)
            who = f"arbiter {ARBITER_VERSION}"
            journal.add({"id": meme.id, **ruling.model_dump(mode="json"), "who": who, "time": now()})


def _explicate(panel: Panel, task: Task, work: Work) -> None:
    """Phrases for what was accepted, by the arbiter or by people, with a label that asks for them."""
    waiting = [item for item in panel.items() if item.state == "phrases"]
    if not waiting:
        return
    ledger, explicator = Ledger(panel.path / PHRASES), panel.settings.explicator
    name = _explicator(panel.settings)
    asked = panel.settings.asked.model_copy(update={"language": "en", "variant": "full", "with_none": True})
    with (
        panel_model(name, device=work.device, dtype=work.dtype) as model,
        work.progress("explicator", len(waiting)) as on,
    ):
        version = model.version()
        for labels, items in _by_labels(waiting).items():
            question = explicator_task(labels, explicator.max_words, task)
            for some in _batches(items, work.batch_size):
                replies = model.ask(question, [item.meme for item in some], asked)
                for item, reply in zip(some, replies, strict=True):
                    found = _phrases(reply, explicator.max_words)
                    ledger.add({"id": item.id, "labels": list(labels), **found, "who": name, "version": version})
                    on(1)


def _by_labels(items: Sequence[Item]) -> Mapping[tuple[str, ...], list[Item]]:
    found: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        found.setdefault(item.accepted.labels if item.accepted else (), []).append(item)
    return found


def _phrases(reply: Reply, max_words: int) -> Entry:
    read = read_phrases(reply.text, max_words)
    return {
        "phrases": list(read.kept),
        "left_out": [list(one) for one in read.left_out],
        "refused": "" if reply.failure else read.refused,
        "failure": reply.failure,
        "text": reply.text,
        "model": reply.model,
    }


@contextmanager
def _journal(panel: Panel, name: str, config: Mapping[str, Any]) -> Iterator[tuple[Any, int]]:
    """The journal of a stage's file, and how many entries it has; finished when the block ends without an error."""
    path = panel.path / name
    if path.exists():
        yield _Whole(), sum(1 for _ in entries_of(path))
        return
    with Journal(path, config) as journal:
        yield journal, sum(1 for _ in journal.entries())
        journal.finish(lambda entry: json.dumps(entry, ensure_ascii=False))


def _batches(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (values[start : start + size] for start in range(0, len(values), size))


class _Whole:
    """In place of the journal of a file that is whole: there is nothing to add."""


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Keep another process from filling the same folder."""
    try:
        lock = lock_folder(path)
    except BlockingIOError:
        raise PanelError(f"panel {path.name!r} is being filled by another process; wait for it") from None
    try:
        yield
    finally:
        unlock(lock)

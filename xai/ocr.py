"""Reads the words of a dataset's pictures, and chooses which text of a meme a model is asked about."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import regex

from xai.attribution.align import words_of
from xai.attribution.ocr import MIN_CONFIDENCE, OcrEngine, Reading, choose_engine, flags_of, get_engine, read_pieces
from xai.attribution.ocr.engine import apt_line, require_languages
from xai.attribution.ocr.given import GivenWords, place_words
from xai.datasets import DatasetRecord, jsonl_path, meme_line, read_memes
from xai.journal import Entry, Journal, JournalError
from xai.schema import Failure, Meme, Word

TextSource = Literal["dataset", "ocr", "both"]
"""The dataset's text as it is, that of the OCR, or the dataset's with the places that the OCR found."""
AUTO, DATASET = "auto", "dataset"
KEY = "ocr"
"""Under this name a meme's metadata hold what was read."""

_SCRIPTS = {"zh-Hans": "Han", "ar": "Arabic", "uk": "Cyrillic", "en": "Latin"}
_TRADITIONAL = ("zh-hant", "zh-tw", "zh-hk")


@dataclass(frozen=True)
class OcrPlan:
    """What reads a dataset: an engine, or ``None`` for the words that the dataset brings; and why."""

    engine: OcrEngine | None
    languages: tuple[str, ...]
    reason: str
    min_confidence: float = MIN_CONFIDENCE

    def describe(self) -> dict[str, Any]:
        """Engine, version and threshold, in JSON values."""
        engine = self.engine
        named = {"engine": DATASET} if engine is None else {"engine": engine.name, "version": engine.version}
        return named | {"min_confidence": self.min_confidence}


@dataclass
class OcrSummary:
    """What a run came to. ``flags`` counts words by flag; ``flagged`` words with any.

    ``matched``, ``only_in_text`` and ``only_in_ocr`` count the words of memes that have a text of their own. Everything
    counts what an earlier start has read too, ``resumed`` the records that it had.
    """

    engine: Mapping[str, Any]
    languages: tuple[str, ...]
    reason: str
    memes: int = 0
    filled: int = 0
    words: int = 0
    flagged: int = 0
    flags: Counter[str] = field(default_factory=Counter)
    matched: int = 0
    only_in_text: int = 0
    only_in_ocr: int = 0
    failures: list[Failure] = field(default_factory=list)
    resumed: int = 0

    def report(self) -> dict[str, Any]:
        """Everything in JSON values."""
        return asdict(self) | {
            "languages": list(self.languages),
            "flags": dict(self.flags),
            "failed": len(self.failures),
            "failures": [failure.model_dump() for failure in self.failures],
        }

    def add(self, entry: Entry) -> None:
        """Count a record that was read or could not be."""
        if entry["failure"] is not None:
            self.failures.append(Failure.model_validate(entry["failure"]))
            return
        found = entry["meme"][KEY]
        flags = [word["flags"] for word in found["words"]]
        self.memes += 1
        self.filled += found["filled"]
        self.words += len(flags)
        self.flagged += sum(map(bool, flags))
        self.flags.update(flag for one in flags for flag in one)
        self.matched += found["matched"]
        self.only_in_text += len(found["only_in_text"])
        self.only_in_ocr += len(found["only_in_ocr"])


def ocr_dataset(
    dataset: str | Path | Iterable[DatasetRecord],
    out: str | Path,
    *,
    engine: str = AUTO,
    languages: Sequence[str] = (),
    images: str | Path | None = None,
    limit: int | None = None,
    min_confidence: float = MIN_CONFIDENCE,
    on_progress: Callable[[int], None] = lambda done: None,
) -> OcrSummary:
    """Read every picture of a dataset, and write its memes with what was read, as JSONL, whole or not at all.

    Stopped at any instant and started again, it goes on behind the last meme that was read, and the file is that of a
    start that was never stopped; until then what was read is in ``out.part`` (see :mod:`xai.journal`). A picture that
    cannot be read is a failure, and its meme is written as it was, with the reason. See :func:`read_meme` for what a
    meme becomes.

    Args:
        dataset: its path, or its records as :func:`xai.datasets.read_memes` gives them.
        engine: a name of the registry, ``auto``, or ``dataset`` for the words and boxes that the memes bring.
        languages: codes as ``uk``; by default those that the memes are marked with, or else the scripts of their texts.
        images, limit: folder of the pictures, and how many records are read at most, where the dataset is a path.
        min_confidence: words below it are flagged.

    Raises:
        ValueError: dataset, engine or language cannot be used at all, or what was begun is of another dataset,
            engine, version, language or threshold.
    """
    out = jsonl_path(out)
    records = _records(dataset, images, limit)
    plan = replace(plan_ocr(records, engine=engine, languages=languages), min_confidence=min_confidence)
    summary = OcrSummary(plan.describe(), plan.languages, plan.reason)
    marks = [_mark(record, out.parent) for record in records]
    with Journal(out, _config(plan, languages)) as journal:
        for entry in journal.entries():
            _check_same(entry, marks[summary.resumed : summary.resumed + 1], out)
            summary.add(entry)
            summary.resumed += 1
        on_progress(summary.resumed)
        for record, mark in zip(records[summary.resumed :], marks[summary.resumed :], strict=True):
            entry = {"of": mark, **_entry(record, plan, not languages, out.parent)}
            journal.add(entry)
            summary.add(entry)
            on_progress(1)
        journal.finish(_line)
    return summary


def plan_ocr(
    dataset: str | Path | Iterable[DatasetRecord],
    *,
    engine: str = AUTO,
    languages: Sequence[str] = (),
    images: str | Path | None = None,
    limit: int | None = None,
) -> OcrPlan:
    """Which engine reads a dataset, in which languages, and why; arguments as for :func:`ocr_dataset`.

    Raises:
        ValueError: the engine is unknown, lacks a language, or no language is given or to be seen.
    """
    if engine == DATASET:
        return OcrPlan(None, (), "the words and boxes that the dataset brings")
    given = tuple(dict.fromkeys(map(language_code, languages)))
    chosen = given or _languages_of(_records(dataset, images, limit))
    origin = "as given" if given else "as the dataset shows"
    if engine == AUTO:
        choice = choose_engine(chosen)
        return OcrPlan(choice.engine, chosen, f"{choice.reason} (languages {origin})")
    named = get_engine(engine)
    require_languages(named, chosen, apt_line(chosen) if engine == "tesseract" else "take another engine")
    return OcrPlan(named, chosen, f"{engine} was asked for (languages {origin})")


def read_meme(meme: Meme, plan: OcrPlan, languages: Sequence[str] | None = None) -> Meme:
    """A meme with what was read in its picture, as ``metadata["ocr"]``.

    That holds engine, version, languages, the picture's size, the text, and the words with box, polygon, confidence
    and flags. A meme without a text of its own gets text and words from it; of one that has a text, ``matched`` says
    how many of its words were found, and ``only_in_text`` and ``only_in_ocr`` list the others.

    Raises:
        ValueError: there is no picture, it cannot be decoded or read, or, without engine, the meme brings no boxes.
    """
    languages = plan.languages if languages is None else tuple(languages)
    if plan.engine is None:
        reading, size = _brought(meme, plan.min_confidence), None
    else:
        picture = meme.open_image()
        size = list(picture.size)
        reading = read_pieces(plan.engine.read(picture, languages), picture.size, min_confidence=plan.min_confidence)
    is_filled = not meme.text.strip() or bool(_found(meme).get("filled"))
    placed = None if is_filled else _place(meme, reading.words, plan.min_confidence)
    found = plan.describe() | {
        "languages": list(languages),
        "size": size,
        "text": reading.text,
        "words": [word.model_dump(mode="json") for word in reading.words],
        "filled": is_filled,
        "matched": 0 if placed is None else placed.matched,
        "only_in_text": [] if placed is None else list(placed.only_given),
        "only_in_ocr": [] if placed is None else list(placed.only_read),
    }
    update: dict[str, Any] = {"metadata": {**meme.metadata, KEY: found}}
    if is_filled:
        update |= {"text": reading.text, "words": reading.words}
    return meme.model_copy(update=update)


def with_text(meme: Meme, source: TextSource) -> Meme:
    """A meme with the text that a model is to be asked about.

    ``dataset`` leaves it as it is. ``ocr`` takes text and words of what was read. ``both`` keeps its text and gives
    its words the places of what was read, where the two align.

    Raises:
        ValueError: nothing was read in its picture yet, or it could not be read.
    """
    if source == "dataset":
        return meme
    found = _found(meme)
    if "error" in found:
        raise ValueError(f"the picture of meme {meme.id!r} could not be read by OCR: {found['error']}")
    if not found:
        raise ValueError(f"meme {meme.id!r} holds no OCR; run `xai ocr` on the dataset and explain what that wrote")
    words = tuple(Word.model_validate(word) for word in found["words"])
    if source == "ocr":
        return Meme.model_validate({**dict(meme), "text": found["text"], "words": words})
    return meme.model_copy(update={"words": _place(meme, words, found["min_confidence"]).words})


def language_code(name: str) -> str:
    """Our code of a language: ``en-US`` is ``en``, ``zh`` and ``zh-CN`` are ``zh-Hans``."""
    lowered = name.strip().lower().replace("_", "-")
    if lowered.startswith("zh"):
        return "zh-Hant" if lowered.startswith(_TRADITIONAL) else "zh-Hans"
    return lowered.split("-")[0]


def _records(
    dataset: str | Path | Iterable[DatasetRecord], images: str | Path | None, limit: int | None
) -> list[DatasetRecord]:
    """The records of a dataset; they hold paths of pictures, not pictures."""
    return list(islice(read_memes(dataset, images=images), limit) if isinstance(dataset, str | Path) else dataset)


def _config(plan: OcrPlan, languages: Sequence[str]) -> dict[str, Any]:
    """What decides how a record is read, in JSON values."""
    return plan.describe() | {
        "languages": list(plan.languages),
        "language of each meme": not languages,
        "meme-xai": metadata.version("meme-xai"),
    }


def _mark(record: DatasetRecord, folder: Path) -> str:
    """What tells whether a record is still the one that was read."""
    text = record.model_dump_json() if isinstance(record, Failure) else meme_line(record, folder)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _check_same(entry: Entry, marks: Sequence[str], out: Path) -> None:
    if [entry["of"]] != list(marks):
        name = entry["meme"]["id"] if entry["meme"] else entry["failure"]["meme_id"]
        raise JournalError(
            f"{out.name!r} was begun with another dataset (differing: record {name!r}); use the same one and limit to "
            f"go on, write to another file, or delete '{out.name}.part' to begin anew"
        )


def _entry(record: DatasetRecord, plan: OcrPlan, marked: bool, folder: Path) -> Entry:
    """A record after reading: the meme's columns, and why it could not be read; one of them may be ``None``."""
    if isinstance(record, Failure):
        return {"meme": None, "failure": record.model_dump()}
    own = (language_code(record.language),) if marked and record.language else None
    failure: Failure | None = None
    try:
        read = read_meme(record, plan, own)
    except (ValueError, RuntimeError, OSError) as error:
        reason = str(error) or type(error).__name__
        failure = Failure(meme_id=record.id, stage="read", reason=reason)
        read = record.model_copy(update={"metadata": {**record.metadata, KEY: plan.describe() | {"error": reason}}})
    return {"meme": json.loads(meme_line(read, folder)), "failure": failure and failure.model_dump()}


def _line(entry: Entry) -> str | None:
    return entry["meme"] and json.dumps(entry["meme"], ensure_ascii=False)


def _found(meme: Meme) -> Mapping[str, Any]:
    found = meme.metadata.get(KEY)
    return found if isinstance(found, Mapping) else {}


def _place(meme: Meme, read: Sequence[Word], min_confidence: float) -> GivenWords:
    return place_words(words_of(meme.text, meme.words), read, min_confidence=min_confidence)


def _brought(meme: Meme, min_confidence: float) -> Reading:
    """The dataset's own words as if they had been read."""
    words = [word for word in meme.words or () if word.box is not None]
    if not words:
        raise ValueError(f"meme {meme.id!r} brings no words with boxes; choose an engine that reads its picture")
    flagged = [
        word.model_copy(update={"flags": flags_of(word.text, word.confidence, min_confidence)}) for word in words
    ]
    return Reading(meme.text, tuple(flagged))


def _languages_of(records: Iterable[DatasetRecord]) -> tuple[str, ...]:
    """The languages that the memes are marked with, or, if none is, one for each script of their texts.

    Raises:
        ValueError: neither is there.
    """
    memes = [record for record in records if isinstance(record, Meme)]
    marked = {language_code(meme.language) for meme in memes if meme.language}
    text = " ".join(meme.text for meme in memes)
    seen = [one for one, script in _SCRIPTS.items() if regex.search(rf"\p{{Script={script}}}", text)]
    if not marked and not seen:
        raise ValueError("the dataset does not show in which language it is; say so, as in --language uk")
    return tuple(sorted(marked)) or tuple(seen)

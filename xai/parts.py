"""The part files of a run folder: their columns, records as rows and back, and writing that is whole or not at all.

A part number is committed by its predictions file, which is written last; see :mod:`xai.store`.
"""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xai.schema import (
    SEGMENTS,
    Explanation,
    Failure,
    LabelSpan,
    Meme,
    Mode,
    Prediction,
    Quality,
    TokenTable,
    Word,
    WordTable,
)

Kind = Literal["predictions", "explanations", "failures"]
Key = tuple[str, Mode | None]
"""Meme id and mode; mode ``None``: the meme failed before any."""

RowTables = dict[Kind, pa.Table]
"""Everything about one meme in one mode."""

KINDS: tuple[Kind, ...] = ("explanations", "failures", "predictions")
"""In the order of writing: predictions last, since they commit a part."""


class RunWarning(UserWarning):
    """Something about a folder that its user should know, though it goes on."""


_TEXT, _REAL, _WHOLE = pa.string(), pa.float64(), pa.int64()
SCHEMAS: dict[Kind, pa.Schema] = {
    "predictions": pa.schema(
        {
            "meme_id": _TEXT,
            "mode": _TEXT,
            "meme_text": _TEXT,
            "image": _TEXT,
            "post": _TEXT,
            "language": _TEXT,
            "gold_labels": pa.list_(_TEXT),
            "words": _TEXT,
            "metadata": _TEXT,
            "generated_ids": pa.list_(_WHOLE),
            "answer": _TEXT,
            "labels": pa.list_(_TEXT),
            "label_spans": pa.list_(pa.struct({"label": _TEXT, "start": _WHOLE, "end": _WHOLE})),
            "unknown_labels": pa.list_(_TEXT),
            "referred_words": pa.list_(_TEXT),
            "referred_image_concepts": pa.list_(_TEXT),
            "parse": _TEXT,
            "parse_note": _TEXT,
            "answer_source": _TEXT,
            "attention": _TEXT,
            "dtype": _TEXT,
            "confidence": _REAL,
            "reasons": pa.list_(_TEXT),
            "context": _TEXT,
            "examples": _TEXT,
            "log_probability": _REAL,
            "batch_size": _WHOLE,
        }
    ),
    "explanations": pa.schema(
        {
            "meme_id": _TEXT,
            "mode": _TEXT,
            "target": _TEXT,
            "method": _TEXT,
            "target_kind": _TEXT,
            "target_positions": pa.list_(_WHOLE),
            "target_token_ids": pa.list_(_WHOLE),
            "contrast_ids": pa.list_(_WHOLE),
            "contrast": pa.list_(_TEXT),
            "target_value": _REAL,
            "baseline_value": _REAL,
            "settings": _TEXT,
            "token": pa.list_(_TEXT),
            "token_start": pa.list_(_WHOLE),
            "token_end": pa.list_(_WHOLE),
            "token_segment": pa.list_(_TEXT),
            "token_relevance": pa.list_(_REAL),
            "word": pa.list_(_TEXT),
            "word_start": pa.list_(_WHOLE),
            "word_end": pa.list_(_WHOLE),
            "word_box": pa.list_(pa.list_(_REAL)),
            "word_relevance": pa.list_(_REAL),
            "word_mean_abs": pa.list_(_REAL),
            "word_n_tokens": pa.list_(_WHOLE),
            "word_gap": _REAL,
            "image_levels": pa.list_(_REAL),
            "image_shape": pa.list_(_WHOLE),
            "pixels": pa.list_(_REAL),
            "pixels_shape": pa.list_(_WHOLE),
            "image_width": _WHOLE,
            "image_height": _WHOLE,
            **{f"share_{segment}": _REAL for segment in SEGMENTS},
            "example_shares": pa.list_(_REAL),
            "conservation": _REAL,
            "sink_share": _REAL,
            "template_share": _REAL,
            "non_finite": _WHOLE,
            "labels_located": _WHOLE,
            "labels_missing": pa.list_(_TEXT),
            "target_choice_changed": _WHOLE,
            "position_share": _REAL,
            "characters_cut": _WHOLE,
            "picture_frames": _WHOLE,
            "config": _TEXT,
        }
    ),
    "failures": pa.schema({"meme_id": _TEXT, "mode": _TEXT, "stage": _TEXT, "reason": _TEXT}),
}
"""The columns of every kind of part."""

_SAME = (
    "mode",
    "target",
    "method",
    "target_kind",
    "target_positions",
    "target_token_ids",
    "contrast_ids",
    "contrast",
    "target_value",
    "baseline_value",
)
"""Fields of an explanation that have a column of their name."""
_SAME_OF_ANSWER = (
    "parse",
    "parse_note",
    "answer_source",
    "attention",
    "dtype",
    "confidence",
    "log_probability",
    "batch_size",
)
"""Fields of a prediction that go into a column of their name as they are."""


def as_table(kind: Kind, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows in the columns of their kind.

    Raises:
        ValueError: a value does not fit its column.
    """
    try:
        return pa.Table.from_pylist(list(rows), schema=SCHEMAS[kind])
    except (pa.ArrowException, UnicodeEncodeError, OverflowError, TypeError) as error:
        raise ValueError(f"a record of {kind} cannot be stored: {error}") from error


def row_tables(
    prediction: Prediction | None, explanations: Iterable[Explanation], failures: Iterable[Failure], meme: Meme | None
) -> RowTables:
    """Everything about one meme in one mode, in the columns of every kind.

    Raises:
        ValueError: a value does not fit its column.
    """
    return {
        "predictions": as_table("predictions", [prediction_row(prediction, meme)] if prediction and meme else []),
        "explanations": as_table("explanations", map(explanation_row, explanations)),
        "failures": as_table("failures", (_without_folder(failure, meme).model_dump() for failure in failures)),
    }


def _without_folder(failure: Failure, meme: Meme | None) -> Failure:
    """The failure with the picture by its name: where it lies on this machine is nobody else's business."""
    if meme is None or not isinstance(meme.image, Path) or not meme.image.parent.name:
        return failure
    return failure.model_copy(update={"reason": failure.reason.replace(str(meme.image), meme.image.name)})


def prediction_row(prediction: Prediction, meme: Meme) -> dict[str, Any]:
    """One row of ``predictions``: what the model answered, and the meme itself."""
    return {
        "meme_id": prediction.meme_id,
        "mode": prediction.mode,
        "meme_text": meme.text,
        # A picture that exists in memory only cannot be found again.
        "image": str(meme.image) if isinstance(meme.image, Path) else None,
        "post": meme.post,
        "language": meme.language,
        "gold_labels": meme.labels,
        "words": None if meme.words is None else to_json([word.model_dump() for word in meme.words]),
        "metadata": to_json(meme.metadata),
        "generated_ids": prediction.generated_ids,
        "answer": prediction.text,
        "labels": prediction.labels,
        "label_spans": [span.model_dump() for span in prediction.label_spans],
        "unknown_labels": prediction.unknown_labels,
        "referred_words": prediction.referred_words,
        "referred_image_concepts": prediction.referred_image_concepts,
        "reasons": prediction.reasons,
        "context": to_json(meme.context) if meme.context else None,
        "examples": to_json([_example(one) for one in meme.examples]) if meme.examples else None,
        **{name: getattr(prediction, name) for name in _SAME_OF_ANSWER},
    }


def explanation_row(e: Explanation) -> dict[str, Any]:
    """One row of ``explanations``; its tables are list columns."""
    tokens, words = e.token_table, e.word_table
    width, height = e.image_size or (None, None)
    return {
        "meme_id": e.meme.id,
        **{name: getattr(e, name) for name in _SAME},
        "settings": to_json(e.settings),
        "token": tokens.token,
        **{f"token_{name}": getattr(tokens, name) for name in ("start", "end", "segment", "relevance")},
        "word": words.word,
        **{
            f"word_{name}": getattr(words, name)
            for name in ("start", "end", "box", "relevance", "mean_abs", "n_tokens", "gap")
        },
        **_flat("image_levels", "image_shape", e.image_levels),
        **_flat("pixels", "pixels_shape", e.pixels),
        "image_width": width,
        "image_height": height,
        **{f"share_{segment}": e.shares.get(segment) for segment in SEGMENTS},
        "example_shares": e.example_shares or None,
        **e.quality.model_dump(),
        "config": to_json(e.config),
    }


def explanation_from_rows(row: Mapping[str, Any], answer: Mapping[str, Any]) -> Explanation:
    """Rebuilds exactly the explanation of which ``row`` was made; ``answer`` is the row of its prediction."""
    size = row["image_width"], row["image_height"]
    shares = {segment: row[f"share_{segment}"] for segment in SEGMENTS}
    return Explanation(
        meme=meme_from_row(answer),
        prediction=prediction_from_row(answer),
        **{name: row[name] for name in _SAME},
        settings=json.loads(row["settings"]),
        token_table=TokenTable(token=row["token"], **_columns(row, "token", TokenTable)),
        word_table=WordTable(word=row["word"], **_columns(row, "word", WordTable)),
        image_levels=_shaped(row["image_levels"], row["image_shape"]),
        pixels=_shaped(row["pixels"], row["pixels_shape"]),
        image_size=None if None in size else size,
        shares={segment: share for segment, share in shares.items() if share is not None},
        example_shares=row["example_shares"] or (),
        quality=Quality(**{name: row[name] for name in Quality.model_fields}),
        config=json.loads(row["config"]),
    )


def _flat(name: str, shape_name: str, array: np.ndarray | None) -> dict[str, Any]:
    return {name: None if array is None else array.ravel(), shape_name: None if array is None else array.shape}


def _shaped(values: list[float] | None, shape: list[int]) -> np.ndarray | None:
    return None if values is None else np.reshape(values, shape)


def _columns(row: Mapping[str, Any], prefix: str, table: type[TokenTable | WordTable]) -> dict[str, Any]:
    return {name: row[f"{prefix}_{name}"] for name in table.model_fields if name != prefix}


def meme_from_row(row: Mapping[str, Any]) -> Meme:
    """The meme in a row of ``predictions``; its picture by its path."""
    words = row["words"]
    return Meme(
        id=row["meme_id"],
        image=None if row["image"] is None else Path(row["image"]),
        text=row["meme_text"],
        words=None if words is None else tuple(Word(**word) for word in json.loads(words)),
        labels=row["gold_labels"],
        post=row["post"],
        language=row["language"],
        metadata=json.loads(row["metadata"]),
        context=json.loads(row["context"] or "{}"),
        examples=tuple(Meme(**example) for example in json.loads(row["examples"] or "[]")),
    )


def _example(meme: Meme) -> dict[str, Any]:
    """What a prompt has of an example."""
    image = str(meme.image) if isinstance(meme.image, Path) else None
    return meme.model_dump(include={"id", "text", "labels", "post"}) | {"image": image}


def prediction_from_row(row: Mapping[str, Any]) -> Prediction:
    """The prediction in a row of ``predictions``."""
    same = set(Prediction.model_fields) - {"text", "label_spans", "reasons"}
    return Prediction(
        text=row["answer"],
        reasons=row["reasons"] or (),
        label_spans=tuple(LabelSpan(**span) for span in row["label_spans"]),
        **{name: row[name] for name in same},
    )


def part_path(path: Path, kind: Kind, number: int) -> Path:
    """Where the part of a number stands in the run folder ``path``."""
    return path / kind / f"part-{number:05d}.parquet"


def committed(path: Path) -> list[int]:
    """Numbers of the parts that are complete: those with a predictions file."""
    return sorted(int(part.stem.removeprefix("part-")) for part in (path / "predictions").glob("part-*.parquet"))


def part_paths(path: Path, kind: Kind) -> list[Path]:
    """The committed part files that there are of a kind, in the order of the run."""
    candidates = (part_path(path, kind, number) for number in committed(path))
    return [part for part in candidates if part.exists()]


def leftovers(path: Path) -> list[Path]:
    """What a stop left behind: temporary files and parts of uncommitted numbers."""
    found = [path / ".run.json.tmp"] if (path / ".run.json.tmp").exists() else []
    for kind in KINDS:
        whole = set(part_paths(path, kind))
        candidates = (path / kind).iterdir() if (path / kind).is_dir() else ()
        found += [
            one for one in candidates if one not in whole and (one.suffix == ".tmp" or one.match("part-*.parquet"))
        ]
    return [*found, *(path / "checksums").glob(".*.tmp")]


def remove_leftovers(path: Path) -> None:
    """Deletes what a stop left behind."""
    for file in leftovers(path):
        file.unlink()


def set_aside(path: Path, number: int) -> None:
    """Takes a number out of the run; its files stay beside their places as ``*.damaged``."""
    # The predictions first: without them the number is not there, so that a stop in between leaves it whole or out.
    for kind in reversed(KINDS):
        part = part_path(path, kind, number)
        if part.exists():
            os.replace(part, part.with_name(f"{part.name}.damaged"))
        sync_folder(part.parent)


def part_content(table: pa.Table) -> memoryview:
    """The bytes of the part file of a table."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return memoryview(sink.getvalue())


def write_part(path: Path, table: pa.Table) -> None:
    """Writes a part file, atomically."""
    write_bytes(path, part_content(table))


def write_text(path: Path, text: str) -> None:
    """Writes a text as UTF-8, atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Writes a file, atomically."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Has ``write`` make the file beside its place and moves it there: whole or not at all, also when power fails."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        write(temporary)
        _sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        # On a full disk, what was written of it would keep the space that others need.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder last through a power failure, where its file system can."""
    try:
        _sync(path)
    except OSError as error:
        # Some network file systems do not know this of folders, and keep names on their server anyhow.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""What file systems answer that have no locks."""
_held: set[int] = set()


def lock_folder(path: Path) -> int:
    """Takes the folder's lock, which the system gives free when the process ends, however it ends.

    A file system that has no locks is written all the same, with a warning.

    Returns:
        What :func:`unlock` takes.

    Raises:
        BlockingIOError: another process has it.
    """
    import fcntl  # absent on Windows, where a run can be read all the same

    descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            os.close(descriptor)
            raise
        warnings.warn(
            f"the file system of {path.name!r} has no locks: see to it that no second process writes there",
            RunWarning,
            stacklevel=2,
        )
    _held.add(descriptor)
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether a process is writing the folder now, as far as the system can tell."""
    try:
        import fcntl

        descriptor = os.open(path / ".lock", os.O_RDONLY)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def unlock(lock: int) -> None:
    """Gives back what :func:`lock_folder` took."""
    if lock in _held:  # else this is a fork, which has none
        _held.discard(lock)
        os.close(lock)


def _leave_locks_to_the_parent() -> None:
    """A helper process that outlives a killed writer must not keep the folder locked."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_locks_to_the_parent)


def to_json(value: object) -> str:
    """JSON text of a value, with paths as text and numpy values as numbers and lists.

    Raises:
        TypeError: something in it has no JSON form.
    """
    return json.dumps(value, ensure_ascii=False, default=_jsonable)


def _jsonable(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value; give text, numbers, lists or mappings")

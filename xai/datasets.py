"""Reads memes from JSONL, CSV, Parquet or a folder of pictures, and writes them as JSONL."""

from __future__ import annotations

import ast
import codecs
import csv
import datetime
import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path, PureWindowsPath
from typing import Any

import pyarrow
import pyarrow.parquet
from pydantic import ValidationError

from xai.schema import Failure, Meme, is_encodable
from xai.strict_json import STRICT, NotStrictError

__all__ = ["DatasetRecord", "jsonl_path", "meme_line", "read_memes", "split_labels", "write_memes"]

DatasetRecord = Meme | Failure
"""One record of a dataset: a meme, or why it cannot be read."""

_PICTURES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
_COLUMNS = frozenset(Meme.model_fields) - {"metadata", "examples"}
_REMEDIES = {
    "id": "give every meme an id of its own, as a string",
    "image": "give the file name of the picture, as a string",
    "text": "give the text as a string",
    "words": "give a list of objects with text, start and end, and where known box, polygon and confidence",
    "labels": "give the labels as a list of strings",
    "post": "give the text of the post as a string",
    "language": "give the language's code as a string",
    "context": "give an object of lists of strings",
}

_NOT_UTF8 = "not UTF-8; save the file as UTF-8"


def read_memes(path: str | Path, *, images: str | Path | None = None) -> Iterator[Meme | Failure]:
    """The memes of a dataset in its order; a record that cannot be read is a `Failure` and the rest goes on.

    ``path`` is a ``.jsonl``, ``.csv`` or ``.parquet`` file with the columns ``id``, ``image``, ``text``, ``labels``,
    ``words``, ``post``, ``language`` and ``context`` (all but ``id`` optional; others become metadata, and so does a
    ``context`` that is no object), a folder with such a
    ``memes.jsonl``, or a folder of pictures (id: the file's stem). Pictures are looked up in ``images`` or else in
    the dataset's folder and its ``images`` subfolder, and must lie inside; whether they exist shows when they are
    opened. In CSV and Parquet, labels may be text: a list in JSON or Python, or labels with ``|`` or ``;`` between.
    Times and decimals of Parquet become text, and numbers that are none (NaN) unknown.

    Raises:
        ValueError: nothing can be read: no such file, a format or an encoding that is not supported, no ids.
    """
    path = Path(path)
    try:
        if path.is_dir():
            path = path / "memes.jsonl" if (path / "memes.jsonl").is_file() else path
        if not path.exists():
            raise ValueError(f"dataset {path.name!r} does not exist; check the path")
    except OSError as error:
        raise ValueError(f"dataset {path.name!r} cannot be read ({error.strerror}); check the path") from None
    if images is not None and not Path(images).is_dir():
        raise ValueError(f"image folder {Path(images).name!r} does not exist; check the path")
    folder = path if path.is_dir() else path.parent
    roots = (folder, folder / "images") if images is None or path.is_dir() else (Path(images),)
    return _memes(_rows(path), roots)


def write_memes(path: str | Path, memes: Iterable[Meme]) -> None:
    """Write memes as JSONL, whole or not at all.

    Pictures inside the file's folder are written relative to it, so that the folder can be moved; others by their
    full path, to be read with ``images``.

    Raises:
        ValueError: not a ``.jsonl`` path, or a meme that JSON cannot hold; the file is left as it was.
    """
    path = jsonl_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(meme_line(meme, path.parent) + "\n" for meme in memes)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def jsonl_path(path: str | Path) -> Path:
    """The path of a file that memes can be written to.

    Raises:
        ValueError: its name does not end in ``.jsonl``.
    """
    path = Path(path)
    if path.suffix != ".jsonl":
        raise ValueError(f"memes are written as JSONL; name the file {path.stem}.jsonl instead of {path.name}")
    return path


def meme_line(meme: Meme, folder: Path) -> str:
    """One meme as its line in a JSONL file in ``folder``, without line break; what is unknown is left out.

    So are examples, which are chosen anew for each run.

    Raises:
        ValueError: JSON cannot hold it, or its picture is in memory only.
    """
    if meme.image is not None and not isinstance(meme.image, Path):
        raise ValueError(f"meme {meme.id!r} holds a picture in memory; save it and give the meme its path")
    ours = _COLUMNS if meme.context else _COLUMNS - {"context"}
    clash = ours & meme.metadata.keys()
    if clash:
        raise ValueError(f"metadata of meme {meme.id!r} uses the name of a field, {min(clash)!r}; rename it")
    columns = meme.model_dump(include=set(ours - {"image"}), exclude_none=True)
    if meme.image is not None:
        columns["image"] = _relative(meme.image, folder)
    try:
        return json.dumps({**columns, **meme.metadata}, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"meme {meme.id!r} cannot be written as JSON: {error}") from None


@dataclass(frozen=True)
class _Row:
    """One record as it stands in the file: where, its columns, and what made them unreadable, if anything.

    ``remedy`` is what helps against a second record of the same id, where that is not to change a column.
    """

    place: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    remedy: str = ""


def _memes(rows: Iterable[_Row], roots: tuple[Path, ...]) -> Iterator[Meme | Failure]:
    places: dict[str, str] = {}
    for row in rows:
        name = _identifier(row.columns.get("id"))
        if name and name in places:
            reason = f"the id {name!r} was already used ({places[name]}); {row.remedy or _REMEDIES['id']}"
            yield _failure(f"{name} ({row.place})", row, reason, places)
            continue
        try:
            record: Meme | Failure = _meme(row, name, roots)
        except ValueError as error:
            record = _failure(name or row.place, row, str(error), places)
        except RecursionError:
            record = _failure(name or row.place, row, "a column is nested too deeply; flatten it", places)
        if name:
            places[name] = row.place
        yield record


def _failure(name: str, row: _Row, reason: str, places: dict[str, str]) -> Failure:
    """The failure of a record, under a name that no other record has had: a run keeps them by name."""
    while name in places:
        name = f"{name} ({row.place})"
    places[name] = row.place
    return Failure(meme_id=name, stage="read", reason=f"{row.place}: {reason}")


def _meme(row: _Row, name: str | None, roots: tuple[Path, ...]) -> Meme:
    if row.problem:
        raise ValueError(row.problem)
    if not name:
        raise ValueError(f"the id is missing or no string; {_REMEDIES['id']}")
    _check_values(row.columns)
    ours = _COLUMNS if isinstance(row.columns.get("context"), Mapping) else _COLUMNS - {"context"}
    known = {key: value for key, value in row.columns.items() if key in ours and value is not None}
    if "image" in known:
        known["image"] = _locate(known["image"], roots)
    metadata = {key: value for key, value in row.columns.items() if key not in ours}
    try:
        return Meme.model_validate({**known, "id": name, "metadata": metadata})
    except ValidationError as error:
        raise ValueError(_explain(error)) from None


def _explain(error: ValidationError) -> str:
    problem = error.errors()[0]
    place = ".".join(map(str, problem["loc"]))
    # Only the check of the words against the text concerns no single column.
    remedy = _REMEDIES[str(problem["loc"][0])] if problem["loc"] else "correct the words' offsets"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {message}; {remedy}" if place else f"{message}; {remedy}"


def _identifier(value: object) -> str | None:
    """The id as a string, or ``None`` if it is none: whole numbers are ids too."""
    if isinstance(value, bool) or not isinstance(value, str | int) or not is_encodable(str(value)):
        return None
    return str(value) or None


def _check_values(columns: Mapping[str, Any]) -> None:
    """Refuse what no file that is written later could hold.

    Raises:
        ValueError: a lone surrogate, or a number that JSON does not know (1e999 is infinite).
    """
    try:
        content = json.dumps(columns, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        raise ValueError("it holds an infinite number; correct it") from None
    if not is_encodable(content):
        raise ValueError("it holds half a character (a lone surrogate); correct the text")


def _locate(name: object, roots: tuple[Path, ...]) -> Path:
    """The absolute path of a picture: the first one that exists, else where it ought to be.

    Raises:
        ValueError: it leads out of the folder; the message does not repeat where to.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"image: not the name of a file; {_REMEDIES['image']}, or leave it out")
    is_foreign = PureWindowsPath(name).is_absolute() and not Path(name).is_absolute()
    try:
        top = roots[0].resolve()
        # Not Path.resolve, which some versions of Python let raise where a link leads to itself.
        candidates = [Path(os.path.realpath(root / name)) for root in roots]
        existing = [path for path in candidates if path.exists()]
    except (OSError, ValueError):
        raise ValueError(f"image: this cannot be the path of a file; {_REMEDIES['image']}") from None
    inside = [path for path in existing if path.is_relative_to(top)]
    if is_foreign or not candidates[0].is_relative_to(top) or (existing and not inside):
        raise ValueError(
            "image: the path leads out of the folder of the pictures; put the picture inside, or give the folder that "
            "it is in as images"
        )
    return (inside or candidates)[0]


def _rows(path: Path) -> Iterator[_Row]:
    """Open the dataset now, so that a file which cannot be read at all raises before the first record."""
    if path.is_dir():
        return _picture_rows(path)
    readers = {".jsonl": _jsonl_rows, ".csv": _csv_rows, ".parquet": _parquet_rows}
    if path.suffix.lower() not in readers:
        supported = ", ".join(readers)
        raise ValueError(f"the format of {path.name!r} is not supported; give {supported} or a folder of pictures")
    return readers[path.suffix.lower()](path)


def _picture_rows(folder: Path) -> Iterator[_Row]:
    try:
        with os.scandir(folder) as entries:
            found = {entry.name: _is_file(entry) for entry in entries if not entry.name.startswith(".")}
    except OSError as error:
        raise ValueError(f"folder {folder.name!r} cannot be read ({error.strerror}); check its permissions") from None
    names = sorted(name for name in found if Path(name).suffix.lower() in _PICTURES)
    if not names:
        raise ValueError(f"folder {folder.name!r} has neither a memes.jsonl nor pictures; check the path")
    no_file = "it is no file but a folder, a pipe, or a link that leads nowhere; remove or replace it"
    return (
        _Row(
            f"file {name!a}",
            {"id": Path(name).stem, "image": name},
            problem="" if found[name] else no_file,
            remedy="rename one of the two files",
        )
        for name in names
    )


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def _jsonl_rows(path: Path) -> Iterator[_Row]:
    # Not splitlines: JSON strings may hold the other line separators of Unicode as they are.
    lines = enumerate(_read_text(path).split("\n"), start=1)
    return (_json_row(f"line {number}", line) for number, line in lines if line.strip())


def _json_row(place: str, line: str) -> _Row:
    if not is_encodable(line):
        return _Row(place, problem=_NOT_UTF8)
    try:
        columns = STRICT.decode(line)
    except json.JSONDecodeError as error:
        return _Row(place, problem=f"not valid JSON ({error.msg} at column {error.colno}); correct the line")
    except (ValueError, RecursionError) as error:
        return _Row(place, problem=f"not valid JSON ({error}); correct the line")
    if not isinstance(columns, dict):
        return _Row(place, problem="not a JSON object; write one object a line")
    return _Row(place, columns)


def _csv_rows(path: Path) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), strict=True)
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise ValueError(f"the first line of {path.name!r} is not valid CSV ({error}); correct it") from None
    if not all(map(is_encodable, header)):
        raise ValueError(f"the first line of {path.name!r} is {_NOT_UTF8}")
    _check_columns(path, header)
    return _csv_records(reader, header)


def _csv_records(reader: Any, header: list[str]) -> Iterator[_Row]:
    while True:
        first = reader.line_num + 1
        place = f"line {first}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield _Row(place, problem=f"not valid CSV ({error}); {_csv_remedy(error, first, reader.line_num)}")
            continue
        if cells is None:
            return
        if len(cells) not in (0, len(header)):
            problem = f"{len(cells)} cells where the first line names {len(header)} columns; correct the line"
            yield _Row(place, problem=problem)
        elif not all(map(is_encodable, cells)):
            yield _Row(place, {"id": cells[header.index("id")]}, _NOT_UTF8)
        elif cells:
            yield _table_row(place, dict(zip(header, cells, strict=True)))


def _csv_remedy(error: csv.Error, first: int, last: int) -> str:
    if "field limit" in str(error):
        return "shorten it or write JSONL"
    if last <= first:
        return "correct the line"
    return f"lines {first} to {last} were read as one record: close its quotation mark"


def _parquet_rows(path: Path) -> Iterator[_Row]:
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{path.name!r} cannot be read as Parquet ({type(error).__name__}); write it anew") from None
    _check_columns(path, file.schema_arrow.names)
    return _parquet_records(path, file)


def _parquet_records(path: Path, file: Any) -> Iterator[_Row]:
    number = 0
    try:
        with file:
            for batch in file.iter_batches(batch_size=256):
                for row in range(batch.num_rows):
                    number += 1
                    yield _parquet_row(f"row {number}", batch.slice(row, 1))
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{path.name!r} is damaged behind row {number} ({type(error).__name__})") from None


def _parquet_row(place: str, row: Any) -> _Row:
    try:
        (columns,) = row.to_pylist()
    except UnicodeDecodeError:
        return _Row(place, problem=_NOT_UTF8)
    try:
        return _table_row(place, {name: _plain(value) for name, value in columns.items()})
    except ValueError as error:
        return _Row(place, {"id": columns.get("id")}, str(error))


def _plain(value: object) -> object:
    """A value of Parquet as one of JSON: NaN, which stands for what is missing in many tables, as unknown.

    Raises:
        ValueError: there is no JSON for it.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal | datetime.timedelta):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    raise ValueError(f"a column holds {type(value).__name__}, which is neither text nor a number; leave it out")


def _table_row(place: str, columns: dict[str, Any]) -> _Row:
    """A row of a table, where an empty cell means unknown, and lists may be written as text."""
    empty = {name for name in _COLUMNS & columns.keys() if columns[name] in ("", None)}
    values = {name: value for name, value in columns.items() if name not in empty}
    try:
        if isinstance(values.get("labels"), str):
            values["labels"] = split_labels(values["labels"])
        if isinstance(values.get("words"), str):
            values["words"] = STRICT.decode(values["words"])
    except (json.JSONDecodeError, NotStrictError, RecursionError):
        return _Row(place, {"id": values.get("id")}, f"words: not valid JSON; {_REMEDIES['words']}")
    except ValueError as error:
        return _Row(place, {"id": values.get("id")}, f"labels: {error}")
    return _Row(place, values)


_STRING = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_STRING_LIST = re.compile(rf"\[\s*(?:{_STRING}\s*(?:,\s*{_STRING}\s*)*,?\s*)?\]", re.DOTALL)


def split_labels(cell: str) -> list[str]:
    """Labels written as a JSON list, a Python list, or with ``|`` or ``;`` between; commas belong to names.

    Raises:
        ValueError: it begins like a list and is none of strings.
    """
    cell = cell.strip()
    if not cell.startswith("["):
        separator = "|" if "|" in cell else ";"
        return [label.strip() for label in cell.split(separator) if label.strip()]
    # Checked first, since Python reads ['a' 'b'], which is how arrays are printed, as one string.
    if not _STRING_LIST.fullmatch(cell):
        raise ValueError("not a list of strings; write it as JSON, or with | between the labels")
    try:
        labels: list[str] = json.loads(cell)
    except ValueError:
        try:
            labels = ast.literal_eval(cell)
        except (SyntaxError, ValueError):
            raise ValueError("a list that cannot be read; write it as JSON") from None
    return labels


def _check_columns(path: Path, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path.name!r} has the column {twice[0]!r} twice; rename one")
    if "id" not in names:
        raise ValueError(f"{path.name!r} has no column 'id'; name the columns and {_REMEDIES['id']}")


def _read_text(path: Path) -> str:
    """The text of a file; what is not UTF-8 becomes lone surrogates, by which its lines are known.

    Raises:
        ValueError: it cannot be read, or no line of it is UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path.name!r} cannot be read ({error.strerror}); check its permissions") from None
    is_other = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data[:4]
    where = 0
    if not is_other:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            where = error.start
    text = data.decode("utf-8-sig", errors="surrogateescape")
    if is_other or not any(is_encodable(line) for line in text.split("\n") if line.strip()):
        raise ValueError(f"{path.name!r} is not UTF-8 (at byte {where}); save it as UTF-8")
    return text


def _relative(image: Path, folder: Path) -> str:
    target = image.resolve()
    root = folder.resolve()
    return target.relative_to(root).as_posix() if target.is_relative_to(root) else target.as_posix()

"""Reads what several annotators said of the same items: CSV or JSONL, a column an annotator or a row an annotation."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xai.analysis.detection.labelsets import indicator
from xai.datasets import split_labels
from xai.strict_json import STRICT
from xai.tasks import Task

ITEM_COLUMNS = ("item", "id", "meme_id", "image")
"""What names the item, the first of these that there is."""
_OF_ANNOTATORS = ("labels_", "annotator")
"""How the columns of annotators begin where nobody says which they are."""
_N_SHOWN = 5

Labels = frozenset[str]
Row = tuple[str, Mapping[str, Any]]
"""Where a record stands, and its columns."""


@dataclass(frozen=True)
class Annotations:
    """The label sets of several annotators; ``sets[annotator][item]`` is ``None`` where there is no annotation.

    ``labels`` are those that somebody gave, in the order of the task if there is one.
    """

    items: tuple[str, ...]
    annotators: tuple[str, ...]
    labels: tuple[str, ...]
    sets: tuple[tuple[Labels | None, ...], ...]

    @cached_property
    def given(self) -> np.ndarray:
        """Whether an annotator gave an item a label, bool ``(n_annotators, n_items, n_labels)``."""
        rows = [indicator([found or () for found in row], self.labels) for row in self.sets]
        return np.array(rows, dtype=bool).reshape(len(self.annotators), len(self.items), len(self.labels))

    @cached_property
    def known(self) -> np.ndarray:
        """Whether an annotator annotated an item, bool ``(n_annotators, n_items)``."""
        return np.array([[found is not None for found in row] for row in self.sets], dtype=bool)


def read_annotations(
    paths: Sequence[str | Path],
    *,
    item: str | None = None,
    annotators: Sequence[str] = (),
    task: Task | Sequence[Task] | None = None,
) -> Annotations:
    """The annotations of one or more CSV or JSONL files, joined by item.

    A file is one of:

    - a column an annotator: those named by ``annotators``, else those that begin with ``labels_`` or ``annotator``,
      else those that hold lists in every cell that is filled;
    - a row an annotation: the columns ``annotator`` and ``labels``;
    - of one annotator, called like the file: the column ``labels``.

    The item is in the column ``item``, or the first there is of :data:`ITEM_COLUMNS`. Labels are a list in JSON or
    Python, or text with ``|`` or ``;`` between. An empty cell, or ``null``, is a missing annotation; ``[]`` is an
    annotation without labels.

    Args:
        task: where given, or all stages of one, aliases are resolved, and a label that it does not know is an error.

    Raises:
        ValueError: a file or a cell cannot be read, an annotation is given twice, or there are fewer than two
            annotators; the message says where and what to do.
    """
    cells = [cell for path in paths for cell in _cells(Path(path), item, annotators, _alone(Path(path), paths))]
    tasks = (task,) if isinstance(task, Task) else tuple(task or ())
    found = _gathered(cells, tasks)
    items = tuple(dict.fromkeys(str(cell.item) for cell in cells))
    names = tuple(dict.fromkeys(str(cell.annotator) for cell in cells))
    if len(names) < 2:
        raise ValueError(
            f"only {len(names)} annotator ({', '.join(names) or 'none'}); agreement needs two: "
            "name their columns with --annotator, or give a file of each"
        )
    used = {label for labels in found.values() for label in labels}
    return Annotations(
        items=items,
        annotators=names,
        labels=tuple(name for one in tasks for name in one.label_names if name in used) or tuple(sorted(used)),
        sets=tuple(tuple(found.get((item, name)) for item in items) for name in names),
    )


class _Cell(NamedTuple):
    """One annotation as it stands in a file: the place of its record, and the column of its labels."""

    place: str
    column: str
    item: Any
    annotator: Any
    labels: Any


class _Shape(NamedTuple):
    """How a file holds annotations: a column an annotator (``columns``), all of one (``alone``), or a row each."""

    item: str
    columns: tuple[str, ...] = ()
    alone: str | None = None


def _alone(path: Path, paths: Sequence[str | Path]) -> str:
    """What the annotator of a whole file is called."""
    is_unique = [Path(other).stem for other in paths].count(path.stem) == 1
    return path.stem if is_unique else f"{path.parent.name}/{path.stem}"


def _cells(path: Path, item: str | None, annotators: Sequence[str], alone: str) -> Iterator[_Cell]:
    rows = _rows(path)
    shape = _shape(path, rows, item, annotators, alone)
    for line, row in rows:
        place, name = f"{path.name}, {line}", row.get(shape.item)
        for column in shape.columns:
            yield _Cell(place, column, name, column, row.get(column))
        if not shape.columns:
            yield _Cell(place, "labels", name, shape.alone or row.get("annotator"), row.get("labels"))


def _shape(path: Path, rows: Sequence[Row], item: str | None, annotators: Sequence[str], alone: str) -> _Shape:
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    has = f"it has {', '.join(map(repr, names)) or 'no columns'}"
    wanted = [item] if item else [name for name in ITEM_COLUMNS if name in names]
    if not wanted or wanted[0] not in names:
        missing = repr(item) if item else f"for the item ({' or '.join(ITEM_COLUMNS)})"
        raise ValueError(f"{path.name!r} has no column {missing}; {has}; name it with --item")
    absent = [name for name in annotators if name not in names]
    if absent:
        raise ValueError(f"{path.name!r} has no column {absent[0]!r}; {has}")
    if annotators:
        return _Shape(wanted[0], tuple(annotators))
    if {"annotator", "labels"} <= set(names):
        return _Shape(wanted[0])
    columns = [name for name in names if name.startswith(_OF_ANNOTATORS) and name != wanted[0]]
    if columns:
        return _Shape(wanted[0], tuple(columns))
    if "labels" in names:
        return _Shape(wanted[0], alone=alone)
    columns = [name for name in names if name != wanted[0] and _holds_lists(row.get(name) for _, row in rows)]
    if not columns:
        raise ValueError(f"{path.name!r}: no column is known to be an annotator's; {has}; name them with --annotator")
    return _Shape(wanted[0], tuple(columns))


def _holds_lists(cells: Iterable[object]) -> bool:
    filled = [cell for cell in cells if cell not in ("", None)]
    return bool(filled) and all(
        isinstance(cell, list) or (isinstance(cell, str) and cell.strip().startswith("[")) for cell in filled
    )


def _gathered(cells: Iterable[_Cell], tasks: Sequence[Task]) -> dict[tuple[str, str], Labels]:
    """The label sets by item and annotator, empty cells left out."""
    found: dict[tuple[str, str], Labels] = {}
    places: dict[tuple[str, str], str] = {}
    problems: dict[str, None] = {}
    for cell in cells:
        key = str(cell.item), str(cell.annotator)
        nameless = [what for what, name in (("item", cell.item), ("annotator", cell.annotator)) if not _is_name(name)]
        if nameless:
            problems[f"{cell.place}: the {nameless[0]} has no name; fill it in"] = None
            continue
        try:
            labels = _labels(cell.labels, tasks)
        except ValueError as error:
            problems[f"{cell.place}, column {cell.column!r}: {error}"] = None
            continue
        if labels is not None and key in found:
            before = f"{key[1]!r} labelled item {key[0]!r} before ({places[key]})"
            problems[f"{cell.place}: {before}; keep one, with all labels in one list"] = None
        elif labels is not None:
            found[key], places[key] = labels, cell.place
    if problems:
        more = f"; and {len(problems) - _N_SHOWN} more" if len(problems) > _N_SHOWN else ""
        raise ValueError("; ".join([*problems][:_N_SHOWN]) + more)
    return found


def _is_name(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and bool(str(value).strip())


def _labels(cell: object, tasks: Sequence[Task]) -> Labels | None:
    """The label set of a cell; ``None`` if it is empty."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    labels = [label.strip() for label in _label_list(cell)]
    if not tasks:
        return frozenset(labels)
    matched = {label: _matched(label, tasks) for label in labels}
    unknown = [label for label, name in matched.items() if name is None]
    if unknown:
        whole = tasks[0].name.partition("/")[0] if len(tasks) > 1 else tasks[0].name
        raise ValueError(f"{unknown[0]!r} is no label of task {whole!r}; correct it, or leave out --task")
    return frozenset(name for name in matched.values() if name is not None)


def _matched(label: str, tasks: Sequence[Task]) -> str | None:
    """The label that is meant, of the first stage that has it."""
    return next((name for one in tasks if (name := one.match_label(label)) is not None), None)


def _label_list(cell: object) -> list[str]:
    labels = split_labels(cell) if isinstance(cell, str) else cell
    is_empty_text = isinstance(cell, str) and not labels and not cell.strip().startswith("[")
    if not isinstance(labels, list) or is_empty_text or not all(isinstance(x, str) and x.strip() for x in labels):
        raise ValueError('not a list of labels; write ["one", "other"], one|other, or [] for none')
    return labels


def _rows(path: Path) -> list[Row]:
    readers = {".csv": _csv_rows, ".jsonl": _jsonl_rows}
    if path.suffix.lower() not in readers:
        raise ValueError(f"annotations are read from .csv and .jsonl, not {path.name!r}; write them as one of these")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name!r} is not UTF-8 (at byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ValueError(f"{path.name!r} cannot be read ({error.strerror}); check the path") from None
    rows = list(readers[path.suffix.lower()](path.name, text))
    if not rows:
        raise ValueError(f"{path.name!r} has no records; give annotations of at least one item")
    return rows


def _csv_rows(name: str, text: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
        if len(set(header)) < len(header):
            raise ValueError(f"{name!r} has a column twice; rename one")
        for cells in reader:
            if cells and len(cells) != len(header):
                raise ValueError(
                    f"{name}, line {reader.line_num}: {len(cells)} cells where the first line names {len(header)} "
                    "columns; put quotes around cells with commas"
                )
            if cells:
                yield f"line {reader.line_num}", dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise ValueError(f"{name}, line {reader.line_num}: not valid CSV ({error}); correct the line") from None


def _jsonl_rows(name: str, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            columns = STRICT.decode(line)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise ValueError(f"{name}, line {number}: not valid JSON ({reason}); correct the line") from None
        if not isinstance(columns, dict):
            raise ValueError(f"{name}, line {number}: not a JSON object; write one object a line")
        yield f"line {number}", columns

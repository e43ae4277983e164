"""Reads what several annotators said of the same items: CSV or JSONL, a column an annotator or a row an annotation."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

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
        cells = [[[label in (found or ()) for label in self.labels] for found in row] for row in self.sets]
        return np.array(cells, dtype=bool).reshape(len(self.annotators), len(self.items), len(self.labels))

    @cached_property
    def known(self) -> np.ndarray:
        """Whether an annotator annotated an item, bool ``(n_annotators, n_items)``."""
        return np.array([[found is not None for found in row] for row in self.sets], dtype=bool)


def read_annotations(
    paths: Sequence[str | Path], *, item: str | None = None, annotators: Sequence[str] = (), task: Task | None = None
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
        task: where given, aliases are resolved, and a label that it does not know is an error.

    Raises:
        ValueError: a file or a cell cannot be read, an annotation is given twice, or there are fewer than two
            annotators; the message says where and what to do.
    """
    found: dict[tuple[str, str], tuple[str, Labels]] = {}
    problems: list[str] = []
    order: dict[str, None] = {}
    names: dict[str, None] = {}
    for path in map(Path, paths):
        rows = _rows(path)
        alone = path.stem if [Path(p).stem for p in paths].count(path.stem) == 1 else f"{path.parent.name}/{path.stem}"
        shape = _shape(path, rows, item, annotators, alone)
        for place, who, what, cell in shape.cells(rows):
            where = f"{path.name}, {place}"
            try:
                _text(what, f"the item in column {shape.item!r}")
                _text(who, "the annotator")
                order.setdefault(str(what))
                names.setdefault(str(who))
                _add(found, str(what), str(who), where, _labels(cell, task))
            except ValueError as error:
                column = f", column {shape.column(who)!r}"
                problems.append(f"{where}{column}: {error}")
    _refuse(problems)
    if len(names) < 2:
        raise ValueError(
            f"only {len(names)} annotator ({', '.join(names) or 'none'}); agreement needs two: "
            "name their columns with --annotator, or give a file of each"
        )
    return _annotations(found, tuple(order), tuple(names), task)


@dataclass(frozen=True)
class _Shape:
    """How a file holds annotations: a column an annotator (``columns``), else a row an annotation."""

    item: str
    columns: tuple[str, ...] = ()
    alone: str | None = None

    def cells(self, rows: Iterable[Row]) -> Iterator[tuple[str, Any, Any, Any]]:
        """Where, annotator, item and labels of every annotation, in order."""
        for place, row in rows:
            if self.columns:
                for name in self.columns:
                    yield place, name, row.get(self.item), row.get(name)
            else:
                yield place, self.alone or row.get("annotator"), row.get(self.item), row.get("labels")

    def column(self, annotator: object) -> object:
        return annotator if self.columns else "labels"


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


def _text(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ValueError(f"{what} is missing or no text; fill it in")


def _labels(cell: object, task: Task | None) -> Labels | None:
    """The label set of a cell; ``None`` if it is empty."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    labels = split_labels(cell) if isinstance(cell, str) else cell
    is_list = isinstance(labels, list) and all(isinstance(label, str) and label.strip() for label in labels)
    if not is_list or (not labels and isinstance(cell, str) and not cell.strip().startswith("[")):
        raise ValueError('not a list of labels; write ["one", "other"], one|other, or [] for none')
    if task is None:
        return frozenset(label.strip() for label in labels)
    matched = {label: task.match_label(label) for label in labels}
    unknown = [label for label, name in matched.items() if name is None]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no label of task {task.name!r}; correct it, or leave out --task")
    return frozenset(name for name in matched.values() if name is not None)


def _add(
    found: dict[tuple[str, str], tuple[str, Labels]], item: str, annotator: str, where: str, labels: Labels | None
) -> None:
    if labels is None:
        return
    if (item, annotator) in found:
        raise ValueError(
            f"{annotator!r} labelled item {item!r} before ({found[item, annotator][0]}); "
            "keep one, with all labels in one list"
        )
    found[item, annotator] = where, labels


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        more = f"; and {len(problems) - _N_SHOWN} more" if len(problems) > _N_SHOWN else ""
        raise ValueError("; ".join(problems[:_N_SHOWN]) + more)


def _annotations(
    found: Mapping[tuple[str, str], tuple[str, Labels]],
    items: tuple[str, ...],
    names: tuple[str, ...],
    task: Task | None,
) -> Annotations:
    used = {label for _, labels in found.values() for label in labels}
    labels = tuple(label for label in task.label_names if label in used) if task else tuple(sorted(used))
    sets = tuple(tuple(found[item, name][1] if (item, name) in found else None for item in items) for name in names)
    return Annotations(items, names, labels, sets)


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

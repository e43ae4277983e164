"""Reads a run in its order, one answer with its explanations at a time, and only the columns that are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from xai.parts import Kind, committed, part_path
from xai.store import Run

Row = dict[str, Any]


def answers_with_explanations(
    run: Run, answer_columns: Sequence[str], explanation_columns: Sequence[str], numbers: Sequence[int] | None = None
) -> Iterator[tuple[Row, list[Row]]]:
    """Every answer of a run that was explained, with its explanations, in the order of the run.

    Rows are dicts of the columns asked for, ``meme_id`` and ``mode`` among them. Lists of numbers come as numpy
    arrays. One part of the run is held at a time: everything about a meme and mode lies in parts of one number. With
    ``numbers`` only those parts are read.
    """
    for number in committed(run.path) if numbers is None else numbers:
        explained: dict[tuple[str, str], list[Row]] = {}
        for row in _rows(run, "explanations", number, explanation_columns):
            explained.setdefault((row["meme_id"], row["mode"]), []).append(row)
        for answer in _rows(run, "predictions", number, answer_columns) if explained else ():
            explanations = explained.get((answer["meme_id"], answer["mode"]))
            if explanations:
                yield answer, explanations


def _rows(run: Run, kind: Kind, number: int, columns: Sequence[str]) -> list[Row]:
    path = part_path(run.path, kind, number)
    if not path.exists():
        return []
    names = list(dict.fromkeys(("meme_id", "mode", *columns)))
    # Parts are small: threads that decode one cost more than they spare.
    table = pq.ParquetFile(path, memory_map=True).read(columns=names, use_threads=False).combine_chunks()
    values = [_values(table.column(name)) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    array = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if not pa.types.is_list(array.type) or not pa.types.is_primitive(array.type.value_type):
        values: list[Any] = array.to_pylist()
        return values
    flat, offsets = array.values.to_numpy(zero_copy_only=False), array.offsets.to_numpy()
    known = array.is_valid().to_numpy(zero_copy_only=False)
    return [flat[offsets[i] : offsets[i + 1]] if known[i] else None for i in range(len(array))]

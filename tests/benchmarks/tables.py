"""Prints figures: in the terminal as they come, and as tables for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks.harness import Record

VERDICTS = {None: "", True: "held", False: "MISSED"}


def print_record(record: Record) -> None:
    """One line: metric, median, quartiles, bar, verdict."""
    judged = f"{record.wanted or '':<8} {VERDICTS[record.held]}"
    line = f"  {record.metric:<66} {_value(record):>10} {record.unit:<5} {_spread(record):<20} {judged}"
    print(line.rstrip(), flush=True)


def print_summary(records: Sequence[tuple[str, Record]]) -> int:
    """How many bars were held, and each that was not, from (row, figure); returns the number of the latter."""
    judged = [(row, record) for row, record in records if record.held is not None]
    missed = [(row, record) for row, record in judged if not record.held]
    print(f"{len(judged) - len(missed)} of {len(judged)} bars held")
    for row, record in missed:
        print(f"MISSED {row}: {record.metric} is {_value(record)}, wanted {record.wanted}")
    return len(missed)


def print_markdown(results: Mapping[str, Any]) -> None:
    """A table a row of the benchmark, from the JSON that was written."""
    for row, entry in results.items():
        print(f"## {row}\n\n| figure | median | quartiles | runs | bar | |\n| --- | --- | --- | --- | --- | --- |")
        for record in (Record(**one) for one in entry["records"]):
            cells = (f"{_value(record)} {record.unit}".strip(), _spread(record), str(len(record.runs) or ""))
            print(f"| {record.metric} | {' | '.join(cells)} | {record.wanted or ''} | {VERDICTS[record.held]} |")
        print()


def _value(record: Record) -> str:
    return record.value if isinstance(record.value, str) else _number(record.value)


def _spread(record: Record) -> str:
    return "" if record.spread is None else f"{_number(record.spread[0])} to {_number(record.spread[1])}"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"

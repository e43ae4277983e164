"""A report: facts, tables and charts as data, which JSON holds and Markdown, HTML and the terminal only show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import Field, JsonValue, model_validator

from xai.parts import write_text
from xai.schema import Record

FORMAT = 1
"""Version of the JSON of a report."""

Cell = str | bool | int | float | None


class Table(Record):
    """A table of numbers and names.

    ``name`` is its key in the JSON, e.g. ``"by_mode"``. Columns that are called ``x_low`` and ``x_high`` beside ``x``
    are the interval of ``x``, and are shown with it in one. What is no number (NaN, infinity) is ``None``.
    ``n_shown`` limits the rows that pages show; the JSON has all. ``short`` has heads of columns for narrow pages, and
    ``""`` for those that are left out there.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    n_shown: int | None = None
    short: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_rows(self) -> Table:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"table {self.name!r} has rows that are not of {len(self.columns)} cells")
        return self

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        frame: pd.DataFrame,
        *,
        note: str = "",
        n_shown: int | None = None,
        short: Mapping[str, str] | None = None,
    ) -> Table:
        """The rows of a data frame; lists in it become text."""
        rows = [tuple(_cell(value) for value in row) for row in frame.itertuples(index=False, name=None)]
        columns = tuple(map(str, frame.columns))
        return cls(
            name=name, title=title, columns=columns, rows=tuple(rows), note=note, n_shown=n_shown, short=short or {}
        )

    @property
    def frame(self) -> pd.DataFrame:
        """The table as a data frame."""
        return pd.DataFrame(list(self.rows), columns=list(self.columns))

    def brief(self) -> Table:
        """The same for a narrow page: short heads, no intervals, and names that all rows share in the title instead."""
        # As objects, since a column of whole numbers with a gap would become one of floats.
        frame = pd.DataFrame(list(self.rows), columns=list(self.columns), dtype=object)
        plain = [name for name in self.columns if not name.endswith(("_low", "_high")) and self.short.get(name) != ""]
        shared = {
            name: frame[name].iloc[0]
            for name in plain
            if len(frame) > 1
            and all(isinstance(value, str) for value in frame[name])
            and frame[name].eq(frame[name].iloc[0]).all()
        }
        said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shared.items())
        kept = [name for name in plain if name not in shared]
        title = f"{self.title} ({said})" if said else self.title
        narrow = frame[kept].rename(columns=dict(self.short))
        return Table.of(self.name, title, narrow, note=self.note, n_shown=self.n_shown)

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Column heads and cells as text, intervals joined to their values: ``0.512 (0.480 to 0.551)``."""
        at = {name: index for index, name in enumerate(self.columns)}
        with_interval = {name for name in at if f"{name}_low" in at and f"{name}_high" in at}
        joined = {f"{name}_{end}" for name in with_interval for end in ("low", "high")}
        names = [name for name in self.columns if name not in joined]

        def text(row: tuple[Cell, ...], name: str) -> str:
            value = formatted(row[at[name]])
            low, high = (row[at[f"{name}_{end}"]] for end in ("low", "high")) if name in with_interval else (None, None)
            return value if low is None or high is None else f"{value} ({formatted(low)} to {formatted(high)})"

        rows = self.rows if self.n_shown is None else self.rows[: self.n_shown]
        return [name.replace("_", " ") for name in names], [[text(row, name) for name in names] for row in rows]


class Series(Record):
    """One line, or one colour of bars or points; ``low`` and ``high`` are a band or error bars around ``y``."""

    name: str
    x: tuple[str | float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] | None = None
    high: tuple[float | None, ...] | None = None

    @classmethod
    def of(cls, name: str, x: Iterable[str | float], frame: pd.DataFrame, column: str) -> Series:
        """A column of a data frame over ``x``, its interval in ``column_low`` and ``column_high``; NaN is a gap."""
        names = {"y": column, "low": f"{column}_low", "high": f"{column}_high"}
        ends = {
            end: tuple(None if pd.isna(value) else float(value) for value in frame[name]) for end, name in names.items()
        }
        return cls(name=name, x=tuple(x), **ends)


class Chart(Record):
    """A chart as data; :mod:`xai.analysis.charts` draws it with Plotly or matplotlib.

    ``lines`` and ``points`` are over numbers, ``bars`` over names, or over the lower ends of bins of one width
    ``bin_width``. Labels name the quantity and its unit. ``y_range`` fixes the axis.
    """

    name: str
    title: str
    kind: Literal["bars", "lines", "points"]
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    note: str = ""
    bin_width: float | None = None
    y_range: tuple[float, float] | None = None


class Heatmap(Record):
    """A matrix as data, ``values[row][column]``; ``diverging`` colours it symmetrically around 0."""

    name: str
    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    unit: str
    row_label: str = ""
    column_label: str = ""
    diverging: bool = False
    note: str = ""


class Picture(Record):
    """A picture, PNG in base64. Pages keep it closed until it is asked for, since memes may hurt."""

    name: str
    caption: str
    png: str


class Section(Record):
    """A part of a report: what it says in words (paragraphs), then its tables, charts and pictures."""

    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart | Heatmap, ...] = ()
    pictures: tuple[Picture, ...] = ()

    def numbered(self, number: int) -> Section:
        """The same with names that end in a number, so that a report can have several such sections."""
        parts = {
            kind: tuple(part.model_copy(update={"name": f"{part.name}_{number}"}) for part in getattr(self, kind))
            for kind in ("tables", "charts", "pictures")
        }
        return self.model_copy(update=parts)


class Report(Record):
    """What a command found out. ``headline`` names the tables that the terminal shows.

    ``facts`` are what the numbers depend on: configuration, conventions, versions, seeds, counts.
    """

    format: int = FORMAT
    title: str
    facts: Mapping[str, JsonValue] = Field(default_factory=dict)
    headline: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()

    @model_validator(mode="after")
    def _check_names(self) -> Report:
        names = [part.name for section in self.sections for part in (*section.tables, *section.charts)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"tables and charts need names of their own; given twice: {', '.join(twice)}")
        unknown = sorted(set(self.headline) - {table.name for table in self.tables})
        if unknown:
            raise ValueError(f"headline names tables that the report does not have: {', '.join(unknown)}")
        return self

    @property
    def tables(self) -> list[Table]:
        """All tables in order."""
        return [table for section in self.sections for table in section.tables]

    def table(self, name: str) -> Table:
        """The table of that name.

        Raises:
            KeyError: there is none; the message names those that there are.
        """
        found = {table.name: table for table in self.tables}
        if name not in found:
            raise KeyError(f"the report has no table {name!r}; it has {', '.join(found)}")
        return found[name]


def write_report(report: Report, folder: Path, name: str) -> dict[str, Path]:
    """Write ``NAME.json``, ``NAME.md`` and ``NAME.html`` into ``folder``; each is whole or not there.

    Markdown and HTML are made of what the JSON says and nothing else.
    """
    from xai.analysis.pages import report_html, report_markdown

    folder.mkdir(parents=True, exist_ok=True)
    as_json = report.model_dump_json(indent=1)
    stored = Report.model_validate_json(as_json)
    contents = {"json": as_json + "\n", "md": report_markdown(stored), "html": report_html(stored)}
    paths = {kind: folder / f"{name}.{kind}" for kind in contents}
    for kind, text in contents.items():
        write_text(paths[kind], text)
    return paths


def read_report(path: Path) -> Report:
    """A report from its JSON.

    Raises:
        ValueError: the file is no report, or one of another format.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"report {path.name!r} cannot be read ({error.strerror}); make it again") from None
    try:
        return Report.model_validate_json(text)
    except ValueError:
        raise ValueError(f"{path.name!r} is not a report of format {FORMAT}; make it again") from None


def formatted(value: Cell) -> str:
    """A cell as people read it: three digits after the point, more for what is small, a dash for what is unknown."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 0.0005 else f"{value:.3f}"
    return str(value)


def _cell(value: Any) -> Cell:
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(map(str, value))
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, (str, bool, int, float)) else str(value)

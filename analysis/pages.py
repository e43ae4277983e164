"""Shows a report as Markdown, and as one HTML file that runs no script and loads nothing; every text is escaped."""

from __future__ import annotations

import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from xai.analysis.charts import svg
from xai.analysis.report import Report, Table

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_MARKDOWN_SPECIAL = "\\`*_{}[]<>#|~"


def report_html(report: Report) -> str:
    """The report as a document that stands alone."""
    return _TEMPLATES.get_template("report.html.jinja").render(
        report=report, facts=_facts(report), svg=lambda chart: Markup(svg(chart))
    )


def report_markdown(report: Report) -> str:
    """The report as Markdown: words and tables; the charts' numbers are in the JSON, their pictures in the HTML."""
    lines = [f"# {_escaped(report.title)}", ""]
    for section in report.sections:
        lines += [f"## {_escaped(section.title)}", ""]
        if section.text:
            lines += [_escaped(section.text), ""]
        for table in section.tables:
            lines += [*_markdown_table(table), ""]
    lines += ["## What the numbers depend on", ""]
    lines += [f"- {_escaped(name)}: {_escaped(value)}" for name, value in _facts(report)]
    return "\n".join(lines) + "\n"


def _markdown_table(table: Table) -> list[str]:
    heads, rows = table.shown()
    lines = [f"**{_escaped(table.title)}**", "", _markdown_row(heads), _markdown_row(["---"] * len(heads), raw=True)]
    lines += [_markdown_row(row) for row in rows]
    notes = [_escaped(table.note)] if table.note else []
    if len(rows) < len(table.rows):
        notes.append(f"The first {len(rows)} of {len(table.rows)} rows; the JSON has all.")
    return [*lines, "", *notes] if notes else lines


def _markdown_row(cells: list[str], *, raw: bool = False) -> str:
    return "| " + " | ".join(cell if raw else _escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is; a line break inside would end a row."""
    flat = " ".join(text.split("\n"))
    return "".join(f"\\{character}" if character in _MARKDOWN_SPECIAL else character for character in flat)


def _facts(report: Report) -> list[tuple[str, str]]:
    return [(name, _fact(value)) for name, value in report.facts.items()]


def _fact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

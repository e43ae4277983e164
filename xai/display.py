"""What the command line prints: tables, JSON, progress, and one explanation in colours."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from xai.analysis.report import Report
    from xai.doctor import Diagnosis
    from xai.ocr import OcrSummary
    from xai.schema import Explanation


class _Terminal(Console):
    """A console on which no caption, label or name can steer the terminal: their control characters are shown."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_harmless(segment.text))


out, err = _Terminal(), _Terminal(stderr=True)
_EXAMPLE = 80
"""Characters of an example's text that are shown."""
ROOM_FOR_INTERVALS = 160
"""Columns of a terminal from which on tables have their intervals; below, pages alone have them."""


def emit(title: str, frame: pd.DataFrame, as_json: bool) -> None:
    """A table for people or JSON for machines."""
    if as_json:
        print_json(records(frame))
    else:
        print_frame(title, frame)


def print_frame(title: str, frame: pd.DataFrame) -> None:
    """A data frame as a table; no text of it is taken for markup."""
    table = Table(title=title, title_justify="left")
    for name in frame.columns:
        table.add_column(str(name), overflow="fold")
    for row in frame.itertuples(index=False):
        table.add_row(*(escape(_cell(value)) for value in row))
    out.print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return _harmless(", ".join(str(item) for item in value))
    return _harmless(str(value))


def _harmless(text: str) -> str:
    """Text of a dataset or an answer without the control characters by which it could command the terminal."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else f"\\x{ord(c):02x}" for c in text)


def print_report(report: Report, page: Path | None, as_json: bool) -> None:
    """A report as JSON for machines; or its headline tables, and where the page is, or else what stands under them."""
    import pandas as pd

    if as_json:
        print_json(report.model_dump(mode="json"))
        return
    for name in report.headline:
        table = report.table(name) if out.width >= ROOM_FOR_INTERVALS else report.table(name).brief()
        heads, rows = table.shown()
        print_frame(table.title, pd.DataFrame(rows, columns=heads))
        if page is None and table.note:
            out.print(table.note, markup=False, highlight=False)
    if page is not None:
        out.print(f"report     {page}", markup=False, highlight=False, soft_wrap=True)


def records(frame: pd.DataFrame) -> Any:
    """The rows of a data frame as JSON values."""
    return json.loads(frame.to_json(orient="records", force_ascii=False))


def print_json(value: object) -> None:
    """JSON on standard output; what is no number there (NaN) is null."""
    text = json.dumps(_finite(value), ensure_ascii=False, indent=2, allow_nan=False)
    # json escapes the control characters below a space alone, and terminals obey those above 127, too.
    print(re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text))


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error; yields what advances it."""
    columns = (SpinnerColumn(), TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)


def print_explanation(explanation: Explanation) -> None:
    """One explanation in the terminal: what it is of, labels, caption coloured by sign, words, picture, shares."""
    from xai.attribution.wording import facts

    prediction, words = explanation.prediction, explanation.words
    out.print(f"[bold]{escape(_harmless(explanation.meme.id))}[/]  {explanation.mode}")
    for name, text in facts(explanation):
        out.print(f"{name.lower():10} {escape(_harmless(text))}", highlight=False, soft_wrap=True)
    out.print(f"labels     {escape(', '.join(prediction.labels)) or '—'}", highlight=False)
    out.print(f"says       {escape(_harmless(', '.join(_named(prediction)))) or '—'}", highlight=False)
    if len(words):
        largest = float(words["relevance"].abs().max()) or 1.0
        pieces = [_tinted(str(w), float(r) / largest) for w, r in zip(words["word"], words["relevance"], strict=True)]
        out.print("caption    " + " ".join(pieces), highlight=False)
        ranked = words.sort_values("relevance", ascending=False).head(8)[["word", "relevance", "n_tokens"]]
        print_frame("Words with most relevance", ranked)
    for name, grid, unit in (("picture", explanation.image, "cell"), ("pixels", explanation.pixels, "patch")):
        if grid is not None:
            largest = float(abs(grid).max()) or 1.0
            out.print(f"{name:10} (one square a {unit}; red speaks for the target, blue against)")
            for row in grid:
                out.print(" " * 11 + "".join(_square(float(value) / largest) for value in row))
    rows = explanation.segments.itertuples()
    shares = "  ".join(f"{row.segment} {row.relevance:+.3f} ({row.absolute:.3f})" for row in rows)
    out.print(f"shares     {shares}, signed (absolute)", highlight=False)
    if explanation.example_shares:
        examples = explanation.examples
        short = examples["text"].str.slice(0, _EXAMPLE)
        print_frame("Examples in the order of the prompt, signed relevance", examples.assign(text=short))
    out.print(f"quality    {explanation.quality.model_dump()}", markup=False, highlight=False)


def _named(prediction: Any) -> list[str]:
    return [*prediction.referred_words, *(f"[{concept}]" for concept in prediction.referred_image_concepts)]


def _tinted(word: str, strength: float) -> str:
    if abs(strength) < 0.05:
        return escape(_harmless(word))
    return f"[black on {_colour(strength)}]{escape(_harmless(word))}[/]"


def _square(strength: float) -> str:
    return f"[on {_colour(strength)}]  [/]"


def _colour(strength: float) -> str:
    """White at 0, red towards +1, blue towards -1."""
    fade = round(255 * (1 - min(abs(strength), 1.0)))
    return f"rgb(255,{fade},{fade})" if strength > 0 else f"rgb({fade},{fade},255)"


def print_reading(summary: OcrSummary, path: Path) -> None:
    """What the OCR of a dataset came to: the engine and why, the counts, and every failure."""
    import pandas as pd

    engine = " ".join(str(summary.engine[name]) for name in ("engine", "version") if name in summary.engine)
    earlier = f" ({summary.resumed} records by an earlier start)" if summary.resumed else ""
    by_flag = ", ".join(f"{name} {n}" for name, n in sorted(summary.flags.items()))
    lines = [
        f"engine     {engine}: {summary.reason}",
        f"read       {summary.memes} memes, {summary.words} words{earlier}: {path}",
        f"flagged    {summary.flagged} words, which comparisons leave out{f' ({by_flag})' if by_flag else ''}",
    ]
    if summary.filled < summary.memes:
        lines.append(
            f"aligned    {summary.matched} words of the dataset's texts found in the pictures, "
            f"{summary.only_in_text} not; {summary.only_in_ocr} read that are in no text"
        )
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if summary.failures:
        rows = [{"meme_id": failure.meme_id, "reason": failure.reason} for failure in summary.failures]
        print_frame(f"Failures ({len(rows)})", pd.DataFrame(rows))


def print_environment(environment: dict[str, Any]) -> None:
    """Versions, devices, and what can be read by OCR."""
    import pandas as pd

    packages = list(environment["versions"].items())
    print_frame("Versions", pd.DataFrame(packages, columns=["package", "version"]))
    print_frame("Devices", pd.DataFrame(environment["devices"]))
    print_frame("OCR", pd.DataFrame(environment["ocr"]).drop(columns="install"))
    for row in environment["ocr"]:
        if row["install"]:  # outside the table, so that it can be copied whole
            out.print(f"{row['engine']} has more with: {row['install']}", markup=False, highlight=False, soft_wrap=True)


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """The files of a model, the rule of every module, and its self-check."""
    from xai.doctor import check_table, file_table, module_table

    if diagnosis.files:
        print_frame(f"Files of {diagnosis.name}", file_table(diagnosis.files))
    found = diagnosis.verification
    if found is None:
        return
    print_frame(f"Modules of {diagnosis.name} ({found.family})", module_table(found))
    if found.checks:
        print_frame("Self-check by CP-LRP", check_table(found))
    if not diagnosis.problem:
        asked = f"; modes: {', '.join(diagnosis.modes)}" if diagnosis.modes else f", but not asked: {diagnosis.asking}"
        out.print(f"{diagnosis.name} can be explained{asked}", markup=False, highlight=False, soft_wrap=True)

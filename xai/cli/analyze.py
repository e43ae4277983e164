"""`xai analyze`: relevance beside rationale."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from xai.cli.common import JsonOption, app
from xai.display import out, print_frame, print_json

if TYPE_CHECKING:
    from xai.analysis.report import Table
    from xai.store import Run


@app.command()
def analyze(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders made by `xai explain`.")],
    pooling: Annotated[Literal["sum", "mean_abs"], typer.Option(help="How tokens make a word's relevance.")] = "sum",
    k: Annotated[int | None, typer.Option(min=1, help="Relevance words; by default as many as are named.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where the report goes; the first run's reports.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Relevance against rationale: how far what carries the relevance is what the model says it used.

    Writes reports/analyze.{json,md,html}, and into every run reports/agreement.parquet with a row a meme.
    """
    from xai.analysis.agreement import agreement_tables, write_agreement
    from xai.analysis.agreement_report import agreement_report
    from xai.analysis.report import write_report
    from xai.planted.groups import planted_regions, planted_section

    opened = _opened(runs)
    workers = min(2, os.cpu_count() or 1)
    tables = {
        name: agreement_tables(run, pooling=pooling, k=k, regions_of=planted_regions, workers=workers)
        for name, run in opened.items()
    }
    for name, run in opened.items():
        write_agreement(tables[name], run.reports)
    planted = planted_section(opened, tables)
    report = agreement_report(opened, tables, pooling=pooling, k=k, sections=[planted] if planted else [])
    paths = write_report(report, folder or next(iter(opened.values())).reports, "analyze")
    if as_json:
        print_json(json.loads(report.model_dump_json()))
        return
    for name in report.headline:
        _print_table(report.table(name))
    out.print(f"report: {paths['html']}", markup=False, highlight=False, soft_wrap=True)


def _opened(paths: Sequence[Path]) -> dict[str, Run]:
    """The runs by the names of their folders, with as much of the path as tells them apart."""
    from xai.schema import ALL_LABELS
    from xai.store import open_run

    whole = list(dict.fromkeys(path.resolve() for path in paths))
    depth = 1
    while len({path.parts[-depth:] for path in whole}) < len(whole):
        depth += 1
    opened = {"/".join(path.parts[-depth:]): open_run(path) for path in whole}
    for name, run in opened.items():
        if not len(run.explanations().filter(f"target = '{ALL_LABELS}'").limit(1)):
            raise ValueError(
                f"run {name!r} has no explanation of all labels together, which is what is analysed; "
                "explain with --target-kind logit or log_probability"
            )
    return opened


def _print_table(table: Table) -> None:
    import pandas as pd

    heads, rows = table.shown()
    print_frame(table.title, pd.DataFrame(rows, columns=heads))

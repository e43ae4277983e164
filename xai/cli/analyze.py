"""`xai analyze`: relevance beside rationale."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from xai.cli.common import DeviceOption, JsonOption, app
from xai.display import print_report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xai.analysis.rationale.agreement import AgreementTables
    from xai.analysis.report import Section
    from xai.store import Run

TaggerName = Literal["rules", "llm", "local", "none"]


@app.command()
def analyze(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders made by `xai explain`.")],
    pooling: Annotated[Literal["sum", "mean_abs"], typer.Option(help="How tokens make a word's relevance.")] = "sum",
    k: Annotated[int | None, typer.Option(min=1, help="Relevance words; by default as many as are named.")] = None,
    categories: Annotated[
        TaggerName, typer.Option(help="Who says the semantic categories of words; see `xai categories`.")
    ] = "rules",
    category_memes: Annotated[
        int, typer.Option(min=1, help="Of more memes, the words of so many are sorted into categories.")
    ] = 2000,
    model: Annotated[str | None, typer.Option(help="For --categories local: the model that is asked.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where the report goes; the first run's reports.")
    ] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Relevance against rationale: how far what carries the relevance is what the model says it used.

    Writes reports/analyze.{json,md,html}, and into every run reports/agreement.parquet with a row a meme and
    reports/categories.parquet with a row a word.
    """
    from xai.analysis.rationale.agreement import agreement_tables, write_agreement
    from xai.analysis.rationale.report import agreement_report
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
    sections = [
        *([planted] if planted else []),
        *_categories(opened, tables, categories, category_memes, model, device),
    ]
    report = agreement_report(opened, tables, pooling=pooling, k=k, sections=sections)
    paths = write_report(report, folder or next(iter(opened.values())).reports, "analyze")
    print_report(report, paths["html"], as_json)


def _categories(
    runs: Mapping[str, Run],
    tables: Mapping[str, AgreementTables],
    tagger: TaggerName,
    n_memes: int,
    model: str | None,
    device: str | None,
) -> list[Section]:
    """A section on the categories of words for every run, which are stored beside its report."""
    from xai.analysis.categories.contrast import FILE, categorised, meme_contexts, section_of_words, write_categories

    if tagger == "none":
        for run in runs.values():
            (run.reports / FILE).unlink(missing_ok=True)  # those of an earlier comparison may be of other words
        return []
    from xai.cli.categories import tagger_named

    chosen, title = tagger_named(tagger, model, device), "Categories of words"
    sections = []
    for name, run in runs.items():
        found = categorised(tables[name].memes, chosen, meme_contexts(run), n_memes=n_memes)
        write_categories(found, run.reports)
        sections.append(section_of_words(found, title=title if len(runs) == 1 else f"{title}: {name}"))
    return sections if len(runs) == 1 else [one.numbered(number) for number, one in enumerate(sections, start=1)]


def _opened(paths: Sequence[Path]) -> dict[str, Run]:
    """The runs by the names of their folders, with as much of the path as tells them apart."""
    from xai.schema import ALL_LABELS
    from xai.store import open_run, run_names

    whole = list(dict.fromkeys(path.resolve() for path in paths))
    opened = {name: open_run(path) for name, path in zip(run_names(whole), whole, strict=True)}
    for name, run in opened.items():
        if not len(run.explanations().filter(f"target = '{ALL_LABELS}'").limit(1)):
            raise ValueError(
                f"run {name!r} has no explanation of all labels together, which is what is analysed; "
                "explain with --target-kind logit or log_probability"
            )
    return opened

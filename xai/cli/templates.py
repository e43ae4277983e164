"""`xai templates`: finds which template each meme of a dataset is made from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xai.cli.common import (
    DONE_WITH_FAILURES,
    DatasetArgument,
    ImagesOption,
    JsonOption,
    app,
    dataset_path,
)
from xai.display import out, print_frame, print_json, progress

if TYPE_CHECKING:
    from xai.retrieval.templates import TemplateSummary

_SHOWN = 20


@app.command()
def templates(
    dataset: DatasetArgument,
    folder: Annotated[
        Path,
        typer.Option(
            "--templates", help="Folder of template pictures, described in NAME.txt, descriptions.jsonl or .csv."
        ),
    ],
    out_file: Annotated[Path, typer.Option("--out", help="JSONL of the memes with their templates.")],
    embedder: Annotated[
        str, typer.Option(help="thumbnail, phash, or a dual encoder: its folder or hub id.")
    ] = "thumbnail",
    threshold: Annotated[float, typer.Option(min=-1, max=1, help="Least cosine of a match.")] = 0.85,
    distance: Annotated[
        int, typer.Option(min=0, max=64, help="Most bits in which unmatched memes of a group differ.")
    ] = 6,
    otherwise: Annotated[
        str, typer.Option(help="Description for memes whose template is not known or not described.")
    ] = "",
    images: ImagesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the template of each meme, and groups of look-alikes among the others."""
    from xai.datasets import read_memes
    from xai.retrieval.templates import match_dataset

    source = dataset_path(dataset)
    records = list(read_memes(source, images=images))
    with progress("matching", len(records)) as advance:
        summary = match_dataset(
            records,
            folder,
            out_file,
            embedder=embedder,
            threshold=threshold,
            distance=distance,
            otherwise=otherwise,
            on_progress=advance,
        )
    if as_json:
        print_json(summary.report() | {"out": str(out_file)})
    else:
        _print(summary, out_file)
    if summary.failures:
        raise typer.Exit(DONE_WITH_FAILURES)


def _print(summary: TemplateSummary, out_file: Path) -> None:
    import pandas as pd

    if summary.matched:
        counts = pd.DataFrame(list(summary.matched.items())[:_SHOWN], columns=["template", "memes"])
        print_frame("Templates", counts)
    report = summary.report()
    lines = {
        "memes": f"{report['memes']}, {report['matched']} made from {len(summary.matched)} of {summary.templates} "
        f"templates (cosine at least {summary.threshold:g} by {summary.embedder['name']})",
        "others": f"{report['unmatched']} in {report['groups']} groups, {report['groups_of_several']} of them of "
        f"several memes, the largest of {report['largest_group']}",
        "described": f"{summary.described} templates",
        "out": str(out_file),
    }
    for name, line in lines.items():
        out.print(f"{name:<10} {line}", markup=False, highlight=False, soft_wrap=True)
    if summary.failures:
        failures = [(failure.meme_id, failure.reason) for failure in summary.failures[:_SHOWN]]
        print_frame(f"Failures ({len(summary.failures)})", pd.DataFrame(failures, columns=["record", "reason"]))

"""`xai agreement`: how far annotators agree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from xai.cli.common import JsonOption, app, dataset_path
from xai.display import print_report

if TYPE_CHECKING:
    from xai.analysis.report import Report

FilesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="CSV or JSONL: a column an annotator, a row an annotation, or a file each."),
]


@app.command()
def agreement(
    files: FilesArgument,
    item: Annotated[str | None, typer.Option(help="Column of the item; item, id, meme_id or image by default.")] = None,
    annotator: Annotated[
        list[str] | None, typer.Option(help="Column of an annotator; may be repeated. Found by default.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="Resolve aliases of its labels, allow no others, and give mean kappas by branch."),
    ] = None,
    min_count: Annotated[int, typer.Option(min=0, help="Uses that a class needs for the mean of Cohen's kappa …")] = 5,
    occurrence: Annotated[
        Literal["both", "either", "none"], typer.Option(help="… by both annotators, by either, or none needed.")
    ] = "both",
    draws: Annotated[int, typer.Option(min=0, help="Bootstrap samples of the items; 0 for no intervals.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the report; NAME-agreement.* beside the file by default.")
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(metavar="JSONL", help="Write the labels that most annotators gave, as a dataset.")
    ] = None,
    votes: Annotated[
        int | None, typer.Option(min=1, help="Annotators that a gold label needs; by default more than half.")
    ] = None,
    memes: Annotated[
        str | None, typer.Option(metavar="DATASET", help="The memes that get the gold labels; by default ids alone.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Agreement of annotators who give any number of labels: kappas, alpha, what chance would give, and their gold."""
    from xai.analysis.annotators.annotations import read_annotations
    from xai.analysis.annotators.staged import gold_memes, majority_gold, staging_of
    from xai.analysis.annotators.staged_report import agreement_report, with_gold
    from xai.datasets import write_memes
    from xai.tasks import load_stages

    if gold is None and (votes is not None or memes is not None):
        raise ValueError("--votes and --memes are of the gold labels; name their file with --gold")
    known = load_stages(task) if task else ()
    annotations = read_annotations(files, item=item, annotators=annotator or (), task=known)
    staging = staging_of(known, annotations)
    report = agreement_report(
        annotations,
        staging,
        min_count=min_count,
        occurrence=occurrence,
        groups=known[0].branches if len(known) == 1 else None,
        n_draws=draws,
        seed=seed,
        files=[file.name for file in files],
    )
    if gold is not None:
        derived = majority_gold(annotations, staging, votes=votes)
        write_memes(gold, gold_memes(derived, None if memes is None else dataset_path(memes)))
        report = with_gold(report, derived, votes)
    folder, name = (out_folder, "agreement") if out_folder else (files[0].parent, f"{files[0].stem}-agreement")
    paths = _write(report, folder, name)
    print_report(report, paths["html"], as_json)


def _write(report: Report, folder: Path, name: str) -> dict[str, Path]:
    from xai.analysis.report import write_report

    try:
        return write_report(report, folder, name)
    except OSError as error:
        raise ValueError(
            f"the report cannot be written to {folder} ({error.strerror}); give a folder with --out"
        ) from None

"""`xai score`: how well a run detects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from xai.cli.common import JsonOption, RunArgument, app, dataset_path
from xai.display import print_report


@app.command()
def score(
    run: RunArgument,
    against: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Another run on the same memes, to be compared with.")
    ] = None,
    none_label: Annotated[
        Literal["kept", "empty-on-both-sides", "empty-in-gold-only"],
        typer.Option(help="What becomes of the label that says none of these."),
    ] = "empty-on-both-sides",
    frequencies: Annotated[
        str | None,
        typer.Option(metavar="DATASET", help="Whose label frequencies the baselines have; the run's own by default."),
    ] = None,
    draws: Annotated[int, typer.Option(min=2, help="Draws of the weighted-random baseline.")] = 30,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the calibration error.")] = 10,
    task: Annotated[Path | None, typer.Option(help="The task's YAML file, if it is not one that ships.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Detection: hierarchical and flat F1 with intervals, baselines, confusion, calibration, comparisons."""
    from xai.analysis.detection.labelsets import NONE_LABELS
    from xai.analysis.detection.report import detection_report
    from xai.analysis.detection.scored import Settings, frequencies_of, task_of_run
    from xai.analysis.report import write_report
    from xai.store import open_run

    opened = open_run(run)
    known = task_of_run(opened, task)
    settings = Settings(
        known,
        none_label=next(name for name in NONE_LABELS if name.replace(" ", "-") == none_label),
        frequencies=None if frequencies is None else frequencies_of(dataset_path(frequencies), known),
        n_baseline_draws=draws,
        n_bins=bins,
        seed=seed,
    )
    report = detection_report(opened, settings, against=None if against is None else open_run(against))
    paths = write_report(report, opened.reports, "score")
    print_report(report, paths["html"], as_json)

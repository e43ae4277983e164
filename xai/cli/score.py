"""`xai score`: how well a run detects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from xai.cli.common import DeviceOption, DtypeOption, JsonOption, RunArgument, app, dataset_path
from xai.display import print_report

if TYPE_CHECKING:
    from xai.analysis.report import Report
    from xai.bertscore import BertScore
    from xai.tasks import Task


@app.command()
def score(
    run: RunArgument,
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Another run on the same memes, to be compared with; may be repeated."),
    ] = None,
    none_label: Annotated[
        Literal["kept", "empty-on-both-sides", "empty-in-gold-only"],
        typer.Option(help="What becomes of the label that says none of these."),
    ] = "empty-on-both-sides",
    frequencies: Annotated[
        str | None,
        typer.Option(metavar="DATASET", help="Whose label frequencies the baselines have; the run's own by default."),
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=2, help="Draws of the random baseline; 30 by default, 1,000 for stages.")
    ] = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the calibration error.")] = 10,
    task: Annotated[Path | None, typer.Option(help="The task's YAML file, if it is not one that ships.")] = None,
    bert_score: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="An encoder for the BERTScore of rationale phrases (m3).")
    ] = None,
    bert_layer: Annotated[int | None, typer.Option(min=0, help="Its layer; the last by default.")] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Detection: F1 with intervals, baselines, confusion, calibration, comparisons; published scores of the task."""
    from xai.analysis.detection.baselines import N_DRAWS
    from xai.analysis.detection.labelsets import NONE_LABELS
    from xai.analysis.detection.scored import Settings, frequencies_of, task_of_run
    from xai.analysis.published.report import score_report
    from xai.analysis.report import write_report
    from xai.store import open_run

    if holds_stages(run):
        if frequencies is not None or bert_score is not None:
            raise ValueError(
                "random labels of stages have the run's frequencies, and answers no rationale phrases; "
                "leave out --frequencies and --bert-score"
            )
        print_report(*_score_stages(run, against or (), task, draws, seed), as_json)
        return
    opened = open_run(run)
    known = task_of_run(opened, task)
    settings = Settings(
        known,
        none_label=next(name for name in NONE_LABELS if name.replace(" ", "-") == none_label),
        frequencies=None if frequencies is None else frequencies_of(dataset_path(frequencies), known),
        n_baseline_draws=draws or N_DRAWS,
        n_bins=bins,
        seed=seed,
    )
    report = score_report(
        opened,
        settings,
        against=[open_run(other) for other in against or ()],
        similarity=_bertscore(known, bert_score, bert_layer, device, dtype),
    )
    paths = write_report(report, opened.reports, "score")
    print_report(report, paths["html"], as_json)


def holds_stages(run: Path) -> bool:
    """Whether a folder holds the runs of a task's stages and is no run itself."""
    return not (run / "run.json").exists() and any(run.glob("*/run.json"))


def _score_stages(
    folder: Path, against: Sequence[Path], task: Path | None, draws: int | None, seed: int
) -> tuple[Report, Path]:
    """The report of all stages, and the page that was written of it."""
    if len(against) > 1:
        raise ValueError("stages are compared with those of one other run; give --against once")
    from xai.analysis.detection.scored import Settings, task_of_run
    from xai.analysis.published.iron_measures import N_RANDOM
    from xai.analysis.published.iron_meme import staged_score_report
    from xai.analysis.report import write_report
    from xai.stages import open_stages

    stages = open_stages(folder)
    settings = {
        stage: Settings(
            task_of_run(run, None if task is None else task / stage), n_baseline_draws=draws or N_RANDOM, seed=seed
        )
        for stage, run in stages.items()
    }
    report = staged_score_report(stages, settings, against=open_stages(against[0]) if against else None)
    return report, write_report(report, folder / "reports", "score")["html"]


def _bertscore(
    task: Task, folder: Path | None, layer: int | None, device: str | None, dtype: str | None
) -> BertScore | None:
    """The encoder that was asked for; refuses what would have no effect."""
    if folder is None:
        if (layer, device, dtype) != (None, None, None):
            raise ValueError("--bert-layer, --device and --dtype are of an encoder; name it with --bert-score")
        return None
    if task.answer.reasons is None:
        raise ValueError(f"answers to task {task.name!r} have no rationale phrases; leave out --bert-score")
    from xai.bertscore import load_bertscore

    return load_bertscore(folder, layer=layer, device=device, dtype=dtype)

"""`xai faithfulness`: whether explanations are true, by taking away what they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from xai.cli.common import DONE_WITH_FAILURES, DeviceOption, DtypeOption, JsonOption, ModeName, app, resumable
from xai.display import err, print_report, progress

if TYPE_CHECKING:
    from xai.analysis.faithfulness.one_input import Settings
    from xai.analysis.faithfulness.report import Subject
    from xai.analysis.report import Section
    from xai.models import VisionLanguageModel
    from xai.store import Run
    from xai.tasks import Task

UnitName = Literal["words", "cells", "both"]
WordWayName = Literal["replace", "mean", "delete", "mask"]
CellWayName = Literal["mean_token", "mean_colour", "blur"]
ScaleName = Literal["probability", "log_probability", "logit"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
"""Any of them prints a page to PDF."""


@app.command()
def faithfulness(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders made by `xai explain`.")],
    units: Annotated[UnitName, typer.Option(help="What is taken away: words, cells, or both in one ranking.")] = "both",
    words: Annotated[WordWayName, typer.Option(help="How words are taken away.")] = "replace",
    cells: Annotated[CellWayName, typer.Option(help="How cells of the picture are taken away.")] = "mean_token",
    order: Annotated[
        Literal["signed", "absolute"], typer.Option(help="By relevance, or its absolute value.")
    ] = "signed",
    mode: Annotated[list[ModeName] | None, typer.Option(help="Only this mode; may be repeated.")] = None,
    targets: Annotated[Literal["each", "all"], typer.Option(help="Every label, or all labels together.")] = "each",
    with_none: Annotated[bool, typer.Option("--with-none", help="Measure the answer that there is no label.")] = False,
    scale: Annotated[ScaleName, typer.Option(help="Of the numbers shown.")] = "probability",
    draws: Annotated[int, typer.Option(min=1, help="Random orders a target.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the sample and of the random orders.")] = 0,
    robustness: Annotated[
        bool, typer.Option("--robustness", help="Infidelity, sensitivity and stability, too; explains memes again.")
    ] = False,
    sanity: Annotated[
        int, typer.Option(min=0, help="Explanations a method and mode whose map must change with the model; 0: none.")
    ] = 0,
    budget: Annotated[
        str | None, typer.Option(help="For each run: 90s, 10m, 2h, or 5000f forwards; a random sample is measured.")
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="MEASURE>=NUMBER", help="Exit with 1 if it does not hold; may be repeated."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Where the runs' model is now, if not where it was.")] = None,
    task: Annotated[str | None, typer.Option(help="The runs' task, if it is a YAML file.")] = None,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Show the worst and best memes.")] = True,
    pdf: Annotated[bool, typer.Option("--pdf", help="Print the page to PDF, too, by Chromium.")] = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Is the explanation true? Take away what it names, and see what the label loses."""
    from xai.analysis.faithfulness.measuring import Budget, measure_run, sampled_keys
    from xai.analysis.faithfulness.one_input import Settings
    from xai.analysis.faithfulness.report import Subject, check_requirements, faithfulness_report, unmet
    from xai.analysis.report import write_report
    from xai.models import load_model
    from xai.store import open_run
    from xai.tasks import load_task

    check_requirements(require or [])
    spend = Budget.parse(budget) if budget else None
    modes = tuple(name.mode for name in mode or ())
    settings = Settings(
        units, words, cells, order, targets, with_none, draws, seed=seed, modes=modes, robustness=robustness
    )
    opened = [open_run(path) for path in runs]
    own_task = None if task is None else load_task(task)
    loaded = {
        name: load_model(name, device=device, dtype=dtype or _dtype(opened, name, model))
        for name in dict.fromkeys(model or run.config["model"]["name"] for run in opened)
    }
    subjects = []
    for run in opened:
        used = loaded[model or run.config["model"]["name"]]
        with resumable(), progress(f"measuring {run.path.name}", len(sampled_keys(run, settings))) as advance:
            found = measure_run(run, used, settings, budget=spend, task=own_task, on_progress=advance)
        subjects.append(Subject(run, found, settings.perturbation.describe(used)))
    more = [*_ground_truth(subjects, settings), *_sanity(subjects, settings, loaded, model, own_task, sanity)]
    report = faithfulness_report(subjects, settings, scale=scale, pictures=pictures, more=more)
    paths = write_report(report, opened[0].reports, "faithfulness")
    if pdf:
        paths["pdf"] = printed(paths["html"])
    print_report(report, paths["html"], as_json)
    reasons = unmet(report, require or [])
    for reason in reasons:
        err.print(f"xai: {reason}", style="red", markup=False, highlight=False, soft_wrap=True)
    if reasons or any(len(subject.measured.failures) for subject in subjects):
        raise typer.Exit(DONE_WITH_FAILURES)


def _ground_truth(subjects: Sequence[Subject], settings: Settings) -> list[Section]:
    """How the explanations that were measured find the planted causes, if they are of planted memes."""
    from xai.analysis.faithfulness.measuring import measured_explanations
    from xai.planted.evaluate import ground_truth_of
    from xai.planted.groups import is_planted

    found = ground_truth_of(
        explanation
        for subject in subjects
        if is_planted(subject.run)
        for explanation in measured_explanations(subject.run, subject.measured, settings.targets)
    )
    return [found] if found else []


def _sanity(
    subjects: Sequence[Subject],
    settings: Settings,
    models: Mapping[str, VisionLanguageModel],
    given: str | None,
    task: Task | None,
    n: int,
) -> list[Section]:
    """The sanity checks of ``n`` explanations a method and mode, a section a model."""
    if not n:
        return []
    from xai.analysis.faithfulness.measuring import measured_explanations
    from xai.analysis.faithfulness.sanity import check_sanity, n_steps, one_label_each

    sections = []
    for name, model in models.items():
        explanations = one_label_each(
            (
                explanation
                for subject in subjects
                if (given or subject.run.config["model"]["name"]) == name
                for explanation in measured_explanations(subject.run, subject.measured)
            ),
            n,
        )
        with progress("sanity checks", n_steps(model, explanations)) as advance:
            sections.append(check_sanity(model, explanations, task=task, on_progress=advance))
    return sections if len(sections) == 1 else [one.numbered(number) for number, one in enumerate(sections, start=1)]


def _dtype(runs: Sequence[Run], name: str, model: str | None) -> str:
    """That of the run, so that the same quantity is scored."""
    found: str = next(run.config["model"]["dtype"] for run in runs if model or run.config["model"]["name"] == name)
    return found


def printed(page: Path) -> Path:
    """The page as PDF beside it.

    Raises:
        ValueError: there is no Chromium, or it failed.
    """
    import shutil
    import subprocess
    import tempfile

    browser = next((found for found in map(shutil.which, BROWSERS) if found), None)
    if browser is None:
        raise ValueError("--pdf needs Chromium or Chrome on the PATH; print the HTML page from any browser instead")
    path = page.with_suffix(".pdf")
    with tempfile.TemporaryDirectory() as profile:
        options = [
            "--headless",
            "--disable-gpu",
            "--no-first-run",
            "--no-pdf-header-footer",
            f"--user-data-dir={profile}",
        ]
        sandbox = ["--no-sandbox"] if _is_root() else []
        command = [browser, *options, *sandbox, f"--print-to-pdf={path}", page.resolve().as_uri()]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if result.returncode or not path.exists():
        raise ValueError(f"{Path(browser).name} made no PDF: {result.stderr.strip()[-300:]}")
    return path


def _is_root() -> bool:
    import os

    return hasattr(os, "geteuid") and os.geteuid() == 0

"""The report of `xai score`: how well a run detects, against chance and against others, and whether it knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xai.analysis.detection.pairs import against_runs, between_modes
from xai.analysis.detection.scored import Settings, scored_modes, task_of_run
from xai.analysis.detection.sections import baselines, calibrations, confusions, detection, labels
from xai.analysis.report import Report, Section
from xai.analysis.statistics import LEVEL
from xai.environment import installed_versions
from xai.store import Run, run_names
from xai.tasks import Task


def detection_report(
    run: Run,
    settings: Settings | None = None,
    *,
    against: Sequence[Run] = (),
    sections: Sequence[Section] = (),
    headline: Sequence[str] = (),
) -> Report:
    """Everything that a run's answers and gold labels say about its detection.

    Args:
        settings: the run's own task and the defaults, if not given.
        against: other runs of the same task, whose memes are paired with those of this one by their ids.
        sections: further parts that others made of the same runs; they come last.
        headline: tables of theirs that the terminal shows, too.

    Raises:
        ValueError: there are no gold labels, a label is not in the inventory, or the runs are not of one task or
            have no meme in common.
    """
    settings = settings or Settings(task_of_run(run))
    scored = scored_modes(run, settings)
    name, others = named(run, against, settings.task)
    theirs = {other: scored_modes(compared, settings) for other, compared in others.items()}
    found = [
        detection(scored, settings),
        labels(scored, settings),
        baselines(scored, settings),
        confusions(scored, settings),
        calibrations(scored, settings),
        between_modes(scored, settings),
        against_runs(name, scored, theirs, settings) if theirs else None,
        *sections,
    ]
    return Report(
        title=f"Detection of {_name(run)}",
        facts=_facts(run, settings, against),
        headline=("by_mode", *(("against", "against_overlap") if others else ()), *headline),
        sections=tuple(section for section in found if section is not None),
    )


def named(run: Run, against: Sequence[Run], task: Task) -> tuple[str, dict[str, Run]]:
    """What a report calls a run, and the runs that it is compared with, by their names.

    Raises:
        ValueError: a run is given twice, or one is not of the task.
    """
    own_name, *names = run_names([run.path, *(other.path for other in against)])
    others = dict(zip(names, against, strict=True))
    for name, other in others.items():
        theirs = other.config["task"], other.config.get("task_version", task.version)
        if theirs != (task.name, task.version):
            raise ValueError(
                f"{name!r} is of task {theirs[0]!r} version {theirs[1]}, and {own_name!r} of {task.name!r} "
                f"version {task.version}; compare runs of one task"
            )
    return own_name, others


def _name(run: Run) -> str:
    return run.path.resolve().name


def _facts(run: Run, settings: Settings, against: Sequence[Run]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "run": run_facts(run),
        "task": f"{settings.task.name} version {settings.task.version}",
        "label for none": settings.none_in_words,
        "intervals": f"{LEVEL:.0%}, percentile bootstrap over memes, {settings.n_draws} draws",
        "baseline draws": settings.n_baseline_draws,
        "baseline frequencies": settings.frequencies.source if settings.frequencies else "gold labels of the run",
        "permutations": settings.n_swaps,
        "calibration bins": settings.n_bins,
        "seed": settings.seed,
        "computed with": installed_versions(),
    }
    return facts | {"against": [run_facts(other) for other in against]} if against else facts


def run_facts(run: Run) -> dict[str, Any]:
    """What a report says of a run: how it was made, and with which versions."""
    config = {name: run.config.get(name) for name in ("dataset", "modes", "prompt", "model", "limit", "answers")}
    return {"name": _name(run), "state": run.info["state"], **config, "versions": run.info["versions"]} | (
        {"resumed with": run.info["resumed_with"]} if "resumed_with" in run.info else {}
    )

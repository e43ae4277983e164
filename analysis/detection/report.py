"""The report of `xai score`: how well a run detects, against chance and against others, and whether it knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xai.analysis.detection.pairs import against_run, between_modes
from xai.analysis.detection.scored import Scored, Settings, scored_modes, task_of_run
from xai.analysis.detection.sections import baselines, calibrations, confusions, detection, labels
from xai.analysis.report import Report, Section
from xai.analysis.statistics import LEVEL
from xai.environment import installed_versions
from xai.schema import Mode
from xai.store import Run


def detection_report(run: Run, settings: Settings | None = None, *, against: Run | None = None) -> Report:
    """Everything that a run's answers and gold labels say about its detection.

    Args:
        settings: the run's own task and the defaults, if not given.
        against: another run of the same task, whose memes are paired with those of this one by their ids.

    Raises:
        ValueError: there are no gold labels, a label is not in the inventory, or the runs are not of one task or
            have no meme in common.
    """
    settings = settings or Settings(task_of_run(run))
    scored = scored_modes(run, settings)
    sections = [
        detection(scored, settings),
        labels(scored, settings),
        baselines(scored, settings),
        confusions(scored, settings),
        calibrations(scored, settings),
        between_modes(scored, settings),
        None if against is None else _against(run, scored, against, settings),
    ]
    return Report(
        title=f"Detection of {_name(run)}",
        facts=_facts(run, settings, against),
        headline=("by_mode",) if against is None else ("by_mode", "against", "against_overlap"),
        sections=tuple(section for section in sections if section is not None),
    )


def _against(run: Run, scored: Mapping[Mode, Scored], against: Run, settings: Settings) -> Section:
    task = settings.task
    theirs = against.config["task"], against.config.get("task_version", task.version)
    if theirs != (task.name, task.version):
        raise ValueError(
            f"{_name(against)!r} is of task {theirs[0]!r} version {theirs[1]}, and {_name(run)!r} of {task.name!r} "
            f"version {task.version}; compare runs of one task"
        )
    name, other_name = _name(run), _name(against)
    if name == other_name:
        other_name = f"{against.path.resolve().parent.name}/{other_name}"
    return against_run(name, scored, other_name, scored_modes(against, settings), settings)


def _name(run: Run) -> str:
    return run.path.resolve().name


def _facts(run: Run, settings: Settings, against: Run | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "run": _run_facts(run),
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
    return facts if against is None else facts | {"against": _run_facts(against)}


def _run_facts(run: Run) -> dict[str, Any]:
    config = {name: run.config.get(name) for name in ("dataset", "modes", "prompt", "model", "limit", "answers")}
    return {"name": _name(run), "state": run.info["state"], **config, "versions": run.info["versions"]} | (
        {"resumed with": run.info["resumed_with"]} if "resumed_with" in run.info else {}
    )

"""The report of `xai score`: how well a run detects, against chance and against others, and whether it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xai.analysis.detection.pairs import against_runs, between_modes
from xai.analysis.detection.scored import Scored, Settings, scored_modes, task_of_run
from xai.analysis.detection.sections import baselines, calibrations, confusions, detection, labels
from xai.analysis.report import Report, Section
from xai.analysis.statistics import LEVEL
from xai.environment import installed_versions
from xai.schema import Mode
from xai.store import Run, run_names


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
    others = dict(zip(names_of([run, *against])[1:], against, strict=True))
    found = [
        detection(scored, settings),
        labels(scored, settings),
        baselines(scored, settings),
        confusions(scored, settings),
        calibrations(scored, settings),
        between_modes(scored, settings),
        _against(run, scored, others, settings) if others else None,
        *sections,
    ]
    return Report(
        title=f"Detection of {_name(run)}",
        facts=_facts(run, settings, against),
        headline=("by_mode", *(("against", "against_overlap") if others else ()), *headline),
        sections=tuple(section for section in found if section is not None),
    )


def names_of(runs: Sequence[Run]) -> list[str]:
    """What a report calls runs; raises as :func:`xai.store.run_names` does."""
    return run_names([run.path for run in runs])


def _against(run: Run, scored: Mapping[Mode, Scored], others: Mapping[str, Run], settings: Settings) -> Section:
    task = settings.task
    for name, other in others.items():
        theirs = other.config["task"], other.config.get("task_version", task.version)
        if theirs != (task.name, task.version):
            raise ValueError(
                f"{name!r} is of task {theirs[0]!r} version {theirs[1]}, and {_name(run)!r} of {task.name!r} "
                f"version {task.version}; compare runs of one task"
            )
    own_name = names_of([run, *others.values()])[0]
    return against_runs(
        own_name, scored, {name: scored_modes(other, settings) for name, other in others.items()}, settings
    )


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

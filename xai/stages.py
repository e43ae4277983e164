"""Tasks that are asked in stages: an ordinary run for each, whose memes bring what the earlier stages gave."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from xai.schema import Meme
from xai.store import Run, RunError, open_run
from xai.tasks import Task, load_stages

Source = Literal["answers", "gold"]
"""What a stage is told of the earlier ones: what the model answered there itself, or the gold labels."""

ALL_GOLD = "gold of all stages"
"""The metadata under which a meme in the run of the first stage keeps all gold labels that it has in the dataset."""

Labels = Mapping[str, tuple[str, ...]]
"""The labels of a stage by meme."""


class NothingToAskError(ValueError):
    """An earlier stage gave no label of a meme, so that the next one has nothing to ask."""


def stage_name(task: Task) -> str:
    """The name of a stage within its task."""
    return task.name.rpartition("/")[2]


def open_stages(folder: str | Path) -> dict[str, Run]:
    """The runs of a task in stages, by the name of the stage, in the order in which they were asked.

    Raises:
        RunError: the folder has no such runs, or not one of every stage.
    """
    folder = Path(folder)
    runs = [open_run(path.parent) for path in sorted(folder.glob("*/run.json"))]
    names = {run.config["task"].rpartition("/")[0] for run in runs}
    if len(names) != 1 or "" in names:
        raise RunError(f"{folder.name!r} does not hold the runs of one task in stages; make them with xai explain")
    by_task = {run.config["task"]: run for run in runs}
    tasks = _tasks(names.pop(), by_task)
    if missing := [stage for stage in tasks if stage not in by_task]:
        raise RunError(f"{folder.name!r} lacks the stage {missing[0].rpartition('/')[2]!r}; finish it with xai explain")
    return {stage.rpartition("/")[2]: by_task[stage] for stage in tasks}


def gold_labels(meme: Meme, stage: Task, stages: Sequence[Task]) -> tuple[str, ...] | None:
    """The gold labels of a meme that are a stage's; the first stage keeps those that no stage knows.

    ``None`` where none are known.
    """
    if meme.labels is None:
        return None
    others = [one for one in stages if one.name != stage.name]
    is_first = stage.name == stages[0].name
    return tuple(
        label
        for label in meme.labels
        if stage.match_label(label) is not None
        or (is_first and all(other.match_label(label) is None for other in others))
    )


def answered_labels(run: Run) -> Labels:
    """What a finished run of one mode answered, by meme; memes without an answer are not in it."""
    rows = run.predictions().select("meme_id, labels").fetchall()
    return {meme_id: tuple(labels) for meme_id, labels in rows}


def with_context(
    stages: Sequence[Task], stage: Task, source: Source, answered: Mapping[str, Labels]
) -> Callable[[Meme], Meme]:
    """Gives a meme the gold labels of a stage, and the labels of the earlier stages as its context.

    In the first stage the gold labels of all stages become metadata, :data:`ALL_GOLD`.

    Args:
        answered: by stage, with the source ``answers``.

    Raises:
        NothingToAskError: (from what is returned) an earlier stage has no label for the meme.
    """
    earlier = stages[: [one.name for one in stages].index(stage.name)]

    def prepared(meme: Meme) -> Meme:
        told = {stage_name(one): _labels(meme, one, stages, source, answered) for one in earlier}
        labels = gold_labels(meme, stage, stages)
        # What a later stage is not asked about is in none of its rows, and yet missed there.
        kept = {} if earlier or meme.labels is None else {ALL_GOLD: list(meme.labels)}
        context, metadata = {**meme.context, **told}, {**meme.metadata, **kept}
        return meme.model_copy(update={"labels": labels, "context": context, "metadata": metadata})

    return prepared


def context_config(source: Source, answered: Mapping[str, Labels]) -> dict[str, Any]:
    """What the rows of a later stage depend on beside its own run, in JSON values."""
    earlier = {name: _digest(labels) if source == "answers" else None for name, labels in answered.items()}
    return {"stages_on": source, "earlier": earlier}


def _labels(
    meme: Meme, stage: Task, stages: Sequence[Task], source: Source, answered: Mapping[str, Labels]
) -> tuple[str, ...]:
    name = stage_name(stage)
    if source == "gold":
        raw = gold_labels(meme, stage, stages) or ()
        labels = tuple(label for label in map(stage.match_label, raw) if label is not None)
        if not labels:
            raise NothingToAskError(
                f"meme {meme.id!r} has no gold labels of the stage {name!r}; there is nothing to ask"
            )
        return labels
    if not answered[name].get(meme.id):
        raise NothingToAskError(
            f"the stage {name!r} gave no label for meme {meme.id!r}, so there is nothing to ask; see its answer there"
        )
    return answered[name][meme.id]


def _tasks(name: str, found: Mapping[str, Run]) -> list[str]:
    """The stages of a task in order: of one that is a file elsewhere, by how many earlier ones each was told of."""
    try:
        return [stage.name for stage in load_stages(name)]
    except ValueError:
        return sorted(found, key=lambda stage: len(found[stage].config.get("earlier", {})))


def _digest(labels: Labels) -> str:
    return hashlib.sha256(json.dumps(sorted(labels.items()), ensure_ascii=False).encode()).hexdigest()[:16]

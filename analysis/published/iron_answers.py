"""The answers of IRON-Meme's stages beside their gold labels, with those that a stage was never asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from xai.analysis.detection.answered import Answers, answers_of
from xai.analysis.detection.labelsets import LabelSets, indicator
from xai.analysis.detection.scored import Scored, Settings
from xai.schema import ALL_MODES, Mode
from xai.stages import ALL_GOLD
from xai.store import Run
from xai.tasks import Task

Unasked = Mapping[Mode, Mapping[str, Sequence[str]]]
"""By mode the memes that a stage was not asked about, each with its gold labels of all stages."""


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of a run: its answers by mode, and how many of them were not asked for and count as empty.

    ``n_unasked`` is ``None`` for a stage without the others, which alone say it.
    """

    name: str
    run: Run
    modes: Mapping[Mode, Scored]
    n_unasked: Mapping[Mode, int] | None

    @property
    def told(self) -> str:
        """What it was told of the earlier stages: ``gold`` labels, the model's own ``answers``, or ``nothing``."""
        return str(self.run.config.get("stages_on", "nothing"))

    @property
    def each(self) -> list[tuple[dict[str, str | int], Mode, Scored]]:
        """Every mode: what a row of a table says of it, its name, and its answers."""
        return [({"stage": self.name, "mode": mode}, mode, one) for mode, one in self.modes.items()]


def scored_stages(stages: Mapping[str, Run], settings: Mapping[str, Settings]) -> list[Stage]:
    """The stages with their answers beside their gold labels.

    A meme that a stage was not asked about, since an earlier one had given it no label, has an answer without labels
    there: what the earlier stage missed, the later one misses.

    Raises:
        ValueError: a stage has no gold labels.
    """
    unasked = unasked_memes(stages)
    found = []
    for name, run in stages.items():
        modes = _scored(run, settings[name], unasked[name])
        counts = {mode: len(unasked[name].get(mode, {})) for mode in modes}
        found.append(Stage(name, run, modes, counts if len(stages) > 1 else None))
    return found


def _scored(run: Run, settings: Settings, unasked: Unasked) -> dict[Mode, Scored]:
    answered = answers_of(run, settings.task)
    modes = [mode for mode in ALL_MODES if mode in answered or mode in unasked]
    if not modes:
        raise ValueError(f"stage {run.path.name!r} has no gold labels to score against; add 'labels' to its dataset")
    return {
        mode: Scored(mode, _with_unasked(answered.get(mode), unasked.get(mode, {}), settings.task), settings)
        for mode in modes
    }


def unasked_memes(stages: Mapping[str, Run]) -> dict[str, Unasked]:
    """By stage and mode the memes that it was not asked about, each with its gold labels of all stages.

    Those whose gold labels are not known are left out, and so are those that failed.
    """
    gold = _gold_of_all_stages(next(iter(stages.values())))
    found: dict[str, Unasked] = {}
    nothing: set[tuple[Mode, str]] = set()
    is_told_gold = any(run.config.get("stages_on") == "gold" for run in stages.values())
    for stage, run in stages.items():
        column = "gold_labels" if is_told_gold else "labels"
        rows = run.predictions().project(f"mode, meme_id, coalesce(len({column}), 0)").fetchall()
        missing = sorted(nothing - {(mode, meme_id) for mode, meme_id, _ in rows})
        of_stage: dict[Mode, dict[str, list[str]]] = {}
        for mode, meme_id in missing:
            if (mode, meme_id) in gold:
                of_stage.setdefault(mode, {})[meme_id] = gold[mode, meme_id]
        found[stage] = of_stage
        nothing |= {(mode, meme_id) for mode, meme_id, n in rows if not n}
    return found


def _gold_of_all_stages(first: Run) -> dict[tuple[Mode, str], list[str]]:
    rows = first.predictions().filter("gold_labels IS NOT NULL").project("mode, meme_id, metadata").fetchall()
    known = ((mode, meme_id, json.loads(metadata).get(ALL_GOLD)) for mode, meme_id, metadata in rows)
    return {(mode, meme_id): list(labels) for mode, meme_id, labels in known if labels is not None}


def _with_unasked(answers: Answers | None, unasked: Mapping[str, Sequence[str]], task: Task) -> Answers:
    """The answers with empty ones to memes that were not asked about, given with their gold labels of all stages."""
    if answers is not None and not unasked:
        return answers
    n = len(unasked)
    matched = [[name for name in map(task.match_label, labels) if name is not None] for labels in unasked.values()]
    gold = indicator(matched, task.label_names)
    added = Answers(
        ids=tuple(unasked),
        sets=LabelSets(task.label_names, gold, np.zeros_like(gold)),
        n_without_gold=0,
        n_failed=0,
        n_unknown_labels=0,
        unparsed=np.zeros(n, dtype=bool),
        verbalised=np.full(n, np.nan),
        sequence=np.full(n, np.nan),
    )
    return added if answers is None else _joined(answers, added)


def _joined(first: Answers, added: Answers) -> Answers:
    """Answers and those that count as answers to memes which stand among the failed ones of the first."""
    parts = (first, added)
    return replace(
        first,
        ids=first.ids + added.ids,
        sets=LabelSets(
            first.sets.names,
            np.concatenate([one.sets.gold for one in parts]),
            np.concatenate([one.sets.predicted for one in parts]),
        ),
        n_failed=max(first.n_failed - len(added.ids), 0),
        unparsed=np.concatenate([one.unparsed for one in parts]),
        verbalised=np.concatenate([one.verbalised for one in parts]),
        sequence=np.concatenate([one.sequence for one in parts]),
    )

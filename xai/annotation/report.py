"""What a panel came to: records by stage, what was dropped and why, the models, the people, and how far they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from xai.analysis.annotators.annotations import Annotations
from xai.analysis.annotators.report import annotator_report
from xai.analysis.report import Chart, Report, Section, Series, Table
from xai.annotation.folder import STATES, Item, Panel

NAME = "annotate"
"""The report's files are called so."""
N_SHOWN = 50
_LEFT = ("unread", "dropped", "excluded", "excluded by people", "voted out")
_NO_AGREEMENT = "It takes two who judged the same record."


def panel_report(panel: Panel, *, n_draws: int = 1000) -> Report:
    """The report of a panel as it stands.

    Tables: ``stages``, ``dropped`` (every record that went no further, with who decided, why and when),
    ``annotators``, ``labels``; where at least two judged a record, ``measures_1`` and more of the panel and
    ``measures_2`` and more of the validators, as of `xai agreement`.
    """
    items = panel.items()
    stages = _stages(items)
    sections = [
        Section(
            title="Records by stage",
            text=(
                "The panel describes memes for research and removes none from anywhere: records that go no further "
                "stay in its folder, with the reason."
            ),
            tables=(stages, _labels(items, panel.task.label_names)),
            charts=(_chart(stages),),
        ),
        Section(title="Dropped, with reasons", tables=(_dropped(items),)),
        Section(title="Annotators", tables=(_annotators(panel, items),)),
        _agreement("Agreement of the annotators", 1, _label_sets(panel, items), n_draws),
        _agreement("Agreement of the validators", 2, vote_annotations(items), n_draws),
    ]
    return Report(
        title=f"Annotation panel: {panel.path.name}",
        facts=_facts(panel),
        headline=("stages", "annotators"),
        sections=tuple(sections),
    )


def counts(items: Sequence[Item]) -> dict[str, int]:
    """Records by state, those that have none left out."""
    found = Counter(item.state for item in items)
    return {state: found[state] for state in STATES if found[state]}


def _stages(items: Sequence[Item]) -> Table:
    found = Counter(item.state for item in items)
    rows = [{"state": state, "what it means": meaning, "records": found[state]} for state, meaning in STATES.items()]
    frame = pd.DataFrame([*rows, {"state": "all", "what it means": "records of the dataset", "records": len(items)}])
    return Table.of("stages", "Records by stage", frame, note="Every record is in one row.")


def _chart(stages: Table) -> Chart:
    rows = [row for row in stages.rows if row[0] != "all"]
    series = Series(name="records", x=tuple(str(row[0]) for row in rows), y=tuple(float(row[2] or 0) for row in rows))
    return Chart(
        name="stages_chart",
        title="Where the records are",
        kind="bars",
        x_label="state",
        y_label="number of records",
        series=(series,),
    )


def _labels(items: Sequence[Item], labels: Sequence[str]) -> Table:
    """How often a label was accepted, by whom, and how often it was kept."""
    rows = []
    for label in labels:
        having = [item for item in items if item.accepted and label in item.accepted.labels]
        by_people = sum(item.person is not None for item in having)
        kept = sum(item.state == "kept" for item in having)
        rows.append((label, len(having) - by_people, by_people, kept))
    frame = pd.DataFrame(rows, columns=["label", "accepted by the arbiter", "accepted by people", "kept"])
    return Table.of("labels", "Labels of accepted records", frame[frame.iloc[:, 1:].sum(axis=1) > 0])


def _dropped(items: Sequence[Item]) -> Table:
    rows = [{"record": item.id, "state": item.state, **_reason(item)} for item in items if item.state in _LEFT]
    frame = pd.DataFrame(rows, columns=["record", "state", "by", "why", "time"])
    return Table.of("dropped", "Records that went no further", frame, n_shown=N_SHOWN)


def _reason(item: Item) -> dict[str, str]:
    """By whom a record was dropped, why, and when."""
    if item.state == "voted out":
        against = [(who, vote) for who, vote in item.votes.items() if vote["vote"] == "against"]
        said = "; ".join(f"{who}: {vote['why']}" for who, vote in against if vote["why"])
        why = f"{item.n_for} of {len(item.votes)} votes in favour"
        last = max(vote["time"] for _, vote in against)
        return {"by": ", ".join(who for who, _ in against), "why": f"{why} ({said})" if said else why, "time": last}
    if item.person:
        return {"by": item.person["person"], "why": item.person["why"], "time": item.person["time"]}
    found = item.decision or {**item.record, "why": item.record["reason"]}
    return {"by": found["who"], "why": found["why"], "time": found["time"]}


def _annotators(panel: Panel, items: Sequence[Item]) -> Table:
    rows = []
    for place, name in enumerate(panel.settings.annotators):
        answers = [answer for item in items if item.answers and (answer := item.answers[place])]
        parses = Counter("failed" if answer["failure"] else answer["parse"] for answer in answers)
        sure = [answer["confidence"] for answer in answers if answer["confidence"] is not None]
        rows.append(
            {
                "annotator": name,
                "answers": len(answers),
                **{kind: parses[kind] for kind in ("strict", "repaired", "unparsed", "failed")},
                "outside the task": sum(bool(answer["unknown_labels"]) for answer in answers),
                "mean confidence": sum(sure) / len(sure) if sure else None,
            }
        )
    return Table.of(
        "annotators",
        "Answers by annotator",
        pd.DataFrame(rows),
        note="strict: read as it stands; repaired: after a repair, which is recorded; unparsed: not read; failed: no "
        "answer; outside the task: with a label that the task does not have.",
        short={"outside the task": "", "mean confidence": "confidence"},
    )


def _label_sets(panel: Panel, items: Sequence[Item]) -> Annotations:
    """The labels of every annotator by record; what could not be read is missing."""
    asked = [item for item in items if any(item.answers)]
    sets = tuple(
        tuple(_labels_of(item.answers[place]) for item in asked) for place in range(len(panel.settings.annotators))
    )
    return _annotations([item.id for item in asked], panel.settings.annotators, panel.task.label_names, sets)


def _labels_of(answer: Mapping[str, Any] | None) -> frozenset[str] | None:
    return frozenset(answer["labels"]) if answer and answer["parse"] != "unparsed" else None


def vote_annotations(items: Sequence[Item]) -> Annotations:
    """The votes of every validator by record, each a set of one label."""
    voted = [item for item in items if item.votes]
    people = sorted({who for item in voted for who in item.votes})
    sets = tuple(
        tuple(frozenset([item.votes[who]["vote"]]) if who in item.votes else None for item in voted) for who in people
    )
    return _annotations([item.id for item in voted], people, ("for", "against"), sets)


def has_pairs(given: Annotations) -> bool:
    """Whether any two judged the same record."""
    return len(given.annotators) > 1 and bool(given.items) and bool((given.known.sum(axis=0) >= 2).any())


def _annotations(
    names: Sequence[str],
    annotators: Sequence[str],
    labels: Sequence[str],
    sets: tuple[tuple[frozenset[str] | None, ...], ...],
) -> Annotations:
    used = {label for row in sets for given in row if given for label in given}
    return Annotations(tuple(names), tuple(annotators), tuple(label for label in labels if label in used), sets)


def _agreement(title: str, number: int, given: Annotations, n_draws: int) -> Section:
    """The sections of `xai agreement` in one, their names ending in a number."""
    if not has_pairs(given):
        return Section(title=title, text=_NO_AGREEMENT)
    found = annotator_report(given, min_count=1, n_draws=n_draws)
    tables = tuple(table for section in found.sections for table in section.tables)
    return Section(title=title, tables=tables).numbered(number)


def _facts(panel: Panel) -> dict[str, Any]:
    info, settings = panel.info, panel.settings
    return {
        "dataset": info["config"]["dataset"]["name"],
        "records": info["config"]["dataset"]["records"],
        "task": f"{panel.task.name} {panel.task.version}",
        "mode": settings.asked.mode,
        "annotators": list(settings.annotators),
        "explicator": settings.explicator.model_dump(mode="json"),
        "cleaning rules": settings.cleaning.version,
        "arbiter": settings.rules.model_dump(mode="json"),
        "votes": settings.votes.model_dump(mode="json"),
        "versions": info["versions"],
        "begun": info["made"],
    }

"""Scores of IRON-Meme's three stages: precision, recall and F1 against random labels, frequency, gold or own input.

Labels of the later stages are pairs of an identity and what is said of it, ``"Voter: in-group"``, so that a viewpoint
or a role counts only with the right identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from pydantic import JsonValue

from xai.analysis.detection.comparison import compare
from xai.analysis.detection.pairs import Pair
from xai.analysis.detection.report import run_facts
from xai.analysis.detection.scored import Scored, Settings
from xai.analysis.published.iron_answers import Stage, scored_stages
from xai.analysis.published.iron_measures import MEASURES, frequency_and_f1, random_scores, stage_measures
from xai.analysis.published.registry import Published, Scoring
from xai.analysis.report import Chart, Report, Section, Series, Table
from xai.analysis.statistics import LEVEL, Interval, bootstrap, holm
from xai.environment import installed_versions
from xai.store import Run
from xai.tasks.task import PAIR

_COMPARED = ("micro_f1", "macro_f1")
_RANDOM = {False: "label frequency", True: "value frequency, identities given"}
"""How labels are drawn at random, and whether for the identities of the gold."""
_SHORT = {
    "micro_f1": "micro", "macro_f1": "macro", "macro_all_f1": "macro all", "random": "",
    "random_micro_f1": "random micro", "random_macro_f1": "random macro",
}  # fmt: skip
_SHORT_COMPARED = {
    "told_first": "told 1st", "told_second": "told 2nd", "memes": "",
    "difference": "diff", "p": "", "p_holm": "p (Holm)",
}  # fmt: skip
_HOW = (
    "label frequency: every label of the inventory is drawn for every meme with the share of memes whose gold has it, "
    "independently. value frequency, identities given: for every identity that a meme's gold has, every value is drawn "
    "with its share among all identities of all memes; a stage that was told the gold labels knows as much, and is "
    "held against this."
)


def staged_score_report(
    stages: Mapping[str, Run], settings: Mapping[str, Settings], *, against: Mapping[str, Run] | None = None
) -> Report:
    """Everything that the answers of a staged run say about its detection.

    Args:
        stages: the run of every stage.
        settings: of every stage, its task among them.
        against: another staged run on the same memes, e.g. with stages that were told the gold labels of the earlier
            ones instead of the model's own.

    Raises:
        ValueError: a stage has no gold labels, or the two runs have no stage, mode or meme in common.
    """
    scored = scored_stages(stages, settings)
    found = _sections(scored)
    if against is not None:
        found.append(compared(scored, scored_stages(against, settings)))
    return Report(
        title=f"Detection of {_folder(stages)} by stage",
        facts=_facts(stages, next(iter(settings.values())), against),
        headline=("stages",) if against is None else ("stages", "compared"),
        sections=tuple(found),
    )


def sections(run: Run, scoring: Scoring) -> Published:
    """The scores of one stage's run alone, which does not know the memes that the stage was not asked about.

    Raises:
        ValueError: the run has no gold labels.
    """
    stage = str(run.config["task"]).rpartition("/")[2]
    return Published(_sections(scored_stages({stage: run}, {stage: scoring.settings})), ("stages",))


def _sections(stages: Sequence[Stage]) -> list[Section]:
    return [detection(stages), labels(stages), parsing(stages), frequency(stages)]


def detection(stages: Sequence[Stage]) -> Section:
    """Precision, recall and F1 of every stage and mode, and what random labels score."""
    rows, full, random, floor = [], [], [], []
    for stage in stages:
        for key, _, one in stage.each:
            found, drawn = _intervals(one), _drawn(one)
            # A stage that was told the gold identities is no better than chance where chance with them does as well.
            how = _RANDOM[stage.told == "gold" and _RANDOM[True] in drawn]
            chance = {f"random_{name}": drawn[how][name].value for name in _COMPARED}
            key = {**key, "memes": len(one.sets)}
            rows.append({**key, "told": stage.told, **_measures(found, "f1"), **chance, "random": how})
            full.append({**key, **_measures(found, "precision"), **_measures(found, "recall")})
            random += [{**key, "random": name, **_columns(values, _COMPARED)} for name, values in drawn.items()]
            floor.append({**key, **_columns(drawn[how], _COMPARED)})
    return Section(
        title="Detection by stage",
        text=(
            "Labels of the later stages are pairs: a viewpoint or a role counts only with the right identity. Micro "
            "pools all labels of all memes; macro is the mean over the labels that occur in gold or answers, and "
            "macro all that over the whole inventory, in which a label that occurs nowhere counts 0. An answer that "
            "could not be parsed is one without labels. told is what a stage knew of the earlier ones, gold labels or "
            f"the model's own answers. In brackets: {LEVEL:.0%} bootstrap intervals over memes."
        ),
        tables=(
            Table.of(
                "stages", "F1 by stage", pd.DataFrame(rows), note=f"Random: the mean of draws. {_HOW}", short=_SHORT
            ),
            Table.of("precision_recall", "Precision and recall", pd.DataFrame(full)),
            Table.of(
                "random",
                "Labels drawn at random",
                pd.DataFrame(random),
                note=f"Means of draws, and in brackets the middle {LEVEL:.0%} of them. {_HOW}",
            ),
        ),
        charts=(_chart(pd.DataFrame(rows), pd.DataFrame(floor)),),
    )


def labels(stages: Sequence[Stage]) -> Section:
    """Precision, recall and F1 of every label that occurs."""
    return Section(
        title="Labels",
        text="Labels that occur in gold or answers, by their support: the memes whose gold has them.",
        tables=tuple(
            Table.of(f"labels_{stage.name}", stage.name.capitalize(), _occurring(stage), n_shown=20) for stage in stages
        ),
    )


def parsing(stages: Sequence[Stage]) -> Section:
    """How many answers could not be parsed, and which labels were discarded."""
    counts = [
        {**key, **_parsed(one, None if stage.n_unasked is None else stage.n_unasked[mode])}
        for stage in stages
        for key, mode, one in stage.each
    ]
    discarded = pd.concat([_discarded(stage) for stage in stages], ignore_index=True)
    return Section(
        title="Parsing",
        text=(
            "An answer that could not be parsed, and one that a stage was not asked for, since an earlier stage had "
            "given it nothing to ask about, are without labels. Labels outside the inventory are discarded: they are "
            "kept as they were written, and count for nothing. Memes that failed otherwise are not scored. Of a stage "
            "alone it is not known which memes it was not asked about, and they are left out."
        ),
        tables=(
            Table.of("parsing", "What was read", pd.DataFrame(counts)),
            Table.of("discarded", "Discarded labels, as written", discarded, n_shown=30),
        ),
    )


def frequency(stages: Sequence[Stage]) -> Section:
    """Whether frequent labels are found better."""
    rows, series = [], []
    for stage in stages:
        for key, _, one in stage.each:
            found, frame = frequency_and_f1(one.sets, n_draws=one.settings.n_draws, seed=one.settings.seed)
            rows.append({**key, "labels": len(frame), **found.columns("spearman")})
            x, y = (tuple(frame[column].astype(float)) for column in ("frequency", "f1"))
            series.append(Series(name=f"{stage.name}, {one.name}", x=x, y=y))
    return Section(
        title="Frequency and F1",
        text="Spearman's rank correlation of the number of memes whose gold has a label with its F1, over the labels "
        f"that gold has. In brackets: {LEVEL:.0%} bootstrap intervals over labels.",
        tables=(Table.of("frequency", "Frequency and F1", pd.DataFrame(rows)),),
        charts=(
            Chart(
                name="frequency_f1", title="Frequency and F1", kind="points", x_label="memes whose gold has the label",
                y_label="F1", series=tuple(series), y_range=(0, 1),
            ),
        ),
    )  # fmt: skip


def compared(stages: Sequence[Stage], other: Sequence[Stage]) -> Section:
    """Two staged runs on the same memes, stage by stage; first is the run, second the other.

    Raises:
        ValueError: they have no stage, mode and meme in common.
    """
    theirs = {stage.name: stage for stage in other}
    frames = [
        _compared(stage, theirs[stage.name], Pair(one, theirs[stage.name].modes[mode]))
        for stage in stages
        if stage.name in theirs
        for mode, one in stage.modes.items()
        if mode in theirs[stage.name].modes
    ]
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        raise ValueError("the two runs share no scored meme of one stage and mode; compare runs on the same dataset")
    frame = pd.concat(frames, ignore_index=True)
    for _, family in frame.groupby("measure"):
        frame.loc[family.index, "p_holm"] = holm(list(family["p"]))
    return Section(
        title="Two runs, stage by stage",
        text=(
            "first is the run that the report is of, and told first what its stage knew of the earlier ones; second is "
            "the run that it is held against. Memes are paired by their ids; others are left out. The difference is "
            "first minus second with its paired bootstrap interval over memes; p is that of a paired permutation test, "
            "p_holm corrected for all stages and modes of a measure."
        ),
        tables=(Table.of("compared", "F1 compared", frame, short=_SHORT_COMPARED),),
    )


def _compared(stage: Stage, other: Stage, pair: Pair) -> pd.DataFrame:
    if not pair.rows:
        return pd.DataFrame()
    mine, theirs = (list(rows) for rows in zip(*pair.rows, strict=True))
    settings = pair.first.settings
    frame = compare(
        stage_measures(pair.first.sets.of(mine)), stage_measures(pair.second.sets.of(theirs)),
        n_swaps=settings.n_swaps, n_draws=settings.n_draws, seed=settings.seed,
    )  # fmt: skip
    frame = frame[(frame["name"] == "") & frame["measure"].isin(_COMPARED)].drop(columns="name")
    frame["measure"] = frame["measure"].str.removesuffix("_f1")
    frame.insert(0, "memes", len(mine))
    for column, value in (
        ("told_second", other.told), ("told_first", stage.told), ("mode", pair.first.name), ("stage", stage.name),
    ):  # fmt: skip
        frame.insert(0, column, value)
    return frame


def _intervals(one: Scored) -> dict[str, Interval]:
    """:data:`MEASURES` with bootstrap intervals over memes."""
    measured = stage_measures(one.sets)
    found = bootstrap(
        lambda weights: measured.statistic(weights)[:, : len(MEASURES)],
        len(one.sets), n_draws=one.settings.n_draws, seed=one.settings.seed,
    )  # fmt: skip
    return dict(zip(MEASURES, found, strict=True))


def _drawn(one: Scored) -> dict[str, dict[str, Interval]]:
    """What random labels score, by how they are drawn."""
    ways = [False, True] if all(PAIR in name for name in one.sets.names) else [False]
    n_draws, seed = one.settings.n_baseline_draws, one.settings.seed
    return {_RANDOM[way]: random_scores(one.sets, given_names=way, n_draws=n_draws, seed=seed) for way in ways}


def _measures(found: Mapping[str, Interval], measure: str) -> dict[str, float]:
    """Of each mean one measure. Over the whole inventory without interval: samples of the memes lack rare labels, which
    would count 0, so that the interval would lie below the value."""
    whole = f"macro_all_{measure}"
    return {**_columns(found, [f"micro_{measure}", f"macro_{measure}"]), whole: found[whole].value}


def _columns(found: Mapping[str, Interval], names: Sequence[str]) -> dict[str, float]:
    return {column: value for name in names for column, value in found[name].columns(name).items()}


def _occurring(stage: Stage) -> pd.DataFrame:
    frame = pd.concat([one.each("flat") for one in stage.modes.values()], ignore_index=True)
    frame = frame[frame["support"] + frame["predicted"] > 0]
    return frame.sort_values(["mode", "support"], ascending=[True, False], kind="stable")


def _parsed(one: Scored, n_unasked: int | None) -> dict[str, int | float | None]:
    answers = one.answers
    n, n_asked = len(one.sets), len(one.sets) - (n_unasked or 0)
    n_read, n_discarded = int(answers.sets.predicted.sum()), answers.n_unknown_labels
    n_unparsed, n_given = int(answers.unparsed.sum()), n_read + n_discarded
    return {
        "memes": n, "not asked": n_unasked,
        "unparsed": n_unparsed, "unparsed_share": n_unparsed / n_asked if n_asked else float("nan"),
        "labels": n_read, "discarded": n_discarded,
        "discarded_share": n_discarded / n_given if n_given else float("nan"),
        "failed": answers.n_failed, "without gold": answers.n_without_gold,
    }  # fmt: skip


def _discarded(stage: Stage) -> pd.DataFrame:
    """The labels outside the inventory as they were written, the commonest first."""
    rows = stage.run.predictions().filter("gold_labels IS NOT NULL")
    found = rows.project("mode, unnest(unknown_labels) AS label")
    counted = found.aggregate("mode, label, count(*) AS answers", "mode, label").order("answers DESC, mode, label")
    frame: pd.DataFrame = counted.df()
    frame.insert(0, "stage", stage.name)
    return frame


def _chart(rows: pd.DataFrame, floor: pd.DataFrame) -> Chart:
    def series(name: str, frame: pd.DataFrame, column: str) -> Series:
        return Series.of(name, frame["stage"] + ", " + frame["mode"], frame, column)

    return Chart(
        name="f1_by_stage", title="F1 by stage", kind="bars", x_label="stage, mode", y_label="F1",
        series=(
            series("micro F1", rows, "micro_f1"), series("macro F1", rows, "macro_f1"),
            series("random, micro F1", floor, "micro_f1"), series("random, macro F1", floor, "macro_f1"),
        ),
        note=f"Bars: {LEVEL:.0%} bootstrap intervals over memes; of random labels, drawn as the table says, the middle "
        f"{LEVEL:.0%} of draws.",
        y_range=(0, 1),
    )  # fmt: skip


def _folder(stages: Mapping[str, Run]) -> str:
    """The name of the folder that holds the stages."""
    return next(iter(stages.values())).path.resolve().parent.name


def _facts(stages: Mapping[str, Run], settings: Settings, against: Mapping[str, Run] | None) -> dict[str, JsonValue]:
    facts: dict[str, JsonValue] = {
        "runs": {stage: run_facts(run) for stage, run in stages.items()},
        "intervals": f"{LEVEL:.0%}, percentile bootstrap over memes, {settings.n_draws} draws",
        "draws of random labels": settings.n_baseline_draws,
        "seed": settings.seed,
        "computed with": dict(installed_versions()),
    }
    if against is not None:
        facts["against"] = {stage: run_facts(run) for stage, run in against.items()}
    return facts

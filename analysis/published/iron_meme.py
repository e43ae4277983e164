"""Scores of IRON-Meme's three stages: precision, recall and F1 against random labels, frequency, gold or own input.

Labels of the later stages are pairs of an identity and what is said of it, ``"Voter: in-group"``, so that a viewpoint
or a role counts only with the right identity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pandas as pd
from pydantic import JsonValue
from scipy.stats import rankdata

from xai.analysis.detection.answered import Answers, answers_of
from xai.analysis.detection.comparison import compare
from xai.analysis.detection.labelsets import LabelSets, indicator
from xai.analysis.detection.pairs import Pair
from xai.analysis.detection.report import run_facts
from xai.analysis.detection.scored import Scored, Settings
from xai.analysis.detection.scores import EACH, OVERALL, Additive, set_measures
from xai.analysis.report import Chart, Report, Section, Series, Table
from xai.analysis.statistics import LEVEL, Interval, bootstrap, holm
from xai.environment import installed_versions
from xai.schema import ALL_MODES, Mode
from xai.stages import ALL_GOLD
from xai.store import Run
from xai.tasks import Task

BETWEEN = ": "
"""Stands between the identity of a pair and what is said of it."""
MEANS = ("micro", "macro", "macro_all")
"""Over which labels: all decisions pooled; the mean over labels in gold or answers; that over the whole inventory."""
MEASURES = tuple(f"{mean}_{measure}" for mean in MEANS for measure in EACH)
N_RANDOM = 1000

Stages = Mapping[str, Mapping[Mode, Scored]]
"""What is scored, by stage and mode."""


def staged_score_report(
    stages: Mapping[str, Run], settings: Mapping[str, Settings], *, against: Mapping[str, Run] | None = None
) -> Report:
    """Everything that the answers of a staged run say about its detection.

    Args:
        stages: the run of every stage.
        settings: of every stage, its task among them.
        against: another staged run on the same memes, e.g. with stages that were given the gold labels of the earlier
            ones instead of the model's own.

    Raises:
        ValueError: a stage has no gold labels, or the two runs have no stage, mode or meme in common.
    """
    scored = scored_stages(stages, settings)
    sections = [detection(scored), labels(scored), parsing(stages, scored), frequency(scored)]
    if against is not None:
        sections.append(compared(scored, scored_stages(against, settings)))
    return Report(
        title=f"Detection of {_name(stages)} by stage",
        facts=_facts(stages, scored, against),
        headline=("stages",) if against is None else ("stages", "compared"),
        sections=tuple(sections),
    )


class HasSettings(Protocol):
    """What the scores of one stage depend on beside its run."""

    @property
    def settings(self) -> Settings: ...


def sections(run: Run, scoring: HasSettings) -> list[Section]:
    """The scores of one stage's run alone, which does not know the memes that the stage was not asked about.

    Raises:
        ValueError: the run has no gold labels.
    """
    stages, settings = {_stage_of(run): run}, {_stage_of(run): scoring.settings}
    scored = scored_stages(stages, settings)
    return [detection(scored), labels(scored), parsing(stages, scored), frequency(scored)]


def _stage_of(run: Run) -> str:
    return str(run.config["task"]).rpartition("/")[2]


def scored_stages(stages: Mapping[str, Run], settings: Mapping[str, Settings]) -> dict[str, dict[Mode, Scored]]:
    """The answers of every stage and mode beside their gold labels.

    A meme that a stage was not asked about, since an earlier one had given it no label, has an answer without labels
    there: what the earlier stage missed, the later one misses.

    Raises:
        ValueError: a stage has no gold labels.
    """
    unasked = unasked_memes(stages)
    return {stage: _scored(run, settings[stage], unasked[stage]) for stage, run in stages.items()}


def _scored(run: Run, settings: Settings, unasked: Mapping[Mode, Mapping[str, Sequence[str]]]) -> dict[Mode, Scored]:
    answered = answers_of(run, settings.task)
    modes = [mode for mode in ALL_MODES if mode in answered or mode in unasked]
    if not modes:
        raise ValueError(f"stage {run.path.name!r} has no gold labels to score against; add 'labels' to its dataset")
    return {
        mode: Scored(mode, _with_unasked(answered.get(mode), unasked.get(mode, {}), settings.task), settings)
        for mode in modes
    }


def unasked_memes(stages: Mapping[str, Run]) -> dict[str, dict[Mode, dict[str, list[str]]]]:
    """By stage and mode the memes that it was not asked about, each with its gold labels of all stages.

    Those whose gold labels are not known are left out, and so are those that failed.
    """
    gold = _gold_of_all_stages(next(iter(stages.values())))
    found: dict[str, dict[Mode, dict[str, list[str]]]] = {}
    nothing: set[tuple[Mode, str]] = set()
    for stage, run in stages.items():
        column = "gold_labels" if run.config.get("stages_on") == "gold" else "labels"
        rows = run.predictions().project(f"mode, meme_id, coalesce(len({column}), 0)").fetchall()
        found[stage] = {}
        for mode, meme_id in sorted(nothing - {(mode, meme_id) for mode, meme_id, _ in rows}):
            if (mode, meme_id) in gold:
                found[stage].setdefault(mode, {})[meme_id] = gold[mode, meme_id]
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


def stage_measures(sets: LabelSets) -> Additive:
    """:data:`MEASURES` of all labels, then F1 of every label, as functions of sums over memes.

    Micro and macro are those of :func:`set_measures`; of ``macro_all``, a label that is neither in gold nor in answers
    counts 0, as it does for scikit-learn's ``average="macro"`` over the whole inventory with ``zero_division=0``.
    """
    flat, n = set_measures("flat", sets), len(sets.names)

    def of_totals(totals: np.ndarray, n_memes: np.ndarray) -> np.ndarray:
        values = flat.of_totals(totals, n_memes)
        each = values[:, len(OVERALL) :].reshape(len(values), len(EACH), n)
        return np.hstack([values[:, :_N_MEANS], np.nansum(each, axis=2) / n, each[:, EACH.index("f1")]])

    keys = [(measure, "") for measure in MEASURES] + [("f1", name) for name in sets.names]
    return Additive(pd.MultiIndex.from_tuples(keys, names=["measure", "name"]), flat.columns, of_totals)


_N_MEANS = 2 * len(EACH)
"""Micro and macro precision, recall and F1 come first among :data:`OVERALL`."""


def random_scores(
    sets: LabelSets, *, given_names: bool = False, n_draws: int = N_RANDOM, seed: int = 0
) -> dict[str, Interval]:
    """What labels drawn at random with their gold frequency score: mean of the draws, and the middle 95 % of them.

    Every label is drawn for every meme with the share of memes whose gold has it, independently of the others
    (scikit-learn's stratified dummy classifier on each label). With ``given_names``, the gold names of a meme are
    known, and for each of them every value is drawn with the share of all (meme, name) of the gold that have it: what
    a stage is to be held against that was given them. Means do not depend on whether values exclude each other, since
    counts add.

    How often a label is drawn rightly and wrongly over all memes are two binomial counts, which is what is drawn.

    Raises:
        ValueError: ``given_names`` of labels that are no pairs.
    """
    measured = stage_measures(sets)
    gold = sets.gold.sum(axis=0)
    n, share = _names_given(sets) if given_names else (np.full(len(gold), len(sets)), gold / len(sets))
    rng = np.random.default_rng((seed, _STREAM))
    right = rng.binomial(gold, share, size=(n_draws, len(gold)))
    wrong = rng.binomial(n - gold, share, size=(n_draws, len(gold)))
    rates = np.zeros((n_draws, measured.columns.shape[1] - 3 * len(gold)))
    totals = np.hstack([right, right + wrong, np.broadcast_to(gold, right.shape), rates])
    values = measured.of_totals(totals, np.full(n_draws, len(sets)))[:, : len(MEASURES)]
    tails = np.nanpercentile(values, [100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2], axis=0)
    found = np.stack([np.nanmean(values, axis=0), *tails], axis=1)
    return {name: Interval(*one) for name, one in zip(MEASURES, found.tolist(), strict=True)}


_STREAM = 41


def frequency_and_f1(sets: LabelSets, *, n_draws: int = 1000, seed: int = 0) -> tuple[Interval, pd.DataFrame]:
    """Spearman's correlation of how many memes have a label in gold with its F1, over the labels that gold has.

    Returns:
        the correlation with its percentile bootstrap interval over labels, NaN where frequencies or F1s are all the
        same; and label, frequency (memes), f1.
    """
    f1 = stage_measures(sets).values().xs("f1", level="measure")
    frame = pd.DataFrame({"label": sets.names, "frequency": sets.gold.sum(axis=0), "f1": f1.to_numpy()})
    frame = frame[frame["frequency"] > 0].reset_index(drop=True)
    pair = frame[["frequency", "f1"]].to_numpy(dtype=float)
    if len(frame) < 2:
        return Interval(np.nan, np.nan, np.nan), frame
    return bootstrap(lambda weights: _spearman(pair, weights), len(frame), n_draws=n_draws, seed=seed)[0], frame


def _spearman(pair: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of the rows of ``pair`` ``(n, 2)`` as often as each sample has them, ``(n_draws, 1)``; NaN for constants."""
    ranks = (rankdata(np.repeat(pair, count.astype(int), axis=0), axis=0) for count in weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.array([[np.corrcoef(one, rowvar=False)[0, 1]] for one in ranks])


def detection(scored: Stages) -> Section:
    """Precision, recall and F1 of every stage and mode, and what random labels score."""
    rows, full, random = [], [], []
    for stage, mode, one in _each(scored):
        found = _intervals(one)
        drawn = _drawn(one)
        key = {"stage": stage, "mode": mode, "memes": len(one.sets)}
        shown = [f"{mean}_f1" for mean in MEANS]
        chance = {f"random_{name}": drawn["label frequency"][name].value for name in shown[:2]}
        rows.append(key | _columns(found, shown) | chance)
        full.append(key | _columns(found, [name for name in MEASURES if not name.endswith("_f1")]))
        random += [{"stage": stage, "mode": mode, "drawn": how, **_columns(one, shown)} for how, one in drawn.items()]
    return Section(
        title="Detection by stage",
        text=(
            "Labels of the later stages are pairs: a viewpoint or a role counts only with the right identity. Micro "
            "pools all labels of all memes; macro is the mean over the labels that occur in gold or answers, and "
            "macro all that over the whole inventory, in which a label that occurs nowhere counts 0. An answer that "
            "could not be parsed is one without labels. "
            f"In brackets: {LEVEL:.0%} bootstrap intervals over memes."
        ),
        tables=(
            Table.of("stages", "F1 by stage", pd.DataFrame(rows), note=_CHANCE_NOTE),
            Table.of("precision_recall", "Precision and recall", pd.DataFrame(full)),
            Table.of("random", "Labels drawn at random", pd.DataFrame(random), note=_RANDOM_NOTE),
        ),
        charts=(_stage_chart(pd.DataFrame(rows), pd.DataFrame(random)),),
    )


_CHANCE_NOTE = "random: the mean of labels that are drawn with their gold frequency."
_RANDOM_NOTE = (
    f"Means of draws, and in brackets the middle {LEVEL:.0%} of them. label frequency: every label of the inventory is "
    "drawn for every meme with the share of memes whose gold has it, independently. value frequency, identities given: "
    "for every identity that a meme's gold has, every value is drawn with its share among all identities of all memes; "
    "a stage that was given gold identities is to be held against this."
)


def labels(scored: Stages) -> Section:
    """F1 of every label that occurs."""
    frames = []
    for stage, mode, one in _each(scored):
        frame = one.each("flat")
        frame = frame[frame["support"] + frame["predicted"] > 0].drop(columns="mode")
        frame.insert(0, "mode", mode)
        frame.insert(0, "stage", stage)
        frames.append(frame.sort_values("support", ascending=False, kind="stable"))
    return Section(
        title="Labels",
        text="Labels that occur in gold or answers, by their support: the memes whose gold has them.",
        tables=(Table.of("stage_labels", "Labels", pd.concat(frames, ignore_index=True), n_shown=60),),
    )


def parsing(stages: Mapping[str, Run], scored: Stages) -> Section:
    """How many answers could not be parsed, and which labels were discarded."""
    unasked = unasked_memes(stages)
    counts = [_parsed(stage, mode, one, len(unasked[stage].get(mode, ()))) for stage, mode, one in _each(scored)]
    discarded = [frame for stage, run in stages.items() for frame in [_discarded(stage, run)] if len(frame)]
    columns = ["stage", "mode", "label", "answers"]
    return Section(
        title="Parsing",
        text="An answer that could not be parsed, and one that a stage was not asked for, since an earlier stage had "
        "given it nothing to ask about, are without labels. Labels outside the inventory are discarded: they are kept "
        "as they were written, and count for nothing. Memes that failed otherwise are not scored.",
        tables=(
            Table.of("parsing", "What was read", pd.DataFrame(counts)),
            Table.of(
                "discarded",
                "Discarded labels, as written",
                pd.concat(discarded, ignore_index=True) if discarded else pd.DataFrame(columns=columns),
                n_shown=30,
            ),
        ),
    )


def frequency(scored: Stages) -> Section:
    """Whether frequent labels are found better."""
    rows, series = [], []
    for stage, mode, one in _each(scored):
        found, frame = frequency_and_f1(one.sets, n_draws=one.settings.n_draws, seed=one.settings.seed)
        rows.append({"stage": stage, "mode": mode, "labels": len(frame), **found.columns("spearman")})
        name = f"{stage}, {mode}"
        series.append(Series(name=name, x=tuple(frame["frequency"].astype(float)), y=tuple(frame["f1"])))
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


def compared(scored: Stages, other: Stages) -> Section:
    """Two staged runs on the same memes, stage by stage; first is the run, second the other.

    Raises:
        ValueError: they have no stage, mode and meme in common.
    """
    frames = [
        _compared(stage, Pair(one, other[stage][mode]))
        for stage, mode, one in _each(scored)
        if mode in other.get(stage, {})
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
            "first is the run that the report is of, second the one that it is held against; what each stage was given "
            "stands in the facts above. Memes are paired by their ids; others are left out. The difference is first "
            "minus second with its paired bootstrap interval over memes; p is that of a paired permutation test, "
            "p_holm corrected for all stages and modes of a measure."
        ),
        tables=(Table.of("compared", "Compared", frame),),
    )


def _compared(stage: str, pair: Pair) -> pd.DataFrame:
    if not pair.rows:
        return pd.DataFrame()
    mine, theirs = (list(rows) for rows in zip(*pair.rows, strict=True))
    settings = pair.first.settings
    frame = compare(
        stage_measures(pair.first.sets.of(mine)), stage_measures(pair.second.sets.of(theirs)),
        n_swaps=settings.n_swaps, n_draws=settings.n_draws, seed=settings.seed,
    )  # fmt: skip
    frame = frame[(frame["name"] == "") & frame["measure"].str.endswith("_f1")].drop(columns="name")
    frame.insert(0, "memes", len(mine))
    frame.insert(0, "mode", pair.first.name)
    frame.insert(0, "stage", stage)
    return frame


def _each(scored: Stages) -> list[tuple[str, Mode, Scored]]:
    return [(stage, mode, one) for stage, modes in scored.items() for mode, one in modes.items()]


def _intervals(one: Scored) -> dict[str, Interval]:
    """:data:`MEASURES` with bootstrap intervals over memes."""
    measured = stage_measures(one.sets)
    found = bootstrap(
        lambda weights: measured.statistic(weights)[:, : len(MEASURES)],
        len(one.sets), n_draws=one.settings.n_draws, seed=one.settings.seed,
    )  # fmt: skip
    return dict(zip(MEASURES, found, strict=True))


def _drawn(one: Scored) -> dict[str, dict[str, Interval]]:
    settings = {"n_draws": one.settings.n_baseline_draws, "seed": one.settings.seed}
    found = {"label frequency": random_scores(one.sets, **settings)}
    if all(BETWEEN in name for name in one.sets.names):
        found["value frequency, identities given"] = random_scores(one.sets, given_names=True, **settings)
    return found


def _names_given(sets: LabelSets) -> tuple[np.ndarray, np.ndarray]:
    """For every pair, how many memes' gold has its name, and the share of its value over all names, ``(n_labels,)``."""
    if not all(BETWEEN in name for name in sets.names):
        raise ValueError("names can be given to a stage of pairs alone; its labels are no pairs")
    split = [name.rpartition(BETWEEN)[::2] for name in sets.names]
    names, values = (np.unique(column, return_inverse=True)[1] for column in zip(*split, strict=True))
    with_name = [sets.gold[:, names == name].any(axis=1).sum() for name in range(names.max() + 1)]
    with_value = np.bincount(values, weights=sets.gold.sum(axis=0))
    return np.array(with_name)[names], (with_value / max(sum(with_name), 1))[values]


def _columns(found: Mapping[str, Interval], names: list[str]) -> dict[str, float]:
    return {column: value for name in names for column, value in found[name].columns(name).items()}


def _parsed(stage: str, mode: Mode, one: Scored, n_unasked: int) -> dict[str, object]:
    answers, n = one.answers, len(one.sets)
    n_read, n_discarded = int(answers.sets.predicted.sum()), answers.n_unknown_labels
    given = n_read + n_discarded
    return {
        "stage": stage, "mode": mode, "memes": n, "not asked": n_unasked,
        "unparsed": int(answers.unparsed.sum()), "unparsed_share": answers.unparsed.sum() / max(n - n_unasked, 1),
        "labels": n_read, "discarded": n_discarded,
        "discarded_share": n_discarded / given if given else np.nan,
        "failed": answers.n_failed, "without gold": answers.n_without_gold,
    }  # fmt: skip


def _discarded(stage: str, run: Run) -> pd.DataFrame:
    """The labels outside the inventory as they were written, the commonest first."""
    found = run.predictions().project("mode, unnest(unknown_labels) AS label")
    frame = found.aggregate("mode, label, count(*) AS answers", "mode, label").order("answers DESC, mode, label").df()
    frame.insert(0, "stage", stage)
    return frame


def _stage_chart(rows: pd.DataFrame, random: pd.DataFrame) -> Chart:
    drawn = random[random["drawn"] == "label frequency"]

    def series(name: str, frame: pd.DataFrame, column: str) -> Series:
        return Series.of(name, frame["stage"] + ", " + frame["mode"], frame, column)

    return Chart(
        name="f1_by_stage", title="F1 by stage", kind="bars", x_label="stage, mode", y_label="F1",
        series=(
            series("micro F1", rows, "micro_f1"), series("macro F1", rows, "macro_f1"),
            series("random, micro F1", drawn, "micro_f1"), series("random, macro F1", drawn, "macro_f1"),
        ),
        note=f"Bars: {LEVEL:.0%} bootstrap intervals over memes; of random labels the middle {LEVEL:.0%} of draws.",
        y_range=(0, 1),
    )  # fmt: skip


def _name(stages: Mapping[str, Run]) -> str:
    """The name of the folder that holds the stages."""
    return next(iter(stages.values())).path.resolve().parent.name


def _facts(stages: Mapping[str, Run], scored: Stages, against: Mapping[str, Run] | None) -> dict[str, JsonValue]:
    settings = next(one.settings for _, _, one in _each(scored))
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

"""The report on one run or several: the rationale against relevance, leaderboards, curves, memes to look at."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from xai.analysis.faithfulness.curves import FLIP_COUNTS, MEASURES, PERCENTS, Scale
from xai.analysis.faithfulness.measuring import Key, Measured, explanations_of
from xai.analysis.faithfulness.one_input import Settings
from xai.analysis.faithfulness.robustness import JPEG_QUALITY, RADIUS
from xai.analysis.faithfulness.stored import ARROWS, GRID, NAMES, RANDOM, RATIONALE, REVERSED, TRUTH
from xai.analysis.faithfulness.summaries import (
    ALPHA,
    LEADERS,
    LESS,
    ROBUSTNESS,
    SAME,
    by_meme,
    comparisons,
    headline,
    leaderboard,
    mean_curves,
    order_checks,
    robustness_table,
)
from xai.analysis.report import Chart, Picture, Report, Section, Series, Table, formatted
from xai.analysis.statistics import LEVEL, N_DRAWS
from xai.environment import installed_versions
from xai.parts import to_json
from xai.schema import ALL_MODES
from xai.store import Run

DIRECTIONS = "↑ higher is better, ↓ lower is better"
N_MEMES = 2
"""So many of the best and of the worst memes of each run are shown."""


@dataclass(frozen=True)
class Subject:
    """One run of a report, with what was measured of it."""

    run: Run
    measured: Measured
    perturbation: Mapping[str, Any]


def faithfulness_report(
    subjects: Sequence[Subject],
    settings: Settings,
    *,
    scale: Scale = "probability",
    pictures: bool = True,
    more: Sequence[Section] = (),
) -> Report:
    """The report on these runs, all measured with the same settings; ``more`` stands before the memes to look at.

    Raises:
        ValueError: nothing was measured.
    """
    curves, rationales, robust = joined(subjects)
    if not len(curves):
        raise ValueError("nothing was measured: the runs explain no label; give a larger budget, or other runs")
    board = leaderboard(curves[~curves["method"].str.endswith(f" {REVERSED}")], scale)
    sections = [
        _rationale_section(headline(rationales, scale), scale),
        _leaderboard_section(curves, board, scale),
        _checks_section(order_checks(curves, scale), scale),
    ]
    if len(robust):
        sections.append(_robustness_section(robustness_table(robust)))
    sections += more
    if pictures:
        sections.append(_memes_section(subjects, scale, settings))
    failures = pd.concat([one.measured.failures.assign(run=one.run.path.name) for one in subjects])
    if len(failures):
        table = Table.of("failures", "Memes that could not be measured", failures, n_shown=50)
        sections.append(Section(title="Failures", tables=(table,)))
    names = [name for name in ("rationale_or_relevance", "leaderboard") if _has(sections, name)]
    return Report(
        title="Faithfulness: " + ", ".join(one.run.path.name for one in subjects),
        facts=_facts(subjects, settings, scale),
        headline=tuple(names),
        sections=tuple(sections),
    )


def joined(subjects: Sequence[Subject]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Curves, rationales and robustness of all runs with ``source``: the dataset and, where they differ, the model.

    What does not depend on the method (random orders, rationale, truth) is kept once. Methods that several runs of one
    source share are told apart by the names of the runs.
    """
    several = len({one.run.config["model"]["fingerprint"] for one in subjects}) > 1
    shared = _shared_methods(subjects, several)
    frames: dict[str, list[pd.DataFrame]] = {"curves": [], "rationales": [], "robustness": []}
    for subject in subjects:
        source, own = _source(subject.run, several), subject.run.config["method"]
        label = f"{own} ({subject.run.path.name})" if (source, own) in shared else own
        names = {own: label, f"{own} {REVERSED}": f"{label} {REVERSED}"}
        for table, found in frames.items():
            frame = getattr(subject.measured, table)
            if len(frame):
                found.append(frame.assign(source=source, method=frame["method"].replace(names)))
    keys = ["source", "mode", "meme_id", "target", "method"]
    joint = {
        name: pd.concat(found) if found else pd.DataFrame(columns=[*keys, "draw"]) for name, found in frames.items()
    }
    return (
        joint["curves"].drop_duplicates([*keys, "draw"], ignore_index=True),
        joint["rationales"].drop_duplicates(keys, ignore_index=True),
        joint["robustness"].drop_duplicates(keys, ignore_index=True),
    )


def unmet(report: Report, requirements: Sequence[str]) -> list[str]:
    """For every ``MEASURE OP NUMBER`` that a method does not keep to on average, the reason.

    Raises:
        ValueError: a requirement reads otherwise.
    """
    found = []
    rows = report.table("order_checks").frame.to_dict("records")
    for requirement in requirements:
        measure, sign, bound = _parsed(requirement)
        for row in (row for row in rows if str(row["measure"]).split(" ")[0] == measure):
            value = row["relevance"]
            kept = value is not None and {">=": value >= bound, "<=": value <= bound}[sign]
            if not kept:
                where = f"{row['source']}, {row['mode']}, {row['method']}"
                shown = " to ".join(formatted(row[f"relevance_{end}"]) for end in ("low", "high"))
                found.append(f"{measure} is {formatted(value)} ({shown}) and not {sign} {bound:g} for {where}")
    return found


def check_requirements(requirements: Sequence[str]) -> None:
    """Refuse at once what cannot be read.

    Raises:
        ValueError: names the measures that there are.
    """
    for requirement in requirements:
        _parsed(requirement)


def _parsed(requirement: str) -> tuple[str, str, float]:
    match = re.fullmatch(r"\s*([\w@]+)\s*(>=|<=)\s*(-?[\d.]+)\s*", requirement)
    if match is None or match[1] not in MEASURES:
        raise ValueError(
            f"a requirement reads like comprehensiveness@20>=0.3, not {requirement!r}; "
            f"measures are {', '.join(MEASURES)}"
        )
    return match[1], match[2], float(match[3])


def _rationale_section(frame: pd.DataFrame, scale: Scale) -> Section:
    text = (
        "For every label of an answer: the words that the rationale names are taken away from the caption, and in "
        "another try as many words that relevance ranks highest for this label. If the model used the words that it "
        "says it used, the label loses about as much. Answers that name no word of their caption are not compared."
    )
    if not len(frame):
        return Section(title="What the model says it used", text=text + " Here no answer names one.")
    unfaithful = frame[frame["verdict"] == LESS]
    names = ", ".join(dict.fromkeys(unfaithful["target"]))
    count = len(unfaithful)
    text += f" In {count} of {len(frame)} comparisons the rationale's words matter less than relevance's" + (
        f": {names}." if count else "."
    )
    note = (
        f"loss: {_named(scale)} lost, higher means that the words mattered more, with {_percent()} bootstrap interval "
        "over memes; flip: share of memes whose label is no longer the likeliest answer; p: rationale against "
        "relevance, paired sign-flip permutation test, two-sided, Holm-corrected over the labels of one source, "
        "mode and method; "
        f"effect: rank-biserial correlation, -1 to 1; verdict: corrected p below {ALPHA:g}, else {SAME!r}."
    )
    shown, where = _without_constants(frame)
    more = ["loss_random", "loss_random_low", "loss_random_high", "flip_rationale", "flip_relevance", "effect"]
    title = "Loss without the rationale's words and without relevance's" + where
    tables = (
        Table.of("rationale_or_relevance", title, shown.drop(columns=["difference", *more]), note=note),
        Table.of(
            "rationale_details", "Random words, flips and effect sizes" + where, shown[[*_named_by(shown), *more]]
        ),
    )
    charts = tuple(
        _loss_chart(f"losses_{index}", f"{source}, {mode}, {method}", part, scale)
        for index, ((source, mode, method), part) in enumerate(frame.groupby(["source", "mode", "method"], sort=False))
    )
    return Section(title="What the model says it used", text=text, tables=tables, charts=charts)


def _without_constants(frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The frame without those of source, mode and method that are the same in every row, and these for its title."""
    same = [name for name in ("source", "mode", "method") if len(set(frame[name])) == 1]
    return frame.drop(columns=same), "".join(f", {frame[name].iloc[0]}" for name in same)


def _named_by(frame: pd.DataFrame) -> list[str]:
    return [name for name in ("source", "mode", "method", "target") if name in frame]


def _loss_chart(name: str, where: str, part: pd.DataFrame, scale: Scale) -> Chart:
    series = tuple(Series.of(who, part["target"], part, f"loss_{who}") for who in ("rationale", "relevance", "random"))
    return Chart(
        name=name,
        title=f"Loss without as many words: {where}",
        kind="bars",
        x_label="label",
        y_label=f"{_named(scale)} lost",
        series=series,
    )


def _leaderboard_section(curves: pd.DataFrame, board: pd.DataFrame, scale: Scale) -> Section:
    text = (
        "Units are taken away in the order of relevance, the most relevant first and in another try the least relevant "
        f"first, and the target is scored again. {RANDOM!r} is the mean of random orders; {RATIONALE!r} takes the "
        f"words first that the answer names, and {TRUTH!r} what causes the label, where the memes are planted ones. "
        "Two methods whose difference may be chance are called " + SAME + "."
    )
    pairs = comparisons(curves, scale)
    note = (
        f"{DIRECTIONS}. On the scale of {_named(scale)}; {_percent()} bootstrap intervals over memes. Where n differs, "
        "the means are of different memes; the pairs below are of the same ones."
    )
    better = MEASURES[LEADERS[0]].better
    pairs_note = (
        f"By {LEADERS[0]} ({better} is better), first less second, on the memes and targets that both have; paired "
        f"sign-flip permutation test, Holm-corrected over the pairs of one source and mode; {SAME!r} unless p is below "
        f"{ALPHA:g}."
    )
    tables = [Table.of("leaderboard", "Methods", _with_arrows(board), note=note)]
    if len(pairs):
        tables.append(Table.of("comparisons", "Methods in pairs", pairs, note=pairs_note, n_shown=40))
    charts = []
    for index, ((source, mode), part) in enumerate(curves.groupby(["source", "mode"], sort=True)):
        for side, what in (("morf", "most relevant first (deletion), ↓"), ("lerf", "least relevant first, ↑")):
            charts.append(_curve_chart(f"{side}_{index}", f"{source}, {mode}: {what}", part, scale, side))
    return Section(title="Which order the model follows", text=text, tables=tuple(tables), charts=tuple(charts))


def _curve_chart(name: str, title: str, part: pd.DataFrame, scale: Scale, side: str) -> Chart:
    series = tuple(
        Series(name=method, x=GRID, y=tuple(mean), low=tuple(low), high=tuple(high))
        for method, (mean, low, high) in mean_curves(part, scale, side).items()
    )
    note = f"Band of {RANDOM!r}: 90 % of the draws; of others: {_percent()} bootstrap interval over memes."
    return Chart(
        name=name,
        title=title,
        kind="lines",
        x_label="share of the units taken away",
        y_label=_named(scale),
        series=series,
        note=note,
    )


def _checks_section(frame: pd.DataFrame, scale: Scale) -> Section:
    frame = frame.assign(measure=[f"{name} {ARROWS[MEASURES[name].better]}" for name in frame["measure"]])
    text = "Relevance that says anything beats a random order, which beats the reversed one, on every measure."
    shown = [name for name in MEASURES if "@" not in name or name.endswith("@20")]
    what = "; ".join(f"{name}: {MEASURES[name].says}" for name in shown)
    note = (
        f"{DIRECTIONS}. On the scale of {_named(scale)}, flips aside. In brackets: {_percent()} bootstrap interval "
        f"over memes; for random, where 90 % of the draws' means lie. A percentage of the units is rounded half up, at "
        f"least one. {what}."
    )
    return Section(
        title="Every measure, held against chance",
        text=text,
        tables=(Table.of("order_checks", "Measures", frame, note=note),),
    )


def _robustness_section(frame: pd.DataFrame) -> Section:
    ends = ("", "_low", "_high")
    renamed = {f"{name}{end}": f"{name} {ARROWS[better]}{end}" for name, better in ROBUSTNESS.items() for end in ends}
    note = (
        f"{DIRECTIONS}; {_percent()} bootstrap intervals over memes. infidelity: share of the square of the logit's "
        "changes that relevance does not account for, over random subsets of the units (Yeh et al., 2019), 0 to 1; "
        f"max_sensitivity: largest relative change of the map under {100 * RADIUS:g} % noise on the embeddings; jpeg, "
        f"typo: rank correlation with the map of the picture saved as JPEG of quality {JPEG_QUALITY}, and with that of "
        "the caption in which two neighbouring letters of a random word are exchanged."
    )
    text = "How well relevance adds up to what the model does, and how much it changes when the input hardly does."
    table = Table.of("robustness", "Infidelity, sensitivity, stability", frame.rename(columns=renamed), note=note)
    return Section(title="Robustness", text=text, tables=(table,))


def _memes_section(subjects: Sequence[Subject], scale: Scale, settings: Settings) -> Section:
    rows, pictures = [], []
    for subject in subjects:
        method = subject.run.config["method"]
        own = subject.measured.curves
        own = own[own["method"] == method] if len(own) else own
        for mode, part in ((mode, own[own["mode"] == mode]) for mode in ALL_MODES if len(own)):
            if not len(part):
                continue
            areas = by_meme(part, scale)["area_between"].sort_values()
            for rank, chosen in (("worst", areas.head(N_MEMES)), ("best", areas.tail(N_MEMES)[::-1])):
                for meme_id, value in chosen.items():
                    where = {"run": subject.run.path.name, "mode": mode, "rank": rank}
                    rows.append(where | {"meme_id": meme_id, "area": value})
                    pictures.append(_picture(subject.run, (str(meme_id), mode), rank, float(value), settings))
    table = Table.of("memes", "Worst and best memes", pd.DataFrame(rows), note="area: area_between, ↑ higher is better")
    return Section(
        title="Memes to look at",
        text="The memes whose curves lie worst and best by the area between them, the first target of each.",
        tables=(table,),
        pictures=tuple(pictures),
    )


def _picture(run: Run, key: Key, rank: str, area: float, settings: Settings) -> Picture:
    from xai.attribution.figure import explanation_figure

    meme_id, mode = key
    explanation = explanations_of(run, key, settings.targets)[0]
    buffer = io.BytesIO()
    explanation_figure(explanation).savefig(buffer, format="png", dpi=72)
    caption = (
        f"{rank}: {meme_id}, {mode}, {explanation.method}, target {explanation.target}, area_between {area:.3f} ↑; the "
        f"answer names {', '.join(explanation.prediction.referred_words) or 'no word'}"
    )
    name = f"{run.path.name}/{mode}/{meme_id}"
    return Picture(name=name, caption=caption, png=base64.b64encode(buffer.getvalue()).decode())


def _facts(subjects: Sequence[Subject], settings: Settings, scale: Scale) -> dict[str, Any]:
    return {
        "runs": [_described(one) for one in subjects],
        "settings": json.loads(to_json(asdict(settings))),
        "perturbation": dict(subjects[0].perturbation),
        "scale": scale,
        "score": "the stored target of each explanation: its kind, positions and token ids",
        "flip": "teacher-forced: another token is likelier at a token of the target, or where a list may end before it",
        "top_percent": f"of {', '.join(map(str, PERCENTS))} %, rounded half up, at least one unit; flips also at "
        f"{' and '.join(map(str, FLIP_COUNTS))} units",
        "unit_of_statistics": "the meme: its targets are averaged",
        "bootstrap": {"draws": N_DRAWS, "level": LEVEL, "seed": 0},
        "versions": installed_versions(),
    }


def _described(subject: Subject) -> dict[str, Any]:
    run, measured = subject.run, subject.measured
    maps = measured.curves[measured.curves["method"] == run.config["method"]] if len(measured.curves) else None
    n_inputs = 0 if maps is None else len(maps[["meme_id", "mode"]].drop_duplicates())
    return {
        "run": run.path.name,
        "dataset": run.config["dataset"],
        "model": run.config["model"],
        "method": run.config["method"],
        "options": run.config.get("options", {}),
        "versions_of_the_run": run.info["versions"],
        "inputs_in_run": measured.n_all,
        "inputs_measured": n_inputs,
        "targets_measured": 0 if maps is None else len(maps),
        "maps_of_one_value": 0 if maps is None else int(maps["constant"].sum()),
        "maps_all_negative": 0 if maps is None else int(maps["all_negative"].sum()),
        "failures": len(measured.failures),
        "forwards": measured.n_forwards,
    }


def _with_arrows(board: pd.DataFrame) -> pd.DataFrame:
    renamed = {
        f"{name}{end}": f"{name} {ARROWS[MEASURES[name].better]}{end}"
        for name in LEADERS
        for end in ("", "_low", "_high")
    }
    return board.rename(columns=renamed)


def _shared_methods(subjects: Sequence[Subject], several: bool) -> set[tuple[str, str]]:
    pairs = [(_source(one.run, several), one.run.config["method"]) for one in subjects]
    return {pair for pair in pairs if pairs.count(pair) > 1}


def _source(run: Run, with_model: bool) -> str:
    dataset, model = run.config["dataset"], run.config["model"]
    return f"{dataset}, {model['name']}" if with_model else str(dataset)


def _has(sections: Sequence[Section], name: str) -> bool:
    return any(table.name == name for section in sections for table in section.tables)


def _named(scale: Scale) -> str:
    return NAMES[scale]


def _percent() -> str:
    return f"{100 * LEVEL:g} %"

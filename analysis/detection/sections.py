"""The sections of the report of `xai score` about one run: detection, labels, baselines, confusion, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from xai.analysis.detection.baselines import baseline_scores
from xai.analysis.detection.calibration import Calibration, calibration
from xai.analysis.detection.confusion import confusion, label_errors, substitutions
from xai.analysis.detection.labelsets import LabelSets
from xai.analysis.detection.scored import Scored, Settings
from xai.analysis.detection.scores import EACH, Kind
from xai.analysis.report import Chart, Heatmap, Section, Series, Table
from xai.analysis.statistics import LEVEL
from xai.schema import Mode

MEANS = ("micro", "macro", "sample")
_F1 = [f"{mean}_f1" for mean in MEANS]
_FLAT = [*_F1, "subset_accuracy", "hamming_loss"]
_FLAT_OF_BASELINES = ["micro_f1", "macro_f1", "subset_accuracy", "hamming_loss"]
_BARS = f"Bars: {LEVEL:.0%} bootstrap intervals over memes."


def detection(scored: Mapping[Mode, Scored], settings: Settings) -> Section:
    """The measures of whole sets by mode, and what was counted."""
    none = settings.none_in_words
    by_mode = [
        {"mode": mode, "memes": len(one.sets), **one.overall("hierarchical", _F1)} for mode, one in scored.items()
    ]
    return Section(
        title="Detection",
        text=(
            "Gold and predicted label sets are extended by the ancestors of their labels, root left out, and compared. "
            "Micro pools the nodes of all memes and is the official measure; macro is the mean over the nodes that "
            "occur in gold or answers; sample is the mean over memes.\n\n"
            f"{none}. In brackets: {LEVEL:.0%} bootstrap intervals over memes."
        ),
        tables=(
            Table.of("by_mode", f"Hierarchical F1 ({none})", pd.DataFrame(by_mode)),
            Table.of("hierarchical", "Hierarchical precision, recall and F1", _precision_recall(scored)),
            Table.of(
                "flat",
                "Flat measures: labels as they are, without ancestors",
                pd.DataFrame([{"mode": mode, **one.overall("flat", _FLAT)} for mode, one in scored.items()]),
                note="Subset accuracy: share of memes whose whole label set is right. Hamming loss: share of all "
                "decisions (meme, label) that are wrong; lower is better.",
            ),
            Table.of(
                "counts",
                "What was counted",
                pd.DataFrame([_counts(one) for one in scored.values()]),
                note="An answer that could not be parsed (unparsed) counts as one without labels; it is right where "
                "gold has none under the convention (unparsed but right). Failed memes had no answer and are not "
                "scored. Labels outside the inventory (unknown labels) do not count.",
            ),
        ),
        charts=(_mode_chart(scored),),
    )


def labels(scored: Mapping[Mode, Scored], settings: Settings) -> Section:
    """The measures of every label, and of every node above them."""
    above = {node for name in settings.task.label_names for node in settings.task.ancestors(name)}
    nodes = pd.concat([one.each("hierarchical") for one in scored.values()])
    nodes = nodes[nodes["label"].isin(above)].rename(columns={"label": "node"})
    return Section(
        title="Labels and nodes",
        text=(
            "Precision, recall and F1 of every label as it is, and of the nodes above labels with all that lies below "
            "them. Support is the number of memes whose gold has it. What neither gold nor answers have is not listed "
            "and not in macro means."
        ),
        tables=(
            Table.of("labels", "Labels", _occurring(pd.concat([one.each("flat") for one in scored.values()]))),
            Table.of("nodes", "Nodes above labels", _occurring(nodes)),
        ),
        charts=tuple(chart for one in scored.values() for chart in (_f1_chart(one), _support_chart(one))),
    )


def baselines(scored: Mapping[Mode, Scored], settings: Settings) -> Section:
    """What answers score that never look at a meme; once for modes with the same memes."""
    groups: dict[tuple[str, ...], list[Scored]] = {}
    for one in scored.values():
        groups.setdefault(one.answers.ids, []).append(one)
    frame = pd.concat([_baseline_rows(same, settings) for same in groups.values()])
    source = settings.frequencies.source if settings.frequencies else "those of the gold labels themselves"
    return Section(
        title="Baselines",
        text=(
            "What answers score that never look at a meme. Weighted random draws each label for itself with its own "
            f"frequency, {settings.n_baseline_draws} times: mean and standard deviation (sd) of a draw. Frequencies: "
            f"{source}. The most frequent label and label set are those that count under the convention."
        ),
        tables=(
            Table.of("baselines", "Baselines, hierarchical", _wide(frame, "hierarchical", _F1)),
            Table.of("baselines_flat", "Baselines, flat", _wide(frame, "flat", _FLAT_OF_BASELINES)),
        ),
        charts=(_baseline_chart(scored, frame),),
    )


def confusions(scored: Mapping[Mode, Scored], settings: Settings) -> Section:
    """Gold label by predicted label, with and without a label for none, and what was claimed for what was missed."""
    none = settings.task.none_label
    errors, swapped, charts = [], [], []
    for mode, one in scored.items():
        kept, without = one.answers.sets, one.answers.sets.under("empty on both sides", none)
        swapped.append(_said(substitutions(kept), mode))
        if none is None:
            errors.append(_said(_errors(kept, "all"), mode))
            charts.append(_heatmap(f"confusion_{mode}", f"Confusion, {mode}", kept))
            continue
        errors += [_said(_errors(kept, f"all with {none}"), mode), _said(_total(without, f"all without {none}"), mode)]
        for name, variant, sets in (("with", f"with {none}", kept), ("without", f"without {none}", without)):
            charts.append(_heatmap(f"confusion_{name}_none_{mode}", f"Confusion, {mode}, {variant}", sets))
    return Section(
        title="Confusion",
        text=(
            "Each cell counts the memes whose gold has the label of the row and whose answer has that of the column "
            "(GᵀP). The diagonal are labels that were found. A meme with several labels is in several cells, so that "
            "two labels that are both right meet off the diagonal, too; the substitutions count only memes where the "
            "one label was missed and the other one claimed wrongly.\n\n"
            "Over is predicted minus gold, ratio predicted over gold: above 0 and above 1 a label is answered too "
            "often, below too seldom."
        ),
        tables=(
            Table.of("over_prediction", "Over- and under-prediction", _stack(errors)),
            Table.of(
                "substitutions",
                "What was claimed where something else was missed",
                _stack(swapped).sort_values("memes", ascending=False, kind="stable"),
                n_shown=20,
            ),
        ),
        charts=tuple(charts),
    )


def calibrations(scored: Mapping[Mode, Scored], settings: Settings) -> Section:
    """Whether the answers that are sure are the right ones."""
    found: dict[tuple[str, str], Calibration | None] = {}
    for mode, one in scored.items():
        for kind, values in (("verbalised", one.answers.verbalised), ("sequence", one.answers.sequence)):
            found[mode, kind] = calibration(
                values, one.right, n_bins=settings.n_bins, n_draws=settings.n_draws, seed=settings.seed
            )
    known = {key: value for key, value in found.items() if value is not None}
    missing = "".join(
        f" No answer in {mode} has a {kind} confidence." for mode, kind in found if (mode, kind) not in known
    )
    return Section(
        title="Calibration",
        text=(
            "Whether confidence is the share of right answers; an answer is right if its whole label set is. "
            "Verbalised confidence is what the answer says of itself, where the task asks for it. Sequence confidence "
            "is exp of the mean log-probability of the generated tokens, end-of-sequence token included, by the "
            f"model's raw logits. Expected calibration error (ECE) over {settings.n_bins} bins of equal width and "
            f"Brier score: lower is better. With few answers a bin, ECE comes out too high.{missing}"
        ),
        tables=(
            Table.of("calibration", "Calibration", _stack([_errors_of(*key, one) for key, one in known.items()])),
            Table.of(
                "reliability",
                "Bins of the reliability diagrams",
                _stack([_filled_bins(*key, one) for key, one in known.items()]),
                note="Accuracy with its Wilson interval. Empty bins are left out.",
            ),
        )
        if known
        else (),
        charts=tuple(_reliability_chart(mode, known) for mode in scored if any(mode == of for of, _ in known)),
    )


def _precision_recall(scored: Mapping[Mode, Scored]) -> pd.DataFrame:
    rows = []
    for mode, one in scored.items():
        for mean in MEANS:
            found = one.overall("hierarchical", [f"{mean}_{name}" for name in EACH])
            rows.append({"mode": mode, "mean": mean} | {k.removeprefix(f"{mean}_"): v for k, v in found.items()})
    return pd.DataFrame(rows)


def _counts(one: Scored) -> dict[str, object]:
    answers = one.answers
    return {
        "mode": one.name,
        "scored": len(answers.ids),
        "without_gold": answers.n_without_gold,
        "failed": answers.n_failed,
        "unparsed": int(answers.unparsed.sum()),
        "unparsed_but_right": int((answers.unparsed & one.right).sum()),
        "unknown_labels": answers.n_unknown_labels,
    }


def _mode_chart(scored: Mapping[Mode, Scored]) -> Chart:
    values = pd.DataFrame([one.overall("hierarchical", _F1) for one in scored.values()])
    series = [Series.of(mean, scored, values, f"{mean}_f1") for mean in MEANS]
    return Chart(
        name="f1_by_mode", title="Hierarchical F1 by mode", kind="bars", x_label="mode", y_label="F1",
        series=tuple(series), y_range=(0, 1), note=_BARS,
    )  # fmt: skip


def _f1_chart(one: Scored) -> Chart:
    frame = _by_support(one)
    series = Series.of("F1", frame["label"], frame, "f1")
    return Chart(
        name=f"label_f1_{one.name}", title=f"F1 of every label, {one.name}", kind="bars", x_label="label, by support",
        y_label="F1", series=(series,), y_range=(0, 1), note=_BARS,
    )  # fmt: skip


def _support_chart(one: Scored) -> Chart:
    frame = _by_support(one)
    series = [
        Series(name=name, x=tuple(frame["label"]), y=tuple(frame[column].astype(float)))
        for name, column in (("gold", "support"), ("answers", "predicted"))
    ]
    return Chart(
        name=f"support_{one.name}", title=f"Memes with each label, {one.name}", kind="bars",
        x_label="label, by support", y_label="memes", series=tuple(series),
    )  # fmt: skip


def _by_support(one: Scored) -> pd.DataFrame:
    return _occurring(one.each("flat")).sort_values("support", ascending=False, kind="stable")


def _baseline_rows(same: Sequence[Scored], settings: Settings) -> pd.DataFrame:
    frame = baseline_scores(
        same[0].answers.sets.gold,
        settings.task.label_names,
        settings.task.expand,
        none=settings.task.none_label,
        none_label=settings.none_label,
        frequencies=settings.frequencies.shares if settings.frequencies else None,
        n_draws=settings.n_baseline_draws,
        seed=settings.seed,
    )
    return frame.assign(modes=", ".join(one.name for one in same))


def _wide(frame: pd.DataFrame, kind: Kind, names: Sequence[str]) -> pd.DataFrame:
    """One row a baseline, measures and their sd as columns."""
    rows = []
    for (modes, baseline), part in frame[frame["kind"] == kind].groupby(["modes", "baseline"], sort=False):
        found = part.set_index("measure")
        values = {
            f"{name}{end}": found[column][name] for name in names for end, column in (("", "mean"), ("_sd", "sd"))
        }
        rows.append({"modes": modes, "baseline": baseline, **values, "answer": part["answer"].iloc[0]})
    return pd.DataFrame(rows)


def _baseline_chart(scored: Mapping[Mode, Scored], frame: pd.DataFrame) -> Chart:
    many = len(set(frame["modes"])) > 1
    means = _wide(frame, "hierarchical", _F1)
    named = [
        f"{baseline} ({modes})" if many else str(baseline)
        for baseline, modes in zip(means["baseline"], means["modes"], strict=True)
    ]
    series = []
    for mean in ("micro", "macro"):
        column = f"{mean}_f1"
        run = pd.DataFrame([one.overall("hierarchical", [column]) for one in scored.values()])
        chance = pd.DataFrame({
            column: means[column],
            f"{column}_low": means[column] - means[f"{column}_sd"],
            f"{column}_high": means[column] + means[f"{column}_sd"],
        })  # fmt: skip
        both = pd.concat([run, chance])
        series.append(Series.of(f"{mean} F1", (*scored, *named), both, column))
    return Chart(
        name="baselines_f1", title="Hierarchical F1 of the run and of the baselines", kind="bars",
        x_label="mode or baseline", y_label="F1", series=tuple(series), y_range=(0, 1),
        note=f"Bars: {LEVEL:.0%} bootstrap intervals of modes, plus and minus one standard deviation of baselines.",
    )  # fmt: skip


def _heatmap(name: str, title: str, sets: LabelSets) -> Heatmap:
    counts = confusion(sets)
    there = [label for label, occurs in zip(sets.names, _occurs(sets), strict=True) if occurs]
    return Heatmap(
        name=name, title=title, rows=tuple(there), columns=tuple(there),
        values=tuple(tuple(map(float, row)) for row in counts.loc[there, there].to_numpy()), unit="memes",
        row_label="gold", column_label="predicted", note="Labels that neither gold nor answers have are left out.",
    )  # fmt: skip


def _occurs(sets: LabelSets) -> np.ndarray:
    return np.asarray((sets.gold | sets.predicted).any(axis=0))


def _occurring(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["support"] + frame["predicted"] > 0]


def _errors(sets: LabelSets, name: str) -> pd.DataFrame:
    """The errors of every label that occurs, and their sum."""
    return pd.concat([label_errors(sets)[_occurs(sets)], _total(sets, name)])


def _total(sets: LabelSets, name: str) -> pd.DataFrame:
    total = label_errors(sets).drop(columns=["label", "ratio"]).sum().to_frame().T
    total.insert(0, "label", name)
    return total.assign(ratio=total["predicted"] / total["gold"])


def _said(frame: pd.DataFrame, mode: str) -> pd.DataFrame:
    frame.insert(0, "mode", mode)
    return frame


def _stack(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)


def _errors_of(mode: str, kind: str, one: Calibration) -> pd.DataFrame:
    row = {
        "mode": mode,
        "confidence": kind,
        "answers": one.n,
        "unknown": one.n_unknown,
        "accuracy": one.accuracy,
        "mean_confidence": one.confidence,
        **dict(zip(("ece", "ece_low", "ece_high"), one.ece, strict=True)),
        **dict(zip(("brier", "brier_low", "brier_high"), one.brier, strict=True)),
        "bins": one.n_bins,
    }
    return pd.DataFrame([row])


def _filled_bins(mode: str, kind: str, one: Calibration) -> pd.DataFrame:
    frame = one.bins.rename(columns={"confidence": "mean_confidence"})[one.bins["n"] > 0]
    frame.insert(0, "confidence", kind)
    return _said(frame, mode)


def _reliability_chart(mode: str, known: Mapping[tuple[str, str], Calibration]) -> Chart:
    diagonal = tuple(step / 20 for step in range(21))
    series = [Series(name="as sure as right", x=diagonal, y=diagonal)]
    for (of, kind), one in known.items():
        bins = one.bins[one.bins["n"] > 0]
        if of == mode:
            series.append(Series.of(kind, bins["confidence"], bins, "accuracy"))
    return Chart(
        name=f"reliability_{mode}", title=f"Reliability, {mode}", kind="points", x_label="mean confidence of the bin",
        y_label="share of right answers", series=tuple(series), y_range=(0, 1), note="Bars: Wilson intervals.",
    )  # fmt: skip

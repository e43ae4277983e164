"""The report of `xai analyze`: agreement of relevance and rationale over runs, modes, methods, labels and outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from xai.analysis.rationale.agreement import COUNTS, IMAGE_MEASURES, AgreementTables
from xai.analysis.rationale.frequencies import frequent_words
from xai.analysis.rationale.outcomes import LOW_F1
from xai.analysis.rationale.rankings import RBO_P
from xai.analysis.rationale.sides import MAX_WORDS
from xai.analysis.report import Chart, Heatmap, Report, Section, Series, Table
from xai.analysis.statistics import LEVEL, N_DRAWS, bootstrap, weighted_mean
from xai.analysis.words import STOPWORDS_VERSION
from xai.store import Run

BY = ["run", "mode", "method"]
RIGHT, WRONG, LOW = "right", "wrong", f"hF1 below {LOW_F1:g}"
TOP_WORDS = 10
"""Words of each group that pages show."""
_SHORT = ["jaccard", "excess", "rbo", "auroc", "average_precision", "top_named"]
_BINS = 10
_PER_ANSWER = (
    "The rationale is of the whole answer, not of a label: a label's own relevance is compared with all words that "
    "the answer names, whichever of its labels they are for."
)

_OF_SETS = (
    "Jaccard of k relevance words and the rationale, k being as many as it names that are in the text, at most "
    f"{MAX_WORDS}, unless it was set. Chance: k words drawn blindly from the same text (hypergeometric); excess is "
    "what is above it. jaccard lemma takes all forms of a word as one. overlap counts shared words. In brackets: "
    f"{LEVEL:.0%} bootstrap interval over memes."
)
_OF_RANKS = (
    f"rbo: rank-biased overlap (extrapolated, p = {RBO_P:g}). auroc and average precision: of relevance for being "
    "named; chance gives 0.5 and about the prevalence, the share of a text's words that are named, which is also what "
    "chance gives for top named: how often the word with most relevance is named. kendall tau: of the order in which "
    "the rationale names its words and their relevance, where it names two or more. Each is over the memes where it is "
    "defined."
)
_OF_COUNTS = (
    "In memes: without text; none read (image mode, where an answer names no word of the picture); empty (a rationale "
    "without a content word). In words of the rest: n exact, inflected and invented of the rationales, n of post "
    "(words that only the post has, left out), n flagged of the texts (left out), and n unplaced, whose place in the "
    "picture is not known."
)
_OF_PICTURES = (
    "image mass: share of the positive relevance of the picture in the boxes of the things that the answer names, a "
    "cell's relevance lying evenly over its area; image area: the boxes' share of the picture, expected of relevance "
    "that is spread evenly; image excess: mass - area. image cell mass and cell area: the same of the whole cells that "
    "a box touches. image hit: how often the cell with most relevance is one of these; by chance, the cell area."
)
_OF_OUTCOMES = (
    f"right: exactly the gold labels; wrong: any other answer; {LOW}: the wrong ones whose hierarchical F1 of this one "
    "meme is that low. The label for none of these counts as the empty set on both sides."
)


def agreement_report(
    runs: Mapping[str, Run],
    tables: Mapping[str, AgreementTables],
    *,
    pooling: str,
    k: int | None = None,
    sections: Sequence[Section] = (),
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> Report:
    """What `xai analyze` found out about some runs.

    Args:
        runs, tables: runs and their tables under the same names, which the reports' column ``run`` has.
        sections: further parts that others made of the same tables; they come last.
        n_draws, seed: of the bootstrap over memes.

    Raises:
        ValueError: no run has an explanation of all labels together.
    """
    memes, labels = all_memes(tables), all_labels(tables)
    if memes.empty:
        raise ValueError("there is no explanation of all labels together, which is what is analysed")
    intervals = _Intervals(n_draws, seed)
    parts = [_agreement(memes, intervals), _outcomes(memes, intervals), _labels(labels, intervals)]
    parts += [_words(memes), _picture(memes, labels, intervals)]
    kept = tuple(part for part in [*parts, *sections] if part is not None)
    names = {table.name for part in kept for table in part.tables}
    headline = ("agreement", "rank_agreement", "by_outcome", "counts", "picture", "planted_rationales", "planted_check")
    return Report(
        title="Relevance against rationale",
        facts=_facts(runs, tables, memes, pooling, k, n_draws, seed),
        headline=tuple(name for name in headline if name in names),
        sections=kept,
    )


def all_memes(tables: Mapping[str, AgreementTables]) -> pd.DataFrame:
    """The tables of all labels together under each other, with the column ``run`` in front."""
    return _joined({name: table.memes for name, table in tables.items()})


def all_labels(tables: Mapping[str, AgreementTables]) -> pd.DataFrame:
    """The tables by label under each other, with the column ``run`` in front."""
    return _joined({name: table.labels for name, table in tables.items()})


def grouped(
    frame: pd.DataFrame, by: Sequence[str], measures: Sequence[str], counted: str, n_draws: int = N_DRAWS, seed: int = 0
) -> pd.DataFrame:
    """Means of measures with bootstrap intervals over the rows of each group, which are memes.

    Columns: those of ``by``, n (rows whose ``counted`` is known), and x, x_low, x_high of every measure, each over the
    rows where it is known; of a single row there is no interval.
    """
    rows = []
    for key, group in frame.groupby(list(by), sort=True):
        values = group[list(measures)].to_numpy(dtype=float)
        found = bootstrap(weighted_mean(values), len(values), n_draws=n_draws, seed=seed)
        row = dict(zip(by, key, strict=True)) | {"n": int(group[counted].notna().sum())}
        known = (~np.isnan(values)).sum(axis=0)
        for measure, (value, low, high), n_known in zip(measures, found, known, strict=True):
            row |= {measure: value} | dict(_ends(measure, low, high, n_known > 1))
        rows.append(row)
    names = [f"{measure}{end}" for measure in measures for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=[*by, "n", *names])


def _ends(measure: str, low: float, high: float, known: bool) -> Iterator[tuple[str, float]]:
    for end, value in (("low", low), ("high", high)):
        yield f"{measure}_{end}", value if known else float("nan")


class _Intervals:
    """:func:`grouped` with the draws of this report."""

    def __init__(self, n_draws: int, seed: int) -> None:
        self._draws = {"n_draws": n_draws, "seed": seed}

    def table(
        self, name: str, title: str, frame: pd.DataFrame, by: Sequence[str], measures: Sequence[str], **texts: Any
    ) -> Table:
        counted = "image_area" if measures[0].startswith("image") else "jaccard"
        return Table.of(name, title, grouped(frame, by, measures, counted, **self._draws), **texts)


def _agreement(memes: pd.DataFrame, intervals: _Intervals) -> Section:
    sets = ["jaccard", "jaccard_chance", "excess", "jaccard_lemma", "overlap", "overlap_chance"]
    ranks = ["rbo", "auroc", "average_precision", "prevalence", "top_named", "kendall_tau"]
    return Section(
        title="Relevance words and rationale words",
        text=(
            "For each meme, the words of the text with most relevance for all labels of the answer, beside the words "
            "that the answer names. Agreement compares two explanations; it does not say which of them is right."
        ),
        tables=(
            intervals.table("agreement", "Overlap of the two sets of words", memes, BY, sets, note=_OF_SETS),
            intervals.table(
                "rank_agreement", "Agreement of the whole ranking of words", memes, BY, ranks, note=_OF_RANKS
            ),
            Table.of("counts", "What was compared, and what was left out", _counts(memes), note=_OF_COUNTS),
        ),
        charts=(_histogram(memes),),
    )


def _counts(memes: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for key, group in memes.groupby(BY, sort=True):
        without_text, none_read = group["without_text"].astype(bool), group["none_read"].astype(bool)
        empty = group["empty_rationale"].astype(bool) & ~without_text & ~none_read
        with_text = group[~without_text]
        row = dict(zip(BY, key, strict=True)) | {"memes": len(group), "compared": int(group["jaccard"].notna().sum())}
        row |= {"n_without_text": int(without_text.sum()), "n_none_read": int((none_read & ~without_text).sum())}
        row |= {"n_empty": int(empty.sum())} | {name: int(with_text[name].sum()) for name in COUNTS}
        rows.append(row)
    return pd.DataFrame(rows)


def _outcomes(memes: pd.DataFrame, intervals: _Intervals) -> Section | None:
    judged = memes[memes["right"].notna() & memes["jaccard"].notna()]
    if judged.empty:
        return None
    right = judged["right"].astype(bool)
    groups = {RIGHT: judged[right], WRONG: judged[~right], LOW: judged[judged["f1"] < LOW_F1]}
    frame = pd.concat([group.assign(prediction=name) for name, group in groups.items()])
    order = pd.Categorical(frame["prediction"], list(groups), ordered=True)
    found = intervals.table(
        "by_outcome", "By what the prediction was", frame.assign(prediction=order.as_ordered().codes),
        [*BY, "prediction"], _SHORT,
    )  # fmt: skip
    named = found.frame.assign(prediction=[list(groups)[int(code)] for code in found.frame["prediction"]])
    table = Table.of(found.name, found.title, named, note=_OF_OUTCOMES)
    return Section(title="Right and wrong predictions", tables=(table,), charts=(_outcome_chart(named),))


def _labels(labels: pd.DataFrame, intervals: _Intervals) -> Section | None:
    labels = labels[labels["jaccard"].notna()]
    if labels.empty:
        return None
    table = intervals.table("by_label", "By label, from the relevance of each label alone", labels,
                            [*BY, "target"], _SHORT, note=_PER_ANSWER)  # fmt: skip
    maps = (_label_map(key, group, number) for number, (key, group) in _groups(labels))
    return Section(title="Labels", text=_PER_ANSWER, tables=(table,), charts=tuple(maps))


def _words(memes: pd.DataFrame) -> Section:
    titles = {
        "shared": "Words that carry relevance and are named",
        "rationale_only": "Words that are named and are not among those with most relevance",
        "relevance_only": "Words with most relevance that are not named",
        "invented": "Invented words: named, and in the text in no form",
    }
    n_shown = TOP_WORDS * len(memes[BY].drop_duplicates())
    tables = [
        Table.of(f"words_{side}", title, frequent_words(memes, side, BY), n_shown=n_shown)
        for side, title in titles.items()
    ]
    return Section(
        title="Most frequent words",
        text=(
            "Counted by normal form, once a meme; share is of the memes that could be compared. Words that are named "
            "and not among those with most relevance include the invented ones."
        ),
        tables=(_invented(memes), *tables),
    )


def _invented(memes: pd.DataFrame) -> Table:
    rows = []
    for key, group in memes[memes["jaccard"].notna()].groupby(BY, sort=True):
        n_named, n_invented = int(group["rationale_words"].map(len).sum()), int(group["n_invented"].sum())
        row = dict(zip(BY, key, strict=True)) | {"named_words": n_named, "invented_words": n_invented}
        row |= {"share": n_invented / n_named, "distinct": len({word for words in group["invented"] for word in words})}
        rows.append(row | {"memes_with_one": int((group["n_invented"] > 0).sum()), "memes": len(group)})
    columns = [*BY, "named_words", "invented_words", "share", "distinct", "memes_with_one", "memes"]
    return Table.of("invented", "Invented words, counted", pd.DataFrame(rows, columns=columns))


def _picture(memes: pd.DataFrame, labels: pd.DataFrame, intervals: _Intervals) -> Section | None:
    placed = memes[memes["image_area"].notna()]
    if placed.empty:
        return None
    title, measures = "Relevance in the regions that are named", list(IMAGE_MEASURES)
    tables = [intervals.table("picture", title, placed, BY, measures, note=_OF_PICTURES)]
    by_label = labels[labels["image_area"].notna()]
    if not by_label.empty:
        by = [*BY, "target"]
        tables.append(
            intervals.table("picture_by_label", "The same by label", by_label, by, measures, note=_PER_ANSWER)
        )
    n_concepts, n_placed = int(memes["n_concepts"].sum()), int(memes["n_placed"].sum())
    text = f"Answers name {n_concepts} things in the pictures, of which the record has a region for {n_placed}."
    return Section(title="The picture", text=text, tables=tuple(tables))


def _histogram(memes: pd.DataFrame) -> Chart:
    x = tuple(bin_ / _BINS for bin_ in range(_BINS))
    return Chart(
        name="jaccard_histogram",
        title="Jaccard of relevance words and rationale words",
        kind="bars",
        x_label="Jaccard (bins of 0.1; the last has 1)",
        y_label="share of memes",
        series=tuple(
            Series(name=_label(key, memes), x=x, y=tuple(_shares(group["jaccard"])))
            for _, (key, group) in _groups(memes[memes["jaccard"].notna()])
        ),
        bin_width=1 / _BINS,
    )


def _label_map(key: tuple[str, ...], group: pd.DataFrame, number: int) -> Heatmap:
    rows = [(str(label), _shares(part["jaccard"])) for label, part in group.groupby("target", sort=True)]
    return Heatmap(
        name=f"jaccard_by_label_{number}",
        title=f"Jaccard by label: {', '.join(key)}",
        rows=tuple(label for label, _ in rows),
        columns=tuple(f"{bin_ / _BINS:.1f}" for bin_ in range(_BINS)),
        values=tuple(tuple(shares) for _, shares in rows),
        unit="share of memes",
        column_label="Jaccard, lower end of the bin",
    )


def _outcome_chart(frame: pd.DataFrame) -> Chart:
    series = []
    for _, (key, group) in _groups(frame[frame["jaccard"].notna()]):
        shown = group[["jaccard", "jaccard_low", "jaccard_high"]].astype(float)
        ends = [shown[name].fillna(shown["jaccard"]) for name in shown]
        y, low, high = (tuple(map(float, values)) for values in ends)
        series.append(Series(name=_label(key, frame), x=tuple(group["prediction"]), y=y, low=low, high=high))
    return Chart(name="jaccard_by_outcome", title="Jaccard by what the prediction was", kind="bars",
                 x_label="prediction", y_label="mean Jaccard", series=tuple(series))  # fmt: skip


def _shares(values: pd.Series) -> list[float]:
    """Of values between 0 and 1, the share in each bin."""
    # A value such as 3 / 5 must not fall below the edge 0.6 by rounding.
    bins = np.minimum((values.to_numpy() * _BINS + 1e-9).astype(int), _BINS - 1)
    shares: list[float] = (np.bincount(bins, minlength=_BINS) / len(values)).tolist()
    return shares


def _groups(frame: pd.DataFrame) -> Iterator[tuple[int, tuple[tuple[str, ...], pd.DataFrame]]]:
    return enumerate(((tuple(map(str, key)), group) for key, group in frame.groupby(BY, sort=True)), start=1)


def _label(key: Sequence[str], frame: pd.DataFrame) -> str:
    """What tells a group apart from the others of a table."""
    varying = [value for name, value in zip(BY, key, strict=True) if len(frame[name].unique()) > 1]
    return ", ".join(varying or [key[1]])


def _joined(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    named = [frame.assign(run=name) for name, frame in frames.items() if len(frame)] or list(frames.values())
    joined = pd.concat(named, ignore_index=True) if len(named) > 1 else named[0].assign(run=next(iter(frames), ""))
    return joined[["run", *(name for name in joined.columns if name != "run")]]


def _facts(
    runs: Mapping[str, Run],
    tables: Mapping[str, AgreementTables],
    memes: pd.DataFrame,
    pooling: str,
    k: int | None,
    n_draws: int,
    seed: int,
) -> dict[str, Any]:
    unknown = sorted({label for table in tables.values() for label in table.unknown_gold})
    facts: dict[str, Any] = {
        "runs": {name: _about(run) for name, run in runs.items()},
        "pooling of tokens to words": pooling,
        "k": f"as many as the rationale names in the text, at most {MAX_WORDS}" if k is None else k,
        "rank-biased overlap": f"extrapolated, p = {RBO_P:g}",
        "intervals": f"percentile bootstrap over memes, {n_draws} draws, seed {seed}, level {LEVEL:g}",
        "label for none of these": "empty on both sides",
        "low hierarchical F1": f"below {LOW_F1:g}",
        "stop lists": STOPWORDS_VERSION,
        "forms of a word": sorted({str(name) for name in memes["lemmas"].unique()}),
    }
    if unjudged := {name: table.unjudged for name, table in tables.items() if table.unjudged}:
        facts["right and wrong not known"] = unjudged
    return facts | ({"gold labels outside the task": unknown} if unknown else {})


def _about(run: Run) -> dict[str, Any]:
    model = run.config.get("model")
    return {
        "dataset": run.config.get("dataset"),
        "task": run.config.get("task"),
        "model": model.get("name") if isinstance(model, dict) else model,
        "target": run.config.get("target"),
        "versions": {name: run.info["versions"].get(name) for name in ("meme-xai", "transformers")},
        "counts": run.info.get("counts"),
    }

"""M³ (hate in memes with their posts): hate, categories and rationale phrases, with the post shown and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from xai.analysis.detection.answered import answers_of
from xai.analysis.published.comparing import between_runs, comparison_table, shared_rows
from xai.analysis.published.m3_metrics import (
    BELOW,
    HATE,
    METRICS,
    TEXTS,
    Judged,
    constant_phrase,
    inconsistencies,
    judge,
    known_metrics,
    measures_of,
    overall,
    text_scores,
)
from xai.analysis.published.m3_post import post_helps, post_used
from xai.analysis.published.measures import columns_of, mean_measures, measured
from xai.analysis.published.phrases import joined
from xai.analysis.published.records import Phrases, rationales
from xai.analysis.published.registry import Published, Scoring
from xai.analysis.published.sides import COUNTED, Layout, TwoSided
from xai.analysis.report import Chart, Section, Series, Table
from xai.analysis.statistics import LEVEL
from xai.store import Run

_HEADLINE = ("m3_hate", "m3_categories", "m3_rationale", "m3_settings", "m3_shares", "m3_overall")
CONSTANT = "constant phrase"
_SHORT = {
    "unparsed": "", "macro_precision": "precision", "macro_recall": "recall", "macro_f1": "f1",
    "hamming_loss": "hamming", "subset_accuracy": "subset",
}  # fmt: skip


def sections(run: Run, scoring: Scoring) -> Published:
    """The published scores of a run, and of what it is compared with.

    Raises:
        ValueError: no gold labels name one side, or a gold rationale is no list of phrases.
    """
    judged = judged_modes(run, scoring)
    if not judged:
        return Published((), ())
    others = {name: judged_modes(other, scoring) for name, other in scoring.against.items()}
    found = [
        _scores(judged, scoring),
        _counts(judged),
        post_helps(judged, scoring.settings),
        post_used(run, scoring.settings),
        _overall({scoring.name: judged, **others}, scoring.similarity is not None) if others else None,
        _against(judged, others, scoring),
    ]
    kept = [section for section in found if section is not None]
    names = {table.name for section in kept for table in section.tables}
    return Published(kept, [name for name in _HEADLINE if name in names])


def judged_modes(run: Run, scoring: Scoring) -> dict[str, Judged]:
    """The answers of every mode that can be scored; raises as :func:`sections` does."""
    layout = Layout.of(scoring.settings.task)
    found: dict[str, Judged] = {}
    for mode, answers in answers_of(run, scoring.settings.task).items():
        sided = TwoSided.of(mode, answers, layout)
        found[mode] = judge(sided, rationales(run, mode, sided.ids), scoring.similarity)
    return found


def _scores(judged: Mapping[str, Judged], scoring: Scoring) -> Section:
    hate, below = [], []
    for mode, one in judged.items():
        found = measured(measures_of(one), n_draws=scoring.settings.n_draws, seed=scoring.settings.seed)
        unparsed, n_hate = one.sided.unparsed, int(one.is_hate.sum())
        hate.append({"mode": mode, "memes": len(one.ids), "unparsed": int(unparsed.sum())} | columns_of(found, HATE))
        of_hate = {"mode": mode, "gold_hate": n_hate, "unparsed": int((unparsed & one.is_hate).sum())}
        below.append(of_hate | columns_of(found, BELOW))
    phrases = ", ".join(dict.fromkeys(repr(constant_phrase(one.gold_phrases)) for one in judged.values()))
    return Section(
        title="M³: scores as published",
        text=(
            "Hate is positive, and an answer is hate if its parsed label is. Categories are of the memes whose gold is "
            "hate, macro over all eight, also those that never occur, which count 0; the Hamming loss is the share of "
            "decisions (meme, category) that are wrong, lower is better. An unparsed answer claims nothing: it is "
            "wrong whatever gold is, its categories are none and its rationale scores 0. In brackets: "
            f"{LEVEL:.0%} bootstrap intervals over memes.\n\n"
            "Rationales are of the memes whose gold is hate and has one. The phrases of each side are joined in their "
            "order, with a space; BLEU is of the sentence, with smoothing method 1, ROUGE-L is F of stemmed words"
            f"{_similarity(scoring)}. These metrics serve to compare, and say little of how good a rationale is: what "
            "gold itself and one phrase for all memes score stands beside the answers."
        ),
        tables=(
            Table.of("m3_hate", "Hate or normal", pd.DataFrame(hate)),
            Table.of("m3_categories", "Categories, where gold is hate", pd.DataFrame(below), short=_SHORT),
            Table.of(
                "m3_rationale",
                "Rationale phrases against gold",
                _rationale_rows(judged, scoring),
                note="without: answers without a phrase, which score 0. "
                f"{CONSTANT}: one answer to all memes, the commonest phrase of gold ({phrases}).",
            ),
        ),
        charts=(_chart("m3_hate_by_mode", "Hate or normal by mode", pd.DataFrame(hate), HATE),),
    )


def _similarity(scoring: Scoring) -> str:
    if scoring.similarity is None:
        return "; BERTScore needs a model (--bert-score FOLDER) and is left out"
    return f", BERTScore is F of {scoring.similarity.source}"


def _rationale_rows(judged: Mapping[str, Judged], scoring: Scoring) -> pd.DataFrame:
    """The answers, gold against itself and a constant phrase, by mode."""
    rows = []
    for mode, one in judged.items():
        gold = one.gold_phrases
        texts = {
            "of the run": (one.phrases, one.texts),
            "gold itself": _scored(gold, [of_gold or () for of_gold in gold], scoring),
            CONSTANT: _scored(gold, [(constant_phrase(gold),)] * len(gold), scoring),
        }
        for name, (phrases, values) in texts.items():
            found = measured(
                mean_measures("rationale", values), n_draws=scoring.settings.n_draws, seed=scoring.settings.seed
            )
            there = [own for own, of_gold in zip(phrases, gold, strict=True) if of_gold is not None]
            row = {"mode": mode, "rationales": name, "memes": len(there), "without": sum(not joined(x) for x in there)}
            rows.append(row | columns_of(found, TEXTS))
    return pd.DataFrame(rows)


def _scored(
    gold: Sequence[Phrases | None], answers: Sequence[Phrases], scoring: Scoring
) -> tuple[Sequence[Phrases], Mapping[str, np.ndarray]]:
    return answers, text_scores(gold, answers, scoring.similarity)


def _counts(judged: Mapping[str, Judged]) -> Section:
    odd, counted = [], []
    for mode, one in judged.items():
        found = {name: int(answers.sum()) for name, answers in inconsistencies(one).items()}
        odd.append({"mode": mode, "answers": len(one.ids), **found})
        no_rationale = one.is_hate & np.array([of_gold is None for of_gold in one.gold_phrases], dtype=bool)
        counted.append(one.sided.counted() | {"gold_hate_without_rationale": int(no_rationale.sum())})
    return Section(
        title="M³: what was counted",
        text=(
            "Answers count as they stand, also where they contradict themselves: categories are those that the answer "
            "lists, whatever its label is."
        ),
        tables=(
            Table.of("m3_inconsistent", "Answers that contradict or do not complete themselves", pd.DataFrame(odd)),
            Table.of(
                "m3_counted",
                "What was scored",
                pd.DataFrame(counted),
                note=f"{COUNTED} gold hate without rationale: not in the rationale scores.",
            ),
        ),
    )


def _overall(runs: Mapping[str, Mapping[str, Judged]], with_similarity: bool) -> Section | None:
    """Overall of the runs that share a mode, on the memes that all of them have in it."""
    rows = []
    for mode in dict.fromkeys(mode for modes in runs.values() for mode in modes):
        there = {name: modes[mode] for name, modes in runs.items() if mode in modes}
        at = shared_rows(there.values())
        if len(there) < 2 or not at[0]:
            continue
        shared = [one.of_rows(places) for one, places in zip(there.values(), at, strict=True)]
        metrics = pd.DataFrame([_values(one) for one in shared], index=list(there))
        found = overall(metrics).join(metrics)
        other_gold = [int((one.sided.sets.gold != shared[0].sided.sets.gold).any(axis=1).sum()) for one in shared]
        found = found.assign(mode=mode, run=list(there), memes=len(at[0]), other_gold=other_gold)
        rows.append(found)
    if not rows:
        return None
    frame = pd.concat(rows, ignore_index=True)
    head = ["mode", "run", "memes", "other_gold"]
    missing = " BERTScore is not among them, since no model for it was given, so that this Overall is not the paper's."
    return Section(
        title="M³: Overall of the compared runs",
        text=(
            "Mean of the metrics after min–max scaling over these runs within one mode, the Hamming loss turned round, "
            "times 100. It places runs among each other and changes with whom they are compared with; with two runs, "
            "each metric is 1 for the better and 0 for the other, however near they are. A metric that a run lacks or "
            f"in which all are equal is left out for all: n metrics says how many of the {len(METRICS)} are in."
            + ("" if with_similarity else missing)
        ),
        tables=(
            Table.of(
                "m3_overall",
                "Overall",
                frame[[*head, "overall", "n_metrics"]],
                note="memes: those that all runs have in this mode, on which everything here is computed. other gold: "
                "those whose gold labels are not as in the first run; each answer is scored against its own.",
            ),
            Table.of("m3_metrics", "The metrics on the same memes", frame[[*head[:3], *METRICS.values()]]),
        ),
    )


def _values(judged: Judged) -> dict[str, float]:
    found = measures_of(judged).values()
    return {title: float(found[kind, name, ""]) for (kind, name), title in METRICS.items()}


def _against(
    judged: Mapping[str, Judged], others: Mapping[str, Mapping[str, Judged]], scoring: Scoring
) -> Section | None:
    pairs = between_runs(scoring.name, judged, others)
    shown = known_metrics(judged, *others.values())
    table = comparison_table("m3_against", "Runs compared", pairs, measures_of, shown, scoring.settings)
    return None if table is None else Section(title="M³: runs compared", tables=(table,))


def _chart(name: str, title: str, rows: pd.DataFrame, shown: Mapping[tuple[str, str], str]) -> Chart:
    series = [Series.of(column, rows["mode"], rows, column) for column in shown.values()]
    return Chart(
        name=name, title=title, kind="bars", x_label="mode", y_label="score", series=tuple(series), y_range=(0, 1),
        note=f"Bars: {LEVEL:.0%} bootstrap intervals over memes.",
    )  # fmt: skip

"""The twelve metrics of M³ (hate, categories, rationale phrases), its Overall, answers that contradict themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from xai.analysis.detection.scores import Additive
from xai.analysis.published.measures import binary_measures, category_measures, mean_measures, together
from xai.analysis.published.phrases import Similarity, bleu, joined, rouge_l
from xai.analysis.published.records import Phrases
from xai.analysis.published.sides import TwoSided

HATE = {("binary", name): name for name in ("accuracy", "precision", "recall", "f1")}
BELOW = {("categories", f"macro_{name}"): f"macro_{name}" for name in ("precision", "recall", "f1")} | {
    ("categories", name): name for name in ("hamming_loss", "subset_accuracy")
}
TEXTS = {("rationale", name): name for name in ("bleu", "rouge_l", "bertscore")}
METRICS = HATE | BELOW | TEXTS
"""The twelve metrics, by kind and name, and what their columns are called."""
LOWER_IS_BETTER = frozenset({"hamming_loss"})
_SAME = 1e-12
"""Values that are no further apart are equal."""


@dataclass(frozen=True, eq=False)
class Judged:
    """The answers of one mode with their rationales.

    ``gold_phrases`` are ``None`` where gold is not hateful or has no rationale; those memes have no text scores.
    ``texts`` are the values of every text metric, NaN there, floats ``(n,)``.
    """

    sided: TwoSided
    gold_phrases: tuple[Phrases | None, ...]
    phrases: tuple[Phrases, ...]
    texts: Mapping[str, np.ndarray]

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the memes."""
        return self.sided.ids

    @property
    def is_hate(self) -> np.ndarray:
        """Whether gold is hateful, bool ``(n,)``."""
        return np.asarray(self.sided.gold_side == 0)

    def of_rows(self, rows: Sequence[int]) -> Judged:
        """Some of the memes, in that order."""
        return replace(
            self,
            sided=self.sided.of_rows(rows),
            gold_phrases=tuple(self.gold_phrases[row] for row in rows),
            phrases=tuple(self.phrases[row] for row in rows),
            texts={name: values[list(rows)] for name, values in self.texts.items()},
        )


def judge(
    sided: TwoSided, phrases: Sequence[tuple[Phrases | None, Phrases]], similarity: Similarity | None = None
) -> Judged:
    """Answers and their rationales, gold's and their own, with the text scores of both."""
    hateful = sided.gold_side == 0
    gold = tuple(of_gold if is_hate else None for (of_gold, _), is_hate in zip(phrases, hateful, strict=True))
    own = tuple(of_answer for _, of_answer in phrases)
    return Judged(sided, gold, own, text_scores(gold, own, similarity))


def text_scores(
    gold: Sequence[Phrases | None], answers: Sequence[Phrases], similarity: Similarity | None = None
) -> dict[str, np.ndarray]:
    """BLEU, ROUGE-L and, where a model for it is given, BERTScore of joined phrases; floats ``(n,)``, 0 to 1.

    NaN where gold is ``None``, and 0 where the answer has no phrase. BERTScore is NaN throughout without a model.
    """
    scored = [row for row, of_gold in enumerate(gold) if of_gold is not None]
    of_gold, of_answers = [joined(gold[row] or ()) for row in scored], [joined(answers[row]) for row in scored]
    found = {name: np.full(len(gold), np.nan) for _, name in TEXTS}
    for name, function in (("bleu", bleu), ("rouge_l", rouge_l)):
        found[name][scored] = [function(*pair) for pair in zip(of_gold, of_answers, strict=True)]
    if similarity is not None and scored:
        found["bertscore"][scored] = similarity(of_gold, of_answers)
    return found


def measures_of(judged: Judged) -> Additive:
    """The twelve metrics and what goes with them, as functions of sums over memes."""
    sided = judged.sided
    return together(
        [
            binary_measures(sided.gold_side, sided.side),
            category_measures(sided.gold_categories, sided.categories, judged.is_hate),
            mean_measures("rationale", judged.texts),
        ]
    )


def known_metrics(*judged: Mapping[str, Judged]) -> dict[tuple[str, str], str]:
    """The metrics without those that no mode has a value of, as BERTScore without a model."""
    texts = [one.texts for modes in judged for one in modes.values()]
    missing = {name for _, name in TEXTS if all(np.isnan(of[name]).all() for of in texts)}
    return {key: title for key, title in METRICS.items() if title not in missing}


def overall(metrics: pd.DataFrame) -> pd.DataFrame:
    """The published "Overall" of compared models, 0 to 100: the mean of their metrics after min-max scaling over them.

    Of every metric the best model has 1 and the worst 0; the Hamming loss is turned round. A metric that one of the
    models lacks, or in which all are equal, tells none from another and is left out for all.

    Args:
        metrics: one row a model, columns of :data:`METRICS`; NaN where a model lacks a metric.

    Returns:
        overall (NaN where no metric is left) and n_metrics, how many of the twelve it is the mean of.

    Raises:
        ValueError: there are fewer than two models.
    """
    if len(metrics) < 2:
        raise ValueError("Overall is scaled over the models that are compared; give at least two")
    values = metrics.reindex(columns=list(METRICS.values())).astype(float)
    apart = (values.max(skipna=False) - values.min(skipna=False)) > _SAME
    telling = [name for name in METRICS.values() if apart[name]]
    low, high = values[telling].min(), values[telling].max()
    scaled = (values[telling] - low) / (high - low)
    for name in LOWER_IS_BETTER & set(telling):
        scaled[name] = 1 - scaled[name]
    return pd.DataFrame({"overall": 100 * scaled.mean(axis=1), "n_metrics": len(telling)}, index=metrics.index)


def constant_phrase(gold: Sequence[Phrases | None]) -> str:
    """The commonest phrase of gold rationales, in lower case; of equals the first by the alphabet; empty if none."""
    counts = Counter(joined([phrase]).lower() for phrases in gold for phrase in phrases or ())
    return min(counts, key=lambda phrase: (-counts[phrase], phrase), default="")


def inconsistencies(judged: Judged) -> dict[str, np.ndarray]:
    """Which answers contradict themselves or leave out what belongs to their side, bool ``(n,)`` each."""
    hate, normal = (judged.sided.side == side for side in (0, 1))
    typed = judged.sided.categories.any(axis=1)
    reasoned = np.array([any(phrase.strip() for phrase in phrases) for phrases in judged.phrases], dtype=bool)
    return {
        "hate_without_category": hate & ~typed,
        "hate_without_rationale": hate & ~reasoned,
        "normal_with_category": normal & typed,
        "normal_with_rationale": normal & reasoned,
    }

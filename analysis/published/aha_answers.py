"""What answers to AHA-Memes score, who contradicts themselves, and what answers score that never look at a meme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from statsmodels.stats.proportion import proportion_confint

from xai.analysis.detection.scores import Additive
from xai.analysis.published.measures import binary_measures, category_measures, together
from xai.analysis.published.sides import TwoSided
from xai.analysis.statistics import Interval

MEASURES = {
    ("binary", "macro_f1"): "binary_macro_f1",
    ("binary", "accuracy"): "accuracy",
    ("binary", "recall"): "recall_hateful",
    ("categories", "macro_f1"): "fine_macro_f1",
    ("categories", "micro_f1"): "fine_micro_f1",
}
"""The published measures, and what their columns are called."""
OTHER = "Other"
"""The category that excludes the rest of its side."""
LENGTHS = (("up to 20", 0, 20), ("21–60", 21, 60), ("61–120", 61, 120), ("over 120", 121, None))
"""Bins of caption lengths in characters, both ends inclusive. The paper has the last three."""
_OF_PAPER = {"21–60", "61–120", "over 120"}


class Answered(NamedTuple):
    """Sides ``(n,)`` and categories ``(n, n_categories)`` that a model, or a baseline, answers."""

    side: np.ndarray
    categories: np.ndarray


def measures_of(judged: TwoSided, answered: Answered | None = None) -> Additive:
    """Binary and category measures of the answers, or of others to the same memes."""
    side, categories = answered or (judged.side, judged.categories)
    return together([binary_measures(judged.gold_side, side), category_measures(judged.gold_categories, categories)])


def majority(judged: TwoSided) -> tuple[Answered, str]:
    """Every meme answered with the side that most gold is on and its commonest category there; and that in words.

    Of equals, the first in the order of the labels.
    """
    side = int(np.argmax(np.bincount(judged.gold_side, minlength=2)))
    counts = judged.gold_categories[judged.gold_side == side].sum(axis=0)
    one = np.arange(len(counts)) == np.argmax(counts)
    sides, categories = np.full(len(judged), side), np.tile(one & (counts > 0), (len(judged), 1))
    named = [judged.layout.sides[side], *np.array(judged.layout.categories)[one & (counts > 0)]]
    return Answered(sides, categories), ", ".join(named)


def at_random(judged: TwoSided, rng: np.random.Generator) -> Answered:
    """A side by a fair coin, and one of its categories, all as likely, whatever the gold labels are."""
    layout = judged.layout
    sides = rng.integers(0, 2, len(judged))
    below = [
        [layout.categories.index(one.category) for one in layout.types.values() if one.side == side]
        for side in layout.sides
    ]
    chosen = [rng.choice(below[side]) for side in sides]
    return Answered(sides, np.arange(len(layout.categories)) == np.array(chosen)[:, None])


def inconsistencies(judged: TwoSided) -> dict[str, np.ndarray]:
    """Which answers contradict themselves, and how, bool ``(n,)`` each."""
    layout, names, predicted = judged.layout, judged.sets.names, judged.sets.predicted
    below = [layout.types_in(names, predicted, side=side) for side in layout.sides]
    alone = [layout.types_in(names, predicted, side=side, alone=True) for side in layout.sides]
    typed = np.stack([types.any(axis=1) for types in below], axis=1)
    beside = [other.any(axis=1) & (types.sum(axis=1) > 1) for types, other in zip(below, alone, strict=True)]
    return {
        "types of the other side": ((judged.side == 0) & typed[:, 1]) | ((judged.side == 1) & typed[:, 0]),
        f"{OTHER} beside others of its side": np.any(beside, axis=0),
        "types without a side": typed.any(axis=1) & ~judged.named.any(axis=1),
        "both sides": judged.named.all(axis=1),
    }


def errors_by_length(judged: TwoSided, texts: Sequence[str]) -> pd.DataFrame:
    """Share of memes whose side is answered wrongly, by the length of the caption in characters (code points).

    Returns:
        characters (the bin), in_paper, memes, unparsed, wrong, error_rate with its Wilson interval; NaN without memes.
    """
    lengths, wrong = np.array([len(text) for text in texts]), judged.side != judged.gold_side
    rows = []
    for name, first, last in LENGTHS:
        inside = (lengths >= first) & (lengths <= (np.inf if last is None else last))
        n, n_wrong = int(inside.sum()), int((inside & wrong).sum())
        low, high = proportion_confint(n_wrong, n, method="wilson") if n else (np.nan, np.nan)
        rate = Interval(n_wrong / n if n else np.nan, low, high).columns("error_rate")
        unparsed = int((inside & judged.unparsed).sum())
        rows.append(
            {"characters": name, "in_paper": name in _OF_PAPER, "memes": n, "unparsed": unparsed, "wrong": n_wrong}
            | rate
        )
    return pd.DataFrame(rows)

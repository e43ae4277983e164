"""What answers that never look at a meme score: labels by their frequency, the commonest, all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd

from xai.analysis.detection.labelsets import Ancestors, Expand, LabelSets, NoneLabel, indicator
from xai.analysis.detection.scores import measure_index, point_values

Baseline = Literal["weighted random", "most frequent label", "most frequent set", "all labels"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)
N_DRAWS = 30
_STREAM = 30
_NAMED = 3
"""Labels of an answer that are named; of more, their number is."""


def baseline_scores(
    gold: np.ndarray,
    labels: Sequence[str],
    expand: Expand,
    *,
    none: str | None = None,
    none_label: NoneLabel = "kept",
    frequencies: Mapping[str, float] | None = None,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """The measures of answers that know nothing of the meme, ``mean`` and ``sd`` over draws.

    ``weighted random`` draws each label for itself with its own frequency. ``most frequent label`` answers with the
    one label that is most frequent among those that count under the convention, and ``most frequent set`` with the
    commonest gold set, which may be empty; of equals, the first in the inventory. ``all labels`` answers with all but
    ``none``.

    Args:
        gold: bool ``(n, n_labels)``.
        labels: names of the columns.
        expand: gives the labels together with all their ancestors.
        none: the label that says that no other applies.
        none_label: what becomes of it.
        frequencies: share of memes with each label, for ``weighted random`` and ``most frequent label``; a label that
            is missing has 0. Those of ``gold`` by default.
        n_draws: draws of ``weighted random``.

    Returns:
        kind, measure, baseline, mean, sd (of a draw, with ``n_draws - 1`` below; 0 for what is not drawn), answer (in
        words).

    Raises:
        ValueError: a frequency is of no label or not between 0 and 1, or there are fewer than 2 draws.
    """
    if n_draws < 2:
        raise ValueError(f"{n_draws} draws have no spread; draw at least 2 times")
    shares = gold.mean(axis=0) if frequencies is None else _shares(frequencies, labels)
    names = LabelSets(tuple(labels), gold, gold).under(none_label, none).names
    ancestors = Ancestors.of(names, expand)

    def scored(answer: np.ndarray) -> np.ndarray:
        sets = LabelSets(tuple(labels), gold, answer).under(none_label, none)
        return np.concatenate([point_values(sets.with_ancestors(ancestors)), point_values(sets)])

    # A stream of its own, since labels that were drawn with the same seed would be drawn again.
    rng = np.random.default_rng((seed, _STREAM))
    drawn = np.array([scored(rng.random(gold.shape) < shares) for _ in range(n_draws)])
    index = measure_index("hierarchical", ancestors.nodes).append(measure_index("flat", names))
    rows = [_rows("weighted random", "each label with its own frequency", index, drawn)]
    for baseline, answer in _fixed(gold, shares, labels, none, none_label):
        values = scored(np.broadcast_to(answer, gold.shape))[None]
        rows.append(_rows(baseline, _in_words(answer, labels), index, values))
    return pd.concat(rows, ignore_index=True)


def label_frequencies(sets: Sequence[Iterable[str]], labels: Sequence[str]) -> dict[str, float]:
    """The share of label sets with each label.

    Raises:
        ValueError: there is no set, or a label is not in the inventory.
    """
    if not len(sets):
        raise ValueError("no meme has known labels; frequencies need a dataset with a 'labels' column")
    return dict(zip(labels, indicator(sets, labels).mean(axis=0).tolist(), strict=True))


def _shares(frequencies: Mapping[str, float], labels: Sequence[str]) -> np.ndarray:
    unknown = sorted(frequencies.keys() - set(labels))
    if unknown:
        raise ValueError(f"frequencies name {', '.join(unknown)}, which are no labels of the task")
    shares = np.array([frequencies.get(label, 0.0) for label in labels])
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("frequencies are shares of memes; give numbers between 0 and 1")
    return shares


def _fixed(
    gold: np.ndarray, shares: np.ndarray, labels: Sequence[str], none: str | None, none_label: NoneLabel
) -> Iterator[tuple[Baseline, np.ndarray]]:
    """The answers that are the same for every meme, bool ``(n_labels,)``."""
    counts = np.array([label != none or none_label == "kept" for label in labels])
    yield "most frequent label", np.arange(len(labels)) == np.argmax(np.where(counts, shares, -1.0))
    # Under a convention that empties gold, sets that differ in the label for "none" alone are one set.
    sets, n = np.unique(gold & counts, axis=0, return_counts=True)
    yield "most frequent set", _first_in_inventory(sets[n == n.max()])
    yield "all labels", np.array([label != none for label in labels])


def _first_in_inventory(sets: np.ndarray) -> np.ndarray:
    # The rows of np.unique are sorted with False first, so that the last has the earliest label.
    return np.asarray(sets[-1])


def _in_words(answer: np.ndarray, labels: Sequence[str]) -> str:
    named = [label for label, is_in in zip(labels, answer, strict=True) if is_in]
    return (", ".join(named) or "no label") if len(named) <= _NAMED else f"{len(named)} labels"


def _rows(baseline: Baseline, answer: str, index: pd.MultiIndex, values: np.ndarray) -> pd.DataFrame:
    overall = index.get_level_values("name") == ""
    values = values[:, overall]
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    frame = index[overall].to_frame(index=False)[["kind", "measure"]]
    return frame.assign(baseline=baseline, mean=values.mean(axis=0), sd=spread, answer=answer)

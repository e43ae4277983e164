"""Which labels are answered where which are right: counts of pairs, over- and under-prediction, substitutions."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xai.analysis.detection.labelsets import LabelSets


def confusion(sets: LabelSets) -> pd.DataFrame:
    """Memes with each gold label (rows) and each predicted label (columns): ``Gᵀ P`` of the indicator matrices.

    The diagonal counts labels that were found. A meme with several labels counts in several cells, so that what is
    off the diagonal is not all wrong: two labels that are both right meet there, too; see :func:`substitutions`.
    """
    return _pairs(sets.gold, sets.predicted, sets.names)


def label_errors(sets: LabelSets) -> pd.DataFrame:
    """Over- and under-prediction of each label, in inventory order.

    label, gold, predicted, right, missed, wrong (memes), over (``predicted - gold``: positive is over-prediction),
    ratio (``predicted / gold``, NaN for a label without gold).
    """
    gold, predicted = sets.gold.sum(axis=0), sets.predicted.sum(axis=0)
    right = (sets.gold & sets.predicted).sum(axis=0)
    ratio = np.divide(predicted, gold, out=np.full(len(gold), np.nan), where=gold > 0)
    return pd.DataFrame(
        {
            "label": sets.names,
            "gold": gold,
            "predicted": predicted,
            "right": right,
            "missed": gold - right,
            "wrong": predicted - right,
            "over": predicted - gold,
            "ratio": ratio,
        }
    )


def substitutions(sets: LabelSets) -> pd.DataFrame:
    """Memes where one label was missed and another one claimed wrongly: missed, claimed, memes; most frequent first."""
    counts = _pairs(sets.gold & ~sets.predicted, sets.predicted & ~sets.gold, sets.names)
    rows, columns = np.nonzero(counts.to_numpy())
    frame = pd.DataFrame(
        {
            "missed": [sets.names[row] for row in rows],
            "claimed": [sets.names[column] for column in columns],
            "memes": counts.to_numpy()[rows, columns],
        }
    )
    return frame.sort_values("memes", ascending=False, kind="stable", ignore_index=True)


def _pairs(first: np.ndarray, second: np.ndarray, names: tuple[str, ...]) -> pd.DataFrame:
    # In floats for speed; counts below 2**53 are exact.
    counts = first.T.astype(float) @ second.astype(float)
    return pd.DataFrame(counts.astype(int), index=list(names), columns=list(names))

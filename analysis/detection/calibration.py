"""Whether confidence is the share of right answers: reliability, expected calibration error, Brier score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from statsmodels.stats.proportion import proportion_confint

from xai.analysis.statistics import N_DRAWS, Interval, Statistic, bootstrap

N_BINS = 10


@dataclass(frozen=True, eq=False)
class Calibration:
    """How well confidences between 0 and 1 fit whether answers were right.

    ``n`` answers had a confidence and ``n_unknown`` none. ``ece`` is the expected calibration error over ``n_bins``
    bins of equal width, ``brier`` the Brier score; both between 0 and 1, lower is better, with bootstrap intervals.
    ``accuracy`` and ``confidence`` are means. ``bins`` has one row a bin: start, end (exclusive but for the last), n,
    confidence and accuracy (means; NaN for an empty bin) and the Wilson interval of the accuracy, accuracy_low,
    accuracy_high.
    """

    n: int
    n_unknown: int
    n_bins: int
    accuracy: float
    confidence: float
    ece: Interval
    brier: Interval
    bins: pd.DataFrame


def calibration(
    confidence: Sequence[float | None] | np.ndarray,
    right: Sequence[bool] | np.ndarray,
    *,
    n_bins: int = N_BINS,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> Calibration | None:
    """Reliability of confidences; ``None`` where no answer has one.

    ECE is the mean over answers of the distance of accuracy and mean confidence in their bin (Naeini et al., 2015);
    with few answers a bin it comes out too high, also for a perfect model. The Brier score is the mean of
    ``(confidence - right)²`` (Brier, 1950).

    Raises:
        ValueError: the two differ in length, a confidence is not between 0 and 1, or there is no bin.
    """
    said, is_right = np.asarray(confidence, dtype=float), np.asarray(right, dtype=float)
    if said.shape != is_right.shape:
        raise ValueError(f"{len(said)} confidences of {len(is_right)} answers; give one for each, or None")
    if n_bins < 1:
        raise ValueError(f"{n_bins} bins; give at least 1")
    known = ~np.isnan(said)
    if not known.any():
        return None
    said, is_right = said[known], is_right[known]
    if not ((said >= 0) & (said <= 1)).all():
        raise ValueError("confidences are shares; give numbers between 0 and 1")
    at = np.minimum(np.searchsorted(np.arange(n_bins + 1) / n_bins, said, side="right") - 1, n_bins - 1)
    ece, brier = bootstrap(_errors(said, is_right, at, n_bins), len(said), n_draws=n_draws, seed=seed)
    return Calibration(
        n=len(said),
        n_unknown=int((~known).sum()),
        n_bins=n_bins,
        accuracy=float(is_right.mean()),
        confidence=float(said.mean()),
        ece=ece,
        brier=brier,
        bins=_bins(said, is_right, at, n_bins),
    )


def sequence_confidence(
    log_probability: Sequence[float | None] | np.ndarray, n_tokens: Sequence[int] | np.ndarray
) -> np.ndarray:
    """``exp(log_probability / n_tokens)``: the geometric mean of the probabilities of an answer's tokens.

    NaN where the log-probability is not known or there is no token.
    """
    total, n = np.asarray(log_probability, dtype=float), np.asarray(n_tokens, dtype=float)
    mean = np.divide(total, n, out=np.full(len(total), np.nan), where=n > 0)
    # Rounding may leave the sum of a certain answer a hair above 0.
    return np.asarray(np.minimum(np.exp(mean), 1.0))


def _errors(said: np.ndarray, right: np.ndarray, at: np.ndarray, n_bins: int) -> Statistic:
    in_bin = np.zeros((len(said), n_bins))
    in_bin[np.arange(len(said)), at] = right - said
    squares = (said - right) ** 2

    def of_weights(weights: np.ndarray) -> np.ndarray:
        n = weights.sum(axis=1)
        return np.stack([np.abs(weights @ in_bin).sum(axis=1) / n, weights @ squares / n], axis=1)

    return of_weights


def _bins(said: np.ndarray, right: np.ndarray, at: np.ndarray, n_bins: int) -> pd.DataFrame:
    n = np.bincount(at, minlength=n_bins)
    n_right = np.bincount(at, right, n_bins)
    filled = n > 0

    def mean(total: np.ndarray) -> np.ndarray:
        return np.asarray(np.divide(total, n, out=np.full(n_bins, np.nan), where=filled))

    low, high = np.full(n_bins, np.nan), np.full(n_bins, np.nan)
    low[filled], high[filled] = proportion_confint(n_right[filled], n[filled], method="wilson")
    edges = np.arange(n_bins + 1) / n_bins
    return pd.DataFrame(
        {
            "start": edges[:-1],
            "end": edges[1:],
            "n": n,
            "confidence": mean(np.bincount(at, said, n_bins)),
            "accuracy": mean(n_right),
            "accuracy_low": low,
            "accuracy_high": high,
        }
    )

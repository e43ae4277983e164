"""Curves of the target while units are taken away in an order, and the measures that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np

if TYPE_CHECKING:  # reading stored figures needs no torch
    from xai.analysis.faithfulness.rescoring import Scores
    from xai.analysis.faithfulness.units import Unit
    from xai.attribution.perturb import Variant

Scale = Literal["probability", "log_probability", "logit"]
SCALES: tuple[Scale, ...] = get_args(Scale)
PERCENTS = (1, 5, 10, 20, 50)
"""At so many per cent of the units comprehensiveness, sufficiency and flips are taken."""
FLIP_COUNTS = (1, 3)
MAX_POINTS = 20
"""Up to so many units, a curve has a point at every number of them; else at tenths, and where measures are taken."""
Better = Literal["higher", "lower"]


class Scorer(Protocol):
    """What curves ask of a :class:`~xai.analysis.faithfulness.rescoring.Rescorer`."""

    def without(self, units: Iterable[Unit]) -> Variant:
        """The input without these units."""

    def __call__(self, variants: Sequence[Variant]) -> Scores:
        """The scores of every target on every variant."""


@dataclass(frozen=True, eq=False)
class Curve:
    """The score of one target while units are taken away, most relevant first and least relevant first.

    Attributes:
        counts: ``(n_points,)`` numbers of units that are taken away, from 0, the start, to all.
        morf: ``(n_points,)`` scores after so many of the most relevant units were taken away.
        lerf: the same of the least relevant units. Read from its end it is the curve of insertion: all units are
            away but the most relevant ones.
    """

    counts: tuple[int, ...]
    morf: np.ndarray
    lerf: np.ndarray

    @property
    def n_units(self) -> int:
        """Of all units."""
        return self.counts[-1]

    @property
    def fractions(self) -> np.ndarray:
        """``counts`` as shares of all units, 0 to 1."""
        return np.array(self.counts) / self.n_units

    @property
    def reversed(self) -> Curve:
        """The curve of the reversed order, which needs no forward of its own."""
        return Curve(self.counts, self.lerf, self.morf)


def curve(
    scorer: Scorer,
    units: Sequence[Unit],
    order: Sequence[int],
    target: int,
    *,
    scale: Scale = "probability",
    max_points: int = MAX_POINTS,
) -> Curve:
    """The curve of one target on one scale; see :func:`curves` for all of them at once."""
    return curves(scorer, units, order, max_points=max_points)[target, scale]


def curves(
    scorer: Scorer, units: Sequence[Unit], order: Sequence[int], *, max_points: int = MAX_POINTS
) -> Mapping[tuple[int, str], Curve]:
    """Curves of every target on every scale, and of its ``"margin"``, by (number of the target, scale).

    Args:
        order: indices of ``units``, each once, the most relevant first.

    Raises:
        ValueError: there is no unit, or the order does not hold each unit once.
    """
    if not units or sorted(order) != list(range(len(units))):
        raise ValueError(f"an order of {len(units)} units needs each of them once, and one at least")
    counts = points(len(units), max_points)
    first = [scorer.without(units[index] for index in order[:count]) for count in counts]
    last = [scorer.without(units[index] for index in order[len(units) - count :]) for count in counts]
    scores = scorer([*first, *last])
    n_targets = scores.logit.shape[1]
    names: tuple[str, ...] = (*SCALES, "margin")
    return {
        (target, name): Curve(counts, *np.split(getattr(scores, name)[:, target], 2))
        for target in range(n_targets)
        for name in names
    }


def points(n_units: int, max_points: int = MAX_POINTS) -> tuple[int, ...]:
    """Numbers of units at which a curve is measured: all, or tenths and those that the measures need."""
    if n_units <= max_points:
        return tuple(range(n_units + 1))
    spread = np.linspace(0, n_units, 11).round().astype(int).tolist()
    wanted = {*(top_count(percent, n_units) for percent in PERCENTS), *FLIP_COUNTS}
    return tuple(sorted({*spread, *wanted, *(n_units - count for count in wanted)}))


def top_count(percent: float, n_units: int) -> int:
    """So many units are the top ``percent``: rounded half up, at least one."""
    return max(1, int(np.floor(percent * n_units / 100 + 0.5)))


@dataclass(frozen=True)
class Measure:
    """One figure of a curve.

    Attributes:
        better: which way is better.
        of: from the curve of the score, and that of the margin, to the figure.
        says: what it is, for reports.
    """

    better: Better
    of: Callable[[Curve, Curve], float]
    says: str


def area(fractions: np.ndarray, scores: np.ndarray) -> float:
    """Area under a curve by the trapezoid rule, the start point included."""
    return float(np.trapezoid(scores, fractions))


def _comprehensiveness(percent: int) -> Measure:
    def value(score: Curve, margin: Curve) -> float:
        return float(score.morf[0] - score.morf[score.counts.index(top_count(percent, score.n_units))])

    return Measure("higher", value, f"score lost when the top {percent} % are taken away (DeYoung et al., 2020)")


def _sufficiency(percent: int) -> Measure:
    def value(score: Curve, margin: Curve) -> float:
        left = score.n_units - top_count(percent, score.n_units)
        return float(score.lerf[0] - score.lerf[score.counts.index(left)])

    return Measure("lower", value, f"score lost when only the top {percent} % stay (DeYoung et al., 2020)")


def _flip(what: str, *, count: int | None = None, percent: int = 0) -> Measure:
    def value(score: Curve, margin: Curve) -> float:
        wanted = top_count(percent, margin.n_units) if count is None else min(count, margin.n_units)
        return float(margin.morf[margin.counts.index(wanted)] < 0)

    return Measure("higher", value, f"the label is no longer the likeliest answer without the top {what}")


MEASURES: Mapping[str, Measure] = {
    "deletion_auc": Measure("lower", lambda s, _: area(s.fractions, s.morf), "area under most-relevant-first"),
    "insertion_auc": Measure("higher", lambda s, _: area(s.fractions, s.lerf), "area under insertion, best first"),
    "area_between": Measure(
        "higher",
        lambda s, _: area(s.fractions, s.lerf - s.morf),
        "area between least and most relevant first (Blücher et al., 2024)",
    ),
    **{f"comprehensiveness@{percent}": _comprehensiveness(percent) for percent in PERCENTS},
    **{f"sufficiency@{percent}": _sufficiency(percent) for percent in PERCENTS},
    **{f"flip_top_{count}": _flip(str(count), count=count) for count in FLIP_COUNTS},
    **{f"flip@{percent}": _flip(f"{percent} %", percent=percent) for percent in PERCENTS},
}
"""By name. Those of the score are on the scale of the curve they are given; flips need the margin only."""


def measures(score: Curve, margin: Curve) -> dict[str, float]:
    """Every measure of one curve."""
    return {name: measure.of(score, margin) for name, measure in MEASURES.items()}

"""The figures of one input: curves of every order of its units, and what its rationale names against relevance."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xai.analysis.faithfulness.curves import MAX_POINTS, SCALES, Curve, Scale, curves, measures
from xai.analysis.faithfulness.ground_truth import touched_by_any
from xai.analysis.faithfulness.rescoring import Perturbation, Rescorer, Scores
from xai.analysis.faithfulness.robustness import infidelity
from xai.analysis.faithfulness.stored import GRID, RANDOM, RATIONALE, REVERSED, TRUTH
from xai.analysis.faithfulness.units import Order, Unit, UnitKind, named_units, ranked, unit_values, units_of
from xai.schema import ALL_LABELS, Explanation, Mode


@dataclass(frozen=True)
class Settings:
    """What decides the figures, whatever the sample.

    Attributes:
        units: words, cells, or both in one ranking.
        order: of relevance; signed by default.
        targets: each label alone, or all labels of an answer together.
        with_none: measure the answer that there is no label, too, for which no word speaks.
        n_draws: random orders an input, the same for all of its targets and methods.
        seed: of the sample, the random orders, and what decides between equal values.
        modes: only these; all of a run by default.
        robustness: infidelity, sensitivity and stability, too, for which memes are explained again.
    """

    units: UnitKind = "both"
    words: Literal["replace", "mean", "delete", "mask"] = "replace"
    cells: Literal["mean_token", "mean_colour", "blur"] = "mean_token"
    order: Order = "signed"
    targets: Literal["each", "all"] = "each"
    with_none: bool = False
    n_draws: int = 10
    max_points: int = MAX_POINTS
    seed: int = 0
    modes: tuple[Mode, ...] = ()
    robustness: bool = False

    @property
    def perturbation(self) -> Perturbation:
        """How units are taken away."""
        return Perturbation(self.words, self.cells)

    def __post_init__(self) -> None:
        if self.n_draws < 1:
            raise ValueError(f"n_draws must be 1 or more, not {self.n_draws}")


def measure_input(
    rescorer: Rescorer, explanations: Sequence[Explanation], settings: Settings
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of curves and of rationales, for the explanations of one input.

    A row of curves holds meme_id, mode, target, method, draw, n_units, constant and all_negative (of the map), every
    measure as ``measure:scale``, and ``morf:scale`` and ``lerf:scale`` at the shares of :data:`GRID`. ``method`` is
    the method of the explanation; ``METHOD reversed``; or ``random order``, ``rationale``, ``truth``.
    """
    units = units_of(explanations[0], settings.units)
    rows = []
    for explanation in explanations:
        values = unit_values(units, explanation)
        orders = dict(_orders(units, explanation, values, settings))
        for (method, draw), order in orders.items():
            if units:
                shared = {"draw": draw, "constant": bool(np.ptp(values) == 0), "all_negative": bool((values < 0).all())}
                rows += _curve_rows(rescorer, units, order, explanation, method, shared, settings)
    words = units_of(explanations[0], "words")
    named = named_units(words, explanations[0].prediction.referred_words, explanations[0].meme.text)
    rationales = [_rationale_row(rescorer, words, named, one, settings) for one in explanations if named]
    return rows, rationales


def random_order(n_units: int, seed: int, draw: int) -> tuple[int, ...]:
    """A random order; every second one is the reverse of the one before, which costs no forward of its own."""
    order = np.random.default_rng([seed, draw // 2]).permutation(n_units).tolist()
    return tuple(order[::-1] if draw % 2 else order)


def true_units(units: Sequence[Unit], explanation: Explanation) -> tuple[int, ...]:
    """The units that cause the target in the planted world; none of a meme that carries no truth."""
    from xai.planted.truth import truth_of

    if "truth" not in explanation.meme.metadata:
        return ()
    causes = truth_of(explanation.meme).causes
    causes = tuple(one for one in causes if explanation.target in (ALL_LABELS, one.label))
    spans = {span for cause in causes for span in cause.words}
    image, size = explanation.image, explanation.image_size
    touched: set[tuple[int, int]] = set()
    if image is not None and size is not None:
        boxes = (box for cause in causes for box in cause.boxes)
        found = touched_by_any(boxes, size, (image.shape[0], image.shape[1]))
        touched = {(row, column) for row, column in np.argwhere(found).tolist()}
    return tuple(
        index for index, unit in enumerate(units) if set(unit.spans) & spans or (unit.cell and unit.cell in touched)
    )


def infidelity_row(rescorer: Rescorer, explanation: Explanation, settings: Settings) -> dict[str, Any]:
    """The row of :func:`~xai.analysis.faithfulness.robustness.infidelity` of one explanation; NaN without units."""
    units = units_of(explanation, settings.units)
    row = _names(explanation) | {"method": explanation.method, "infidelity": float("nan")}
    if units:
        values, target = unit_values(units, explanation), rescorer.target_index(explanation)
        row["infidelity"] = infidelity(rescorer, units, values, target, seed=seed_of(explanation, settings, ""))
    return row


def seed_of(explanation: Explanation, settings: Settings, target: str) -> int:
    """The seed of one explanation: by meme, mode and target, whatever else is measured."""
    name = f"{settings.seed}/{explanation.meme.id}/{explanation.mode}/{target}"
    return zlib.crc32(name.encode())


def _orders(
    units: Sequence[Unit], explanation: Explanation, values: np.ndarray, settings: Settings
) -> Iterator[tuple[tuple[str, int], tuple[int, ...]]]:
    seed = seed_of(explanation, settings, explanation.target)
    yield (explanation.method, 0), ranked(values, settings.order, seed=seed)
    for name, chosen in ((RATIONALE, _named(units, explanation)), (TRUTH, true_units(units, explanation))):
        if chosen:
            yield (name, 0), ranked([float(index in chosen) for index in range(len(units))], seed=seed)
    for draw in range(settings.n_draws):
        yield (RANDOM, draw), random_order(len(units), seed_of(explanation, settings, ""), draw)


def _named(units: Sequence[Unit], explanation: Explanation) -> tuple[int, ...]:
    return named_units(units, explanation.prediction.referred_words, explanation.meme.text)


def _curve_rows(
    rescorer: Rescorer,
    units: Sequence[Unit],
    order: Sequence[int],
    explanation: Explanation,
    method: str,
    shared: Mapping[str, Any],
    settings: Settings,
) -> list[dict[str, Any]]:
    found = curves(rescorer, units, order, max_points=settings.max_points)
    target = rescorer.target_index(explanation)
    margin, names = found[target, "margin"], _names(explanation) | {"n_units": len(units)}
    both = [(method, {scale: found[target, scale] for scale in SCALES}, margin)]
    if method == explanation.method:
        turned = {scale: found[target, scale].reversed for scale in SCALES}
        both.append((f"{method} {REVERSED}", turned, margin.reversed))
    return [{**names, "method": name, **shared} | _figures(by_scale, own_margin) for name, by_scale, own_margin in both]


def _names(explanation: Explanation) -> dict[str, Any]:
    return {"meme_id": explanation.meme.id, "mode": explanation.mode, "target": explanation.target}


def _figures(by_scale: Mapping[Scale, Curve], margin: Curve) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for scale, one in by_scale.items():
        figures |= {f"{name}:{scale}": value for name, value in measures(one, margin).items()}
        for side in ("morf", "lerf"):
            resampled = np.interp(GRID, one.fractions, getattr(one, side))
            figures[f"{side}:{scale}"] = [round(float(value), 6) for value in resampled]
    return figures


def _rationale_row(
    rescorer: Rescorer, words: Sequence[Unit], named: Sequence[int], explanation: Explanation, settings: Settings
) -> dict[str, Any]:
    """What the target loses without the words that the rationale names, and without as many others."""
    seed, count = seed_of(explanation, settings, explanation.target), len(named)
    top = ranked(unit_values(words, explanation), settings.order, seed=seed)[:count]
    chosen = [(), named, top]
    drawn = seed_of(explanation, settings, "")
    chosen += [random_order(len(words), drawn, draw)[:count] for draw in range(settings.n_draws)]
    scores = rescorer([rescorer.without(words[index] for index in indices) for indices in chosen])
    column = rescorer.target_index(explanation)
    row = _names(explanation) | {
        "method": explanation.method,
        "n_named": count,
        "n_words": len(words),
        "n_shared": len(set(named) & set(top)),
        "named": [words[index].name for index in named],
        "top": [words[index].name for index in top],
    }
    return row | _losses(scores, column)


def _losses(scores: Scores, column: int) -> dict[str, float]:
    losses: dict[str, float] = {}
    for scale in SCALES:
        values = scores.on(scale)[:, column]
        lost = values[0] - values[1:]
        losses |= {f"rationale:{scale}": float(lost[0]), f"relevance:{scale}": float(lost[1])}
        losses[f"random:{scale}"] = float(lost[2:].mean())
    flips = (scores.margin[1:, column] < 0).astype(float)
    return losses | {
        "rationale:flip": float(flips[0]),
        "relevance:flip": float(flips[1]),
        "random:flip": float(flips[2:].mean()),
    }

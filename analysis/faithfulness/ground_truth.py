"""Holds explanations against a world whose causes are known: what is found, by which method, and what is found instead.

A label of such a world is caused by words, by icons, or by both together. Each explanation of a label that holds is
scored on the words of the caption and on the cells of the picture apart, with the measures of
:mod:`xai.analysis.faithfulness.localisation`; beside every figure stands what chance reaches on the same explanations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal, Protocol

import numpy as np
import pandas as pd

from xai.analysis.faithfulness.localisation import (
    auroc,
    average_precision,
    chance_average_precision,
    mass_accuracy,
    pointing_hit,
    rank_accuracy,
    share_of_units,
)
from xai.analysis.report import Chart, Section, Series, Table
from xai.analysis.statistics import Interval, bootstrap
from xai.attribution.cells import cells_touched
from xai.schema import Box, Explanation

Units = Literal["words", "cells"]
CHANCE = "chance"
"""The name of the rows that hold what a random order would reach on the same explanations."""

PLACES = ("cause", "other_cause", "decoy", "elsewhere", "tie")
"""Where the unit with most relevance lies; ``tie`` if units of two kinds share that place."""

MEASURES = ("pointing", "mass", "rank", "auroc", "average_precision")
_KINDS: Mapping[str, tuple[str, ...]] = {"text": ("word",), "image": ("icon",), "image+text": ("word", "icon", "both")}
"""The kinds of cause that hold for what is visible in a mode."""


class UnknownWordsError(ValueError):
    """The truth is about words that the explanation does not have: it is of another text."""


class Cause(Protocol):
    """Why one label holds: spans of the causing words in the text, boxes of the causing icons in the picture."""

    @property
    def label(self) -> str: ...
    @property
    def kind(self) -> Literal["word", "icon", "both"]: ...
    @property
    def words(self) -> Sequence[tuple[int, int]]: ...
    @property
    def boxes(self) -> Sequence[Box]: ...


class Truth(Protocol):
    """What is known of one meme: the causes of its labels, and what stands there to mislead."""

    @property
    def causes(self) -> Sequence[Cause]: ...
    @property
    def decoy_words(self) -> Sequence[tuple[int, int]]: ...
    @property
    def decoy_boxes(self) -> Sequence[Box]: ...


@dataclass(frozen=True)
class Localisation:
    """How well one explanation finds the cause of its label, on words or on cells.

    ``kind`` is that of the label's cause. ``pointing`` is 0 or 1. ``points_at`` is one of :data:`PLACES`; the columns
    ``chance…`` are what a random order reaches: of pointing, mass and rank ``chance``, of AUROC 0.5.
    """

    meme_id: str
    mode: str
    method: str
    label: str
    kind: str
    units: Units
    n_units: int
    n_cause: int
    pointing: float
    mass: float
    rank: float
    auroc: float
    average_precision: float
    points_at: str
    chance: float
    chance_average_precision: float
    chance_other_cause: float
    chance_decoy: float


def localise(explanation: Explanation, truth: Truth) -> list[Localisation]:
    """Scores of one explanation: on words, on cells, or on both, as the label's cause has them.

    Nothing for a target without a cause that the mode can show: all labels together, a label that does not hold.

    Raises:
        UnknownWordsError: the causing words are not among the words of the explanation.
        ValueError: relevance is not finite.
    """
    cause = next((cause for cause in truth.causes if cause.label == explanation.target), None)
    if cause is None or cause.kind not in _KINDS[explanation.mode]:
        return []
    found = []
    if cause.words and explanation.mode != "image":
        relevance = np.array(explanation.word_table.relevance)
        found.append(_scored(explanation, cause, "words", relevance, cause_words(explanation, cause, truth)))
    if cause.boxes and explanation.image is not None:
        found.append(_scored(explanation, cause, "cells", explanation.image, cause_cells(explanation, cause, truth)))
    return found


def ground_truth_frame(rows: Iterable[Localisation]) -> pd.DataFrame:
    """One row a localisation, with the fields of :class:`Localisation` as columns."""
    return pd.DataFrame([asdict(row) for row in rows], columns=[field.name for field in fields(Localisation)])


def cause_words(explanation: Explanation, cause: Cause, truth: Truth) -> np.ndarray:
    """The place of each word of the explanation, ``(n_words,)``: ``cause``, ``other_cause``, ``decoy``, ``elsewhere``.

    Raises:
        UnknownWordsError: the words of the cause are not among them.
    """
    table = explanation.word_table
    places = {span: index for index, span in enumerate(zip(table.start, table.end, strict=True))}
    missing = [span for span in cause.words if span not in places]
    if missing:
        raise UnknownWordsError(
            f"the cause of {cause.label!r} stands at {missing} in the text of meme {explanation.meme.id!r}, where the "
            "explanation has no such word; explain the text and words that the planted memes bring"
        )

    def mask(spans: Iterable[tuple[int, int]]) -> np.ndarray:
        found = np.zeros(len(places), dtype=bool)
        found[[places[span] for span in spans if span in places]] = True
        return found

    others = [span for other in truth.causes for span in other.words]
    return _placed(mask(cause.words), mask(others), mask(truth.decoy_words))


def cause_cells(explanation: Explanation, cause: Cause, truth: Truth) -> np.ndarray:
    """The place of each cell, ``(grid_h, grid_w)``, as of :func:`cause_words`; a cell has it where a box touches it."""
    image = explanation.image
    if image is None:
        raise ValueError(f"the explanation of meme {explanation.meme.id!r} in mode {explanation.mode!r} has no picture")
    grid = (image.shape[0], image.shape[1])
    size = explanation.image_size or (1, 1)

    others = [box for other in truth.causes for box in other.boxes]
    return _placed(*(touched_by_any(boxes, size, grid) for boxes in (cause.boxes, others, truth.decoy_boxes)))


def touched_by_any(boxes: Iterable[Box], image_size: tuple[int, int], grid: tuple[int, int]) -> np.ndarray:
    """The cells that one of the boxes touches, bool ``(grid_h, grid_w)``; none without a box."""
    touched = [cells_touched(box, image_size, grid) for box in boxes]
    return np.any(touched, axis=0) if touched else np.zeros(grid, dtype=bool)


def ground_truth_section(frame: pd.DataFrame) -> Section:
    """Tables and a chart of the scores of many explanations, with intervals over memes.

    Raises:
        ValueError: there are no scores.
    """
    if not len(frame):
        raise ValueError("no explanation has a known cause; explain planted memes (`xai planted OUT`), label by label")
    by_method, by_kind = summary(frame), summary(frame, by=("kind",))
    tables = [
        Table.of("ground_truth", "Finding the cause of a label", by_method, note=_NOTE),
        Table.of("ground_truth_by_cause", "The same by kind of cause", by_kind, note=_NOTE),
        Table.of("ground_truth_points_at", "What the unit with most relevance is", points_at(frame), note=_PLACES_NOTE),
    ]
    both = both_found(frame)
    if len(both):
        tables.append(Table.of("ground_truth_both", "Labels caused by a word and an icon together", both, note=_BOTH))
    return Section(
        title="Planted ground truth", text=_TEXT, tables=tuple(tables), charts=tuple(_pointing_charts(by_method))
    )


def summary(frame: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Means over explanations by mode, units, ``by`` and method, and a row for chance in each group.

    Columns: those, n (explanations), n_memes, the measures with 95 % intervals by bootstrap over memes.
    """
    rows = []
    for names, group in frame.groupby(["mode", "units", *by], sort=False):
        head = dict(zip(("mode", "units", *by), names, strict=True))
        for method, part in group.groupby("method", sort=False):
            rows.append(head | {"method": method} | _counts(part) | _with_intervals(part, MEASURES))
        rows.append(head | {"method": CHANCE} | _counts(group) | _chance(group))
    return pd.DataFrame(rows)


def both_found(frame: pd.DataFrame) -> pd.DataFrame:
    """Of labels caused by a word and an icon together: how often pointing finds the word, the icon, and both.

    Chance for both is the product of the two, since words and cells are ranked apart.
    """
    pairs = _pairs(frame)
    rows = []
    for mode, group in pairs.groupby("mode", sort=False):
        for method, part in group.groupby("method", sort=False):
            found = _with_intervals(part, ("word", "icon", "both", "neither"))
            rows.append({"mode": mode, "method": method} | _counts(part) | found)
        expected = {name: float(group[f"chance_{name}"].mean()) for name in ("word", "icon", "both", "neither")}
        rows.append({"mode": mode, "method": CHANCE} | _counts(group) | expected)
    return pd.DataFrame(rows)


def points_at(frame: pd.DataFrame) -> pd.DataFrame:
    """By mode, units and method: the shares of explanations whose unit with most relevance is of each place."""
    rows = []
    for (mode, units), group in frame.groupby(["mode", "units"], sort=False):
        for method, part in group.groupby("method", sort=False):
            shares = {place: float((part["points_at"] == place).mean()) for place in PLACES}
            rows.append({"mode": mode, "units": units, "method": method} | _counts(part) | shares)
        known = {"cause": "chance", "other_cause": "chance_other_cause", "decoy": "chance_decoy"}
        shares = {place: float(group[column].mean()) for place, column in known.items()}
        shares |= {"elsewhere": 1 - sum(shares.values()), "tie": 0.0}
        rows.append({"mode": mode, "units": units, "method": CHANCE} | _counts(group) | shares)
    return pd.DataFrame(rows)


def _scored(
    explanation: Explanation, cause: Cause, units: Units, relevance: np.ndarray, places: np.ndarray
) -> Localisation:
    truth = places == "cause"
    n_units, n_cause = truth.size, int(truth.sum())
    return Localisation(
        meme_id=explanation.meme.id,
        mode=explanation.mode,
        method=explanation.method,
        label=cause.label,
        kind=cause.kind,
        units=units,
        n_units=n_units,
        n_cause=n_cause,
        pointing=float(pointing_hit(relevance, truth)),
        mass=mass_accuracy(relevance, truth),
        rank=rank_accuracy(relevance, truth),
        auroc=auroc(relevance, truth),
        average_precision=average_precision(relevance, truth),
        points_at=_place_of_most(relevance, places),
        chance=share_of_units(truth),
        chance_average_precision=chance_average_precision(n_units, n_cause),
        chance_other_cause=float((places == "other_cause").mean()),
        chance_decoy=float((places == "decoy").mean()),
    )


def _placed(cause: np.ndarray, other: np.ndarray, decoy: np.ndarray) -> np.ndarray:
    """A unit that is of several places is of the first."""
    return np.select([cause, other, decoy], ["cause", "other_cause", "decoy"], default="elsewhere")


def _place_of_most(relevance: np.ndarray, places: np.ndarray) -> str:
    found = np.unique(places[relevance == relevance.max()])
    return str(found[0]) if len(found) == 1 else "tie"


def _counts(part: pd.DataFrame) -> dict[str, int]:
    """Explanations of one method; of several methods, those of the first."""
    one = part[part["method"] == part["method"].iloc[0]]
    return {"n": len(one), "n_memes": int(one["meme_id"].nunique())}


def _with_intervals(part: pd.DataFrame, names: Sequence[str]) -> dict[str, float]:
    """Means of columns over rows, with intervals: a bootstrap draws memes, with all their labels."""
    intervals = _means_over_memes(part[list(names)].to_numpy(dtype=float), part["meme_id"])
    columns: dict[str, float] = {}
    for name, interval in zip(names, intervals, strict=True):
        columns |= interval.columns(name)
    return columns


def _means_over_memes(values: np.ndarray, memes: pd.Series) -> list[Interval]:
    of_row = pd.factorize(memes)[0]
    n = int(of_row.max()) + 1
    known = ~np.isnan(values)
    sums, counts = np.zeros((n, values.shape[1])), np.zeros((n, values.shape[1]))
    np.add.at(sums, of_row, np.where(known, values, 0.0))
    np.add.at(counts, of_row, known.astype(float))

    def mean(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.asarray((weights @ sums) / (weights @ counts))

    return bootstrap(mean, n)


def _chance(group: pd.DataFrame) -> dict[str, float]:
    share = float(group["chance"].mean())
    precision = float(group["chance_average_precision"].mean())
    return {"pointing": share, "mass": share, "rank": share, "auroc": 0.5, "average_precision": precision}


def _pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a label of a double cause that was scored on words and on cells."""
    keys = ["meme_id", "mode", "method", "label"]
    both = frame[frame["kind"] == "both"]
    words, cells = (both[both["units"] == units].set_index(keys) for units in ("words", "cells"))
    columns = ["pointing", "chance"]
    pairs = words[columns].merge(cells[columns], on=keys, suffixes=("_word", "_icon")).reset_index()
    pairs = pairs.rename(columns={"pointing_word": "word", "pointing_icon": "icon"})
    for prefix in ("", "chance_"):
        pairs[f"{prefix}both"] = pairs[f"{prefix}word"] * pairs[f"{prefix}icon"]
        pairs[f"{prefix}neither"] = (1 - pairs[f"{prefix}word"]) * (1 - pairs[f"{prefix}icon"])
    return pairs


def _pointing_charts(by_method: pd.DataFrame) -> Iterable[Chart]:
    for mode, group in by_method.groupby("mode", sort=False):
        series = [
            Series.of(str(units), part["method"], part, "pointing")
            for units, part in group.groupby("units", sort=False)
        ]
        yield Chart(
            name=f"ground_truth_pointing_{str(mode).replace('+', '_and_')}",
            title=f"Pointing at the cause, {mode}",
            kind="bars",
            x_label="method",
            y_label="share of explanations",
            series=tuple(series),
            y_range=(0.0, 1.0),
        )


_TEXT = (
    "Each explanation of a label that holds is compared with what causes that label in the planted world. Relevance is "
    "signed: what speaks against the label comes last. Words and cells of the picture are ranked apart; a cell is of "
    "an icon where the icon's box touches it. The chance rows are the mean over all orders of the same units."
)
_NOTE = (
    "More is better in every column. pointing: the unit with most relevance is of the cause, a tie with another unit "
    "is no hit. mass: share of the positive relevance on the cause, 0 where there is none. rank: of as many units as "
    "the cause has, those with most relevance, the share that is of it; ties count against. auroc: a tie counts one "
    "half. Intervals: 95 %, bootstrap over memes."
)
_PLACES_NOTE = (
    "other cause: of another label of the same meme. decoy: put there to mislead. elsewhere: fillers, background, and "
    "halves of double causes whose other half is missing. tie: units of several kinds share the first place."
)
_BOTH = "both: the first word is the trigger and the first cell touches the icon. Words and cells are ranked apart."

"""Reads what `xai faithfulness` measured of single memes, and makes their curves a chart; needs no model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xai.analysis.faithfulness.curves import MEASURES, Scale
from xai.analysis.report import Chart, Series, Table
from xai.database import connect

RANDOM, REVERSED, RATIONALE, TRUTH = "random order", "reversed", "rationale", "truth"
"""Orders that are no method's, by their names in the column ``method``."""
GRID = tuple(round(0.05 * step, 2) for step in range(21))
"""Shares of units at which stored curves stand, so that they can be averaged over memes."""
SETTINGS = "settings.json"
"""In the folder of the parts: the settings that they were measured with."""
NAMES: Mapping[Scale, str] = {"probability": "probability", "log_probability": "log-probability", "logit": "logit"}
ARROWS = {"higher": "↑", "lower": "↓"}
SHOWN = ("deletion_auc", "insertion_auc", "area_between", "comprehensiveness@20", "sufficiency@20", "flip_top_1")
"""Of the measures, those that are shown of one meme."""


def measured_folders(reports: Path) -> list[Path]:
    """The folders of a run's ``reports`` that hold measured parts, what was measured last first."""
    folders = [path.parent for path in (reports / "faithfulness").glob(f"*/{SETTINGS}")]
    return sorted(folders, key=lambda folder: folder.stat().st_mtime_ns, reverse=True)


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings that a folder's parts were measured with, as `xai.analysis.faithfulness.measuring.Settings`."""
    found: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    return found


def files_by_meme(folder: Path) -> dict[tuple[str, str], Path]:
    """The part file of every meme and mode that was measured, the last one where one was tried again."""
    files = sorted(map(str, folder.glob("part-*.parquet")))
    if not files:
        return {}
    relation = connect().read_parquet(files, filename=True).filter("reason = ''")
    rows = relation.select("meme_id", "mode", "filename").order("filename").fetchall()
    return {(meme_id, mode): Path(file) for meme_id, mode, file in rows}


def read_curves(file: Path, meme_id: str, mode: str) -> list[dict[str, Any]]:
    """The rows of curves of one meme and mode, as :func:`~xai.analysis.faithfulness.measuring.measure_input` has them.

    Empty where nothing of the answer was to be measured.
    """
    sql = "SELECT curves FROM read_parquet(?) WHERE meme_id = ? AND mode = ? AND reason = ''"
    found = connect().execute(sql, [str(file), meme_id, mode]).fetchone()
    rows: list[dict[str, Any]] = [] if found is None else json.loads(found[0])
    return rows


def settings_text(settings: Mapping[str, Any]) -> str:
    """How units were taken away, in a sentence."""
    ways = {
        "words": f"words are taken away by {_way(settings['words'])}",
        "cells": f"cells of the picture by {_way(settings['cells'])}",
    }
    units = ("words", "cells") if settings["units"] == "both" else (settings["units"],)
    ranked = "in one ranking, " if settings["units"] == "both" else ""
    order = "absolute relevance" if settings["order"] == "absolute" else "signed relevance"
    return f"In the order of {order}, {ranked}{' and '.join(ways[unit] for unit in units)}."


def curve_chart(
    rows: Sequence[Mapping[str, Any]], method: str, target: str, scale: Scale = "probability"
) -> Chart | None:
    """The score of one target of one meme while units are taken away, by the orders that were tried.

    Args:
        rows: of one meme and mode, as :func:`~xai.analysis.faithfulness.measuring.measure_input` makes them.
        method: whose order is shown; beside it random orders, with a band that holds the middle half of them, and
            where they were tried the words that the rationale names, and what truly causes the target, first.

    Returns:
        ``None`` where that method and target were not measured.
    """
    chosen = _of(rows, target)
    own = chosen[chosen["method"] == method] if len(chosen) else chosen
    if own.empty:
        return None
    titles = {
        RANDOM: "random order (band: middle half of the draws)",
        RATIONALE: "words of the rationale first ↓",
        TRUTH: "planted causes first ↓",
    }
    others = ((title, chosen[chosen["method"] == name]) for name, title in titles.items())
    series = [_line(title, part, f"morf:{scale}") for title, part in others if len(part)]
    # Last, so that it is drawn over the others.
    series += [
        _line(f"{method}, least relevant first ↑", own, f"lerf:{scale}"),
        _line(f"{method}, most relevant first ↓", own, f"morf:{scale}"),
    ]
    count = int(own["n_units"].iloc[0])
    return Chart(
        name="meme_curves", title=f"What {target} loses without parts of the meme", kind="lines",
        x_label=f"share of the {count} units taken away", y_label=f"{NAMES[scale]} of the target",
        series=tuple(series), y_range=(-0.02, 1.02) if scale == "probability" else None,
        note="↓ the lower the truer, ↑ the higher the truer.",
    )  # fmt: skip


def measure_table(
    rows: Sequence[Mapping[str, Any]], method: str, target: str, scale: Scale = "probability"
) -> Table | None:
    """The measures :data:`SHOWN` of one meme and target with their directions, beside the mean over random orders."""
    chosen = _of(rows, target)
    if chosen.empty or not (chosen["method"] == method).any():
        return None
    columns = [f"{name}:{scale}" for name in SHOWN]
    means = chosen.groupby("method")[columns].mean()
    found = []
    for name, column in zip(SHOWN, columns, strict=True):
        better = MEASURES[name].better
        chance = means[column].get(RANDOM)
        found.append((f"{name} {ARROWS[better]}", means[column][method], chance))
    frame = pd.DataFrame(found, columns=["measure", method, RANDOM])
    says = "; ".join(f"{name}: {MEASURES[name].says}" for name in SHOWN)
    note = f"↑ higher is better, ↓ lower is better. On the scale of {NAMES[scale]}, flips aside. {says}."
    return Table.of("meme_measures", "Measures of this meme", frame, note=note)


def _way(name: str) -> str:
    return {
        "replace": "putting a neutral token in the place of each of theirs",
        "mean": "putting the mean embedding in their place",
        "delete": "leaving them out",
        "mask": "hiding them from attention",
        "mean_token": "putting the mean of the image tokens in their place",
        "mean_colour": "painting them in the mean colour",
        "blur": "blurring them",
    }.get(name, name)


def _of(rows: Sequence[Mapping[str, Any]], target: str) -> pd.DataFrame:
    return pd.DataFrame([row for row in rows if row["target"] == target])


def _line(name: str, rows: pd.DataFrame, column: str) -> Series:
    """The mean over draws; where there are several, with a band that holds the middle half of them."""
    drawn = np.array(rows[column].tolist(), dtype=float)
    band = np.quantile(drawn, [0.25, 0.75], axis=0) if len(drawn) > 1 else (None, None)
    low, high = (None if end is None else tuple(end.tolist()) for end in band)
    return Series(name=name, x=GRID, y=tuple(drawn.mean(axis=0).tolist()), low=low, high=high)

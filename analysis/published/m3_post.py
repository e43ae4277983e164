"""Whether the post of a meme helps (M³ with it and without), and whether the model uses it: where relevance fell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from xai.analysis.detection.scored import Settings
from xai.analysis.published.comparing import comparison_table
from xai.analysis.published.m3_metrics import Judged, known_metrics, measures_of
from xai.analysis.report import Chart, Section, Series, Table
from xai.analysis.statistics import LEVEL, bootstrap, weighted_mean
from xai.schema import ALL_LABELS, SEGMENTS
from xai.store import Run

WITHOUT_POST, WITH_POST = "image+text", "image+text+post"
_PARTS = {"image": "picture", "text": "text", "post": "post"}
"""Segments of the meme, and what a table calls them."""


def post_helps(judged: Mapping[str, Judged], settings: Settings) -> Section | None:
    """The mode with the post against the one without; ``None`` if the run has not both."""
    if not {WITHOUT_POST, WITH_POST} <= judged.keys():
        return None
    pair = (WITH_POST, WITHOUT_POST, judged[WITH_POST], judged[WITHOUT_POST])
    table = comparison_table(
        "m3_settings", "Metrics with the post and without", [pair], measures_of, known_metrics(judged), settings
    )
    if table is None:
        return None
    return Section(
        title="M³: does the post help?",
        text="First is the answer to the meme with its post. A difference above 0 speaks for showing the post, of the "
        "Hamming loss one below 0.",
        tables=(table,),
    )


def post_used(run: Run, settings: Settings) -> Section | None:
    """Where the relevance of all labels together fell, by mode; ``None`` if the run explains none."""
    rows = shares(run, settings)
    if rows.empty:
        return None
    names = [f"{mode}, {method}" for mode, method in zip(rows["mode"], rows["method"], strict=True)]
    series = [Series.of(part, names, rows, part) for part in _PARTS.values()]
    return Section(
        title="M³: does the model use the post?",
        text=(
            "The share of a segment is the size of its relevance over that of all segments (instruction, template, "
            "answer and all), signed relevance being added within a segment first; means over memes. A post that is "
            "not shown has 0. post of meme: the share of the post in picture, text and post alone. Relevance says what "
            "the answer was computed from, and not whether the answer is better for it. In brackets: "
            f"{LEVEL:.0%} bootstrap intervals over memes."
        ),
        tables=(Table.of("m3_shares", "Mean share of relevance by mode", rows),),
        charts=(
            Chart(
                name="m3_shares_by_mode", title="Mean share of relevance on picture, text and post", kind="bars",
                x_label="mode and method", y_label="share of relevance", series=tuple(series),
                note=f"Bars: {LEVEL:.0%} bootstrap intervals over memes.",
            ),
        ),
    )  # fmt: skip


def shares(run: Run, settings: Settings) -> pd.DataFrame:
    """The mean share of relevance on picture, text and post, by mode and method, with intervals over memes.

    Returns:
        mode, method, memes, with_post (memes that have one), picture, text, post and post_of_meme.
    """
    columns = ", ".join(f"e.share_{segment}" for segment in SEGMENTS)
    answers = run.predictions().project("meme_id, mode, post").set_alias("p")
    explained = run.explanations().filter(f"target = '{ALL_LABELS}'").set_alias("e")
    found = explained.join(answers, "e.meme_id = p.meme_id AND e.mode = p.mode").project(
        f"e.mode AS mode, e.method AS method, coalesce(p.post, '') <> '' AS has_post, {columns}"
    )
    rows = []
    for (mode, method), part in found.df().groupby(["mode", "method"], sort=True):
        size = part[[f"share_{segment}" for segment in SEGMENTS]].fillna(0.0).abs()
        size.columns = list(SEGMENTS)
        of_meme = size["post"] / size[list(_PARTS)].sum(axis=1).replace(0, np.nan)
        of_all = size.div(size.sum(axis=1).replace(0, np.nan), axis=0)[list(_PARTS)]
        table = np.column_stack([of_all, of_meme])
        intervals = bootstrap(weighted_mean(table), len(table), n_draws=settings.n_draws, seed=settings.seed)
        row: dict[str, Any] = {"mode": mode, "method": method, "memes": len(part)}
        row["with_post"] = int(part["has_post"].sum())
        for name, interval in zip((*_PARTS.values(), "post_of_meme"), intervals, strict=True):
            row |= interval.columns(name)
        rows.append(row)
    return pd.DataFrame(rows)

"""Splits the agreement of a planted run by what the world says of the rationale: faithful or not."""

from __future__ import annotations

import json

import pandas as pd

from xai.planted.truth import Truth
from xai.store import Run

FAITHFUL, UNFAITHFUL, OTHER = "all labels word-caused and faithful", "all labels unfaithful", "mixed or with icons"


def by_rationale(run: Run, table: pd.DataFrame) -> pd.DataFrame:
    """Mean Jaccard of an agreement table by kind of rationale; empty for a run whose memes are not planted.

    Columns: mode, rationale, n (memes that could be compared), mean, n_empty (empty rationales, counted apart).
    Rows without a word to compare are left out.
    """
    metadata = run.predictions().select("meme_id", "mode", "metadata").fetchall()
    kinds = {(meme_id, mode): _kind(text) for meme_id, mode, text in metadata}
    planted = table[~table["without_text"]].copy()
    planted["rationale"] = [kinds[key] for key in zip(planted["meme_id"], planted["mode"], strict=True)]
    groups = planted.dropna(subset="rationale").groupby(["mode", "rationale"])
    rows = [
        {
            "mode": mode,
            "rationale": rationale,
            "n": int(group["jaccard"].notna().sum()),
            "mean": group["jaccard"].mean(),
            "n_empty": int(group["empty_rationale"].sum()),
        }
        for (mode, rationale), group in groups
    ]
    return pd.DataFrame(rows, columns=["mode", "rationale", "n", "mean", "n_empty"])


def _kind(metadata: str | None) -> str | None:
    values = json.loads(metadata or "{}")
    if "truth" not in values:
        return None
    truth = Truth.model_validate(values["truth"])
    if truth.all_word_caused and truth.faithful:
        return FAITHFUL
    return UNFAITHFUL if truth.unfaithful else OTHER

"""Whether agreement finds the rationales of the planted world that lie, which a run of planted memes shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from xai.analysis.rationale.agreement import AgreementTables
from xai.analysis.rationale.rankings import weighted_auroc
from xai.analysis.rationale.regions import Region, regions_in
from xai.analysis.rationale.report import BY, all_labels, all_memes, grouped
from xai.analysis.report import Section, Table
from xai.analysis.statistics import N_DRAWS, bootstrap
from xai.planted.lexicon import load_lexicon
from xai.planted.truth import Truth
from xai.store import Run

FAITHFUL, UNFAITHFUL, OTHER = "all labels word-caused and faithful", "all labels unfaithful", "mixed or with icons"
WANTED = 0.95
"""The AUROC that the self-check asks for."""
CHECKED = "average_precision"
"""The measure that is held against it: of all, it minds least that an answer names words for its other labels, too."""
_MEASURES = [CHECKED, "top_named", "rbo", "auroc", "jaccard", "excess"]


def planted_section(
    runs: Mapping[str, Run], tables: Mapping[str, AgreementTables], *, n_draws: int = N_DRAWS, seed: int = 0
) -> Section | None:
    """What agreement says of the rationales of planted runs, beside the truth; ``None`` if no run is of planted memes.

    Three tables: by what the rationale of a meme is (``planted_rationales``); by label that a word causes
    (``planted_labels``); and how well low agreement finds the labels whose rationale is unfaithful, in single memes
    and over the labels' means (``planted_check``).
    """
    truths = {(name, meme): truth for name, run in runs.items() for meme, truth in planted_truths(run).items()}
    if not truths:
        return None
    memes, labels = all_memes(tables), _word_caused(all_labels(tables), truths)
    draws = {"n_draws": n_draws, "seed": seed}
    parts = [_rationales(memes, truths, draws)]
    if len(labels):
        parts += [_labels(labels, draws), _check(labels, draws)]
    return Section(
        title="Self-check on the planted world",
        text=(
            "In the planted world it is known which rationales name the cause of a label and which name a decoy. A "
            "comparison of relevance with rationale that is worth anything must find the latter by their low agreement."
        ),
        tables=tuple(parts),
    )


def planted_truths(run: Run) -> dict[str, Truth]:
    """The truth of every meme of a run by its id; empty where the first meme is not a planted one."""
    if not is_planted(run):
        return {}
    metadata = run.predictions().select("meme_id", "metadata")
    found = ((meme, json.loads(text or "{}").get("truth")) for meme, text in metadata.distinct().fetchall())
    return {meme: Truth.model_validate(truth) for meme, truth in found if truth is not None}


def is_planted(run: Run) -> bool:
    """Whether the first meme of a run carries its truth."""
    first = run.predictions().select("metadata").limit(1).fetchall()
    return any("truth" in json.loads(text or "{}") for (text,) in first)


def planted_regions(metadata: Mapping[str, Any]) -> Sequence[Region]:
    """The regions that metadata name, or else, of a planted meme, the icons of its causes by their names."""
    if "regions" in metadata or "truth" not in metadata:
        return regions_in(metadata)
    icons = {label: cause.icon for label, cause in load_lexicon().labels.items()}
    causes = Truth.model_validate(metadata["truth"]).causes
    return [Region(name=icons[cause.label] or "", boxes=cause.boxes) for cause in causes if cause.boxes]


def _rationales(memes: pd.DataFrame, truths: Mapping[tuple[str, str], Truth], draws: Mapping[str, int]) -> Table:
    found = [_kind(truths.get(key)) for key in zip(memes["run"], memes["meme_id"], strict=True)]
    kinds = pd.Series(found, index=memes.index, dtype=object)
    left_out = memes["without_text"].astype(bool) | memes["none_read"].astype(bool)
    planted = memes.assign(rationale=kinds)[~left_out].dropna(subset="rationale")
    frame = grouped(planted, [*BY, "rationale"], ["jaccard", "rbo", "average_precision"], "jaccard", **draws)
    empty = planted.groupby([*BY, "rationale"], sort=True)["empty_rationale"].sum()
    return Table.of(
        "planted_rationales",
        "By what the planted world says of the rationale",
        frame.assign(n_empty=[int(n) for n in empty]),
        note="n empty: rationales without a word, which are not compared.",
    )


def _kind(truth: Truth | None) -> str | None:
    if truth is None:
        return None
    if truth.all_word_caused and truth.faithful:
        return FAITHFUL
    return UNFAITHFUL if truth.unfaithful else OTHER


def _word_caused(labels: pd.DataFrame, truths: Mapping[tuple[str, str], Truth]) -> pd.DataFrame:
    """The rows of labels that the answer gives rightly and a word causes, with whether their rationale is faithful."""
    faithful = []
    for run, meme, label in zip(labels["run"], labels["meme_id"], labels["target"], strict=True):
        causes = truths[run, meme].causes if (run, meme) in truths else ()
        faithful.append(next((c.faithful for c in causes if c.label == label and c.kind == "word"), None))
    return labels.assign(faithful=pd.Series(faithful, dtype=object, index=labels.index)).dropna(
        subset=["faithful", CHECKED]
    )


def _labels(labels: pd.DataFrame, draws: Mapping[str, int]) -> Table:
    named = labels.assign(faithful=labels["faithful"].astype(bool)).rename(columns={"target": "label"})
    frame = grouped(named, [*BY, "label", "faithful"], [CHECKED, "top_named", "jaccard"], "jaccard", **draws)
    return Table.of("planted_labels", "By label that a word causes, from its own relevance", frame)


def _check(labels: pd.DataFrame, draws: Mapping[str, int]) -> Table:
    rows = []
    for key, group in labels.groupby(BY, sort=True):
        for measure in _MEASURES:
            rows.append({**dict(zip(BY, key, strict=True)), "measure": measure, **_found(group, measure, draws)})
    return Table.of(
        "planted_check",
        "How well low agreement finds labels with an unfaithful rationale",
        pd.DataFrame(rows),
        note=(
            "auroc: probability that a label with an unfaithful rationale agrees less than another one, over single "
            "explanations of labels that a word causes; intervals by bootstrap over memes. by label: the same of the "
            f"means of the labels. Held: the auroc of {CHECKED.replace('_', ' ')} is at least {WANTED:g}."
        ),
    )


def _found(group: pd.DataFrame, measure: str, draws: Mapping[str, int]) -> dict[str, Any]:
    known = group.dropna(subset=measure)
    unfaithful = ~known["faithful"].to_numpy(dtype=bool)
    owner, memes = pd.factorize(known["meme_id"])
    score = -known[measure].to_numpy(dtype=float)
    found = {"n": len(known), "n_unfaithful": int(unfaithful.sum())}
    if not len(known):
        return found | dict.fromkeys(("auroc", "auroc_low", "auroc_high", "by_label", "held"))
    value, low, high = bootstrap(weighted_auroc(score, unfaithful, owner), len(memes), **draws)[0]
    means = known.assign(unfaithful=unfaithful).groupby("target")[[measure, "unfaithful"]].mean()
    by_label = weighted_auroc(-means[measure].to_numpy(), means["unfaithful"].to_numpy() > 0.5)
    held = bool(value >= WANTED) if measure == CHECKED and not np.isnan(value) else None
    return found | {
        "auroc": value, "auroc_low": low, "auroc_high": high,
        "by_label": float(by_label(np.ones((1, len(means))))[0, 0]), "held": held,
    }  # fmt: skip

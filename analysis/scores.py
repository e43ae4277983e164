"""How well a run detects: hierarchical precision, recall and F1 over the label tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from xai.schema import MODES, Mode
from xai.store import Run
from xai.tasks import load_task

NoneLabel = Literal["kept", "empty on both sides"]
"""What becomes of the label that says "none of these": a label like any other, or no label, in gold and answer."""

Expand = Callable[[Iterable[str]], frozenset[str]]


@dataclass(frozen=True)
class PRF:
    """Precision, recall and their harmonic mean, each between 0 and 1; higher is better."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Scores:
    """Agreement of predicted with gold label sets, both extended by their ancestors.

    ``micro`` pools all nodes of all items; ``macro_f1`` is the mean F1 of the nodes that occur in gold or
    prediction (NaN if none does); ``sample_f1`` the mean F1 of the items. ``per_node`` has one row such a
    node: node, gold, predicted, shared (counts), precision, recall, f1.
    """

    n: int
    micro: PRF
    macro_f1: float
    sample_f1: float
    per_node: pd.DataFrame
    none_label: NoneLabel


def score_run(run: Run, *, none_label: NoneLabel = "empty on both sides") -> dict[Mode, Scores]:
    """Scores of every mode of a run over the memes whose gold labels are known.

    An answer that could not be parsed counts as an answer without labels. Memes that failed before they
    had an answer are not counted; :meth:`xai.store.Run.failures` has them.

    Raises:
        ValueError: a gold label is not in the task's inventory.
    """
    task = load_task(run.config["task"])
    rows = run.predictions().filter("gold_labels IS NOT NULL").select("mode", "gold_labels", "labels").fetchall()
    scores: dict[Mode, Scores] = {}
    for mode in MODES:
        gold = [[task.match_label(g) or g for g in labels] for row_mode, labels, _ in rows if row_mode == mode]
        predicted = [labels for row_mode, _, labels in rows if row_mode == mode]
        if gold:
            scores[mode] = hierarchical_scores(
                gold, predicted, task.expand, none=task.none_label, none_label=none_label
            )
    return scores


def hierarchical_scores(
    gold: Sequence[Iterable[str]],
    predicted: Sequence[Iterable[str]],
    expand: Expand,
    *,
    none: str | None = None,
    none_label: NoneLabel = "kept",
) -> Scores:
    """Scores label sets after extending each by the ancestors of its labels (Kiritchenko et al., 2006).

    Where neither gold nor prediction has a node, precision, recall and F1 are 1: nothing was there and
    nothing was claimed. Where only one of the two has some, F1 is 0.

    Args:
        gold: one label set an item.
        predicted: one label set an item, in the same order.
        expand: gives the labels together with all their ancestors, the root left out.
        none: the label that says that no other applies.
        none_label: whether it is kept, or taken out of both sides before anything is counted.

    Raises:
        ValueError: the two differ in length, or there is nothing to score.
    """
    if len(gold) != len(predicted) or not gold:
        raise ValueError(
            f"{len(gold)} gold and {len(predicted)} predicted label sets; give as many of each, at least 1"
        )
    dropped = {none} if none_label == "empty on both sides" else set()
    pairs = [(expand(set(g) - dropped), expand(set(p) - dropped)) for g, p in zip(gold, predicted, strict=True)]
    per_node = _per_node(pairs)
    totals = per_node[["shared", "predicted", "gold"]].sum()
    return Scores(
        n=len(pairs),
        micro=_prf(int(totals["shared"]), int(totals["predicted"]), int(totals["gold"])),
        macro_f1=float(per_node["f1"].mean()),
        sample_f1=float(np.mean([_prf(len(g & p), len(p), len(g)).f1 for g, p in pairs])),
        per_node=per_node,
        none_label=none_label,
    )


def _per_node(pairs: Sequence[tuple[frozenset[str], frozenset[str]]]) -> pd.DataFrame:
    rows = []
    for node in sorted(frozenset().union(*(g | p for g, p in pairs))):
        n_gold = sum(node in g for g, _ in pairs)
        n_predicted = sum(node in p for _, p in pairs)
        shared = sum(node in g and node in p for g, p in pairs)
        prf = _prf(shared, n_predicted, n_gold)
        rows.append((node, n_gold, n_predicted, shared, prf.precision, prf.recall, prf.f1))
    return pd.DataFrame(rows, columns=["node", "gold", "predicted", "shared", "precision", "recall", "f1"])


def _prf(shared: int, n_predicted: int, n_gold: int) -> PRF:
    if n_predicted == n_gold == 0:
        return PRF(1.0, 1.0, 1.0)
    precision = shared / n_predicted if n_predicted else 0.0
    recall = shared / n_gold if n_gold else 0.0
    return PRF(precision, recall, 2 * shared / (n_predicted + n_gold))

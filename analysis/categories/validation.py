"""How far a tagger agrees with categories that people gave: accuracy, F1 a category, confusion, Cohen's kappa."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import cohen_kappa_score, confusion_matrix, precision_recall_fscore_support

from xai.analysis.categories.tagger import CATEGORIES, UNKNOWN, Tagger, WordInContext
from xai.analysis.report import Heatmap, Report, Section, Table
from xai.analysis.statistics import Interval, bootstrap

COLUMNS = ("word", "context", "language", "category")
SHIPPED = "shipped"
"""The name of the gold words that ship."""
SHIPPED_GOLD = Path(str(files("xai.analysis.categories").joinpath("gold.csv")))
"""The gold words that ship, with a column ``split``: ``dev`` for what the rules were corrected on, ``test`` for what
was written after them."""
HELD_OUT = "test"
"""The split that confusion and errors are of, where gold words have one of this name."""
_NOTE = (
    "Intervals are bootstrapped over texts, since words of one text are not independent. A word that the tagger left "
    "unknown counts as wrong. largest_category is the accuracy of always saying the most frequent one."
)
_SAME_AUTHOR = "The gold words that ship and the rules have one author; agreement with another person's may be lower."


def read_gold(path: Path) -> pd.DataFrame:
    """Gold words from a CSV file with the columns word, context, language and category, and perhaps split.

    Raises:
        ValueError: the file cannot be read, lacks a column, is empty, or a row has an unknown category or no word; the
            message names the line.
    """
    try:
        gold = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: no CSV, no UTF-8
        raise ValueError(f"gold words {path.name!r} cannot be read as a CSV file in UTF-8 ({error})") from None
    missing = [name for name in COLUMNS if name not in gold]
    if missing:
        raise ValueError(f"{path.name!r} lacks {', '.join(missing)}; it needs the columns {', '.join(COLUMNS)}")
    if gold.empty:
        raise ValueError(f"{path.name!r} has no rows")
    for index, row in enumerate(gold.itertuples(index=False), 2):
        if row.category not in CATEGORIES:
            known = ", ".join(CATEGORIES)
            raise ValueError(f"{path.name!r}, row {index}: category {row.category!r} is none of {known}")
        if not str(row.word).strip():
            raise ValueError(f"{path.name!r}, row {index}: there is no word")
    return gold if "split" in gold else gold.assign(split="all")


def tagged(gold: pd.DataFrame, tagger: Tagger) -> pd.DataFrame:
    """The gold words with what the tagger says, in the column ``tagged``."""
    asked = [
        WordInContext(word, context, language or None)
        for word, context, language in gold[["word", "context", "language"]].itertuples(index=False, name=None)
    ]
    return gold.assign(tagged=tagger.tag(asked))


def validate(gold: pd.DataFrame, tagger: Tagger, *, source: str) -> Report:
    """A report on a tagger against gold words of :func:`read_gold`.

    ``source`` names the file. Tables: ``agreement`` by split and language, ``by_category``, and of the held-out split,
    or of all where there is none, ``confusion`` and ``errors``.
    """
    table = tagged(gold, tagger)
    held_out = _held_out(table)
    facts = {
        "tagger": tagger.name,
        "version": tagger.version,
        "gold": source,
        "words": len(table),
        "unknown": int((table["tagged"] == UNKNOWN).sum()),
        **{f"answers: {name}": n for name, n in getattr(tagger, "counts", {}).items()},
    }
    sections = (
        Section(
            title="Agreement",
            text=_SAME_AUTHOR if source == SHIPPED else "",
            tables=(_agreement(table), _by_category(table)),
        ),
        Section(title="Confusion", tables=(_confusion(held_out),), charts=(_heatmap(held_out),)),
        Section(title="Errors", tables=(_errors(held_out),)),
    )
    title = f"Categories by {tagger.name} against gold words"
    return Report(title=title, facts=facts, headline=("agreement", "by_category"), sections=sections)


def _splits(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(str(split), part) for split, part in table.groupby("split", sort=True)]


def _parts(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The splits, and the languages within each where there are several."""
    found = []
    for split, group in _splits(table):
        languages = [(f"{split}, {language}", part) for language, part in group.groupby("language", sort=True)]
        found += [(split, group), *(languages if len(languages) > 1 else [])]
    return found


def _held_out(table: pd.DataFrame) -> pd.DataFrame:
    found = table[table["split"] == HELD_OUT]
    return table if found.empty else found


def _agreement(table: pd.DataFrame) -> Table:
    rows = [{"part": name, **_scores(part)} for name, part in _parts(table)]
    return Table.of("agreement", "Agreement with the gold words", pd.DataFrame(rows), note=_NOTE)


def _scores(part: pd.DataFrame) -> dict[str, Any]:
    gold, said = part["category"], part["tagged"]
    accuracy = _accuracy(part)
    names = [name for name in CATEGORIES if name in set(gold)]
    _, _, f1, _ = precision_recall_fscore_support(gold, said, labels=names, zero_division=0.0)
    return {
        "n": len(part),
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "macro_f1": float(f1.mean()),
        "kappa": float(cohen_kappa_score(gold, said)),
        "largest_category": float(gold.value_counts(normalize=True).iloc[0]),
    }


def _accuracy(part: pd.DataFrame) -> Interval:
    """The share of words on which gold and tagger agree, bootstrapped over their texts."""
    by_text = (part["category"] == part["tagged"]).groupby(part["context"]).agg(["sum", "size"]).to_numpy(dtype=float)

    def accuracy(weights: np.ndarray) -> np.ndarray:
        right, n = (weights @ by_text).T
        return np.asarray(right / n)[:, None]

    return bootstrap(accuracy, len(by_text))[0]


def _by_category(table: pd.DataFrame) -> Table:
    rows = []
    for name, part in _splits(table):
        scores = precision_recall_fscore_support(
            part["category"], part["tagged"], labels=list(CATEGORIES), zero_division=0.0
        )
        rows += [(name, category, int(n), p, r, f1) for category, p, r, f1, n in zip(CATEGORIES, *scores, strict=True)]
    frame = pd.DataFrame(rows, columns=["part", "category", "n", "precision", "recall", "f1"])
    return Table.of("by_category", "By category", frame)


def _counts(table: pd.DataFrame) -> tuple[list[str], list[list[int]]]:
    names = [*CATEGORIES, *([UNKNOWN] if UNKNOWN in set(table["tagged"]) else [])]
    return names, confusion_matrix(table["category"], table["tagged"], labels=names)[: len(CATEGORIES)].tolist()


def _confusion(table: pd.DataFrame) -> Table:
    names, counts = _counts(table)
    frame = pd.DataFrame(counts, columns=names)
    frame.insert(0, "gold", list(CATEGORIES))
    return Table.of("confusion", "Words by gold category (rows) and tagged category (columns)", frame)


def _heatmap(table: pd.DataFrame) -> Heatmap:
    names, counts = _counts(table)
    return Heatmap(
        name="confusion_map", title="Gold and tagged categories", rows=tuple(CATEGORIES), columns=tuple(names),
        values=tuple(tuple(row) for row in counts), unit="words", row_label="gold", column_label="tagged",
    )  # fmt: skip


def _errors(table: pd.DataFrame) -> Table:
    wrong = table[table["category"] != table["tagged"]]
    columns = ["split", "language", "word", "category", "tagged", "context"]
    return Table.of("errors", "Words on which they differ", wrong[columns].rename(columns={"category": "gold"}))

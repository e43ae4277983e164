"""How far the words that carry the relevance are the words that the model says it used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from xai.analysis.words import STOPWORDS_VERSION, is_content_word, normal_form
from xai.attribution.align import Pooling, rank_words, split_words
from xai.schema import ALL_LABELS
from xai.store import Run

MAX_WORDS = 5
"""At most so many relevance words are compared, however many words the rationale names."""

_COLUMNS = (
    *("meme_id", "mode", "method", "pooling", "k", "relevance_words", "rationale_words", "shared", "invented"),
    *("jaccard", "empty_rationale", "without_text", "stopwords"),
)


def agreement_table(run: Run, *, pooling: Pooling = "sum", k: int | None = None) -> pd.DataFrame:
    """Relevance words beside rationale words, one row a meme, mode and method, for all labels together.

    Both sides hold content words in normal form. The relevance words are the k words of the text with most
    relevance; without ``k`` as many as the rationale names that are in the text, at most :data:`MAX_WORDS`.

    Columns: meme_id, mode, method, pooling, k; relevance_words, rationale_words, shared, invented (rationale
    words that the text does not have), tuples; jaccard, 0 to 1, higher is closer; empty_rationale: the
    rationale names no content word; without_text: the model was shown no word; stopwords: version of the
    stop lists. Where one of the two flags is set there is nothing to compare and jaccard is NaN.

    Raises:
        ValueError: the pooling is unknown.
    """
    if pooling not in ("sum", "mean_abs"):
        raise ValueError(f"pooling must be 'sum' or 'mean_abs', not {pooling!r}")
    return pd.DataFrame([_row(row, pooling, k) for row in _compared(run)], columns=list(_COLUMNS))


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row a mode, method and pooling of :func:`agreement_table`.

    Columns: n (rows that could be compared), mean and median of their Jaccard, n_empty (rationales without
    a content word, counted apart), n_without_text, n_invented (rows whose rationale invents a word).
    """
    rows = []
    for (mode, method, pooling), group in table.groupby(["mode", "method", "pooling"], sort=True):
        jaccards = group["jaccard"].dropna()
        rows.append(
            {
                "mode": mode,
                "method": method,
                "pooling": pooling,
                "n": len(jaccards),
                "mean": jaccards.mean(),
                "median": jaccards.median(),
                "n_empty": int((group["empty_rationale"] & ~group["without_text"]).sum()),
                "n_without_text": int(group["without_text"].sum()),
                "n_invented": int((group["invented"].map(len).gt(0) & ~group["without_text"]).sum()),
            }
        )
    names = ["mode", "method", "pooling", "n", "mean", "median", "n_empty", "n_without_text", "n_invented"]
    return pd.DataFrame(rows, columns=names)


def jaccard(a: Iterable[str], b: Iterable[str]) -> float:
    """|A ∩ B| / |A ∪ B|, 0 to 1; NaN if both are empty, which is no agreement and no disagreement."""
    left, right = set(a), set(b)
    return len(left & right) / len(left | right) if left | right else float("nan")


def _compared(run: Run) -> list[dict[str, Any]]:
    """What the comparison needs of every explanation of all labels, joined to its prediction."""
    names = ["meme_id", "mode", "method", "word", "word_relevance", "word_mean_abs", "referred_words", "language"]
    explanations = run.explanations().filter(f"target = '{ALL_LABELS}'")
    explanations = explanations.select("meme_id", "mode", "method", "word", "word_relevance", "word_mean_abs")
    answers = run.predictions().select("meme_id", "mode", "referred_words", "language")
    read = {(row[0], row[1]): row[2:] for row in answers.fetchall()}
    return [dict(zip(names, (*row, *read[row[:2]]), strict=True)) for row in explanations.fetchall()]


def _row(row: Mapping[str, Any], pooling: Pooling, k: int | None) -> dict[str, Any]:
    language = row["language"]
    in_text = {normal_form(word) for word in row["word"]}
    rationale = _content_forms(row["referred_words"], language)
    invented = tuple(word for word in rationale if word not in in_text)
    used_k = min(len(rationale) - len(invented), MAX_WORDS) if k is None else k
    values = row["word_relevance"] if pooling == "sum" else row["word_mean_abs"]
    ranked = rank_words(row["word"], values, used_k, keep=lambda word: is_content_word(word, language))
    relevance = tuple(normal_form(word) for word in ranked)
    comparable = bool(rationale) and bool(row["word"])
    return {
        **{name: row[name] for name in ("meme_id", "mode", "method")},
        "pooling": pooling,
        "k": used_k,
        "relevance_words": relevance,
        "rationale_words": rationale,
        "shared": tuple(word for word in relevance if word in rationale),
        "invented": invented,
        "jaccard": jaccard(relevance, rationale) if comparable else float("nan"),
        "empty_rationale": not rationale,
        "without_text": not row["word"],
        "stopwords": STOPWORDS_VERSION,
    }


def _content_forms(referred: Sequence[str], language: str | None) -> tuple[str, ...]:
    """Content words of a rationale in normal form, each once, in order; phrases are split as texts are."""
    words = [entry[start:end] for entry in referred for start, end in split_words(entry)]
    return tuple(dict.fromkeys(normal_form(word) for word in words if is_content_word(word, language)))

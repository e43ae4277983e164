"""How far the words that carry the relevance are the words that the model says it used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from xai.analysis.words import STOPWORDS_VERSION, is_content_word, normal_form
from xai.attribution.align import Pooling, is_spaceless, rank_words, word_image_relevance
from xai.attribution.lemmas import lemma_classes, lemmatizer
from xai.attribution.occurrences import named_words, occurrences
from xai.schema import ALL_LABELS, Word
from xai.store import Run

MAX_WORDS = 5
"""At most so many relevance words are compared, however many words the rationale names."""

_COLUMNS = (
    *("meme_id", "mode", "method", "pooling", "source", "k", "relevance_words", "rationale_words", "shared"),
    *("invented", "inflected", "doubtful", "n_exact", "n_inflected", "n_invented", "n_flagged", "n_unplaced"),
    *("jaccard", "jaccard_lemma", "lemmas", "empty_rationale", "without_text", "stopwords"),
)
COUNTS = ("n_exact", "n_inflected", "n_invented", "n_flagged", "n_unplaced")
"""The columns that count words. They are the same for every method and pooling of a run."""


def agreement_table(run: Run, *, pooling: Pooling = "sum", k: int | None = None) -> pd.DataFrame:
    """Relevance words beside rationale words, one row a meme, mode and method, for all labels together.

    Both sides hold content words in normal form. The relevance words are the k words of the text with most
    relevance; without ``k`` as many as the rationale names that are in the text, at most :data:`MAX_WORDS`. Where the
    model was shown the picture alone, the words are those that the meme brings with their places, by the relevance of
    the picture under them (``source``: picture). Words with flags are left out on both sides and counted.

    Columns, by what they are about:

    - meme_id, mode, method, pooling, source ("text", "picture"), k;
    - relevance_words, rationale_words, shared: tuples. Of scripts without spaces, words of the rationale are taken
      apart into the units of the text; they are in it if these follow on each other there;
    - invented: rationale words that the text does not have in any form; inflected: those that it has in another
      form only; doubtful: those that only flagged words of the text have, which are left out;
    - n_exact, n_inflected, n_invented: rationale words that the text has as they are, in another form, not at all;
      n_flagged: words of the text left out for their flags; n_unplaced: those whose place in the picture is not
      known, where the picture is the source;
    - jaccard: of exact forms, 0 to 1, higher is closer; jaccard_lemma: the same with all forms of a word as one, by
      what ``lemmas`` names;
    - empty_rationale: the rationale names no content word; without_text: there is no word to compare. Where one of
      the two is set, both Jaccards are NaN. stopwords: version of the stop lists.

    Raises:
        ValueError: the pooling is unknown.
    """
    if pooling not in ("sum", "mean_abs"):
        raise ValueError(f"pooling must be 'sum' or 'mean_abs', not {pooling!r}")
    return pd.DataFrame([_row(row, pooling, k) for row in _compared(run)], columns=list(_COLUMNS))


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row a mode, method and pooling of :func:`agreement_table`.

    Columns: n (rows that could be compared), mean and median of their Jaccard, mean_lemma; n_empty (rationales
    without a content word, counted apart) and n_without_text, in rows; n_exact, n_inflected, n_invented, n_flagged
    and n_unplaced, in words, of all rows with text.
    """
    rows = []
    for (mode, method, pooling), group in table.groupby(["mode", "method", "pooling"], sort=True):
        jaccards, with_text = group["jaccard"].dropna(), group[~group["without_text"]]
        rows.append(
            {
                "mode": mode,
                "method": method,
                "pooling": pooling,
                "n": len(jaccards),
                "mean": jaccards.mean(),
                "median": jaccards.median(),
                "mean_lemma": group["jaccard_lemma"].mean(),
                "n_empty": int(with_text["empty_rationale"].sum()),
                "n_without_text": int(group["without_text"].sum()),
                **{name: int(with_text[name].sum()) for name in COUNTS},
            }
        )
    names = ["mode", "method", "pooling", "n", "mean", "median", "mean_lemma", "n_empty", "n_without_text", *COUNTS]
    return pd.DataFrame(rows, columns=names)


def jaccard(a: Iterable[str], b: Iterable[str]) -> float:
    """|A ∩ B| / |A ∪ B|, 0 to 1; NaN if both are empty, which is no agreement and no disagreement."""
    left, right = set(a), set(b)
    return len(left & right) / len(left | right) if left | right else float("nan")


@dataclass(frozen=True)
class _Text:
    """The words of a meme and their values; ``kept[i]`` is false for a flagged word."""

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    values: tuple[float, ...]
    kept: tuple[bool, ...]
    source: str = "text"
    n_unplaced: int = 0

    @cached_property
    def forms(self) -> list[str]:
        return [normal_form(word) for word in self.words]

    def in_run(self, index: int) -> bool:
        """Whether a word of a script without spaces touches another one, so that it may be half a word."""
        if not is_spaceless(self.words[index]):
            return False
        start, end = self.spans[index]
        before, after = index - 1, index + 1
        return (before >= 0 and self.spans[before][1] == start and is_spaceless(self.words[before])) or (
            after < len(self.words) and self.spans[after][0] == end and is_spaceless(self.words[after])
        )


@dataclass(frozen=True)
class _Rationale:
    """The content words of a rationale, by where the text has them; ``units`` are what the text is compared with."""

    units: tuple[str, ...]
    exact: tuple[str, ...]
    absent: tuple[str, ...]
    doubtful: tuple[str, ...]


def _compared(run: Run) -> list[dict[str, Any]]:
    """What the comparison needs of every explanation of all labels, joined to its prediction."""
    ours = ["meme_id", "mode", "method", "word", "word_start", "word_end", "word_relevance", "word_mean_abs"]
    ours += ["image_levels", "image_shape", "image_width", "image_height"]
    theirs = ["referred_words", "language", "words"]
    explanations = run.explanations().filter(f"target = '{ALL_LABELS}'").select(*ours)
    answers = run.predictions().select("meme_id", "mode", *theirs)
    read = {(row[0], row[1]): row[2:] for row in answers.fetchall()}
    return [dict(zip([*ours, *theirs], (*row, *read[row[:2]]), strict=True)) for row in explanations.fetchall()]


def _row(row: Mapping[str, Any], pooling: Pooling, k: int | None) -> dict[str, Any]:
    language = row["language"]
    text = _text(row, pooling)
    rationale = _rationale(row["referred_words"], text, language)
    candidates = _candidates(text, language)
    same = lemma_classes([*(normal_form(word) for word, _ in candidates), *text.forms, *rationale.units], language)
    in_text = {same[form] for form, kept in zip(text.forms, text.kept, strict=True) if kept}
    inflected = tuple(word for word in rationale.absent if same[word] in in_text)
    invented = tuple(word for word in rationale.absent if same[word] not in in_text)

    used_k = min(len(rationale.units) - len(rationale.absent), MAX_WORDS) if k is None else k
    words, values = [word for word, _ in candidates], [value for _, value in candidates]
    relevance = tuple(normal_form(word) for word in rank_words(words, values, used_k))
    classes = {same[word] for word in rationale.units}
    lemma_k = min(len(classes & in_text), MAX_WORDS) if k is None else k
    lemma_relevance = rank_words([same[normal_form(word)] for word in words], values, lemma_k)
    comparable = bool(rationale.units) and bool(text.words)
    return {
        **{name: row[name] for name in ("meme_id", "mode", "method")},
        "pooling": pooling,
        "source": text.source,
        "k": used_k,
        "relevance_words": relevance,
        "rationale_words": rationale.units,
        "shared": tuple(word for word in relevance if word in rationale.units),
        "invented": invented,
        "inflected": inflected,
        "doubtful": rationale.doubtful,
        "n_exact": len(rationale.exact),
        "n_inflected": len(inflected),
        "n_invented": len(invented),
        "n_flagged": text.kept.count(False),
        "n_unplaced": text.n_unplaced,
        "jaccard": jaccard(relevance, rationale.units) if comparable else float("nan"),
        "jaccard_lemma": jaccard(lemma_relevance, classes) if comparable else float("nan"),
        "lemmas": lemmatizer(language).name,
        "empty_rationale": not rationale.units,
        "without_text": not text.words,
        "stopwords": STOPWORDS_VERSION,
    }


def _text(row: Mapping[str, Any], pooling: Pooling) -> _Text:
    brought = [Word(**word) for word in json.loads(row["words"] or "[]")]
    if row["mode"] == "image" and not row["word"] and brought and row["image_levels"] is not None:
        return _in_picture(row, brought, pooling)
    flagged = {(word.start, word.end) for word in brought if word.flags}
    spans = tuple(zip(row["word_start"], row["word_end"], strict=True))
    return _Text(
        words=tuple(row["word"]),
        spans=spans,
        values=tuple(row["word_relevance" if pooling == "sum" else "word_mean_abs"]),
        kept=tuple(span not in flagged for span in spans),
    )


def _in_picture(row: Mapping[str, Any], words: Sequence[Word], pooling: Pooling) -> _Text:
    """The words whose place is known, by the relevance of the picture under them."""
    image = np.reshape(row["image_levels"], row["image_shape"]).sum(axis=0)
    table = word_image_relevance(words, image, (row["image_width"], row["image_height"]))
    values = table.relevance if pooling == "sum" else table.mean_abs
    placed = [(word, value) for word, value in zip(words, values, strict=True) if value is not None]
    return _Text(
        words=tuple(word.text for word, _ in placed),
        spans=tuple((word.start, word.end) for word, _ in placed),
        values=tuple(value for _, value in placed),
        kept=tuple(not word.flags for word, _ in placed),
        source="picture",
        n_unplaced=len(words) - len(placed),
    )


def _candidates(text: _Text, language: str | None) -> list[tuple[str, float]]:
    """The words that can be relevance words; what may be half a word is never taken for a stop word."""
    return [
        (word, text.values[index])
        for index, word in enumerate(text.words)
        if text.kept[index] and (is_content_word(word, language) or text.in_run(index))
    ]


def _rationale(referred: Sequence[str], text: _Text, language: str | None) -> _Rationale:
    units: dict[str, None] = {}
    exact, absent, doubtful = [], [], []
    for word in _named_words(referred, language):
        indices = _located(word, text)
        if indices and all(text.kept[index] for index in indices):
            exact.append(word)
            units |= dict.fromkeys(text.forms[index] for index in indices)
        elif indices:
            doubtful.append(word)
        else:
            absent.append(word)
            units[word] = None
    return _Rationale(tuple(units), tuple(exact), tuple(absent), tuple(doubtful))


def _named_words(referred: Sequence[str], language: str | None) -> list[str]:
    """Content words of a rationale in normal form, each once, in order."""
    named = (word for entry in referred for word in named_words(entry))
    return list(dict.fromkeys(word for word in named if is_content_word(word, language)))


def _located(word: str, text: _Text) -> list[int]:
    """An occurrence of the word in the text; one without a flag comes before others, and there may be none."""
    found = occurrences(word, text.forms)
    return min(found, key=lambda run: not all(text.kept[index] for index in run), default=[])

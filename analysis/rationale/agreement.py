"""How far the words that carry the relevance are the words that the model says it used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from xai.analysis.rationale.outcomes import Judge
from xai.analysis.rationale.rankings import (
    RBO_P,
    auroc,
    average_precision,
    expected_jaccard,
    expected_overlap,
    kendall_tau,
    rank_biased_overlap,
)
from xai.analysis.rationale.reading import answers_with_explanations
from xai.analysis.rationale.regions import Region, RegionsOf, named_boxes, region_agreement, region_weights, regions_in
from xai.analysis.rationale.sides import Sides, cells_of, sides_of, text_words, values_of
from xai.analysis.words import STOPWORDS_VERSION
from xai.attribution.align import Pooling, normal_form
from xai.attribution.lemmas import lemmatizer
from xai.parts import committed, write_atomically
from xai.schema import ALL_LABELS
from xai.store import Run, open_run
from xai.tasks import load_task

COUNTS = ("n_exact", "n_inflected", "n_invented", "n_of_post", "n_flagged", "n_unplaced")
"""The columns that count words. They are the same for every method and pooling of a run."""

RANK_MEASURES = ("rbo", "kendall_tau", "auroc", "average_precision", "top_named")
IMAGE_MEASURES = ("image_mass", "image_area", "image_excess", "image_cell_mass", "image_cell_area", "image_hit")

_TEXT, _TEXTS, _REAL, _WHOLE, _BOOL = pa.string(), pa.list_(pa.string()), pa.float64(), pa.int64(), pa.bool_()
_KEY = {"meme_id": _TEXT, "mode": _TEXT, "method": _TEXT, "language": _TEXT}
_MEASURES = {
    **dict.fromkeys(("k", "n_words", "n_present"), _WHOLE),
    **dict.fromkeys(("overlap", "overlap_chance", "jaccard", "jaccard_lemma", "jaccard_chance", "excess"), _REAL),
    **dict.fromkeys((*RANK_MEASURES, "prevalence"), _REAL),
    **dict.fromkeys(("n_concepts", "n_placed"), _WHOLE),
    **dict.fromkeys(IMAGE_MEASURES, _REAL),
    **dict.fromkeys(("empty_rationale", "none_read", "without_text", "right"), _BOOL),
    "f1": _REAL,
}
COLUMNS: dict[str, pa.DataType] = {
    **_KEY,
    **dict.fromkeys(("text", "pooling", "source"), _TEXT),
    **dict.fromkeys(
        ("relevance_words", "rationale_words", "shared", "invented", "inflected", "doubtful"), _TEXTS
    ),
    **dict.fromkeys(COUNTS, _WHOLE),
    **_MEASURES,
    "lemmas": _TEXT,
    "stopwords": _TEXT,
}  # fmt: skip
"""The columns of :func:`agreement_table`, as ``reports/agreement.parquet`` has them."""
LABEL_COLUMNS: dict[str, pa.DataType] = {**_KEY, "target": _TEXT, "relevance_words": _TEXTS, **_MEASURES}
"""The columns of the table by label, as ``reports/agreement_labels.parquet`` has them."""

_OURS = ("method", "target", "word", "word_start", "word_end")
_PICTURE = ("image_levels", "image_shape", "image_width", "image_height")
_THEIRS = (
    *("meme_text", "post", "language", "words", "metadata", "gold_labels", "labels"),
    *("referred_words", "referred_image_concepts"),
)
_NAN = float("nan")
_SHARE = 256
"""Parts that a worker compares at a time; to start one for less takes longer than it spares."""


@dataclass(frozen=True)
class AgreementTables:
    """A run compared: ``memes`` has one row a meme, mode and method, all labels together, ``labels`` one a label.

    The columns are :data:`COLUMNS` and :data:`LABEL_COLUMNS`. ``unknown_gold`` are gold labels that the task does not
    have; what they belong to counts as neither right nor wrong. ``unjudged`` says why no answer does, if so: the task
    of the run is not to be had here.
    """

    memes: pd.DataFrame
    labels: pd.DataFrame
    unknown_gold: tuple[str, ...] = ()
    unjudged: str = ""


def agreement_tables(
    run: Run,
    *,
    pooling: Pooling = "sum",
    k: int | None = None,
    regions_of: RegionsOf = regions_in,
    workers: int = 1,
) -> AgreementTables:
    """Relevance words beside rationale words, for all labels together and for each label that was explained alone.

    Both sides hold content words in normal form. The relevance words are the k words of the text with most
    relevance; without ``k`` as many as the rationale names that are in the text, at most :data:`MAX_WORDS`. Where the
    model was shown the picture alone, the words are those that the meme brings with their places, by the relevance of
    the picture under them (``source``: picture). Words with flags are left out on both sides and counted. A rationale
    is of the whole answer: a label's own relevance is compared with what the answer names for all its labels.

    Columns, by what they are about:

    - meme_id, mode, method, language, text, pooling, source ("text", "picture"); target, of the table by label;
    - relevance_words, rationale_words, shared: tuples. Of scripts without spaces, words of the rationale are taken
      apart into the units of the text; they are in it if these follow on each other there;
    - invented: rationale words that the text does not have in any form; inflected: those that it has in another
      form only; doubtful: those that only flagged words of the text have, which are left out;
    - n_exact, n_inflected, n_invented: rationale words that the text has as they are, in another form, not at all;
      n_of_post: those that only the post has, where the model was shown it, which are left out; n_flagged: words of the
      text left out for their flags; n_unplaced: those whose place in the picture is not known, where the picture is the
      source;
    - n_words: distinct content words of the text; n_present: those that the rationale names; k;
    - overlap: shared words, and overlap_chance: as many as k words drawn blindly from the text would share;
    - jaccard: of exact forms, 0 to 1, higher is closer; jaccard_lemma: the same with all forms of a word as one, by
      what ``lemmas`` names; jaccard_chance: its mean over blind draws; excess: jaccard - jaccard_chance;
    - rbo: rank-biased overlap of all words by relevance and the rationale as it is written; kendall_tau: of these two
      orders, over the rationale's words in the text (NaN for fewer than 2); auroc, average_precision: of relevance for
      being named (NaN where no word or every word is named; average precision only in the former case);
      top_named: 1 if the word with most relevance is named, else 0; prevalence: n_present / n_words, which chance
      gives for the latter two;
    - n_concepts: things in the picture that the rationale names, n_placed: those that the metadata have a region of;
      image_mass, image_area, image_excess (mass - area), image_cell_mass, image_cell_area, image_hit: see
      :class:`xai.analysis.rationale.regions.RegionAgreement`; NaN where there is no such region or no relevance of a
      picture;
    - empty_rationale: the rationale names no content word; none_read: so in ``image`` mode, where it names nothing
      at all: the model read no word in the picture, or its prompt asked for none; without_text: there is no word to
      compare. Where one of them is set, the measures of words are NaN;
    - right: the labels are exactly the gold ones; f1: hierarchical F1 of the answer; unknown without gold labels.

    Args:
        regions_of: gives the regions that a meme's metadata name.
        workers: processes that share the parts of a large run. With more than one, ``regions_of`` must be a function
            of a module, and a script that calls this needs the guard ``if __name__ == "__main__":``.

    Raises:
        ValueError: the pooling is unknown, k is negative, or a meme's regions are malformed.
    """
    if pooling not in ("sum", "mean_abs"):
        raise ValueError(f"pooling must be 'sum' or 'mean_abs', not {pooling!r}")
    if k is not None and k < 0:
        raise ValueError(f"k must be 0 or more, not {k}")
    compared = partial(_part_tables, run.path, pooling, k, regions_of)
    numbers = committed(run.path)
    if workers == 1 or len(numbers) < 2 * _SHARE:
        return compared(numbers)
    shares = [numbers[start : start + _SHARE] for start in range(0, len(numbers), _SHARE)]
    # Spawned and not forked: DuckDB and Arrow have threads, which a fork leaves behind with their locks.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return _joined(list(pool.map(compared, shares)))


def agreement_table(run: Run, *, pooling: Pooling = "sum", k: int | None = None) -> pd.DataFrame:
    """The table of all labels together of :func:`agreement_tables`; arguments and errors as there."""
    return agreement_tables(run, pooling=pooling, k=k).memes


def write_agreement(tables: AgreementTables, folder: Path) -> dict[str, Path]:
    """Write ``agreement.parquet`` and ``agreement_labels.parquet`` into a folder; each is whole or not there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {"memes": folder / "agreement.parquet", "labels": folder / "agreement_labels.parquet"}
    for file, frame, columns in (("memes", tables.memes, COLUMNS), ("labels", tables.labels, LABEL_COLUMNS)):
        table = pa.table({name: pa.array(frame[name], type=kind, from_pandas=True) for name, kind in columns.items()})
        write_atomically(paths[file], partial(_write_parquet, table))
    return paths


def jaccard(a: Iterable[str], b: Iterable[str]) -> float:
    """|A ∩ B| / |A ∪ B|, 0 to 1; NaN if both are empty, which is no agreement and no disagreement."""
    left, right = set(a), set(b)
    return len(left & right) / len(left | right) if left | right else _NAN


class _Columns:
    """Rows gathered by column, which takes a fraction of the memory of as many dicts."""

    def __init__(self, columns: Mapping[str, pa.DataType]) -> None:
        self.values_of: dict[str, list[Any]] = {name: [] for name in columns}
        self._kinds = columns
        self._append = [(name, values.append) for name, values in self.values_of.items()]

    def add(self, row: Mapping[str, Any]) -> None:
        for name, append in self._append:
            append(row[name])

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame({name: self._series(name, values) for name, values in self.values_of.items()})

    def _series(self, name: str, values: list[Any]) -> pd.Series:
        if self._kinds[name] == _REAL:
            return pd.Series(values, dtype=float)
        return pd.Series(values, dtype=object if self._kinds[name] == _TEXTS or None in values or not values else None)


def _write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd")


def _part_tables(
    path: Path, pooling: Pooling, k: int | None, regions_of: RegionsOf, numbers: Sequence[int]
) -> AgreementTables:
    """The tables of some parts of a run."""
    run = open_run(path)
    judge, unjudged = _judge_of(run)
    memes, labels = _Columns(COLUMNS), _Columns(LABEL_COLUMNS)
    for target, row in _rows(run, pooling, k, regions_of, judge, numbers):
        (memes if target == ALL_LABELS else labels).add(row)
    return AgreementTables(memes.frame(), labels.frame(), tuple(sorted(judge.unknown)), unjudged)


def _joined(parts: Sequence[AgreementTables]) -> AgreementTables:
    return AgreementTables(
        memes=pd.concat([part.memes for part in parts], ignore_index=True),
        labels=pd.concat([part.labels for part in parts], ignore_index=True),
        unknown_gold=tuple(sorted({label for part in parts for label in part.unknown_gold})),
        unjudged=parts[0].unjudged,
    )


def _judge_of(run: Run) -> tuple[Judge, str]:
    """What judges the answers of a run, and why it cannot, where its task is a file that is elsewhere."""
    try:
        return Judge(load_task(run.config["task"])), ""
    except ValueError as error:
        return Judge(None), str(error)


def _rows(
    run: Run, pooling: Pooling, k: int | None, regions_of: RegionsOf, judge: Judge, numbers: Sequence[int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The target and the row of every explanation."""
    column = "word_relevance" if pooling == "sum" else "word_mean_abs"
    for answer, explanations in answers_with_explanations(run, _THEIRS, (*_OURS, column, *_PICTURE), numbers):
        text = text_words(answer, explanations[0])
        shared = sides_of(answer, text, k)
        about = _about_answer(answer, shared, judge) | {"pooling": pooling}
        concepts = _about_concepts(answer, explanations[0], regions_of)
        for row in explanations:
            values = values_of(row, text, column, pooling)
            yield (
                row["target"],
                {
                    **about,
                    **_compared(shared, values),
                    **_pictured(row, *concepts),
                    "method": row["method"],
                    "target": row["target"],
                },
            )


def _about_answer(answer: Mapping[str, Any], shared: Sides, judge: Judge) -> dict[str, Any]:
    """The columns that do not depend on what was explained, or by which method."""
    rationale, text = shared.rationale, shared.text
    inflected = tuple(word for word in rationale.absent if shared.same[word] in shared.in_text)
    invented = tuple(word for word in rationale.absent if shared.same[word] not in shared.in_text)
    outcome = judge.outcome(answer["gold_labels"], answer["labels"])
    return {
        **{name: answer[name] for name in ("meme_id", "mode", "language")},
        "text": answer["meme_text"],
        "source": text.source,
        "rationale_words": rationale.units,
        "invented": invented,
        "inflected": inflected,
        "doubtful": rationale.doubtful,
        "n_exact": len(rationale.exact),
        "n_inflected": len(inflected),
        "n_invented": len(invented),
        "n_of_post": len(rationale.of_post),
        "n_flagged": text.kept.count(False),
        "n_unplaced": text.n_unplaced,
        "lemmas": lemmatizer(answer["language"]).name,
        "empty_rationale": not rationale.units,
        "none_read": answer["mode"] == "image" and not len(answer["referred_words"]),
        "without_text": not text.words,
        "stopwords": STOPWORDS_VERSION,
        "right": outcome.right,
        "f1": _NAN if outcome.f1 is None else outcome.f1,
    }


def _compared(answer: Sides, values: Sequence[float]) -> dict[str, Any]:
    """The columns of one explanation's words; all measures are NaN where a side has none."""
    ranked, units = answer.ranked(values), answer.rationale.units
    forms, k = list(ranked), answer.exact_k
    relevance = tuple(forms[:k])
    shared = tuple(word for word in relevance if word in answer.units)
    named, scores = [form in answer.units for form in forms], list(ranked.values())
    n_words, n_present = len(forms), sum(named)
    row: dict[str, Any] = {
        "k": k, "n_words": n_words, "n_present": n_present, "relevance_words": relevance, "shared": shared,
    }  # fmt: skip
    if not units or not answer.text.words:
        return row | dict.fromkeys(_WORD_MEASURES, _NAN)
    lemma_relevance = list(dict.fromkeys(answer.same[form] for form in forms))[: answer.lemma_k]
    exact = jaccard(relevance, units)
    chance = expected_jaccard(n_words, n_present, len(relevance), len(units))
    return row | {
        "overlap": float(len(shared)),
        "overlap_chance": expected_overlap(n_words, n_present, len(relevance)),
        "jaccard": exact,
        "jaccard_lemma": jaccard(lemma_relevance, answer.classes),
        "jaccard_chance": chance,
        "excess": exact - chance,
        "rbo": rank_biased_overlap(forms, units, RBO_P),
        "kendall_tau": _order(ranked, units),
        "auroc": auroc(scores, named),
        "average_precision": average_precision(scores, named),
        "top_named": float(named[0]) if named else _NAN,
        "prevalence": n_present / n_words if n_words else _NAN,
    }


_WORD_MEASURES = ("overlap", "overlap_chance", "jaccard", "jaccard_lemma", "jaccard_chance", "excess",
                  *RANK_MEASURES, "prevalence")  # fmt: skip


def _order(ranked: Mapping[str, float], units: Sequence[str]) -> float:
    """Kendall's tau of the rationale's order and the relevance, of the words that both have; 1: the same order."""
    both = [word for word in units if word in ranked]
    return kendall_tau([-place for place in range(len(both))], [ranked[word] for word in both])


def _about_concepts(
    answer: Mapping[str, Any], row: Mapping[str, Any], regions_of: RegionsOf
) -> tuple[int, int, np.ndarray | None]:
    """Concepts that the rationale names, how many have a region, and how much of each cell these cover."""
    concepts = {form for concept in answer["referred_image_concepts"] if (form := normal_form(concept))}
    if not concepts or answer["metadata"] in (None, "{}"):
        return len(concepts), 0, None
    try:
        regions: Sequence[Region] = regions_of(json.loads(answer["metadata"]))
        n_placed, boxes = named_boxes(concepts, regions)
        if not boxes or row["image_levels"] is None:
            return len(concepts), n_placed, None
        size, grid = (row["image_width"], row["image_height"]), (int(row["image_shape"][1]), int(row["image_shape"][2]))
        return len(concepts), n_placed, region_weights(boxes, size, grid)
    except ValueError as error:
        raise ValueError(f"meme {answer['meme_id']!r}: {error}") from None


def _pictured(row: Mapping[str, Any], n_concepts: int, n_placed: int, weights: np.ndarray | None) -> dict[str, Any]:
    counts: dict[str, Any] = {"n_concepts": n_concepts, "n_placed": n_placed}
    if weights is None:
        return counts | dict.fromkeys(IMAGE_MEASURES, _NAN)
    found = region_agreement(cells_of(row), weights)
    values = (found.mass, found.area, found.mass - found.area, found.cell_mass, found.cell_area, found.hit)
    return counts | dict(zip(IMAGE_MEASURES, values, strict=True))

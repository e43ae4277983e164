"""Relevance words and rationale words are compared as sets of content words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from xai.analysis.agreement import agreement_table, jaccard, summary
from xai.analysis.words import STOPWORDS_VERSION
from xai.attribution.align import split_words, word_relevance, words_of
from xai.schema import Explanation, Meme, Mode, Prediction, Quality, TokenTable
from xai.store import Run, RunWriter, open_run


def explained(
    identifier: str,
    text: str,
    relevance: Sequence[float],
    referred: tuple[str, ...],
    *,
    mode: Mode = "text",
    target: str = "*",
    language: str = "en",
) -> Explanation:
    words = words_of(text, None) if mode != "image" else ()
    spans = split_words(text) if mode != "image" else []
    return Explanation(
        meme=Meme(id=identifier, text=text, language=language),
        prediction=Prediction(meme_id=identifier, mode=mode, generated_ids=(), text="", referred_words=referred),
        mode=mode,
        method="attnlrp",
        target=target,
        target_value=1.0,
        token_table=TokenTable(token=(), start=(), end=(), segment=(), relevance=()),
        word_table=word_relevance(words, spans, np.array(relevance)),
        shares={},
        quality=Quality(conservation=None, sink_share=0, template_share=0),
    )


def run_of(path: Path, *explanations: Explanation) -> Run:
    with RunWriter(path / "run", {"task": "ukrmeme"}) as writer:
        for e in explanations:
            writer.add(e.prediction, [e])
    return open_run(path / "run")


def only_row(path: Path, e: Explanation, k: int | None = None) -> pd.Series:
    table = agreement_table(run_of(path, e), k=k)
    assert len(table) == 1
    return table.iloc[0]


def test_jaccard_is_shared_over_all() -> None:
    assert jaccard("ab", "bc") == pytest.approx(1 / 3)
    assert jaccard("a", "") == 0
    assert math.isnan(jaccard("", ""))


def test_as_many_relevance_words_are_taken_as_the_rationale_names(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "the crooked senator lies", [9, 3, 1, 2], ("Lies", "senator!")))
    assert row["k"] == 2
    assert row["relevance_words"] == ("crooked", "lies")
    assert row["rationale_words"] == ("lies", "senator")
    assert row["shared"] == ("lies",)
    assert row["jaccard"] == pytest.approx(1 / 3)
    assert row["stopwords"] == STOPWORDS_VERSION


def test_never_more_than_five_are_taken(tmp_path: Path) -> None:
    text = "one two three four five six seven"
    assert only_row(tmp_path, explained("m", text, range(7), tuple(text.split())))["k"] == 5


def test_invented_words_do_not_count_as_present_but_lower_the_agreement(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "crooked senator", [3, 1], ("crooked", "corrupt")))
    assert row["invented"] == ("corrupt",)
    assert row["k"] == 1
    assert row["jaccard"] == pytest.approx(1 / 2)


def test_negation_counts(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "this is not hateful", [0, 0, 5, 1], ("not",)))
    assert row["relevance_words"] == ("not",)
    assert row["jaccard"] == 1


def test_a_phrase_is_split_as_the_text_is(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "这不是仇恨", [0, 3, 0, 2, 1], ("不是", "仇恨"), language="zh"))
    assert row["rationale_words"] == ("不", "仇", "恨")
    assert row["jaccard"] == 1


def test_an_empty_rationale_is_counted_apart(tmp_path: Path) -> None:
    nothing = explained("m1", "crooked senator", [3, 1], ("the", "..."))
    half = explained("m2", "crooked senator", [3, 1], ("senator",))
    right = explained("m3", "crooked senator", [3, 1], ("crooked",))
    table = agreement_table(run_of(tmp_path, nothing, half, right))
    assert table["jaccard"].isna().tolist() == [True, False, False]
    assert table["empty_rationale"].tolist() == [True, False, False]
    row = summary(table).iloc[0]
    assert (row["n"], row["n_empty"], row["mean"], row["median"]) == (2, 1, 0.5, 0.5)


def test_a_model_that_was_shown_no_text_is_counted_apart(tmp_path: Path) -> None:
    unread = explained("m", "crooked senator", [], ("crooked",), mode="image")
    row = summary(agreement_table(run_of(tmp_path, unread))).iloc[0]
    assert (row["n"], row["n_empty"], row["n_without_text"], row["n_invented"]) == (0, 0, 1, 0)
    assert math.isnan(row["mean"])


def test_only_the_target_of_all_labels_is_compared(tmp_path: Path) -> None:
    assert agreement_table(run_of(tmp_path, explained("m", "senator", [1], ("senator",), target="Smears"))).empty


def test_pooling_is_named_and_changes_the_ranking(tmp_path: Path) -> None:
    run = run_of(tmp_path, explained("m", "crooked senator", [-3, 1], ("crooked",)))
    signed, absolute = agreement_table(run), agreement_table(run, pooling="mean_abs")
    assert (signed["pooling"][0], signed["jaccard"][0]) == ("sum", 0)
    assert (absolute["pooling"][0], absolute["jaccard"][0]) == ("mean_abs", 1)
    with pytest.raises(ValueError, match="pooling must be"):
        agreement_table(run, pooling="max")  # type: ignore[arg-type]


def test_k_can_be_set(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "crooked senator lies", [3, 2, 1], ("crooked",)), k=2)
    assert row["relevance_words"] == ("crooked", "senator")
    assert row["jaccard"] == pytest.approx(1 / 2)

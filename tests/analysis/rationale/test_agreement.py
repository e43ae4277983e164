"""Relevance words and rationale words are compared as sets of content words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from xai.analysis.rationale.agreement import agreement_table, agreement_tables, jaccard, write_agreement
from xai.analysis.words import STOPWORDS_VERSION
from xai.attribution.align import word_relevance, words_of
from xai.schema import Explanation, Meme, Mode, Prediction, Quality, TokenTable, Word
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
    words: tuple[Word, ...] | None = None,
    post: str | None = None,
) -> Explanation:
    read = words_of(text, words) if mode != "image" else ()
    spans = [(word.start, word.end) for word in read]
    return Explanation(
        meme=Meme(id=identifier, text=text, language=language, words=words, post=post),
        prediction=Prediction(meme_id=identifier, mode=mode, generated_ids=(), text="", referred_words=referred),
        mode=mode,
        method="attnlrp",
        target=target,
        target_value=1.0,
        token_table=TokenTable(token=(), start=(), end=(), segment=(), relevance=()),
        word_table=word_relevance(read, spans, np.array(relevance)),
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


@pytest.mark.parametrize(
    ("mode", "of_post", "invented"), [("image+text+post", 1, ("sky",)), ("image+text", 0, ("harbour", "sky"))]
)
def test_a_word_that_the_post_has_is_invented_only_where_the_model_was_not_shown_it(
    tmp_path: Path, mode: Mode, of_post: int, invented: tuple[str, ...]
) -> None:
    named = ("boat", "harbour", "sky")
    post = "our harbour, one boat"
    row = only_row(tmp_path, explained("m", "red boat", [0, 1], named, mode=mode, post=post))
    assert (row["n_exact"], row["n_of_post"], row["invented"]) == (1, of_post, invented)


def test_a_phrase_is_split_as_the_text_is(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "这不是仇恨", [0, 3, 0, 2, 1], ("不是", "仇恨"), language="zh"))
    assert row["rationale_words"] == ("不", "是", "仇", "恨")
    assert row["relevance_words"] == ("不", "仇", "恨", "这")
    assert row["jaccard"] == pytest.approx(3 / 5)
    assert (row["n_exact"], row["n_invented"]) == (2, 0)


def test_a_rationale_in_chinese_is_found_among_the_words_that_an_engine_returned(tmp_path: Path) -> None:
    text = "这不是\n仇恨言论。 Hello32"
    found = {"这不是": 0, "仇恨": 4, "言论": 6, "Hello32": 10}
    words = tuple(Word(text=w, start=start, end=start + len(w)) for w, start in found.items())
    row = only_row(
        tmp_path, explained("m", text, [1, 9, 8, 7], ("这不是仇恨言论。Hello32", "仇人"), words=words, language="zh")
    )
    assert row["rationale_words"] == ("这不是", "仇恨", "言论", "hello32", "仇人")
    assert row["invented"] == ("仇人",)
    assert (row["k"], row["n_exact"], row["n_invented"]) == (4, 2, 1)
    assert row["jaccard"] == pytest.approx(4 / 5)


@pytest.mark.parametrize("word", ["仇恨", "仇人者", "恨我们"])
def test_characters_that_do_not_follow_on_each_other_to_the_end_are_no_word(tmp_path: Path, word: str) -> None:
    row = only_row(tmp_path, explained("m", "仇人恨我", [1, 1, 1, 1], (word,), language="zh"))
    assert row["invented"] == (word,)
    assert row["rationale_words"] == (word,)


def test_half_a_word_is_no_stop_word(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "目的 的", [1, 9, 0], ("目的", "的"), language="zh"))
    assert row["rationale_words"] == ("目", "的")
    assert row["relevance_words"] == ("的", "目")
    assert row["jaccard"] == 1


def test_forms_of_a_word_match_by_the_dictionary_and_are_counted_apart(tmp_path: Path) -> None:
    pytest.importorskip("pymorphy3")
    e = explained("m", "народ програв війну", [1, 2, 9], ("війна", "народ", "перемога"), language="uk")
    row = only_row(tmp_path, e)
    assert (row["n_exact"], row["n_inflected"], row["n_invented"]) == (1, 1, 1)
    assert (row["inflected"], row["invented"]) == (("війна",), ("перемога",))
    assert row["k"] == 1
    assert row["jaccard"] == 0
    assert row["jaccard_lemma"] == pytest.approx(1 / 4)
    assert row["lemmas"].startswith("pymorphy3 2.")


def test_forms_of_english_words_match_by_their_endings(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "crooked senators lied", [1, 9, 5], ("senator", "lie", "this")))
    assert row["inflected"] == ("senator", "lie")
    assert row["jaccard"] == 0
    assert row["jaccard_lemma"] == 1
    assert row["lemmas"] == "endings 1.0"


def test_other_languages_match_exactly(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "الكتب", [1], ("كتاب",), language="ar"))
    assert (row["invented"], row["n_inflected"], row["lemmas"]) == (("كتاب",), 0, "none")
    assert row["jaccard_lemma"] == row["jaccard"] == 0


def test_arabic_marks_do_not_tell_words_apart(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "أحدٌ كتـاب", [1, 9], ("كِتاب", "احد"), language="ar"))
    assert (row["n_exact"], row["jaccard"]) == (2, 1)


def test_flagged_words_are_left_out_on_both_sides_and_counted(tmp_path: Path) -> None:
    words = (
        Word(text="crooked", start=0, end=7, flags=("low_confidence",)),
        Word(text="senator", start=8, end=15),
        Word(text="liеs", start=16, end=20, flags=("mixed_script",)),
    )
    e = explained("m", "crooked senator liеs", [9, 2, 5], ("crooked", "senator", "lies"), words=words)
    row = only_row(tmp_path, e)
    assert row["n_flagged"] == 2
    assert row["doubtful"] == ("crooked",)
    assert row["relevance_words"] == ("senator",)
    assert row["rationale_words"] == ("senator", "lies")
    assert row["invented"] == ("lies",)
    assert row["jaccard"] == pytest.approx(1 / 2)


def test_words_read_from_the_picture_are_compared_by_the_picture_under_them(tmp_path: Path) -> None:
    words = (
        Word(text="crooked", start=0, end=7, box=(0, 0, 10, 10)),
        Word(text="senator", start=8, end=15, box=(10, 0, 20, 10)),
        Word(text="lies", start=16, end=20),
    )
    e = explained("m", "crooked senator lies", [], ("senator",), mode="image", words=words)
    e = e.model_copy(update={"image_levels": np.array([[[-3.0, 1.0]], [[0.0, 1.0]]]), "image_size": (20, 10)})
    run = run_of(tmp_path, e)
    signed, absolute = agreement_table(run).iloc[0], agreement_table(run, pooling="mean_abs").iloc[0]
    assert signed["source"] == "picture"
    assert (signed["relevance_words"], signed["jaccard"]) == (("senator",), 1)
    assert (absolute["relevance_words"], absolute["jaccard"]) == (("crooked",), 0)
    assert (signed["n_unplaced"], signed["without_text"]) == (1, False)


def test_an_empty_rationale_is_counted_apart(tmp_path: Path) -> None:
    nothing = explained("m1", "crooked senator", [3, 1], ("the", "..."))
    half = explained("m2", "crooked senator", [3, 1], ("senator",))
    right = explained("m3", "crooked senator", [3, 1], ("crooked",))
    table = agreement_table(run_of(tmp_path, nothing, half, right))
    assert table["jaccard"].isna().tolist() == [True, False, False]
    assert table["empty_rationale"].tolist() == [True, False, False]


def test_a_model_that_was_shown_no_text_is_counted_apart(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "crooked senator", [], ("crooked",), mode="image"))
    assert (row["without_text"], row["empty_rationale"], row["none_read"]) == (True, False, False)
    assert math.isnan(row["jaccard"])


def test_an_answer_that_names_no_word_of_a_picture_is_counted_apart(tmp_path: Path) -> None:
    silent = explained("m", "crooked senator", [], (), mode="image")
    assert only_row(tmp_path / "a", silent)["none_read"]
    assert not only_row(tmp_path / "b", explained("m", "crooked senator", [3, 1], ()))["none_read"]


def test_the_labels_have_a_table_of_their_own_against_the_rationale_of_the_answer(tmp_path: Path) -> None:
    together = explained("m", "crooked senator lies", [1, 3, 2], ("senator", "crooked"))
    smears = explained("m", "crooked senator lies", [9, 0, 1], ("senator", "crooked"), target="Smears")
    with RunWriter(tmp_path / "run", {"task": "ukrmeme"}) as writer:
        writer.add(together.prediction, [together, smears])
    tables = agreement_tables(open_run(tmp_path / "run"))
    assert tables.memes["relevance_words"].tolist() == [("senator", "lies")]
    assert tables.labels["target"].tolist() == ["Smears"]
    assert tables.labels["relevance_words"].tolist() == [("crooked", "lies")]
    assert tables.labels["jaccard"].tolist() == [pytest.approx(1 / 3)]


def test_the_ranking_is_measured_and_chance_is_beside_it(tmp_path: Path) -> None:
    # Content words by relevance: crooked 9, lies 5, senator 3, war 1. Named, in this order: senator, crooked, peace.
    text, relevance = "crooked senator lies the war", [9, 3, 5, 7, 1]
    row = only_row(tmp_path, explained("m", text, relevance, ("senator", "crooked", "peace")))
    assert row["relevance_words"] == ("crooked", "lies")
    assert (row["n_words"], row["n_present"], row["k"]) == (4, 2, 2)
    assert (row["overlap"], row["overlap_chance"]) == (1, pytest.approx(2 * 2 / 4))
    # Of the 6 draws of 2 words, 4 share one of 4 words with the rationale and 1 shares two of 3.
    assert row["jaccard"] == pytest.approx(1 / 4)
    assert row["jaccard_chance"] == pytest.approx((4 * 1 / 4 + 1 * 2 / 3) / 6)
    assert row["excess"] == pytest.approx(row["jaccard"] - row["jaccard_chance"])
    assert row["auroc"] == pytest.approx(3 / 4)
    assert row["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert (row["top_named"], row["prevalence"], row["kendall_tau"]) == (1, 0.5, -1)
    # Agreements of (crooked, lies, senator, war) and (senator, crooked, peace) by equation 32, p = 0.8.
    terms = 0 / 1 * 0.8 + 1 / 2 * 0.8**2 + 2 / 3 * 0.8**3 + (2 + 2 * 1 / 3) / 4 * 0.8**4
    assert row["rbo"] == pytest.approx(0.25 * terms + 2 / 3 * 0.8**4)


@pytest.mark.parametrize(
    ("referred", "defined"),
    [(("peace",), {"top_named"}), (("senator", "crooked"), {"average_precision", "kendall_tau", "top_named"})],
)
def test_where_one_class_is_empty_a_measure_is_not_defined(
    tmp_path: Path, referred: tuple[str, ...], defined: set[str]
) -> None:
    row = only_row(tmp_path, explained("m", "crooked senator", [2, 1], referred))
    measures = ("auroc", "average_precision", "kendall_tau", "top_named")
    assert {name for name in measures if not math.isnan(row[name])} == defined
    assert not math.isnan(row["rbo"])


def test_a_repeated_word_counts_once_with_its_highest_relevance(tmp_path: Path) -> None:
    once = only_row(tmp_path / "once", explained("m", "lies crooked senator", [5, 3, 1], ("crooked",)))
    again = only_row(tmp_path / "again", explained("m", "Lies lies crooked senator", [2, 5, 3, 1], ("crooked",)))
    measures = ["n_words", "jaccard", "jaccard_chance", "rbo", "auroc", "average_precision", "top_named"]
    assert once[measures].tolist() == again[measures].tolist()


def test_without_its_task_a_run_is_compared_and_not_judged(tmp_path: Path) -> None:
    e = explained("m", "crooked senator", [2, 1], ("crooked",))
    e = e.model_copy(update={"meme": e.meme.model_copy(update={"labels": ("Doubt",)})})
    with RunWriter(tmp_path / "run", {"task": "moved.yaml"}) as writer:
        writer.add(e.prediction, [e])
    tables = agreement_tables(open_run(tmp_path / "run"))
    assert "'moved.yaml' cannot be read" in tables.unjudged
    assert (tables.memes["jaccard"][0], tables.memes["right"][0]) == (1, None)


def test_the_order_of_records_does_not_matter(tmp_path: Path) -> None:
    memes = [explained(f"m{i}", "crooked senator lies", [i, 2, 1], ("crooked", "war")) for i in range(4)]
    forwards, backwards = (agreement_table(run_of(tmp_path / str(n), *memes[::n])) for n in (1, -1))
    pd.testing.assert_frame_equal(forwards, backwards.sort_values("meme_id", ignore_index=True))


def test_regions_are_compared_with_the_picture_and_malformed_ones_name_the_meme(tmp_path: Path) -> None:
    def pictured(regions: object) -> Explanation:
        e = explained("m", "crooked senator", [2, 1], ("crooked",))
        prediction = e.prediction.model_copy(update={"mode": "image+text", "referred_image_concepts": ("Flag", "cat")})
        meme = e.meme.model_copy(update={"metadata": {"regions": regions}})
        update = {"meme": meme, "prediction": prediction, "mode": "image+text", "image_size": (20, 10)}
        return e.model_copy(update=update | {"image_levels": np.array([[[3.0, -1.0]], [[0.0, 2.0]]])})

    row = only_row(tmp_path / "a", pictured([{"name": "flag", "boxes": [[10, 0, 20, 10]]}]))
    assert (row["n_concepts"], row["n_placed"]) == (2, 1)
    assert (row["image_mass"], row["image_area"], row["image_hit"]) == (pytest.approx(1 / 4), 0.5, 0)
    assert row["image_excess"] == pytest.approx(-1 / 4)
    with pytest.raises(ValueError, match=r"meme 'm': regions\.0\.boxes"):
        only_row(tmp_path / "b", pictured([{"name": "flag"}]))


def test_the_tables_are_written_with_stable_types_and_read_by_duckdb(tmp_path: Path) -> None:
    run = run_of(tmp_path, explained("m", "crooked senator", [], (), mode="image"))
    paths = write_agreement(agreement_tables(run), run.reports)
    assert sorted(path.name for path in run.reports.iterdir()) == ["agreement.parquet", "agreement_labels.parquet"]
    types = dict(
        duckdb.sql(f"DESCRIBE SELECT * FROM '{paths['memes']}'").df()[["column_name", "column_type"]].to_numpy()
    )
    assert types["shared"] == types["invented"] == "VARCHAR[]"
    assert (types["jaccard"], types["right"], types["n_words"]) == ("DOUBLE", "BOOLEAN", "BIGINT")
    assert duckdb.sql(f"SELECT jaccard, language FROM '{paths['memes']}'").fetchall() == [(None, "en")]
    assert duckdb.sql(f"SELECT count(*) FROM '{paths['labels']}'").fetchall() == [(0,)]


def test_pooling_is_named_and_changes_the_ranking(tmp_path: Path) -> None:
    run = run_of(tmp_path, explained("m", "crooked senator", [-3, 1], ("crooked",)))
    signed, absolute = agreement_table(run), agreement_table(run, pooling="mean_abs")
    assert (signed["pooling"][0], signed["jaccard"][0]) == ("sum", 0)
    assert (absolute["pooling"][0], absolute["jaccard"][0]) == ("mean_abs", 1)
    with pytest.raises(ValueError, match="pooling must be"):
        agreement_table(run, pooling="max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="k must be"):
        agreement_table(run, k=-1)


def test_k_can_be_set(tmp_path: Path) -> None:
    row = only_row(tmp_path, explained("m", "crooked senator lies", [3, 2, 1], ("crooked",)), k=2)
    assert row["relevance_words"] == ("crooked", "senator")
    assert row["jaccard"] == pytest.approx(1 / 2)

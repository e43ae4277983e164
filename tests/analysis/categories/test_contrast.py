"""Groups of words against categories: counts, chi-square and residuals, by hand and by another library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.contingency_tables import Table as Statsmodels

import xai
from xai.analysis.categories import CATEGORIES, UNKNOWN, get_tagger
from xai.analysis.categories.contrast import (
    GROUPS,
    adjusted_residuals,
    category_counts,
    category_section,
    independence,
    meme_contexts,
    permuted_p,
    tagged_words,
)
from xai.analysis.charts import svg
from xai.analysis.rationale.agreement import agreement_table
from xai.analysis.report import Report, Section
from xai.models import VisionLanguageModel
from xai.pipeline import explain_dataset
from xai.planted.truth import write_planted

CONTEXTS: dict[str, tuple[str, str | None]] = {
    "a": ("Never trust a lovely toaster in Oslo", "en"),
    "b": ("Чому Київ любить каву?", "uk"),
    "c": ("no words compared", "en"),
    "d": ("mein Regenschirm", "de"),
}


def row(
    meme_id: str, relevance: str, rationale: str, *, method: str = "attnlrp", empty: bool = False
) -> dict[str, object]:
    return {
        "meme_id": meme_id,
        "mode": "text",
        "method": method,
        "relevance_words": tuple(relevance.split()),
        "rationale_words": tuple(rationale.split()),
        "empty_rationale": empty,
        "without_text": False,
    }


TABLE = pd.DataFrame(
    [
        row("a", "never toaster oslo", "never lovely teapot"),
        row("a", "toaster lovely", "lovely oslo", method="random"),
        row("b", "київ любить", "київ каву"),
        row("c", "words", "", empty=True),
    ]
)
RULES = get_tagger("rules")


def counts_of(section: Section, **where: str) -> dict[str, int]:
    table = section.tables[0].frame
    for name, value in where.items():
        table = table[table[name] == value]
    return {f"{g}, {c}": n for g, c, n in zip(table["group"], table["category"], table["n"], strict=True) if n}


def test_chi_square_and_residuals_of_a_table_worked_by_hand() -> None:
    # Totals 30 and 70, 40 and 60; expected 12, 18, 28, 42; chi2 = 4/12 + 4/18 + 4/28 + 4/42 = 0.793651.
    found = independence(np.array([[10, 20], [30, 40]]))
    assert (found.n, found.dof, found.smallest_expected) == (100, 1, 12)
    assert found.chi2 == pytest.approx(0.793651, abs=1e-6)
    assert found.cramers_v == pytest.approx((0.793651 / 100) ** 0.5, abs=1e-6)
    # (10 - 12) / sqrt(12 · 0.7 · 0.6) = -0.890871, whose square is chi2 where there are two rows and two columns.
    expected = 0.890871 * np.array([[-1, 1], [1, -1]])
    np.testing.assert_allclose(found.residuals, expected, atol=1e-6)


def test_chi_square_and_residuals_are_those_of_statsmodels() -> None:
    counts = np.random.default_rng(4).integers(1, 60, (3, 5))
    theirs = Statsmodels(counts, shift_zeros=False)
    found = independence(counts)
    np.testing.assert_allclose(found.residuals, theirs.standardized_resids, rtol=1e-12)
    tested = theirs.test_nominal_association()
    assert found.chi2 == pytest.approx(tested.statistic, rel=1e-12)
    assert (found.dof, found.p) == (tested.df, pytest.approx(tested.pvalue, rel=1e-9))


def test_what_has_no_word_is_left_out_of_the_test_and_has_no_residual() -> None:
    found = independence(np.array([[10, 0, 20], [30, 0, 40], [0, 0, 0]]))
    assert found.chi2 == pytest.approx(0.793651, abs=1e-6)
    assert np.isnan(found.residuals[:, 1]).all()
    assert np.isnan(found.residuals[2]).all()
    nothing = independence(np.array([[3, 4], [0, 0]]))
    assert (nothing.n, nothing.dof) == (7, 0)
    assert np.isnan([nothing.chi2, nothing.p, nothing.cramers_v]).all()
    assert np.isnan(adjusted_residuals(np.zeros((3, 5)))).all()


def words_of(memes: list[list[tuple[str, str]]]) -> pd.DataFrame:
    """Words by meme, each with its group and category."""
    rows = [(f"m{i}", f"w{i}-{j}", *word) for i, meme in enumerate(memes) for j, word in enumerate(meme)]
    return pd.DataFrame(rows, columns=["meme_id", "word", "group", "category"])


def test_a_difference_within_memes_is_found_by_permutation() -> None:
    # Of 10 memes each has its Emotional word shared. All 10 fall so, or all the other way, in 2 of 2^10 deals.
    words = words_of([[("shared", "Emotional"), ("relevance only", "Content")]] * 10)
    assert permuted_p(words) == pytest.approx(2 / 2**10, abs=0.004)
    assert permuted_p(words) == permuted_p(words.sample(frac=1, random_state=1))


def test_a_difference_between_memes_is_none_within_them() -> None:
    words = words_of([[("shared", "Emotional")] * 4, [("relevance only", "Content")] * 4] * 5)
    assert independence(np.array([[20, 0], [0, 20]])).p < 1e-9
    assert permuted_p(words) == 1
    assert np.isnan(permuted_p(words[words["group"] == "shared"]))


def test_permutation_has_the_chi_square_of_the_table() -> None:
    # Two memes of two words: the four deals give chi2 4, 0, 0, 4, so that half of them reach 4, and all reach 0.
    unlike = [("shared", "Entity"), ("rationale only", "Other")]
    like = [("shared", "Other"), ("rationale only", "Entity")]
    assert permuted_p(words_of([unlike, unlike])) == pytest.approx(0.5, abs=0.05)
    assert permuted_p(words_of([unlike, like])) == 1


def test_words_are_counted_by_group_and_category_of_each_method() -> None:
    section = category_section(TABLE, RULES, CONTEXTS)
    assert counts_of(section, method="attnlrp") == {
        "shared, Entity": 1,  # київ
        "shared, Rhetoric": 1,  # never
        "rationale only, Emotional": 1,  # lovely
        "rationale only, Content": 2,  # teapot, which the text does not have; каву
        "relevance only, Entity": 1,  # oslo
        "relevance only, Emotional": 1,  # любить
        "relevance only, Content": 1,  # toaster
    }
    assert counts_of(section, method="random") == {
        "shared, Emotional": 1, "rationale only, Entity": 1, "relevance only, Content": 1,
    }  # fmt: skip
    percent = section.tables[0].frame.query("method == 'attnlrp' and group == 'rationale only'")["percent"]
    assert percent.sum() == pytest.approx(100)
    tests = section.tables[1].frame.set_index("method")
    assert tests["n"].to_dict() == {"attnlrp": 8, "random": 3}
    assert (tests["p_holm"] >= tests["p_permuted"]).all()


def test_every_word_is_in_exactly_one_group_and_category() -> None:
    words = tagged_words(TABLE, RULES, CONTEXTS)
    assert len(words) == 5 + 3 + 3
    assert set(words["group"]) == set(GROUPS)
    assert not words.duplicated(["meme_id", "mode", "method", "word"]).any()
    counted = category_counts(words)
    assert list(counted.columns) == list(CATEGORIES)
    assert counted.to_numpy().sum() == len(words)


def test_the_order_of_rows_does_not_matter() -> None:
    section = category_section(TABLE, RULES, CONTEXTS)
    assert category_section(TABLE.iloc[::-1], RULES, CONTEXTS) == section
    assert category_section(TABLE.sample(frac=1, random_state=3), RULES, CONTEXTS) == section


def test_of_many_memes_so_many_are_drawn_whatever_the_order_of_rows_and_the_section_says_so() -> None:
    two = TABLE[TABLE["meme_id"] != "c"]
    whole, drawn, turned = (
        category_section(table, get_tagger("rules"), CONTEXTS, n_memes=n, seed=3)
        for table, n in ((two, 2), (two, 1), (two[::-1], 1))
    )
    n_whole, n_drawn, n_turned = (int(section.tables[0].frame["n"].sum()) for section in (whole, drawn, turned))
    assert 0 < n_drawn == n_turned < n_whole
    assert "1 of 2 memes, drawn at random with seed 3" in drawn.text
    assert "drawn at random" not in whole.text


def test_unknown_words_are_counted_and_in_no_table() -> None:
    table = pd.concat([TABLE, pd.DataFrame([row("d", "regenschirm mein", "mein")])], ignore_index=True)
    section = category_section(table, RULES, CONTEXTS)
    assert "2 of 13 words have no category" in section.text
    assert section.tables == category_section(TABLE, RULES, CONTEXTS).tables
    assert (tagged_words(table, RULES, CONTEXTS)["category"] == UNKNOWN).sum() == 2


def test_the_language_of_the_table_goes_before_that_of_the_meme() -> None:
    with_language = TABLE.assign(language=["de", None, "uk", "en"])
    words = tagged_words(with_language, RULES, CONTEXTS)
    without = tagged_words(with_language, RULES, {"a": (CONTEXTS["a"][0], "de"), "b": CONTEXTS["b"]})
    assert (without["category"] == UNKNOWN).sum() == 5 + 3
    unknown = words[words["category"] == UNKNOWN]
    assert set(zip(unknown["meme_id"], unknown["method"], strict=True)) == {("a", "attnlrp")}


def test_rows_of_two_poolings_are_refused() -> None:
    with pytest.raises(ValueError, match="of one pooling"):
        category_section(pd.concat([TABLE, TABLE]), RULES, CONTEXTS)


@pytest.mark.parametrize("rows", [TABLE.iloc[:0], TABLE.iloc[3:]], ids=["no row", "nothing compared"])
def test_a_table_without_words_gives_a_section_without_rows(rows: pd.DataFrame) -> None:
    section = category_section(rows, RULES, CONTEXTS)
    assert all(table.rows == () for table in section.tables)
    assert section.charts == ()


def test_the_section_of_a_run_is_one_call_and_its_charts_can_be_drawn(
    tmp_path: Path, model: VisionLanguageModel
) -> None:
    dataset = write_planted(tmp_path / "data", 8, 21)
    explain_dataset(model, dataset, tmp_path / "run", modes=["text", "image+text"])
    run = xai.open_run(tmp_path / "run")
    table = agreement_table(run)
    section = category_section(table, RULES, meme_contexts(run))
    report = Report(title="t", headline=("categories", "category_tests"), sections=(section,))
    tests = report.table("category_tests").frame
    assert list(tests["mode"]) == ["image+text", "text"]
    union = [set(row.relevance_words) | set(row.rationale_words) for row in table.itertuples()]
    assert tests["n"].sum() == sum(map(len, union))
    assert [chart.name for chart in section.charts] == [
        "category_residuals", "category_shares_image+text_attnlrp", "category_shares_text_attnlrp",
    ]  # fmt: skip
    assert all("<svg" in svg(chart) for chart in section.charts)

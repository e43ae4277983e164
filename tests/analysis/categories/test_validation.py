"""Taggers against gold words: figures worked by hand, what ships, and what the documentation says of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from xai.analysis.categories import CATEGORIES, UNKNOWN, WordInContext, get_tagger
from xai.analysis.categories.validation import SHIPPED, SHIPPED_GOLD, read_gold, validate
from xai.analysis.report import Report
from xai.attribution.align import normal_form, split_words

DOCS = Path(__file__).parents[3] / "docs" / "categories.md"


class Fixed:
    """Says of each word what it was given for it."""

    name, version = "fixed", "1"

    def __init__(self, said: Sequence[str]) -> None:
        self.said = said

    def tag(self, words: Sequence[WordInContext]) -> list[str]:
        assert len(words) == len(self.said)
        return list(self.said)


def gold(categories: Sequence[str], split: str = "all") -> pd.DataFrame:
    rows = [(f"w{i}", f"text {i // 2}", "en", category, split) for i, category in enumerate(categories)]
    return pd.DataFrame(rows, columns=["word", "context", "language", "category", "split"])


@pytest.fixture(scope="module")
def shipped() -> Report:
    pytest.importorskip("pymorphy3")
    return validate(read_gold(SHIPPED_GOLD), get_tagger("rules"), source=SHIPPED)


def test_figures_are_those_worked_by_hand() -> None:
    # 3 Entity, 1 Content; said: Entity, Entity, Content, Content. Agreement 3/4, by chance 3/4 · 1/2 + 1/4 · 1/2 = 1/2,
    # kappa (3/4 - 1/2) / (1 - 1/2) = 1/2. Entity: precision 1, recall 2/3, F1 4/5; Content: 1/2, 1, 2/3.
    report = validate(
        gold(["Entity", "Entity", "Entity", "Content"]), Fixed(["Entity", "Entity", "Content", "Content"]), source="g"
    )
    (row,) = report.table("agreement").frame.to_dict("records")
    assert (row["n"], row["accuracy"], row["kappa"]) == (4, 0.75, pytest.approx(0.5))
    assert row["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert row["largest_category"] == 0.75
    assert row["accuracy_low"] <= 0.75 <= row["accuracy_high"]
    by_category = report.table("by_category").frame.set_index("category")
    assert by_category.loc["Entity", ["precision", "recall", "f1"]].tolist() == pytest.approx([1, 2 / 3, 4 / 5])
    assert by_category.loc["Content", ["precision", "recall", "f1"]].tolist() == pytest.approx([1 / 2, 1, 2 / 3])
    assert report.table("errors").frame[["word", "gold", "tagged"]].to_numpy().tolist() == [["w2", "Entity", "Content"]]
    confusion = report.table("confusion").frame.set_index("gold")
    assert (confusion.loc["Entity", "Entity"], confusion.loc["Entity", "Content"]) == (2, 1)


def test_an_unknown_word_is_counted_and_wrong() -> None:
    report = validate(gold(["Entity", "Content"]), Fixed(["Entity", UNKNOWN]), source="g")
    assert report.table("agreement").frame["accuracy"].tolist() == [0.5]
    assert report.facts["unknown"] == 1
    assert report.table("confusion").frame.set_index("gold").loc["Content", UNKNOWN] == 1


def test_parts_are_told_apart_and_errors_are_of_the_held_out_one() -> None:
    words = pd.concat([gold(["Entity", "Content"], "dev"), gold(["Content", "Other"], "test")], ignore_index=True)
    report = validate(words, Fixed(["Other", "Content", "Content", "Entity"]), source="g")
    agreement = report.table("agreement").frame.set_index("part")["accuracy"]
    assert agreement.to_dict() == {"dev": 0.5, "test": 0.5}
    assert report.table("errors").frame["split"].tolist() == ["test"]
    assert report.table("confusion").frame[list(CATEGORIES)].to_numpy().sum() == 2


def test_the_rules_reach_the_bar_on_words_that_were_written_after_them(shipped: Report) -> None:
    accuracy = shipped.table("agreement").frame.set_index("part")["accuracy"]
    assert accuracy["test"] >= 0.80
    assert accuracy["dev"] >= 0.80
    assert shipped.facts["unknown"] == 0


def test_the_gold_words_that_ship_stand_in_their_texts_and_every_category_has_many() -> None:
    words = read_gold(SHIPPED_GOLD)
    assert set(words["split"]) == {"dev", "test"}
    assert (words["split"] == "dev").sum() >= 120
    assert (words["split"] == "test").sum() >= 60
    for language, part in words.groupby("language"):
        assert part["category"].value_counts().min() >= 35, language
        assert set(part["category"]) == set(CATEGORIES)
    for word, context in words[["word", "context"]].itertuples(index=False):
        assert normal_form(word) in {normal_form(context[start:end]) for start, end in split_words(context)}
    assert not words.duplicated(["word", "context"]).any()
    assert not set(words.query("split == 'dev'")["context"]) & set(words.query("split == 'test'")["context"])


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading."""
    part = page.split(f"## {heading}\n", 1)[1]
    table = re.search(r"^\|.*?(?=\n\n)", part, re.DOTALL | re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def test_the_documentation_has_these_figures_and_lists_every_error(shipped: Report) -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert rows_of(page, "How good the rules are") == shipped.table("agreement").shown()[1]
    by_category = [row for row in shipped.table("by_category").shown()[1] if row[0] == "test"]
    assert rows_of(page, "By category") == [row[1:] for row in by_category]
    errors = [[row[2], row[5], row[3], row[4]] for row in shipped.table("errors").shown()[1]]
    assert rows_of(page, "What they get wrong") == errors
    for name, definition in CATEGORIES.items():
        assert f"**{name}.** {definition}" in re.sub(r"\s+", " ", page)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("word,context,language\na,a,en\n", "lacks category"),
        ("word,context,language,category\n", "has no rows"),
        ("word,context,language,category\na,a,en,Entity\nb,b,en,Weather\n", "row 3: category 'Weather' is none of"),
        ("word,context,language,category\n ,a,en,Entity\n", "row 2: there is no word"),
        ("", "cannot be read as a CSV file"),
    ],
)
def test_what_is_wrong_with_gold_words_is_named(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "gold.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_gold(path)


def test_words_such_as_null_are_words(tmp_path: Path) -> None:
    path = tmp_path / "gold.csv"
    path.write_text("word,context,language,category\nnull,null and NA,en,Content\nNA,null and NA,en,Other\n")
    assert read_gold(path)["word"].tolist() == ["null", "NA"]

"""The published annotations: every record is read, and every label is one of the preset's."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from xai.datasets import read_memes
from xai.schema import Meme
from xai.tasks import load_task

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the published annotations are not in ../shared/data")


@pytest.mark.parametrize(
    ("name", "count", "none", "smears"),
    [("ukrmeme", 200, 92, 41), ("ptm-ua", 158, 2, 84), ("propaganda950", 200, 4, 105)],
)
def test_every_published_record_is_read_with_labels_of_the_preset(
    name: str, count: int, none: int, smears: int
) -> None:
    memes = list(read_memes(DATA / name / "test.jsonl"))
    assert len(memes) == count
    assert all(isinstance(meme, Meme) and meme.image is not None and not meme.metadata for meme in memes)
    counts = Counter(label for meme in memes for label in meme.labels)
    assert counts.keys() <= set(load_task("ukrmeme").label_names)
    assert (counts["NO_PROPAGANDA"], counts["Smears"]) == (none, smears)


def test_the_published_sets_use_every_label_of_the_preset() -> None:
    names = ("ukrmeme", "ptm-ua", "propaganda950")
    used = {label for name in names for meme in read_memes(DATA / name / "test.jsonl") for label in meme.labels}
    assert used == set(load_task("ukrmeme").label_names)


def test_the_spellings_of_the_two_annotators_match_the_preset(tmp_path: Path) -> None:
    task = load_task("ukrmeme")
    table = pd.read_csv(DATA / "ukrmeme" / "annotators.csv")
    for column in ("labels_annotator1", "labels_annotator2"):
        path = tmp_path / f"{column}.csv"
        table.rename(columns={"image": "id", column: "labels"})[["id", "labels"]].to_csv(path, index=False)
        memes = list(read_memes(path))
        assert [list(meme.labels) for meme in memes] == [ast.literal_eval(cell) for cell in table[column]]
        assert all(task.match_label(label) for meme in memes for label in meme.labels)

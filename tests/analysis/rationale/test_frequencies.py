"""Words are counted by side, once a meme."""

from __future__ import annotations

import pandas as pd
import pytest

from xai.analysis.rationale.frequencies import SIDES, frequent_words

TABLE = pd.DataFrame(
    {
        "mode": ["text", "text", "text", "image+text"],
        "relevance_words": [("lies", "war"), ("lies", "sun"), (), ("sun",)],
        "rationale_words": [("lies", "peace"), ("sun", "lies"), (), ("moon",)],
        "shared": [("lies",), ("lies", "sun"), (), ()],
        "invented": [("peace",), (), (), ("moon",)],
        "jaccard": [1 / 3, 1.0, float("nan"), 0.0],
    }
)


def test_each_side_is_counted_by_group_and_over_the_memes_that_could_be_compared() -> None:
    shared = frequent_words(TABLE, "shared", ["mode"])
    assert shared.to_dict("records") == [
        {"mode": "text", "rank": 1, "word": "lies", "memes": 2, "share": 1.0},
        {"mode": "text", "rank": 2, "word": "sun", "memes": 1, "share": 0.5},
    ]
    found = {side: set(frequent_words(TABLE, side, ["mode"])["word"]) for side in SIDES}
    assert found["rationale_only"] == {"peace", "moon"}
    assert found["relevance_only"] == {"war", "sun"}
    assert found["invented"] == {"peace", "moon"}


def test_the_order_of_memes_does_not_matter_and_a_meme_twice_counts_twice() -> None:
    counted = frequent_words(TABLE, "shared", ["mode"])
    pd.testing.assert_frame_equal(frequent_words(TABLE[::-1], "shared", ["mode"]), counted)
    twice = frequent_words(pd.concat([TABLE, TABLE]), "shared", ["mode"])
    assert twice["memes"].tolist() == [4, 2]
    assert twice["share"].tolist() == counted["share"].tolist()


def test_the_first_words_of_every_group_come_first_and_no_more_than_asked_for() -> None:
    found = frequent_words(TABLE, "relevance_only", ["mode"], n=1)
    assert found[["mode", "word"]].to_numpy().tolist() == [["image+text", "sun"], ["text", "war"]]


def test_an_unknown_side_is_refused() -> None:
    with pytest.raises(ValueError, match="side must be one of shared"):
        frequent_words(TABLE, "both", ["mode"])

"""Explanations against causes that are known: by hand on two small maps, then on the planted world."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from xai.analysis.faithfulness.ground_truth import (
    CHANCE,
    MEASURES,
    PLACES,
    both_found,
    ground_truth_frame,
    ground_truth_section,
    localise,
    points_at,
    summary,
)
from xai.analysis.report import Report
from xai.attribution.align import word_relevance, words_of
from xai.models import VisionLanguageModel
from xai.planted.evaluate import ground_truth_of, localisations, score_pointing
from xai.planted.truth import CauseTruth, Truth
from xai.schema import Explanation, Meme, Mode, Prediction, Quality, TokenTable

TEXT = "doubt the old teapot crowd"
WORDS = {word.text: (word.start, word.end) for word in words_of(TEXT, None)}
TRUTH = Truth(
    causes=(
        CauseTruth(label="Doubt", kind="word", faithful=True, words=(WORDS["doubt"],)),
        CauseTruth(label="Smears", kind="icon", faithful=True, boxes=((0, 0, 25, 20),)),
        CauseTruth(label="Both", kind="both", faithful=True, words=(WORDS["crowd"],), boxes=((50, 20, 60, 40),)),
    ),
    decoy_words=(WORDS["teapot"],),
    decoy_boxes=((62, 0, 79, 19),),
    referred_words=(),
    referred_image_concepts=(),
)
GRID = np.array([[8.0, 4.0, 0.0, 1.0], [-9.0, 0.0, 2.0, 5.0]])
"""Of a picture of 80 × 40 pixels, so that a cell is 20 pixels wide and high."""


def explained(
    target: str,
    words: Sequence[float] = (1, 2, 3, 4, 5),
    grid: np.ndarray | None = GRID,
    *,
    mode: Mode = "image+text",
    method: str = "attnlrp",
    meme: str = "m",
    text: str = TEXT,
) -> Explanation:
    read = words_of(text, None) if mode != "image" else ()
    return Explanation(
        meme=Meme(id=meme, text=text),
        prediction=Prediction(meme_id=meme, mode=mode, generated_ids=(), text=""),
        mode=mode,
        method=method,
        target=target,
        target_value=1.0,
        token_table=TokenTable(token=(), start=(), end=(), segment=(), relevance=()),
        word_table=word_relevance(read, [(w.start, w.end) for w in read], np.array(words, dtype=float)[: len(read)]),
        image_levels=None if grid is None else grid[None],
        image_size=None if grid is None else (80, 40),
        shares={},
        quality=Quality(conservation=None, sink_share=0, template_share=0),
    )


def test_words_of_the_cause_are_found_among_the_words() -> None:
    (row,) = localise(explained("Doubt", [5, -3, 1, 2, 0]), TRUTH)
    assert (row.units, row.kind, row.n_units, row.n_cause) == ("words", "word", 5, 1)
    assert (row.pointing, row.rank, row.auroc, row.average_precision) == (1, 1, 1, 1)
    assert row.mass == pytest.approx(5 / 8)
    assert row.points_at == "cause"
    assert (row.chance, row.chance_other_cause, row.chance_decoy) == (1 / 5, 1 / 5, 1 / 5)


def test_cells_of_the_cause_are_those_that_its_box_touches() -> None:
    (row,) = localise(explained("Smears"), TRUTH)
    # The box is 25 pixels wide, so that it touches the first two cells of the first row.
    assert (row.units, row.n_units, row.n_cause) == ("cells", 8, 2)
    assert (row.pointing, row.rank) == (1, 1 / 2)
    assert row.mass == pytest.approx(12 / 20)
    assert row.chance_decoy == 1 / 8


@pytest.mark.parametrize(
    ("relevance", "place"),
    [
        ([9, 0, 0, 0, 0], "cause"),
        ([0, 0, 0, 0, 9], "other_cause"),
        ([0, 0, 0, 9, 0], "decoy"),
        ([0, 9, 9, 0, 0], "elsewhere"),
        ([9, 0, 0, 9, 0], "tie"),
        ([-9, 0, -1, -1, -1], "elsewhere"),
    ],
)
def test_what_a_map_points_at_instead(relevance: list[float], place: str) -> None:
    (row,) = localise(explained("Doubt", relevance), TRUTH)
    assert row.points_at == place
    assert row.pointing == (place == "cause")


def test_only_what_the_mode_shows_can_be_found() -> None:
    assert localise(explained("*"), TRUTH) == localise(explained("Bandwagon"), TRUTH) == []
    assert [row.units for row in localise(explained("Both"), TRUTH)] == ["words", "cells"]
    assert localise(explained("Both", grid=None, mode="text"), TRUTH) == []
    assert localise(explained("Smears", grid=None, mode="text"), TRUTH) == []
    assert localise(explained("Doubt", mode="image"), TRUTH) == []
    assert [row.units for row in localise(explained("Smears", mode="image"), TRUTH)] == ["cells"]


def test_the_truth_of_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="explain the text and words that the planted memes bring"):
        localise(explained("Doubt", text="what an engine did read"), TRUTH)


def test_a_run_of_planted_memes_has_a_section_and_other_runs_have_none() -> None:
    truth = {"truth": TRUTH.model_dump(mode="json")}

    def planted(text: str) -> Explanation:
        e = explained("Doubt", text=text)
        return e.model_copy(update={"meme": e.meme.model_copy(update={"metadata": truth})})

    assert ground_truth_of([explained("Doubt")]) is None
    section = ground_truth_of([planted(TEXT), explained("Doubt")])
    assert section is not None
    assert "left out" not in section.text
    section = ground_truth_of([planted(TEXT), planted("what an engine did read")])
    assert section is not None
    assert "1 explanations of another text" in section.text
    assert section.tables[0].frame["n"].tolist() == [1, 1]


def test_both_halves_are_found_or_one_of_them() -> None:
    found = np.where(np.arange(8).reshape(2, 4) == 6, 1.0, 0.0)
    maps = [([0, 0, 0, 0, 1], found), ([0, 0, 0, 0, 1], -found), ([1, 0, 0, 0, 0], -found), ([0, 0, 0, 0, 1], found)]
    rows = [
        row
        for index, (words, grid) in enumerate(maps)
        for row in localise(explained("Both", words, grid, meme=f"m{index}"), TRUTH)
    ]
    ours, chance = both_found(ground_truth_frame(rows)).to_dict("records")
    assert [ours[name] for name in ("n", "word", "icon", "both", "neither")] == [4, 3 / 4, 1 / 2, 1 / 2, 1 / 4]
    assert chance["both"] == pytest.approx(1 / 5 * 1 / 8)
    assert chance["neither"] == pytest.approx(4 / 5 * 7 / 8)


def test_means_are_over_explanations_and_intervals_over_memes() -> None:
    hits = {"a": [1, 1, 1, 1], "b": [0], "c": [0], "d": [1]}
    rows = [
        row
        for meme, values in hits.items()
        for value in values
        for row in localise(explained("Doubt", [2 * value - 1, 0, 0, 0, 0], meme=meme), TRUTH)
    ]
    ours, chance = summary(ground_truth_frame(rows)).to_dict("records")
    assert (ours["n"], ours["n_memes"], ours["pointing"]) == (7, 4, pytest.approx(5 / 7))
    sums, counts = np.array([4, 0, 0, 1]), np.array([4, 1, 1, 1])
    theirs = stats.bootstrap(
        (sums, counts),
        lambda s, n, axis: s.sum(axis) / n.sum(axis),
        method="percentile",
        paired=True,
        n_resamples=20_000,
        rng=0,
    ).confidence_interval
    assert (ours["pointing_low"], ours["pointing_high"]) == pytest.approx((theirs.low, theirs.high), abs=0.06)
    assert (chance["method"], chance["pointing"], chance["auroc"]) == (CHANCE, pytest.approx(1 / 5), 0.5)


def test_the_section_holds_every_number_and_its_chance() -> None:
    targets = ("Doubt", "Smears", "Both")
    maps = [explained(target, meme=meme, method=m) for target in targets for meme in "ab" for m in ("x", "y")]
    frame = ground_truth_frame(row for e in maps for row in localise(e, TRUTH))
    section = ground_truth_section(frame)
    report = Report(title="t", sections=(section,))
    table = report.table("ground_truth").frame
    assert set(table["method"]) == {"x", "y", CHANCE}
    assert table.loc[table["method"] == CHANCE, list(MEASURES)].notna().all(axis=None)
    shares = report.table("ground_truth_points_at").frame
    assert shares[list(PLACES)].sum(axis=1).to_numpy() == pytest.approx(1)
    assert set(report.table("ground_truth_by_cause").frame["kind"]) == {"word", "icon", "both"}
    with pytest.raises(ValueError, match="explain planted memes"):
        ground_truth_section(ground_truth_frame([]))


def test_on_the_planted_world_a_method_that_looks_beats_chance_and_one_that_does_not_does_not(
    model: VisionLanguageModel, new_memes: list[Meme]
) -> None:
    names = ("attnlrp", "gradient_x_input", "random")
    frame = ground_truth_frame(
        row for name in names for row in localisations(model, new_memes[:40], name, "image+text")
    )
    table = summary(frame).set_index(["units", "method"])
    for units in ("words", "cells"):
        ours, floor, chance = (table.loc[(units, name)] for name in ("attnlrp", "random", CHANCE))
        assert ours["n"] >= 40
        for measure in MEASURES:
            assert ours[f"{measure}_low"] > chance[measure]
            assert floor[f"{measure}_low"] - 0.02 <= chance[measure] <= floor[f"{measure}_high"] + 0.02
    # A plain gradient times the input points at decoys more often than chance does, and at the cause less often.
    places = points_at(frame).set_index(["units", "method"]).loc["words"]
    assert places.loc["gradient_x_input", "decoy"] > places.loc[CHANCE, "decoy"]
    assert places.loc["gradient_x_input", "cause"] < places.loc[CHANCE, "cause"]
    assert both_found(frame).set_index("method").loc["attnlrp", "both"] >= 0.8


def test_the_evaluation_of_the_model_and_the_comparison_of_methods_are_one_measurement(
    model: VisionLanguageModel, new_memes: list[Meme]
) -> None:
    scores = score_pointing(model, new_memes[:10], "attnlrp", "image+text")
    frame = ground_truth_frame(localisations(model, new_memes[:10], "attnlrp", "image+text"))
    words = frame[(frame["kind"] == "word") & (frame["units"] == "words")]
    icons = frame[(frame["kind"] == "icon") & (frame["units"] == "cells")]
    assert (scores.n_words, scores.word_hit) == (len(words), words["pointing"].mean())
    assert (scores.n_icons, scores.cell_mass) == (len(icons), pytest.approx(icons["mass"].mean()))

"""The planted world: varied, harmless in its causes, and with no cause but the planted ones."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest

from xai.planted.lexicon import load_lexicon
from xai.planted.model import CELL, MAX_CELLS, MIN_CELLS
from xai.planted.render import render
from xai.planted.truth import planted_meme, truth_of
from xai.planted.world import (
    MAX_WORDS,
    MIN_WORDS,
    SIZES,
    answer_of,
    labels_of,
    sample_scene,
    with_other_decoys,
    without_cause,
)
from xai.tasks import load_task

SCENES = [sample_scene(7, index) for index in range(1500)]
LABELS = [set(labels_of(scene)) for scene in SCENES]


def test_at_least_ten_labels_of_the_task_have_a_cause_and_every_kind_of_cause_occurs() -> None:
    lexicon = load_lexicon()
    assert len(lexicon.labels) >= 10
    assert set(lexicon.labels) <= set(load_task("ukrmeme").label_names)
    assert all(lexicon.by_kind(kind) for kind in ("word", "icon", "both"))
    seen = Counter(label for labels in LABELS for label in labels)
    assert set(seen) == {*lexicon.labels, "NO_PROPAGANDA"}
    assert min(seen.values()) >= 100


def test_exactly_two_labels_have_a_rationale_that_names_a_decoy() -> None:
    unfaithful = [label for label, cause in load_lexicon().labels.items() if not cause.faithful]
    assert unfaithful == ["Appeal to authority", "Bandwagon"]


def test_captions_keep_to_their_length_and_both_languages_occur() -> None:
    lengths = [len(scene.pieces) for scene in SCENES]
    assert min(lengths) == MIN_WORDS
    assert max(lengths) == MAX_WORDS
    assert {scene.language for scene in SCENES} == {"en", "uk"}


def test_every_caption_holds_one_decoy_of_each_class_whatever_its_labels() -> None:
    classes = Counter({"household": 1, "vehicle": 1})
    assert all(Counter(p.group for p in scene.pieces if p.role == "decoy") == classes for scene in SCENES)


@pytest.mark.parametrize("label", sorted(load_lexicon().labels))
def test_decoy_icons_and_fillers_are_as_frequent_with_a_label_as_without(label: str) -> None:
    lexicon = load_lexicon()

    def rate(shapes: list[set[str]], name: str) -> float:
        return sum(name in shown for shown in shapes) / len(shapes)

    shapes = [{icon.name for icon in scene.icons} for scene in SCENES]
    holding = [shown for shown, labels in zip(shapes, LABELS, strict=True) if label in labels]
    others = [shown for shown, labels in zip(shapes, LABELS, strict=True) if label not in labels]
    for icon in lexicon.decoy_icons:
        p = rate(shapes, icon)
        # Five standard errors of a difference of two proportions: 16 × 13 comparisons stay far inside.
        bound = 5 * math.sqrt(p * (1 - p) * (1 / len(holding) + 1 / len(others)))
        assert abs(rate(holding, icon) - rate(others, icon)) < bound


def test_no_word_has_two_roles() -> None:
    for vocabulary in load_lexicon().languages.values():
        groups = [*vocabulary.triggers.values(), *vocabulary.decoys.values()]
        forms = [form.casefold() for group in groups for lexeme in group for form in lexeme]
        fillers = [word.casefold() for words in vocabulary.fillers.values() for word in words]
        assert len(set(forms)) == len(forms)
        assert not set(forms) & set(fillers)


def test_a_label_that_needs_both_holds_in_no_mode_that_hides_a_half() -> None:
    both = set(load_lexicon().by_kind("both"))
    assert any(both & set(labels_of(scene, "image+text")) for scene in SCENES)
    assert not any(both & set(labels_of(scene, "text")) for scene in SCENES)
    assert not any(both & set(labels_of(scene, "image")) for scene in SCENES)


def test_taking_a_cause_away_takes_its_label_away_and_nothing_else() -> None:
    for scene in SCENES[:300]:
        for label in set(labels_of(scene)) - {"NO_PROPAGANDA"}:
            left = set(labels_of(without_cause(scene, label, Random(0)))) - {"NO_PROPAGANDA"}
            assert left == set(labels_of(scene)) - {label}


def test_other_decoys_change_every_decoy_and_no_label() -> None:
    for scene in SCENES[:300]:
        changed = with_other_decoys(scene, Random(0))
        assert labels_of(changed) == labels_of(scene)
        for before, after in zip(scene.pieces, changed.pieces, strict=True):
            assert (before.text == after.text) == (before.role == "trigger")


def test_the_rationale_names_words_of_the_caption_and_for_unfaithful_labels_the_decoy() -> None:
    for scene in SCENES:
        words = {piece.text: piece for piece in scene.pieces}
        answer = answer_of(scene)
        assert set(answer.referred_words) <= set(words)
        if answer.labels == ("Bandwagon",):
            assert [words[word].group for word in answer.referred_words] == ["vehicle"]


def test_the_same_number_gives_the_same_scene_and_pixels() -> None:
    assert sample_scene(7, 3) == SCENES[3]
    assert render(SCENES[3]).picture.tobytes() == render(sample_scene(7, 3)).picture.tobytes()


def test_boxes_lie_in_the_picture_and_icons_cover_no_word() -> None:
    for scene in SCENES[:150]:
        drawing = render(scene)
        width, height = drawing.picture.size
        for x0, y0, x1, y1 in (*drawing.word_boxes, *drawing.icon_boxes):
            assert -2 <= x0 < x1 <= width + 2
            assert -2 <= y0 < y1 <= height + 2
        for icon in drawing.icon_boxes:
            assert not any(_overlap(icon, word) for word in drawing.word_boxes)


def test_every_picture_has_at_least_25_merged_cells() -> None:
    for width, height in SIZES:
        scale = math.sqrt(MAX_CELLS * CELL**2 / (width * height))
        cells = int(width * scale // CELL) * int(height * scale // CELL)
        assert MIN_CELLS <= cells <= MAX_CELLS


def test_truth_points_at_the_causes() -> None:
    for scene in SCENES[:60]:
        meme = planted_meme(scene, "m")
        truth = truth_of(meme)
        assert [cause.label for cause in truth.causes] == [la for la in meme.labels or () if la != "NO_PROPAGANDA"]
        for cause in truth.causes:
            assert bool(cause.words) == (cause.kind != "icon")
            assert bool(cause.boxes) == (cause.kind != "word")
            if cause.faithful:
                assert {meme.text[start:end] for start, end in cause.words} <= set(truth.referred_words)


def test_a_meme_without_truth_is_refused_with_the_remedy() -> None:
    meme = planted_meme(SCENES[0], "m").model_copy(update={"metadata": {}})
    with pytest.raises(ValueError, match="xai planted OUT"):
        truth_of(meme)


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]

"""The checkpoint that ships, held against the world it was trained on, on memes that training never drew."""

from __future__ import annotations

import pytest

from xai.models import VisionLanguageModel
from xai.planted.evaluate import score_answers, score_interventions, score_pointing
from xai.planted.lexicon import load_lexicon
from xai.planted.truth import truth_of
from xai.schema import Meme, Mode


def test_answers_match_the_world(model: VisionLanguageModel, new_memes: list[Meme]) -> None:
    scores = score_answers(model, new_memes[:100])
    assert scores.f1 >= 0.95
    assert scores.word_f1 >= 0.95
    assert scores.icon_f1 >= 0.90
    assert scores.referred_words_f1 >= 0.95
    assert scores.strict >= 0.99


def test_causes_cause_and_decoys_do_not(model: VisionLanguageModel) -> None:
    scores = score_interventions(model, 100)
    assert scores.n_causes >= 100
    assert scores.flip_cause >= 0.95
    assert scores.flip_part >= 0.95
    assert scores.flip_decoy <= 0.05


@pytest.mark.parametrize("mode", ["text", "image+text"])
def test_attnlrp_points_at_the_trigger_words(model: VisionLanguageModel, new_memes: list[Meme], mode: Mode) -> None:
    lrp = score_pointing(model, new_memes, "attnlrp", mode)
    assert lrp.n_words >= 100
    assert lrp.word_hit >= 0.98
    assert score_pointing(model, new_memes[:50], "gradient_x_input", mode).word_hit < lrp.word_hit


@pytest.mark.parametrize(("mode", "mass"), [("image+text", 0.85), ("image", 0.80)])
def test_attnlrp_points_at_the_icons(
    model: VisionLanguageModel, new_memes: list[Meme], mode: Mode, mass: float
) -> None:
    lrp = score_pointing(model, new_memes, "attnlrp", mode)
    assert lrp.n_icons >= 80
    assert lrp.cell_hit >= 0.95
    assert lrp.cell_mass >= mass


def test_a_random_method_does_not_point(model: VisionLanguageModel, new_memes: list[Meme]) -> None:
    floor = score_pointing(model, new_memes[:60], "random", "image+text")
    assert floor.word_hit < 0.5
    assert floor.cell_mass < 0.5


def test_the_samples_show_every_label_both_languages_and_both_kinds_of_rationale() -> None:
    from xai.datasets import read_memes
    from xai.planted import SAMPLES

    memes = [meme for meme in read_memes(SAMPLES) if isinstance(meme, Meme)]
    assert len(memes) == 24
    assert {label for meme in memes for label in meme.labels or ()} == {*load_lexicon().labels, "NO_PROPAGANDA"}
    assert {meme.language for meme in memes} == {"en", "uk"}
    truths = [truth_of(meme) for meme in memes]
    assert sum(truth.all_word_caused and truth.faithful for truth in truths) >= 4
    assert sum(truth.unfaithful for truth in truths) >= 4

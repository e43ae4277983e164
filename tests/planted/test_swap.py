"""Two models that differ only in which words cause two labels: what explains them has to follow the cause."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from xai.analysis.faithfulness.ground_truth import ground_truth_frame, localise
from xai.models import VisionLanguageModel
from xai.pipeline import explain, explain_answer, predict
from xai.planted.evaluate import EVALUATION_SEED
from xai.planted.swap import paired_words, swapped_truth, with_swapped_words
from xai.planted.truth import planted_meme, truth_of
from xai.planted.world import Scene, labels_of, sample_scene
from xai.schema import Meme, Mode

FIRST, SECOND = "Doubt", "Slogans"
N_MEMES = 12


@pytest.fixture(scope="module")
def changed(model: VisionLanguageModel) -> VisionLanguageModel:
    return with_swapped_words(model, FIRST, SECOND)


@pytest.fixture(scope="module")
def memes() -> list[Meme]:
    """Memes with a word of each class, so that both models answer both labels to the same input."""
    found: list[Scene] = []
    index = 0
    while len(found) < N_MEMES:
        scene = sample_scene(EVALUATION_SEED, index)
        found += [scene] if {FIRST, SECOND} <= set(labels_of(scene)) else []
        index += 1
    return [planted_meme(scene, f"both-{number}") for number, scene in enumerate(found)]


def with_words_swapped(text: str) -> str:
    partner = {a: b for one, other in paired_words(FIRST, SECOND) for a, b in ((one, other), (other, one))}
    words = sorted(partner, key=len, reverse=True)
    marked = text
    for number, word in enumerate(words):
        marked = marked.replace(word, f"<{number}>")
    for number, word in enumerate(words):
        marked = marked.replace(f"<{number}>", partner[word])
    return marked


def test_causes_are_exchanged_and_nothing_else(
    model: VisionLanguageModel, changed: VisionLanguageModel, new_memes: list[Meme]
) -> None:
    other = {FIRST: SECOND, SECOND: FIRST}
    seen, same_words = {"kept": 0, "moved": 0}, []
    answers = (predict(one, new_memes[:60], mode="text") for one in (model, changed))
    for before, after in zip(*answers, strict=True):
        if {FIRST, SECOND} & set(before.labels):
            seen["moved"] += 1
            assert set(after.labels) == {other.get(label, label) for label in before.labels}
            same_words.append(set(after.referred_words) == set(before.referred_words))
        else:
            seen["kept"] += 1
            assert after.generated_ids == before.generated_ids
    assert min(seen.values()) >= 8
    # The changed model names the words that are in the caption, and not those that it reads them as.
    assert np.mean(same_words) >= 0.85


def test_the_changed_model_is_the_first_one_on_the_swapped_caption(
    model: VisionLanguageModel, changed: VisionLanguageModel, memes: list[Meme]
) -> None:
    text = memes[0].text
    plain, turned = (Meme(id="m", text=one) for one in (text, with_words_swapped(text)))
    assert plain.text != turned.text
    ours, theirs = explain(changed, plain, mode="text"), explain(model, turned, mode="text")
    assert ours.prediction.labels == theirs.prediction.labels
    assert np.array(ours.word_table.relevance) == pytest.approx(np.array(theirs.word_table.relevance), abs=1e-6)


@pytest.mark.parametrize(
    ("method", "mode"),
    [("attnlrp", "text"), ("attnlrp", "image+text"), ("cplrp", "image+text"), ("occlusion", "text")],
)
def test_explanations_follow_the_cause(
    model: VisionLanguageModel, changed: VisionLanguageModel, memes: list[Meme], method: str, mode: Mode
) -> None:
    rows = []
    for one, truth in ((model, truth_of), (changed, lambda meme: swapped_truth(truth_of(meme), FIRST, SECOND))):
        for meme, answer in zip(memes, predict(one, memes, mode=mode), strict=True):
            assert {FIRST, SECOND} <= set(answer.labels)
            explanations = explain_answer(one, meme, answer, method=method)
            rows += [row for e in explanations for row in localise(e, truth(meme)) if e.target in (FIRST, SECOND)]
    frame = ground_truth_frame(rows)
    assert len(frame) == 4 * N_MEMES
    assert frame["pointing"].mean() >= 0.95


def test_noise_does_not_follow_the_cause(
    model: VisionLanguageModel, changed: VisionLanguageModel, memes: list[Meme]
) -> None:
    explain_text = partial(explain, mode="text", method="random", target=FIRST)
    for meme in memes[:4]:
        first, second = (explain_text(one, meme).word_table.relevance for one in (model, changed))
        assert first == second


def test_labels_without_words_of_their_own_cannot_be_swapped(model: VisionLanguageModel) -> None:
    with pytest.raises(ValueError, match="those that are: Doubt"):
        with_swapped_words(model, "Doubt", "Smears")

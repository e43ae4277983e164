"""Infidelity is captum's, sensitivity is 0 where nothing can change, and stability compares the same words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from xai.analysis.faithfulness.robustness import as_jpeg, infidelity, max_sensitivity, stability, with_typo
from xai.models import VisionLanguageModel
from xai.pipeline import explain_answer, predict
from xai.planted.truth import planted_memes
from xai.schema import Explanation, Meme

from .linear_world import LinearModel

WEIGHTS = np.array([3.0, -2.0, 1.0, 0.5])


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def explanation(model: VisionLanguageModel) -> Explanation:
    (meme,) = planted_memes(1, 900_001)
    return explain_answer(model, meme, predict(model, [meme])[0], targets="all")[0]


@pytest.mark.parametrize("factor", [1.0, 0.1, 7.0])
def test_the_weights_of_a_linear_model_are_faithful_whatever_their_unit(factor: float) -> None:
    model = LinearModel(WEIGHTS)
    assert infidelity(model, model.units(2), factor * WEIGHTS, 0) == pytest.approx(0, abs=1e-9)


def test_infidelity_is_what_is_left_of_the_best_fit_through_zero() -> None:
    model, wrong = LinearModel(WEIGHTS), np.array([1.0, 1.0, 0.0, 0.0])
    # The same subsets: a map of one unit tells whether it was taken away.
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 5, size=200)
    gone = np.array([np.isin(np.arange(4), rng.permutation(4)[:size]) for size in sizes], dtype=float)
    claimed, change = gone @ wrong, gone @ WEIGHTS
    beta = (claimed @ change) / (claimed @ claimed)
    expected = np.mean((beta * claimed - change) ** 2) / np.mean(change**2)
    assert infidelity(model, model.units(2), wrong, 0, n=200, seed=5) == pytest.approx(expected)


def test_a_map_of_zeros_accounts_for_nothing() -> None:
    model = LinearModel(WEIGHTS)
    assert infidelity(model, model.units(2), np.zeros(4), 0) == pytest.approx(1)


def test_a_score_that_never_changes_has_no_infidelity() -> None:
    model = LinearModel(np.zeros(4), bias=1.0)
    assert np.isnan(infidelity(model, model.units(2), WEIGHTS, 0))


def test_sensitivity_grows_with_the_noise_and_leaves_the_model_as_it_was(
    model: VisionLanguageModel, explanation: Explanation
) -> None:
    state = torch.random.get_rng_state()
    none, little, much = (max_sensitivity(model, explanation, radius=radius, n=2) for radius in (0, 0.01, 0.3))
    assert none == pytest.approx(0, abs=1e-6)
    assert 0 < little < much
    assert torch.equal(state, torch.random.get_rng_state())
    assert not model.model.get_input_embeddings()._forward_hooks  # type: ignore[operator]


def test_stability_compares_words_and_cells_of_nearly_the_same_meme(
    model: VisionLanguageModel, explanation: Explanation
) -> None:
    found = stability(model, explanation)
    assert 0.5 < found["jpeg"] <= 1
    assert -1 <= found["typo"] < 1


def test_a_typo_exchanges_two_letters_inside_one_word() -> None:
    meme = Meme(id="m", text="a tram goes by")
    noisy = with_typo(meme, 3)
    assert noisy is not None
    assert noisy.text != meme.text
    assert sorted(noisy.text) == sorted(meme.text)
    assert [word[0] for word in noisy.text.split()] == ["a", "t", "g", "b"]
    assert with_typo(Meme(id="m", text="a bb 11")) is None


def test_a_jpeg_is_nearly_the_picture(explanation: Explanation) -> None:
    before, after = (np.asarray(m.open_image(), dtype=float) for m in (explanation.meme, as_jpeg(explanation.meme)))
    assert before.shape == after.shape
    assert 0 < np.abs(before - after).mean() < 6

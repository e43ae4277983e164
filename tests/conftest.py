"""What several test folders share: the shipped model, loaded once, and new planted memes."""

from __future__ import annotations

import os

# No test may wait for a model hub; set before anything reads it, and inherited by the processes that tests start.
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest

import xai
from xai.models import VisionLanguageModel
from xai.planted.evaluate import EVALUATION_SEED
from xai.planted.truth import planted_memes


@pytest.fixture(scope="session")
def model() -> VisionLanguageModel:
    return xai.load_model("planted", device="cpu")


@pytest.fixture(scope="session")
def new_memes() -> list[xai.Meme]:
    """200 memes that training never drew."""
    return planted_memes(200, EVALUATION_SEED)

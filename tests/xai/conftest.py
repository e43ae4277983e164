"""Random checkpoints of every family, each written and loaded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import xai
from xai.models import VisionLanguageModel

from .checkpoints import save_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``checkpoint(family)``: a folder as a user would have it."""
    return cache(lambda family: save_checkpoint(family, tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(scope="session")
def loaded(checkpoint: Callable[[str], Path]) -> Callable[[str], VisionLanguageModel]:
    """``loaded(family)``: that folder through ``xai.load_model``."""
    return cache(lambda family: xai.load_model(checkpoint(family), device="cpu"))

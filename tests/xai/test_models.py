"""Loading and answering: greedy, by the ids with the highest logits, the same in batches as alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

import xai
from xai.attribution.families import UnsupportedModelError
from xai.models import VisionLanguageModel
from xai.pipeline import predict
from xai.planted import CHECKPOINT
from xai.processors import reader_of
from xai.prompts import PromptStyle, encode_prompt
from xai.tasks import load_task

from .checkpoints import save_checkpoint


def test_the_checkpoint_is_small_and_loads_without_this_package() -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) <= 12_000_000
    processor = AutoProcessor.from_pretrained(CHECKPOINT)
    model = AutoModelForImageTextToText.from_pretrained(CHECKPOINT)
    assert model.config.model_type == "qwen3_vl"
    assert model.config.vision_config.deepstack_visual_indexes
    assert processor.tokenizer.chat_template or processor.chat_template


def test_batched_answers_are_those_given_alone(model: VisionLanguageModel, new_memes: list[xai.Meme]) -> None:
    memes = new_memes[:8]
    together = predict(model, memes, batch_size=8)
    alone = [predict(model, [meme], batch_size=1)[0] for meme in memes]
    assert [p.generated_ids for p in together] == [p.generated_ids for p in alone]


def test_generated_ids_have_the_highest_logits(model: VisionLanguageModel, new_memes: list[xai.Meme]) -> None:
    prompt = encode_prompt(model.processor, load_task("ukrmeme"), new_memes[0], "text", PromptStyle(variant="short"))
    (ids,) = model.generate([prompt])
    whole = torch.cat([prompt.inputs["input_ids"], torch.tensor([ids])], dim=1)
    with torch.no_grad():
        logits = model.model(input_ids=whole).logits[0, len(prompt) - 1 : -1]
    assert logits.argmax(-1).tolist() == list(ids)
    assert ids[-1] == model.processor.tokenizer.eos_token_id


def test_an_answer_is_cut_at_the_limit(model: VisionLanguageModel, new_memes: list[xai.Meme]) -> None:
    (prediction,) = predict(model, new_memes[:1], max_new_tokens=3)
    assert len(prediction.generated_ids) == 3
    assert prediction.parse == "unparsed"
    assert prediction.labels == ()


def test_a_model_that_is_not_there_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give 'planted', a folder"):
        xai.load_model(tmp_path)


def test_a_model_without_a_chat_template_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    folder = save_checkpoint("Llama", tmp_path, with_template=False)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"no chat template.*chat_template\.jinja"):
        xai.load_model(folder)


def test_a_model_of_an_unknown_family_is_refused_by_name(tmp_path: Path) -> None:
    folder = save_checkpoint("Llama", tmp_path)
    config = MistralConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    MistralForCausalLM(config).save_pretrained(folder)
    with pytest.raises(UnsupportedModelError, match=r"'mistral'.*Llama"):
        xai.load_model(folder)


def test_an_unknown_processor_is_refused_by_name(loaded: Callable[[str], VisionLanguageModel]) -> None:
    with pytest.raises(ValueError, match=r"Qwen2Tokenizer writes a prompt.*Gemma3Processor"):
        reader_of(loaded("Qwen2").processor.tokenizer)


def test_a_folder_with_several_gguf_files_needs_a_choice(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"2 GGUF files; name one, such as 'a\.gguf'"):
        xai.load_model(tmp_path)


@pytest.mark.parametrize("content", [b"no GGUF at all", b"GGUF cut short"])
def test_a_gguf_file_that_cannot_be_read_is_refused_with_what_to_give(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "a.gguf").write_bytes(content)
    for given in (tmp_path, tmp_path / "a.gguf"):
        with pytest.raises(ValueError, match="give 'planted', a folder"):
            xai.load_model(given)


def test_a_quantised_checkpoint_whose_library_is_missing_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "gptq"
    shutil.copytree(CHECKPOINT, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match="cannot load model"):
        xai.load_model(folder, device="cpu")


def test_a_description_names_device_dtype_and_fingerprint(model: VisionLanguageModel) -> None:
    described = model.describe()
    assert described["dtype"] == "float32"
    assert described["device"] == "cpu"
    assert described["attention"] == "sdpa"
    half = xai.load_model("planted", device="cpu", dtype=torch.bfloat16)
    assert half.describe()["dtype"] == "bfloat16"
    assert half.fingerprint != model.fingerprint == xai.load_model("planted", device="cpu").fingerprint

"""The doctor says of every module which rule it gets, and of a model whether it can be explained."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from xai.attribution import families
from xai.attribution.ocr import get_engine
from xai.doctor import check_table, devices, diagnose, module_table, ocr_engines, versions
from xai.schema import ALL_MODES, Mode

from .checkpoints import save_checkpoint

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def saved(name: str, folder: Path) -> str:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES)
    getattr(transformers, f"{name}ForCausalLM")(config).save_pretrained(folder)
    return str(folder)


def test_the_environment_is_that_of_this_process() -> None:
    assert versions()["torch"] == torch.__version__.split("+")[0]
    assert devices()[0]["device"] == "cpu"


def test_every_ocr_engine_is_listed_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    rows = {row["engine"]: row for row in ocr_engines()}
    assert set(rows) == {"tesseract", "rapidocr", "easyocr"}
    assert rows["tesseract"]["version"] == "not installed"
    assert rows["tesseract"]["install"] == (
        "apt-get install tesseract-ocr tesseract-ocr-ukr tesseract-ocr-ara tesseract-ocr-chi-sim"
    )
    monkeypatch.undo()
    for row in ocr_engines():
        assert row["languages"] == ", ".join(get_engine(row["engine"]).languages())


def test_the_shipped_model_conserves_to_the_last_digits_and_every_module_has_a_rule() -> None:
    diagnosis = diagnose("planted", device="cpu")
    assert diagnosis.problem == ""
    report = json.loads(json.dumps(diagnosis.report(), allow_nan=False))
    assert report["family"] == "Qwen3-VL"
    assert report["uncovered"] == {}
    assert all(module["rule"] != "none" for module in report["modules"])
    exact = [check for check in report["checks"] if check["limit"] is not None]
    assert len(exact) >= 10
    assert all(check["passed"] for check in exact)
    assert diagnosis.verification is not None
    table = module_table(diagnosis.verification)
    assert table["n"].sum() == len(report["modules"])
    row = table[table["module"] == "model.language_model.layers.*.mlp"].iloc[0]
    assert (row["class"], row["rule"], row["n"]) == ("Qwen3VLTextMLP", "gated MLP", 4)
    assert set(check_table(diagnosis.verification)["result"]) == {"holds", "reported"}


def test_the_command_line_draws_no_progress_of_libraries_where_nobody_watches() -> None:
    command = [sys.executable, "-m", "xai.cli", "doctor", "planted", "--device", "cpu", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=600, check=True)
    assert json.loads(done.stdout)["model"]["files"]
    assert done.stderr == ""


def test_weights_alone_can_be_explained_but_not_asked(tmp_path: Path) -> None:
    diagnosis = diagnose(saved("Llama", tmp_path))
    assert diagnosis.problem == ""
    assert diagnosis.report()["family"] == "Llama"
    assert diagnosis.modes == ()
    assert "tokenizer" in diagnosis.asking


@pytest.mark.parametrize(
    ("family", "modes"), [("Gemma 3", ALL_MODES), ("Gemma 3 text", ("text",)), ("Qwen2", ("text",))]
)
def test_what_a_checkpoint_folder_can_be_shown_is_named(
    checkpoint: Callable[[str], Path], family: str, modes: tuple[Mode, ...]
) -> None:
    report = json.loads(json.dumps(diagnose(str(checkpoint(family)), device="cpu").report(), allow_nan=False))
    assert (report["family"], tuple(report["modes"]), report["asking"]) == (family, modes, "")
    assert report["can_be_explained"]
    assert all(check["passed"] is not False for check in report["checks"])


def test_a_checkpoint_without_a_chat_template_is_told_to_get_one(tmp_path: Path) -> None:
    diagnosis = diagnose(str(save_checkpoint("Qwen3", tmp_path, with_template=False)))
    assert (diagnosis.problem, diagnosis.modes) == ("", ())
    assert "chat_template.jinja" in diagnosis.asking


def test_a_family_that_is_not_there_is_named(tmp_path: Path) -> None:
    diagnosis = diagnose(saved("Mistral", tmp_path))
    assert diagnosis.verification is None
    assert "'mistral'" in diagnosis.problem
    assert diagnosis.report()["can_be_explained"] is False


def test_modules_without_a_rule_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = families._text_family("Mistral", "mistral", "Llama")
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES, entry))
    diagnosis = diagnose(saved("Mistral", tmp_path))
    assert "model.layers.0.mlp (MistralMLP" in diagnosis.problem
    assert diagnosis.report()["uncovered"]["model.norm"].startswith("MistralRMSNorm")
    assert diagnosis.report()["checks"] == []

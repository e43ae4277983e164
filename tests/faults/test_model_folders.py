"""A model folder that is not whole is refused by the name of what is missing; nothing is drawn in its place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import xai
from xai.planted import CHECKPOINT
from xai.weights import INDEX

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture(scope="module")
def sharded(model: xai.VisionLanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model in three files."""
    folder = tmp_path_factory.mktemp("model") / "sharded"
    shutil.copytree(CHECKPOINT, folder)
    (folder / "model.safetensors").unlink()
    model.model.save_pretrained(folder, max_shard_size="3MB")  # type: ignore[operator]
    assert len(list(folder.glob("model-*.safetensors"))) == 3
    return folder


def cut_in_half(folder: Path) -> None:
    content = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(content[: len(content) // 2])


def forget_in_index(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    index["weight_map"] = {name: file for name, file in index["weight_map"].items() if file != SHARD}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")


def test_a_model_in_several_files_is_the_model(model: xai.VisionLanguageModel, sharded: Path) -> None:
    assert xai.load_model(sharded, device="cpu").fingerprint == model.fingerprint


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / SHARD).unlink(), f"'{SHARD}' is missing"),
        (cut_in_half, f"'{SHARD}' cannot be read"),
        (lambda folder: (folder / SHARD).write_bytes(b""), f"'{SHARD}' cannot be read"),
        (lambda folder: (folder / INDEX).write_text("{"), f"'{INDEX}' cannot be read"),
        (forget_in_index, r"no file has model\.\S+, .* \(59 in all\)"),
    ],
    ids=["missing", "cut in half", "empty", "broken index", "forgotten by the index"],
)
def test_a_folder_that_is_not_whole_is_refused_by_the_name_of_what_is_missing(
    sharded: Path, tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(sharded, folder)
    damage(folder)
    with pytest.raises(ValueError, match=f"{reason}.*download the model again") as refused:
        xai.load_model(folder, device="cpu")
    assert "give 'planted'" not in str(refused.value)

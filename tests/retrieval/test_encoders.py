"""Dual encoders: what the model computes, of unit length, from a folder that is checked before it is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModel, AutoProcessor

from xai.retrieval import make_embedder
from xai.retrieval.encoders import DualEncoder

from .small_encoders import POSITIONS, WIDTH, save_clip, save_siglip2

TEXTS = ["a red flag", "two cats", "a"]


def pictures() -> list[Image.Image]:
    draw = np.random.default_rng(0)
    return [Image.fromarray(draw.integers(0, 256, (20, 30, 3), dtype=np.uint8)) for _ in range(3)]


@pytest.fixture(scope="module", params=[save_siglip2, save_clip], ids=["siglip2", "clip"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    save: Callable[[Path], Path] = request.param
    return save(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def siglip2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_siglip2(tmp_path_factory.mktemp("siglip2"))


def test_the_vectors_are_those_of_the_model_at_length_one(folder: Path) -> None:
    model, processor = AutoModel.from_pretrained(folder).eval(), AutoProcessor.from_pretrained(folder)
    settings = {"padding": "max_length", "truncation": True, "max_length": POSITIONS, "return_tensors": "pt"}
    with torch.inference_mode():
        texts = model.get_text_features(**processor(text=TEXTS, **settings)).pooler_output
        seen = model.get_image_features(**processor.image_processor(pictures(), return_tensors="pt")).pooler_output
    encoder = make_embedder(str(folder), device="cpu")
    for found, expected in ((encoder.texts(TEXTS), texts), (encoder.pictures(pictures()), seen)):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, torch.nn.functional.normalize(expected, dim=1), atol=1e-6)


def test_a_text_has_the_vector_that_it_has_alone(folder: Path) -> None:
    encoder = DualEncoder(str(folder), device="cpu")
    alone = np.concatenate([encoder.texts([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.texts(TEXTS), alone, atol=1e-6)
    many = [*TEXTS] * 8  # more than a batch
    np.testing.assert_allclose(encoder.texts(many)[-3:], alone, atol=1e-6)


def test_texts_and_pictures_share_a_space_and_an_empty_text_has_no_place_in_it(siglip2: Path) -> None:
    encoder = DualEncoder(str(siglip2), device="cpu")
    rows = encoder.texts(["cats", " \n"])
    assert rows.shape == (2, WIDTH)
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 0], abs=1e-6)
    assert encoder.pictures(pictures()).shape == (3, WIDTH)


def test_a_longer_text_is_cut_where_the_model_ends(folder: Path) -> None:
    encoder = DualEncoder(str(folder), device="cpu")
    one, other = encoder.texts(["b" * 40, "b" * 40 + "z"])
    np.testing.assert_array_equal(one, other)


def test_device_and_type_are_as_asked_and_are_recorded(siglip2: Path) -> None:
    described = DualEncoder(str(siglip2), device="cpu", dtype="bfloat16").describe()
    assert (described["type"], described["device"], described["dtype"]) == ("siglip2", "cpu", "bfloat16")
    assert described["fingerprint"] != DualEncoder(str(siglip2), device="cpu").describe()["fingerprint"]


def as_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def with_code(folder: Path) -> None:
    """As jina-clip-v2 comes: a type that transformers does not know, and code that would."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "jina_clip", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "code.py").write_text("raise SystemExit('code of a checkpoint was run')", encoding="utf-8")


def without_a_layer(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["text_config"]["num_hidden_layers"] = 3
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (as_pickle, "are a pickle"),
        (with_code, "code of its own that comes with it, which is never run"),
        (without_a_layer, "no file has text_model"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 50), "'model.safetensors' cannot be read"),
    ],
    ids=["pickle", "code", "weights missing", "damaged"],
)
def test_a_folder_that_is_not_safe_or_not_whole_is_refused(
    siglip2: Path, tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(siglip2, folder)
    damage(folder)
    with pytest.raises(ValueError, match=reason):
        make_embedder(str(folder), device="cpu")


def test_a_model_of_another_kind_is_refused_by_its_type() -> None:
    with pytest.raises(ValueError, match="model type 'qwen3_vl' does not embed both texts and pictures"):
        make_embedder("planted")


def test_a_name_that_is_nothing_says_what_there_is() -> None:
    with pytest.raises(
        ValueError, match=r"cannot load model 'no-such'.*there are the embedders tfidf, phash, thumbnail"
    ):
        make_embedder("no-such")

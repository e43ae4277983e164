"""Blocks: what memory is too small for, what breaks, what a batch is made of, and a dataset that grows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import xai
from xai.batches import is_out_of_memory, like_length
from xai.models import ModelSource, VisionLanguageModel
from xai.pipeline import explain_dataset
from xai.planted.truth import write_planted

from .conftest import BROKEN, OPTIONS, N, rows


@contextmanager
def at_forward(model: VisionLanguageModel, do: Callable[[int], None]) -> Iterator[None]:
    """Within the block, ``do`` is called with the batch size before every forward of the model."""

    def hook(module: torch.nn.Module, arguments: Any, named: dict[str, Any]) -> None:
        given = named.get("input_ids")
        do(len(named["inputs_embeds"] if given is None else given))

    handle = model.model.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def too_much(batch: int) -> None:
    if batch > 2:
        torch.empty(batch * 2**50)


def test_a_batch_that_memory_is_too_small_for_is_halved_and_that_is_recorded(
    model: VisionLanguageModel, tmp_path: Path
) -> None:
    dataset = write_planted(tmp_path / "data", 8, 5)
    with at_forward(model, too_much):
        result = explain_dataset(model, dataset, tmp_path / "run", modes=["text"], batch_size=7)
    # 7 do not fit, so that 4 and 3 are tried, and 2, 2 and 2, 1 are answered; the eighth is a batch of its own.
    assert (result.explained, result.failed, result.halved) == (8, 0, 3)
    sizes = xai.open_run(tmp_path / "run").predictions().df()["batch_size"].tolist()
    assert sorted(sizes) == [1, 1, 2, 2, 2, 2, 2, 2]
    explain_dataset(model, dataset, tmp_path / "whole", modes=["text"], batch_size=7)
    answers = [xai.open_run(tmp_path / name).predictions().df()["answer"].tolist() for name in ("run", "whole")]
    assert answers[0] == answers[1]


def test_a_meme_that_memory_is_too_small_for_alone_is_its_failure(model: VisionLanguageModel, tmp_path: Path) -> None:
    dataset = write_planted(tmp_path / "data", 2, 5)

    def never(batch: int) -> None:
        torch.empty(2**50)

    with at_forward(model, never):
        result = explain_dataset(model, dataset, tmp_path / "run", modes=["text"])
    assert (result.explained, result.failed, result.halved) == (0, 2, 1)
    for _, _, stage, reason in xai.open_run(tmp_path / "run").failures().fetchall():
        assert stage == "predict"
        assert reason.startswith("memory ran out (")
        assert "make the picture smaller" in reason


def test_what_says_that_memory_ran_out() -> None:
    with pytest.raises(RuntimeError) as of_host:
        torch.empty(2**55)
    assert is_out_of_memory(of_host.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes differ"))


def test_a_device_that_failed_stops_the_run_and_fails_no_record(model: VisionLanguageModel, tmp_path: Path) -> None:
    dataset = write_planted(tmp_path / "data", 3, 5)

    def fail(batch: int) -> None:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    with at_forward(model, fail), pytest.raises(torch.AcceleratorError):
        explain_dataset(model, dataset, tmp_path / "run")
    run = xai.open_run(tmp_path / "run")
    assert run.info["state"] == "running"
    assert run.failures().fetchall() == []
    assert explain_dataset(model, dataset, tmp_path / "run").explained == 3


def test_an_error_that_nobody_thought_of_is_the_failure_of_its_record(
    model: VisionLanguageModel, tmp_path: Path
) -> None:
    dataset = write_planted(tmp_path / "data", 3, 5)
    calls = []

    def fail_once(batch: int) -> None:
        calls.append(batch)
        if batch == 3 or len(calls) == 2:
            raise IndexError("list index out of range")

    with at_forward(model, fail_once):
        result = explain_dataset(model, dataset, tmp_path / "run", modes=["text"])
    assert (result.explained, result.failed) == (2, 1)
    ((_, _, stage, reason),) = xai.open_run(tmp_path / "run").failures().fetchall()
    assert (stage, reason) == ("predict", "IndexError: list index out of range")


def test_a_batch_is_of_memes_of_like_length(tmp_path: Path) -> None:
    Image.new("RGB", (280, 280)).save(tmp_path / "large.png")
    memes = [
        xai.Meme(id="short", text="a" * 40, image=tmp_path / "missing.png"),
        xai.Meme(id="long", text="a" * 400),
        xai.Meme(id="middle", text="a" * 80),
        xai.Meme(id="large", text="a", image=tmp_path / "large.png"),
    ]

    def names(mode: xai.Mode) -> list[list[str]]:
        return [[meme.id for meme in batch] for batch in like_length(memes, mode, 2)]

    assert names("text") == [["long", "middle"], ["short", "large"]]
    assert names("image+text") == [["large", "long"], ["middle", "short"]]


def test_a_dataset_that_grew_goes_on_with_what_is_new(model: VisionLanguageModel, tmp_path: Path) -> None:
    dataset = write_planted(tmp_path / "data", 9, 5)
    lines = dataset.read_text(encoding="utf-8").splitlines(keepends=True)
    options = {"modes": ["text"], "part_size": 4, "batch_size": 2}
    dataset.write_text("".join(lines[:6]), encoding="utf-8")
    explain_dataset(model, dataset, tmp_path / "run", **options)
    dataset.write_text("".join(lines), encoding="utf-8")
    result = explain_dataset(model, dataset, tmp_path / "run", **options)
    assert (result.explained, result.failed, result.resumed) == (3, 0, 6)
    names = [row[0] for row in xai.open_run(tmp_path / "run").predictions().fetchall()]
    expected = [json.loads(line)["id"] for line in lines]
    assert sorted(names) == sorted(expected)
    assert names[:6] == expected[:6]
    assert explain_dataset(model, dataset, tmp_path / "run", **options).resumed == 9


def test_two_processes_make_the_same_rows(dataset: Path, undisturbed: Path, tmp_path: Path) -> None:
    told: list[int] = []
    result = explain_dataset(
        ModelSource(device="cpu"), dataset, tmp_path / "run", **OPTIONS, workers=2, on_progress=told.append
    )
    assert (result.explained, result.failed, result.resumed) == (2 * N - 1, 1, 0)
    assert sum(told) == 2 * N
    assert rows(tmp_path / "run") == rows(undisturbed)
    assert BROKEN in rows(undisturbed)["failures"]
    again = explain_dataset(ModelSource(device="cpu"), dataset, tmp_path / "run", **OPTIONS, workers=2)
    assert (again.explained, again.failed, again.resumed) == (0, 0, 2 * N)


def test_several_workers_take_the_place_of_the_model_and_not_the_model(
    model: VisionLanguageModel, dataset: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"in 2 workers, every worker loads .*ModelSource\('planted'\)"):
        explain_dataset(model, dataset, tmp_path / "run", workers=2)
    with pytest.raises(ValueError, match="cannot load model 'nowhere'"):
        explain_dataset(ModelSource("nowhere"), dataset, tmp_path / "run", workers=2)
    assert not (tmp_path / "run").exists()

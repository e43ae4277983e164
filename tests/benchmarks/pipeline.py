"""What everything around the model costs: beside a model, and alone on 66,000 memes with a stub in its place."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from tests.benchmarks.harness import Record, Settings, figure
from xai.attribution.inputs import borrow
from xai.attribution.methods import get_method, method
from xai.attribution.relevance import placed
from xai.datasets import read_memes, write_memes
from xai.models import Generated, VisionLanguageModel, load_model
from xai.pipeline import explain_dataset
from xai.planted import CHECKPOINT
from xai.planted.truth import write_planted
from xai.prompts import PromptStyle
from xai.schema import Meme

SHARE = 0.05
"""Of the model's time, at most."""
N_MEMES, N_SMALL = 66_000, 200
N_PICTURES = 500
"""Different pictures of the 66,000 memes; opened for each meme all the same."""
_in_model = [0.0]
_noise = np.random.default_rng(0)


@method(name="timed", needs=["gradients"], source="attnlrp, timed")
def timed(model: Any, inputs: Any, targets: Any) -> Any:
    """AttnLRP that adds up its seconds."""
    begin = time.perf_counter()
    results = get_method("attnlrp")(model, inputs, targets)
    _in_model[0] += time.perf_counter() - begin
    return results


@method(name="stub", needs=["forwards"], source="no model")
def stub(model: Any, inputs: Any, targets: Any) -> Any:
    """Noise in the shape of an explanation, without a forward."""
    with borrow(model, inputs, targets, gradients=False) as (_, batch):
        rows = [_noise.standard_normal(batch.sequence_length)]
        rows += list(_noise.standard_normal((4, len(batch.image_positions))))
        return [placed(batch, target, 1.0, rows) for target in targets]


class TimedModel(VisionLanguageModel):
    """Adds up the seconds of its answers."""

    def generate_scored(self, *arguments: Any, **named: Any) -> list[Generated]:
        begin = time.perf_counter()
        answers = super().generate_scored(*arguments, **named)
        _in_model[0] += time.perf_counter() - begin
        return answers


class StubModel(VisionLanguageModel):
    """Gives the same answer of two labels at once; one of random weights would give none."""

    def generate_scored(self, prompts: Sequence[Any], max_new_tokens: int = 512) -> list[Generated]:
        answer = {"labels": ["Repetition", "Doubt"], "referred_words": ["the"], "referred_image_concepts": []}
        ids = tuple(self.processor.tokenizer(json.dumps(answer), add_special_tokens=False)["input_ids"])
        return [Generated(ids, -1.0)] * len(prompts)


def measure(settings: Settings) -> Iterator[Record]:
    """The share of everything else in the model's time, twice; then memes a second and memory without a model."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _beside_the_model(Path(folder), settings)
        yield from _without_a_model(Path(folder), settings)


def _beside_the_model(folder: Path, settings: Settings) -> Iterator[Record]:
    planted = load_model("planted", device="cpu")
    larger = dataclasses.replace(
        planted, model=_larger(planted, settings), fingerprint="random", style=PromptStyle(variant="full")
    )
    for name, kind, model, n, wanted in (
        ("the model that ships", TimedModel, planted, 64, None),
        ("6 layers of width 1024, full prompt", StubModel, larger, 3, SHARE),
    ):
        memes = write_planted(folder / f"memes-{n}", settings.rounds(n), 41)
        own = kind(**{one.name: getattr(model, one.name) for one in dataclasses.fields(model)})
        shares = []
        for attempt in range(settings.rounds(3)):
            _in_model[0], begin = 0.0, time.perf_counter()
            summary = explain_dataset(own, memes, folder / f"{n}-{attempt}", method="timed")
            total = time.perf_counter() - begin
            assert not summary.failed
            shares.append((total - _in_model[0]) / _in_model[0])
        note = f"{n} memes; the answer's time included" if kind is TimedModel else f"{n} memes; given answers"
        yield figure(f"time beside the model / time in the model, {name}", shares, at_most=wanted, note=note)


def _without_a_model(folder: Path, settings: Settings) -> Iterator[Record]:
    n = N_SMALL if settings.small else N_MEMES
    planted = load_model("planted", device="cpu")
    model = StubModel(**{one.name: getattr(planted, one.name) for one in dataclasses.fields(planted)})
    dataset = _many(folder, n)
    peak = _Peak()
    with peak:
        begin = time.perf_counter()
        explain_dataset(model, dataset, folder / "many", method="stub")
        seconds = time.perf_counter() - begin
    size = sum(path.stat().st_size for path in (folder / "many").rglob("*.parquet"))
    note = "read, tokenise, open pictures, align, store; no forward, no generation"
    yield figure(f"pipeline without a model, {n} memes", [n / seconds], "memes/s", note=note)
    yield figure("memory at the start", [peak.first / 2**30], "GiB")
    yield figure(f"memory in the middle, after {n // 2} memes", [peak.middle / 2**30], "GiB")
    yield figure("memory at its highest", [peak.highest / 2**30], "GiB")
    yield figure("the run on disk, a meme with three explanations", [size / n / 2**10], "KiB")


class _Peak:
    """Looks at the memory of this process once a second."""

    def __enter__(self) -> _Peak:
        self._process, self._end, self._seen = psutil.Process(), threading.Event(), []
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.is_set():
            self._seen.append(self._process.memory_info().rss)
            self._end.wait(1.0)

    @property
    def first(self) -> int:
        return self._seen[min(5, len(self._seen) - 1)]

    @property
    def middle(self) -> int:
        return self._seen[len(self._seen) // 2]

    @property
    def highest(self) -> int:
        return max(self._seen)


def _many(folder: Path, n: int) -> Path:
    """``n`` memes with the captions and pictures of fewer."""
    few = [meme for meme in read_memes(write_planted(folder / "few", min(n, N_PICTURES), 43)) if isinstance(meme, Meme)]
    path = folder / "few" / "many.jsonl"
    copies = (few[index % len(few)].model_copy(update={"id": f"m{index}"}) for index in range(n))
    write_memes(path, copies)
    return path


def _larger(planted: VisionLanguageModel, settings: Settings) -> Any:
    """The architecture that ships with random weights and, in a full run, the widths of Qwen3-0.6B."""
    config = AutoConfig.from_pretrained(CHECKPOINT)
    config.text_config.max_position_embeddings = 8192
    if not settings.small:
        text = config.text_config
        text.hidden_size, text.intermediate_size, text.num_hidden_layers = 1024, 3072, 6
        text.num_attention_heads, text.num_key_value_heads, text.head_dim = 16, 8, 128
        text.layer_types = ["full_attention"] * text.num_hidden_layers
        text.rope_parameters = {**text.rope_parameters, "mrope_section": [24, 20, 20]}
        config.vision_config.out_hidden_size = 1024
    torch.manual_seed(0)
    return AutoModelForImageTextToText.from_config(config).eval().requires_grad_(False)

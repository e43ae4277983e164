"""Every family works from a checkpoint folder to an explanation, in every mode that it can read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import xai
from xai.attribution.families import family_of
from xai.models import VisionLanguageModel
from xai.pipeline import predict
from xai.processors import reader_of
from xai.prompts import PromptStyle, encode_prompt
from xai.schema import MODES, Mode
from xai.tasks import load_task

from .checkpoints import ANSWER, FAMILY_NAMES, TEXT, TEXT_FAMILIES, VISION_FAMILIES

Loaded = Callable[[str], VisionLanguageModel]
ASKED = [(name, mode) for name in FAMILY_NAMES for mode in (MODES if name in VISION_FAMILIES else ("text",))]


def memes(n: int) -> list[xai.Meme]:
    """Pictures of different sizes, none of them square, with captions of different lengths."""
    generator = np.random.default_rng(0)
    return [
        xai.Meme(
            id=f"m{index}",
            text=TEXT + " so" * index,
            image=Image.fromarray(generator.integers(0, 255, (40 + 8 * index, 72, 3), dtype=np.uint8)),
        )
        for index in range(n)
    ]


@pytest.mark.parametrize(("family", "mode"), ASKED)
def test_an_answer_is_explained_token_by_token(loaded: Loaded, family: str, mode: Mode) -> None:
    model, (meme,) = loaded(family), memes(1)
    e = xai.explain(model, meme, mode=mode, answer=ANSWER)
    assert e.prediction.labels == ("Smears", "Doubt")
    assert e.prediction.text == ANSWER
    tokens = e.tokens
    for segment, text in (("text", meme.text if mode != "image" else ""), ("answer", ANSWER)):
        rows = tokens[tokens["segment"] == segment]
        covered = {place for row in rows.itertuples() for place in range(row.start, row.end)}
        assert covered == set(range(len(text)))
        assert text == "" or rows["relevance"].abs().sum() > 0
    assert sum(e.shares.values()) == pytest.approx(tokens["relevance"].sum(), abs=1e-6)
    assert ("image" in set(tokens["segment"])) == (mode != "text")
    if mode == "text":
        assert e.image is None
    else:
        prompt = encode_prompt(model.processor, load_task("ukrmeme"), meme, mode, model.style)
        assert e.image is not None
        assert e.image.shape == prompt.grid
        assert e.image.sum() == pytest.approx(e.shares["image"], abs=1e-6)
        assert e.image.size == list(tokens["segment"]).count("image")


@pytest.mark.parametrize(("family", "mode"), ASKED)
def test_batched_answers_are_those_given_alone(loaded: Loaded, family: str, mode: Mode) -> None:
    model, batch = loaded(family), memes(3)
    together = predict(model, batch, mode=mode, batch_size=3, max_new_tokens=6)
    alone = [predict(model, [meme], mode=mode, max_new_tokens=6)[0] for meme in batch]
    assert [p.generated_ids for p in together] == [p.generated_ids for p in alone]


@pytest.mark.parametrize(("family", "mode"), ASKED)
def test_generated_ids_have_the_highest_logits(loaded: Loaded, family: str, mode: Mode) -> None:
    model, (meme,) = loaded(family), memes(1)
    prompt = encode_prompt(model.processor, load_task("ukrmeme"), meme, mode, model.style)
    (ids,) = model.generate([prompt], max_new_tokens=3)
    with torch.no_grad():
        assert model.model(**prompt.inputs).logits[0, -1].argmax() == ids[0]
    e = xai.explain(model, meme, mode=mode, answer=ids, span=(0, 1), target_kind="logit")
    # Scored anew as it is explained, since the answer is given: the model would have chosen the same.
    assert e.quality.target_choice_changed == 0


@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_a_cell_of_the_grid_is_where_it_is_in_the_picture(loaded: Loaded, family: str) -> None:
    model = loaded(family)
    blank = Image.new("RGB", (144, 96), "white")
    grid = reader_of(model.processor).picture(blank).grid
    row, column = grid[0] - 1, 1
    height, width = 96 / grid[0], 144 / grid[1]
    painted = blank.copy()
    inside = (column * width + 4, row * height + 4, (column + 1) * width - 4, (row + 1) * height - 4)
    painted.paste("black", tuple(map(round, inside)))
    before, after = (_image_features(model, picture) for picture in (blank, painted))
    changed = (before - after).norm(dim=-1).reshape(grid)
    assert changed.argmax() == row * grid[1] + column
    assert changed.flatten().sort(descending=True).values[1] < 0.5 * changed.max()


def _image_features(model: VisionLanguageModel, picture: Image.Image) -> torch.Tensor:
    """The merged image tokens ``(n, hidden)``, of a tower that does not attend, so that each sees its own cell."""
    vision = family_of(model.model).vision
    assert vision is not None
    found: list[torch.Tensor] = []

    def keep(_module: object, _args: object, output: Any) -> None:
        found.append(vision.features(output)[0].flatten(end_dim=-2))

    tower = model.model.get_submodule(vision.tower)
    closed = [module for name, module in tower.named_modules() if name.endswith(("attn.proj", "self_attn.out_proj"))]
    assert len(closed) == 2
    prompt = encode_prompt(model.processor, load_task("ukrmeme"), xai.Meme(id="m", image=picture), "image", model.style)
    with ExitStack() as stack, torch.no_grad():
        for module in closed:
            stack.enter_context(module.register_forward_hook(lambda _module, _args, output: 0 * output))
        stack.enter_context(model.model.get_submodule(vision.source).register_forward_hook(keep))
        model.model(**prompt.inputs)
    return found[0]


@pytest.mark.parametrize("family", VISION_FAMILIES)
@pytest.mark.parametrize("method", ["cplrp", "occlusion", "attention_rollout"])
def test_methods_of_every_kind_know_the_picture(loaded: Loaded, family: str, method: str) -> None:
    e = xai.explain(loaded(family), memes(1)[0], answer=ANSWER, method=method)
    assert e.image is not None
    assert np.isfinite(e.image).all()
    assert abs(e.image).max() > 0


@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_relevance_goes_on_to_the_pixels(loaded: Loaded, family: str) -> None:
    model, (meme,) = loaded(family), memes(1)
    e = xai.explain(model, meme, answer=ANSWER, depth="pixels")
    assert e.image is not None
    assert e.pixels is not None
    assert e.pixels.shape == (2 * e.image.shape[0], 2 * e.image.shape[1])


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@pytest.mark.parametrize("mode", ["image", "image+text"])
def test_a_text_decoder_refuses_pictures_before_it_is_asked(
    loaded: Loaded, family: str, mode: Mode, tmp_path: Path
) -> None:
    model, (meme,) = loaded(family), memes(1)
    for ask in (
        lambda: xai.explain(model, meme, mode=mode, answer=ANSWER),
        lambda: predict(model, [meme], mode=mode),
        lambda: xai.explain_dataset(model, tmp_path / "never read", tmp_path / "run", modes=["text", mode]),
        lambda: encode_prompt(model.processor, load_task("ukrmeme"), meme, mode, PromptStyle(variant="short")),
    ):
        with pytest.raises(ValueError, match=r"reads text only .* use mode 'text'"):
            ask()
    assert not (tmp_path / "run").exists()


def dataset(folder: Path) -> tuple[Path, Path]:
    """Two memes, and answers to them that were given elsewhere."""
    for meme in memes(2):
        assert isinstance(meme.image, Image.Image)
        meme.image.save(folder / f"{meme.id}.png")
    rows = [{"id": meme.id, "image": f"{meme.id}.png", "text": meme.text} for meme in memes(2)]
    answers = [{"id": meme.id, "text": ANSWER} for meme in memes(2)]
    for name, lines in (("memes.jsonl", rows), ("answers.jsonl", answers)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder / "memes.jsonl", folder / "answers.jsonl"


def run_xai(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xai.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False)


@pytest.mark.parametrize(("family", "modes"), [("Gemma 3", MODES), ("Llama", ("text",))])
def test_the_command_line_explains_a_dataset_with_a_checkpoint_folder(
    checkpoint: Callable[[str], Path], family: str, modes: tuple[Mode, ...], tmp_path: Path
) -> None:
    data, answers = dataset(tmp_path)
    chosen = [word for mode in modes for word in ("--mode", mode)]
    options = ("--model", checkpoint(family), "--answers", answers, "--out", tmp_path / "run", "--json")
    result = run_xai("explain", data, *options, *chosen)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["explained"] == 2 * len(modes)
    run = xai.open_run(tmp_path / "run")
    e = run.explanation("m1", mode=modes[-1], target="Smears")
    assert e.target == "Smears"
    assert (e.image is None) == (modes[-1] == "text")


def test_the_command_line_refuses_pictures_for_a_text_decoder_before_the_run(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    data, _ = dataset(tmp_path)
    result = run_xai("explain", data, "--model", checkpoint("Qwen3"), "--out", tmp_path / "run")
    assert result.returncode == 2
    assert "reads text only" in result.stderr
    assert "use mode 'text'" in result.stderr
    assert not (tmp_path / "run").exists()


def test_the_doctor_says_in_which_modes_a_folder_can_be_asked(checkpoint: Callable[[str], Path]) -> None:
    result = run_xai("doctor", checkpoint("Gemma 3 text"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.rstrip().endswith("can be explained; modes: text")

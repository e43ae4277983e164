"""Trains the model that ships, from nothing, on two CPU cores: ``python -m xai.planted.train OUT``.

Answers alone, a few words in a line of JSON, teach seeing and quoting very slowly. So two things are learnt beside
them: the vision tower says which icon covers each merged cell, through linear heads that are thrown away; and some
captions are answered by an inventory of their trigger and decoy words.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor

from xai.attribution.align import box_weights
from xai.models import SETTINGS_FILE
from xai.planted.icons import SHAPES
from xai.planted.lexicon import LANGUAGES
from xai.planted.model import answer_text, make_model, make_processor
from xai.planted.render import Drawing, render
from xai.planted.world import Scene, sample_scene
from xai.prompts import IGNORED, PromptStyle, append_ids, collate, encode_prompt
from xai.schema import Meme, Mode
from xai.tasks import load_task

INVENTORY_INSTRUCTION = "Inventory.\nText: "


@dataclass(frozen=True)
class Stage:
    """A part of the training with an optimiser and a schedule of its own.

    ``modes`` weighs the modes that examples come in. Of those in text mode, ``inventory`` is the share that asks
    for the inventory of trigger and decoy words.
    """

    steps: int
    learning_rate: float
    modes: Mapping[Mode, int]
    warmup: int = 150
    inventory: float = 0.4


SEEING = Stage(steps=3000, learning_rate=2e-3, modes={"image+text": 9, "text": 5, "image": 6})
QUOTING = Stage(steps=1200, learning_rate=1e-3, modes={"image+text": 9, "text": 8, "image": 3}, warmup=50)


@dataclass(frozen=True)
class Recipe:
    """What decides the weights, besides the versions of the libraries and the number of threads."""

    seed: int = 0
    stages: tuple[Stage, ...] = (SEEING, QUOTING)
    batch_size: int = 24
    weight_decay: float = 0.05
    clip: float = 1.0
    cell_weight: float = 1.0


def train(recipe: Recipe, out: Path, threads: int) -> None:
    """Train stage by stage and write a checkpoint folder after each; stages that the folder has are not repeated."""
    torch.set_num_threads(threads)
    done = _stages_done(out)
    if done:
        processor = AutoProcessor.from_pretrained(out)
        model = AutoModelForImageTextToText.from_pretrained(out, dtype=torch.float32)
    else:
        torch.manual_seed(recipe.seed)
        processor = make_processor(recipe.seed)
        model = make_model(processor)
    for number in range(done, len(recipe.stages)):
        _train_stage(model.train(), processor, recipe, number)
        save(model, processor, recipe, out, number + 1)


def _train_stage(model: Any, processor: Any, recipe: Recipe, number: int) -> None:
    """One stage; prints the losses every 50 steps."""
    stage = recipe.stages[number]
    if number:
        torch.manual_seed(recipe.seed + number)
    reader = _CellReader(model.model.visual, len(SHAPES) + 1)
    parameters = [*model.parameters(), *reader.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=stage.learning_rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, stage))
    start, running = time.monotonic(), np.zeros(2)
    for step, batch in enumerate(_batches(recipe, number, processor), start=1):
        cells = batch.pop("cells")
        loss, cell_loss = _answer_loss(model, batch), reader.loss(cells)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss + recipe.cell_weight * cell_loss)
        torch.nn.utils.clip_grad_norm_(parameters, recipe.clip)
        optimizer.step()
        schedule.step()
        running += (np.array([loss.item(), cell_loss.item()]) - running) / min(step, 50)
        if step % 50 == 0 or step == stage.steps:
            minutes = (time.monotonic() - start) / 60
            answer, cell = running
            progress = f"stage {number + 1}  step {step:4d}/{stage.steps}"
            print(f"{progress}  answer {answer:.4f}  cells {cell:.4f}  {minutes:.1f} min", flush=True)
    reader.detach()


def save(model: Any, processor: Any, recipe: Recipe, out: Path, stages_done: int) -> None:
    """Write weights, processor and the settings that `xai.load_model` reads beside them."""
    model.save_pretrained(out)
    processor.save_pretrained(out)
    settings = {"task": "ukrmeme", "prompt_variant": "short", "recipe": asdict(recipe), "stages_done": stages_done}
    (out / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _stages_done(out: Path) -> int:
    settings = out / SETTINGS_FILE
    return int(json.loads(settings.read_text(encoding="utf-8"))["stages_done"]) if settings.is_file() else 0


def _rate(step: int, stage: Stage) -> float:
    """Linear warm-up, then half a cosine down to 2 %."""
    if step < stage.warmup:
        return (step + 1) / stage.warmup
    done = (step - stage.warmup) / max(1, stage.steps - stage.warmup)
    return 0.02 + 0.49 * (1 + math.cos(math.pi * min(done, 1.0)))


class _CellReader(nn.Module):
    """Reads, from merged image tokens and from every deepstack level, which icon covers each cell; 0 is none."""

    def __init__(self, visual: Any, n_classes: int) -> None:
        super().__init__()
        levels = 1 + len(visual.config.deepstack_visual_indexes)
        self.heads = nn.ModuleList([nn.Linear(visual.config.out_hidden_size, n_classes) for _ in range(levels)])
        self.features: list[Tensor] = []
        self._hook = visual.register_forward_hook(self._keep)

    def _keep(self, _module: nn.Module, _args: object, output: Any) -> None:
        self.features = [output.pooler_output, *output.deepstack_features]

    def detach(self) -> None:
        """Stop reading."""
        self._hook.remove()

    def loss(self, cells: Tensor) -> Tensor:
        """Mean cross-entropy of all levels against ``cells`` ``(n_image_tokens,)``; 0 in a batch without pictures."""
        features, self.features = self.features, []
        losses = [cross_entropy(head(level), cells) for head, level in zip(self.heads, features, strict=False)]
        return torch.stack(losses).mean() if losses else torch.zeros(())


def _answer_loss(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """Cross-entropy of the answer's tokens; logits are made for these alone."""
    targets = batch.pop("targets")
    hidden = model.model(**batch, use_cache=False).last_hidden_state[:, :-1]
    wanted = targets[:, 1:] != IGNORED
    return cross_entropy(model.lm_head(hidden[wanted]), targets[:, 1:][wanted])


def _batches(recipe: Recipe, number: int, processor: Any) -> Iterator[dict[str, Tensor]]:
    """Batches drawn ahead in a second process, in step order, each example seen once."""
    yield from DataLoader(_Batches(recipe, number, processor), batch_size=None, num_workers=1, prefetch_factor=8)


class _Batches(Dataset[dict[str, Tensor]]):
    """Batch number ``step`` of a stage depends on the recipe, the stage and the step alone."""

    def __init__(self, recipe: Recipe, number: int, processor: Any) -> None:
        self.recipe, self.stage = recipe, recipe.stages[number]
        self.first = sum(stage.steps for stage in recipe.stages[:number])
        self.processor, self.task = processor, load_task("ukrmeme")

    def __len__(self) -> int:
        return self.stage.steps

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        first = (self.first + step) * self.recipe.batch_size
        examples = [self._example(index) for index in range(first, first + self.recipe.batch_size)]
        return collate(examples, self.processor.tokenizer.pad_token_id, side="right")

    def _example(self, index: int) -> dict[str, Tensor]:
        """One prompt with its answer, of a kind and in a prompt language drawn by its number."""
        rng = Random(f"example-{self.recipe.seed}-{index}")
        mode = rng.choices(tuple(self.stage.modes), tuple(self.stage.modes.values()))[0]
        style = PromptStyle(language=rng.choice(LANGUAGES), variant="short")
        scene = sample_scene(self.recipe.seed, index)
        if mode == "text" and rng.random() < self.stage.inventory:
            return self._inventory(scene)
        drawing = render(scene) if mode != "text" else None
        meme = Meme(id=str(index), image=drawing.picture if drawing else None, text=scene.text)
        prompt = encode_prompt(self.processor, self.task, meme, mode, style)
        inputs = with_answer(prompt.inputs, self.processor.tokenizer, answer_text(scene, mode))
        return inputs | {"cells": _icon_cells(scene, drawing, prompt.grid)}

    def _inventory(self, scene: Scene) -> dict[str, Tensor]:
        """A caption, answered by its trigger and decoy words; no task of the package."""
        chat = [{"role": "user", "content": INVENTORY_INSTRUCTION + scene.text}]
        text = self.processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids = self.processor.tokenizer(text, return_tensors="pt")["input_ids"]
        masks = {"attention_mask": torch.ones_like(ids), "mm_token_type_ids": torch.zeros_like(ids)}
        named = {piece.group: piece.text for piece in scene.pieces if piece.role != "filler"}
        answer = json.dumps(named, ensure_ascii=False, separators=(",", ":"))
        inputs = with_answer({"input_ids": ids} | masks, self.processor.tokenizer, answer)
        return inputs | {"cells": torch.zeros(0, dtype=torch.long)}


def _icon_cells(scene: Scene, drawing: Drawing | None, grid: tuple[int, int] | None) -> Tensor:
    """Number of the icon that covers most of each merged cell, at least an eighth of it; 0 is none."""
    if drawing is None or grid is None:
        return torch.zeros(0, dtype=torch.long)
    covers = [np.full(grid, 1 / 8)] + [box_weights(box, scene.style.size, grid) for box in drawing.icon_boxes]
    numbers = np.array([0] + [1 + list(SHAPES).index(icon.name) for icon in scene.icons])
    return torch.from_numpy(numbers[np.argmax(covers, axis=0)].reshape(-1))


def with_answer(prompt: dict[str, Tensor], tokenizer: Any, answer: str) -> dict[str, Tensor]:
    """The prompt followed by an answer and its end; ``targets`` ignores everything but the answer."""
    ids = [*tokenizer(answer)["input_ids"], tokenizer.eos_token_id]
    ignored = torch.full_like(prompt["input_ids"], IGNORED)
    targets = torch.cat([ignored, torch.tensor([ids])], dim=1)
    return append_ids(prompt, ids) | {"targets": targets}


def main() -> None:
    """Command line of the trainer."""
    parser = argparse.ArgumentParser(prog="python -m xai.planted.train", description=__doc__)
    parser.add_argument("out", type=Path, help="folder that the checkpoint is written to")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--threads", type=int, default=2, help="more than the idle cores makes it slower, not faster")
    options = parser.parse_args()
    train(Recipe(seed=options.seed), options.out, options.threads)


if __name__ == "__main__":
    main()

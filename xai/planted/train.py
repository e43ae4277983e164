"""Trains the model that ships, from nothing, on two CPU cores: ``python -m xai.planted.train OUT``.

Answers alone, a few words in a line of JSON, teach seeing and quoting very slowly. So two things are learnt beside
them: the vision tower says which icon covers each merged cell, through linear heads that are thrown away, and some
captions are to be answered by an inventory of their trigger and decoy words instead of labels.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from xai.attribution.align import box_weights
from xai.planted.icons import SHAPES
from xai.planted.lexicon import LANGUAGES
from xai.planted.model import answer_text, make_model, make_processor
from xai.planted.render import Drawing, render
from xai.planted.world import Scene, sample_scene
from xai.prompts import PromptStyle, collate, encode_prompt
from xai.schema import Meme, Mode
from xai.tasks import load_task

MODE_WEIGHTS: dict[Mode, int] = {"image+text": 9, "text": 5, "image": 6}
INVENTORY_SHARE = 0.4
"""This share of the examples in text mode asks for the inventory."""
INVENTORY_INSTRUCTION = "Inventory.\nText: "
IGNORED = -100
SETTINGS_FILE = "xai.json"


@dataclass(frozen=True)
class Recipe:
    """What decides the weights, besides the versions of the libraries and the number of threads."""

    seed: int = 0
    steps: int = 3000
    batch_size: int = 24
    learning_rate: float = 2e-3
    warmup: int = 150
    weight_decay: float = 0.05
    clip: float = 1.0
    cell_weight: float = 1.0


def train(recipe: Recipe, out: Path, threads: int) -> None:
    """Train and write a checkpoint folder; prints the loss every 50 steps."""
    torch.set_num_threads(threads)
    torch.manual_seed(recipe.seed)
    processor = make_processor(recipe.seed)
    model = make_model(processor).train()
    reader = _CellReader(model.model.visual, len(SHAPES) + 1)
    parameters = [*model.parameters(), *reader.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe))
    start, running = time.monotonic(), np.zeros(2)
    for step, batch in enumerate(_batches(recipe, processor), start=1):
        cells = batch.pop("cells")
        loss = _answer_loss(model, batch)
        optimizer.zero_grad(set_to_none=True)
        cell_loss = reader.loss(cells)
        torch.autograd.backward(loss + recipe.cell_weight * cell_loss)
        torch.nn.utils.clip_grad_norm_(parameters, recipe.clip)
        optimizer.step()
        schedule.step()
        running += (np.array([loss.item(), cell_loss.item()]) - running) / min(step, 50)
        if step % 50 == 0 or step == recipe.steps:
            minutes = (time.monotonic() - start) / 60
            answer, cell = running
            print(
                f"step {step:4d}/{recipe.steps}  answer {answer:.4f}  cells {cell:.4f}  {minutes:.1f} min", flush=True
            )
        if step % 500 == 0 or step == recipe.steps:
            save(model, processor, recipe, out, step)


def save(model: Any, processor: Any, recipe: Recipe, out: Path, step: int) -> None:
    """Write weights, processor and the settings that `xai.load_model` reads beside them."""
    model.save_pretrained(out)
    processor.save_pretrained(out)
    settings = {"task": "ukrmeme", "prompt_variant": "short", "recipe": asdict(recipe), "steps_done": step}
    (out / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then half a cosine down to 2 %."""
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    return 0.02 + 0.49 * (1 + math.cos(math.pi * min(done, 1.0)))


class _CellReader(nn.Module):
    """Reads, from merged image tokens and from every deepstack level, which icon covers each cell; 0 is none."""

    def __init__(self, visual: Any, n_classes: int) -> None:
        super().__init__()
        levels = 1 + len(visual.config.deepstack_visual_indexes)
        self.heads = nn.ModuleList([nn.Linear(visual.config.out_hidden_size, n_classes) for _ in range(levels)])
        self.features: list[Tensor] = []
        visual.register_forward_hook(self._keep)

    def _keep(self, _module: nn.Module, _args: object, output: Any) -> None:
        self.features = [output.pooler_output, *output.deepstack_features]

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


def _batches(recipe: Recipe, processor: Any) -> Iterator[dict[str, Tensor]]:
    """Batches drawn ahead in a second process, in step order, each example seen once."""
    loader = DataLoader(_Batches(recipe, processor), batch_size=None, num_workers=1, prefetch_factor=8)
    yield from loader


class _Batches(Dataset[dict[str, Tensor]]):
    """Batch number ``step`` depends on the seed and the step alone."""

    def __init__(self, recipe: Recipe, processor: Any) -> None:
        self.recipe, self.processor, self.task = recipe, processor, load_task("ukrmeme")

    def __len__(self) -> int:
        return self.recipe.steps

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        first = step * self.recipe.batch_size
        examples = [self._example(index) for index in range(first, first + self.recipe.batch_size)]
        return collate(examples, self.processor.tokenizer.pad_token_id, side="right")

    def _example(self, index: int) -> dict[str, Tensor]:
        """One prompt with its answer, in a mode and prompt language drawn by its number."""
        rng = Random(f"example-{self.recipe.seed}-{index}")
        mode = rng.choices(tuple(MODE_WEIGHTS), tuple(MODE_WEIGHTS.values()))[0]
        style = PromptStyle(language=rng.choice(LANGUAGES), variant="short")
        scene = sample_scene(self.recipe.seed, index)
        if mode == "text" and rng.random() < INVENTORY_SHARE:
            return self._inventory(scene)
        drawing = render(scene) if mode != "text" else None
        meme = Meme(id=str(index), image=drawing.picture if drawing else None, text=scene.text)
        prompt = encode_prompt(self.processor, self.task, meme, mode, style)
        inputs = with_answer(prompt.inputs, self.processor.tokenizer, answer_text(scene, mode))
        return inputs | {"cells": _icon_cells(scene, drawing, prompt.grid)}

    def _inventory(self, scene: Scene) -> dict[str, Tensor]:
        """A caption whose answer names each trigger and decoy word by its class."""
        chat = [{"role": "user", "content": INVENTORY_INSTRUCTION + scene.text}]
        text = self.processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids = self.processor.tokenizer(text, return_tensors="pt")["input_ids"]
        prompt = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "mm_token_type_ids": torch.zeros_like(ids),
        }
        named = {piece.group: piece.text for piece in scene.pieces if piece.role != "filler"}
        answer = json.dumps(named, ensure_ascii=False, separators=(",", ":"))
        return with_answer(prompt, self.processor.tokenizer, answer) | {"cells": torch.zeros(0, dtype=torch.long)}


def _icon_cells(scene: Scene, drawing: Drawing | None, grid: tuple[int, int] | None) -> Tensor:
    """Number of the icon that covers most of each merged cell, at least an eighth of it; 0 is none."""
    if drawing is None or grid is None:
        return torch.zeros(0, dtype=torch.long)
    covers = [np.full(grid, 1 / 8)] + [box_weights(box, scene.style.size, grid) for box in drawing.icon_boxes]
    numbers = np.array([0] + [1 + list(SHAPES).index(icon.name) for icon in scene.icons])
    return torch.from_numpy(numbers[np.argmax(covers, axis=0)].reshape(-1))


def with_answer(prompt: dict[str, Tensor], tokenizer: Any, answer: str) -> dict[str, Tensor]:
    """The prompt followed by an answer and its end; ``targets`` ignores everything but the answer."""
    ids = torch.tensor([[*tokenizer(answer)["input_ids"], tokenizer.eos_token_id]])
    added = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": torch.zeros_like(ids)}
    inputs = {name: torch.cat([prompt[name], added[name]], dim=1) if name in added else prompt[name] for name in prompt}
    targets = torch.cat([torch.full_like(prompt["input_ids"], IGNORED), ids], dim=1)
    return inputs | {"targets": targets}


def main() -> None:
    """Command line of the trainer."""
    parser = argparse.ArgumentParser(prog="python -m xai.planted.train", description=__doc__)
    parser.add_argument("out", type=Path, help="folder that the checkpoint is written to")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--threads", type=int, default=2, help="more than the idle cores makes it slower, not faster")
    options = parser.parse_args()
    train(Recipe(seed=options.seed, steps=options.steps), options.out, options.threads)


if __name__ == "__main__":
    main()

"""A tiny random Qwen3-VL built from the real classes, inputs in the processor's layout, and explanations by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from xai.attribution.align import split_words, word_relevance, words_of
from xai.attribution.targets import Target
from xai.schema import Explanation, Meme, Mode, Prediction, Quality, TokenTable

IMAGE, VISION_START, VISION_END = 60, 62, 63
GRID = (1, 8, 12)  # patches: 4 x 6 merged tokens, not square
MERGE = 2


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def build_model() -> Callable[..., Any]:
    """``build_model(seed=0, dtype=torch.float32, biases=True)``: a fresh model in eval mode."""

    def build(seed: int = 0, dtype: torch.dtype = torch.float32, biases: bool = True) -> Any:
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(_config()).to(dtype).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # Initial weights are so small that nothing but the residual path would be seen.
                noise = torch.randn_like(parameter)
                if parameter.ndim == 1 and name.endswith("weight"):
                    parameter.copy_(1 + 0.3 * noise)
                elif name.endswith("bias"):
                    parameter.copy_(0.1 * noise if biases else torch.zeros_like(parameter))
                else:
                    parameter.copy_(noise * (parameter.shape[-1] ** -0.5 if parameter.ndim == 2 else 0.1))
        return model

    return build


@pytest.fixture
def build_inputs() -> Callable[..., dict[str, Tensor]]:
    """``build_inputs(seed=0, image=True)``: prompt and answer of one record; the last four tokens are the answer."""

    def build(seed: int = 0, image: bool = True) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        words = torch.randint(0, 50, (16,), generator=generator).tolist()
        n_patches = GRID[0] * GRID[1] * GRID[2]
        picture = [VISION_START, *[IMAGE] * (n_patches // MERGE**2), VISION_END] if image else []
        ids = torch.tensor([[*words[:4], *picture, *words[4:]]])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if image:
            inputs["mm_token_type_ids"] = (ids == IMAGE).int()
            inputs["pixel_values"] = torch.randn(n_patches, 3 * 2 * 4 * 4, generator=generator)
            inputs["image_grid_thw"] = torch.tensor([GRID])
        return inputs

    return build


@pytest.fixture
def answer_target() -> Callable[[Mapping[str, Tensor]], Target]:
    """The target of two tokens of the answer, the last but one and the one three earlier."""

    def build(inputs: Mapping[str, Tensor]) -> Target:
        ids = inputs["input_ids"][0].tolist()
        positions = (len(ids) - 4, len(ids) - 2)
        return Target("label", positions, tuple(ids[position] for position in positions))

    return build


@pytest.fixture
def state_of() -> Callable[[Any, Mapping[str, Tensor]], dict[str, Any]]:
    """``state_of(model, inputs)``: all that attribution could leave changed on a model, as comparable values."""

    def collect(model: Any, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        modules = dict(model.named_modules())
        flags = {
            "instance attributes": {name: sorted(module.__dict__) for name, module in modules.items()},
            "hooks": {name: _hook_count(module) for name, module in modules.items()},
            "attention": [module.config._attn_implementation for module in modules.values() if _has_config(module)],
            "training": [module.training for module in modules.values()],
            "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
            "grad": [None if p.grad is None else p.grad.numpy().tobytes() for p in model.parameters()],
            "rope_deltas": model.model.rope_deltas,
        }
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        before = model.model.rope_deltas
        with torch.enable_grad():
            logits = model(**inputs).logits
            gradients = torch.autograd.grad(logits.pow(2).sum(), parameters) if parameters else []
        model.model.rope_deltas = before
        flags["logits"] = logits.detach().numpy().tobytes()
        flags["gradients"] = [gradient.numpy().tobytes() for gradient in gradients]
        return flags

    return collect


@pytest.fixture
def explained() -> Callable[..., Explanation]:
    """``explained(text, relevance, *, mode, image, grid, pixels, hostile)``; ``hostile`` wherever foreign text is."""

    def build(
        text: str = "not a lie",
        relevance: list[float] | None = None,
        *,
        mode: Mode = "image+text",
        image: Path | Image.Image | None = None,
        grid: np.ndarray | None = None,
        pixels: np.ndarray | None = None,
        hostile: str = "word",
    ) -> Explanation:
        spans = split_words(text) if mode != "image" else []
        values = np.arange(len(spans), dtype=float) if relevance is None else np.array(relevance)
        tokens = ("<|im_start|>", hostile, "\n")
        return Explanation(
            meme=Meme(id=hostile, text=text, image=image),
            prediction=Prediction(
                meme_id=hostile,
                mode=mode,
                generated_ids=(1,),
                text=hostile,
                labels=(hostile,),
                unknown_labels=(hostile,),
                referred_words=(hostile,),
                referred_image_concepts=(hostile,),
                parse_note=hostile,
            ),
            mode=mode,
            method=hostile,
            target=hostile,
            target_value=1.0,
            token_table=TokenTable(
                token=tokens,
                start=(-1,) * 3,
                end=(-1,) * 3,
                segment=("template", "text", "text"),
                relevance=(9.0, 1.0, -1.0),
            ),
            word_table=word_relevance(words_of(text, None) if mode != "image" else (), spans, values),
            image_levels=None if grid is None else grid[None],
            pixels=pixels,
            image_size=None if grid is None else (80, 40),
            shares={"text": 1.0},
            quality=Quality(conservation=None, sink_share=0.5, template_share=0.5, labels_missing=(hostile,)),
        )

    return build


def _has_config(module: nn.Module) -> bool:
    return hasattr(module, "config") and hasattr(module.config, "_attn_implementation")


def _hook_count(module: nn.Module) -> int:
    return len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)


def _config() -> Qwen3VLConfig:
    return Qwen3VLConfig(
        text_config={
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 256,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [2, 1, 1],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 3,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_heads": 2,
            "patch_size": 4,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": 32,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=IMAGE,
        video_token_id=61,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        tie_word_embeddings=False,
    )

"""A random Qwen3-VL of a chosen size, and prompts with a picture and an answer for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from tests.benchmarks.harness import Settings
from xai.attribution.targets import Target

PATCH, MERGE, FRAMES = 16, 2, 2
N_SPECIAL = 4


@dataclass(frozen=True)
class Size:
    """What decides how long a forward takes; the full one has the decoder widths and vocabulary of Qwen3-0.6B."""

    width: int = 1024
    layers: int = 6
    intermediate: int = 3072
    heads: int = 16
    head_dim: int = 128
    vocabulary: int = 151_936
    vision_width: int = 512
    vision_depth: int = 6

    @property
    def image_id(self) -> int:
        """The image placeholder; the last four ids of the vocabulary are special."""
        return self.vocabulary - N_SPECIAL


# Deepstack levels are added after the first three layers, so a fourth has to read the last of them.
SMALL = Size(32, 4, 48, 4, 8, 512, 16, 3)


def size_of(settings: Settings) -> Size:
    """The size that a run with these settings uses."""
    return SMALL if settings.small else Size()


def build_model(size: Size) -> Any:
    """A random model in eval mode and float32, deepstack on three levels, head and embedding tied, all frozen."""
    special = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    torch.manual_seed(0)
    config = Qwen3VLConfig(
        text_config=_text(size),
        vision_config=_vision(size),
        **{name: size.image_id + index for index, name in enumerate(special)},
        tie_word_embeddings=True,
    )
    return Qwen3VLForConditionalGeneration(config).eval().requires_grad_(False)


@dataclass(frozen=True)
class Case:
    """A prompt with its answer: picture, instruction, caption, and the answer last.

    Attributes:
        inputs: as from the processor, batch of one.
        caption: position of the first token of the caption.
        answer: position of the first token of the answer.
    """

    inputs: Mapping[str, Tensor]
    caption: int
    answer: int

    @property
    def length(self) -> int:
        """Number of tokens of prompt and answer."""
        return self.inputs["input_ids"].shape[1]

    def target(self, first: int, n: int = 1) -> Target:
        """The tokens of the answer from number ``first`` on, as one target."""
        places = range(self.answer + first, self.answer + first + n)
        ids = self.inputs["input_ids"][0].tolist()
        return Target(f"label at {first}", tuple(places), tuple(ids[place] for place in places))

    @property
    def last_target(self) -> Target:
        """The last token of the answer, which is explained by all the others."""
        return self.target(self.length - self.answer - 1)


def build_case(size: Size, n_tokens: int, *, n_caption: int = 30, n_answer: int = 30) -> Case:
    """``n_tokens`` of prompt and answer, about a third of them a square picture's."""
    side = max(1, round(math.sqrt(n_tokens / 3)))
    generator = torch.Generator().manual_seed(n_tokens)
    words = torch.randint(0, size.image_id, (n_tokens - side**2 - 2,), generator=generator)
    picture = torch.tensor([size.image_id + 2, *[size.image_id] * side**2, size.image_id + 3])
    ids = torch.cat([words[:1], picture, words[1:]])[None]
    rows = (side * MERGE) ** 2
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == size.image_id).long(),
        "pixel_values": torch.randn(rows, 3 * FRAMES * PATCH**2, generator=generator),
        "image_grid_thw": torch.tensor([[1, side * MERGE, side * MERGE]]),
    }
    return Case(inputs, n_tokens - n_answer - n_caption, n_tokens - n_answer)


def _text(size: Size) -> dict[str, Any]:
    quarter = size.head_dim // 8
    return {
        "vocab_size": size.vocabulary,
        "hidden_size": size.width,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads // 2,
        "head_dim": size.head_dim,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [size.head_dim // 2 - 2 * quarter, quarter, quarter],
            "mrope_interleaved": True,
        },
    }


def _vision(size: Size) -> dict[str, Any]:
    return {
        "depth": size.vision_depth,
        "hidden_size": size.vision_width,
        "intermediate_size": 4 * size.vision_width,
        "num_heads": max(1, size.vision_width // 64),
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": FRAMES,
        "out_hidden_size": size.width,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [size.vision_depth // 3 * k - 1 for k in (1, 2, 3)],
    }

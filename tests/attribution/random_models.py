"""Small random models of every family, built from the real classes and configuration fields, with inputs for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from torch import Tensor

from xai.attribution.targets import Target

IMAGE, VIDEO, START, END = 60, 61, 62, 63
MERGE = 2
GRID = (1, 8, 12)  # patches: 4 x 6 merged tokens, not square
SIDE = 6  # patches a side of Gemma 3's square picture: 3 x 3 image tokens
PATCH = 4


def build_model(family: str, seed: int = 0, dtype: torch.dtype = torch.float32, biases: bool = True) -> Any:
    """A fresh model of ``family`` in eval mode, all weights random and of a size that matters."""
    torch.manual_seed(seed)
    model = BUILDERS[family]().to(dtype).eval()
    if dtype is torch.float64 and family == "Qwen3-VL-MoE":
        model.set_experts_implementation("eager")  # torch's grouped product has no double precision
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Initial weights are so small that nothing but the residual path would be seen.
            noise = torch.randn_like(parameter)
            if parameter.ndim == 1 and name.endswith("weight"):
                parameter.copy_(0.3 * noise + (0 if "gemma" in model.config.model_type else 1))
            elif name.endswith("bias"):
                parameter.copy_(0.1 * noise if biases else torch.zeros_like(parameter))
            else:
                parameter.copy_(noise * (parameter.shape[-1] ** -0.5 if parameter.ndim < 4 else 0.1))
    return model


def build_inputs(
    family: str, seed: int = 0, image: bool = True, *, grid: tuple[int, int, int] = GRID, n_words: int = 16
) -> dict[str, Tensor]:
    """Prompt and answer of one record, in the processor's layout; a text-only family gets no picture.

    Gemma 3 has pictures of one size, whatever ``grid``.
    """
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, 50, (n_words,), generator=generator).tolist()
    has_image = image and family in VISION_FAMILIES
    n_image_tokens = (SIDE // MERGE) ** 2 if family == "Gemma 3" else grid[1] * grid[2] // MERGE**2
    picture = [START, *[IMAGE] * n_image_tokens, END] if has_image else []
    ids = torch.tensor([[*words[:4], *picture, *words[4:]]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if not has_image:
        return inputs
    if family == "Gemma 3":
        size = SIDE * PATCH
        pixels = torch.randn(1, 3, size, size, generator=generator)
        return {**inputs, "token_type_ids": (ids == IMAGE).long(), "pixel_values": pixels}
    pixels = torch.randn(grid[1] * grid[2], 3 * 2 * PATCH * PATCH, generator=generator)
    types = {"mm_token_type_ids": (ids == IMAGE).int()}
    return {**inputs, **types, "pixel_values": pixels, "image_grid_thw": torch.tensor([grid])}


def answer_target(inputs: Mapping[str, Tensor]) -> Target:
    """The target of two tokens of the answer, the last but one and the one two earlier."""
    ids = inputs["input_ids"][0].tolist()
    positions = (len(ids) - 4, len(ids) - 2)
    return Target("label", positions, tuple(ids[position] for position in positions))


TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
VISION = {"depth": 2, "num_heads": 2, "patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2}
TOKENS = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
    "tie_word_embeddings": False,
}
QWEN3_VISION = {
    **VISION,
    "hidden_size": 16,
    "intermediate_size": 24,
    "out_hidden_size": 32,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 1],
}
# The second deepstack level is added after the second layer, so a third has to read it.
QWEN3_TEXT = {**TEXT, "num_hidden_layers": 3, "head_dim": 8, "rope_parameters": {**MROPE, "mrope_interleaved": True}}
GEMMA3_TEXT = {**TEXT, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}
GEMMA3_LAYERS = ["sliding_attention", "full_attention"]


def _qwen2_vl() -> Any:
    vision = {**VISION, "embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
    text = {**TEXT, "rope_parameters": MROPE}
    config = transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **TOKENS)
    return transformers.Qwen2VLForConditionalGeneration(config)


def _qwen2_5_vl() -> Any:
    windows = {"window_size": 4 * PATCH, "fullatt_block_indexes": [1]}
    vision = {**VISION, **windows, "hidden_size": 16, "intermediate_size": 24, "out_hidden_size": 32}
    text = {**TEXT, "rope_parameters": MROPE}
    config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **TOKENS)
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def _qwen3_vl() -> Any:
    config = transformers.Qwen3VLConfig(text_config=QWEN3_TEXT, vision_config=QWEN3_VISION, **TOKENS)
    return transformers.Qwen3VLForConditionalGeneration(config)


def _qwen3_vl_moe() -> Any:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_only_layers": [0]}
    text = {**QWEN3_TEXT, **experts}
    config = transformers.Qwen3VLMoeConfig(text_config=text, vision_config=QWEN3_VISION, **TOKENS)
    return transformers.Qwen3VLMoeForConditionalGeneration(config)


def _gemma3() -> Any:
    vision = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": SIDE * PATCH,
        "patch_size": PATCH,
        "vision_use_head": False,
    }
    config = transformers.Gemma3Config(
        text_config={**GEMMA3_TEXT, "layer_types": GEMMA3_LAYERS},
        vision_config=vision,
        mm_tokens_per_image=(SIDE // MERGE) ** 2,
        image_token_index=IMAGE,
        boi_token_index=START,
        eoi_token_index=END,
    )
    return transformers.Gemma3ForConditionalGeneration(config)


def _gemma3_text() -> Any:
    config = transformers.Gemma3TextConfig(**GEMMA3_TEXT, layer_types=GEMMA3_LAYERS)
    return transformers.Gemma3ForCausalLM(config)


def _llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT))


def _qwen2() -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**TEXT))


def _qwen3() -> Any:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**TEXT, head_dim=8))


BUILDERS: Mapping[str, Callable[[], Any]] = {
    "Qwen2-VL": _qwen2_vl,
    "Qwen2.5-VL": _qwen2_5_vl,
    "Qwen3-VL": _qwen3_vl,
    "Qwen3-VL-MoE": _qwen3_vl_moe,
    "Gemma 3": _gemma3,
    "Llama": _llama,
    "Qwen2": _qwen2,
    "Qwen3": _qwen3,
    "Gemma 3 text": _gemma3_text,
}
FAMILY_NAMES = list(BUILDERS)
VISION_FAMILIES = FAMILY_NAMES[:5]

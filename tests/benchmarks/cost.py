"""What a meme would cost on models and GPUs that were not at hand: estimates from figures that were measured here.

``python -m tests.benchmarks.cost`` prints the table of the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from tests.benchmarks.models import Size, build_model

MEASURED_GFLOP, MEASURED_TOKENS = 337, 750
"""Row `speed`: one explanation of the benchmark's model."""
MEASURED_BYTES, MEASURED_BYTES_CHECKPOINTED = 0.413 * 2**20, 0.142 * 2**20
"""Row `length`, float32: memory above the loaded model for one token more, between 1,000 and 4,000."""
TOKENS, PATCHES, ANSWER, EXPLANATIONS, BATCH = 1500, 3200, 80, 3, 8
"""A meme: a prompt with 800 tokens of picture, its patches, tokens of the answer; two labels, and both together."""
UTILISATION, STEP = 0.4, 0.03
"""Assumed: the share of a GPU's peak that is reached, and seconds of a step of generation, whatever the model."""


@dataclass(frozen=True)
class Model:
    """The widths of a model as published."""

    name: str
    width: int
    intermediate: int
    vision_width: int
    vision_intermediate: int
    vision_depth: int
    tied: bool
    layers: int = 36
    heads: int = 32


@dataclass(frozen=True)
class Gpu:
    """Peak in bfloat16, in TFLOP/s, and memory, in GiB, as published."""

    name: str
    tflops: float
    memory: float


MODELS = (
    Model("Qwen3-VL-4B", 2560, 9728, 1024, 4096, 24, True),
    Model("Qwen3-VL-8B", 4096, 12288, 1152, 4304, 27, False),
)
GPUS = (Gpu("L4", 121, 24), Gpu("A100", 312, 80), Gpu("H100", 989, 80))


def main() -> None:
    """Print the measured model beside its estimate, then the estimates."""
    size = Size()
    with torch.device("meta"):
        decoder, vision, _ = parameters(build_model(size))
    patches = 4 * MEASURED_TOKENS // 3
    estimate = flop(decoder, vision, MEASURED_TOKENS, patches, 1) / 1e9
    print(f"measured {MEASURED_GFLOP} GFLOP, estimated {estimate:.0f}\n")
    print("| model | weights | beside them, plain or checkpointed | GPU | seconds a meme | 66,000 memes on 8 GPUs |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model in MODELS:
        decoder, vision, total = parameters(_built(model))
        plain, checkpointed = (memory(model, size, one) for one in (MEASURED_BYTES, MEASURED_BYTES_CHECKPOINTED))
        work = flop(decoder, vision, TOKENS, PATCHES, EXPLANATIONS) + flop(decoder, vision, TOKENS, PATCHES, 0)
        for gpu in GPUS:
            seconds = work / (gpu.tflops * 1e12 * UTILISATION) + ANSWER * STEP / BATCH
            print(
                f"| {model.name} | {2 * total / 2**30:.1f} GiB | {plain:.1f} GiB, or {checkpointed:.1f} "
                f"| {gpu.name} | {seconds:.1f} | {seconds * 66_000 / 8 / 3600:.1f} h |"
            )


def parameters(model: torch.nn.Module) -> tuple[int, int, int]:
    """Of the decoder without embedding and head, of the vision tower, and of all."""
    counts = {"decoder": 0, "vision": 0, "all": 0}
    for name, parameter in model.named_parameters():
        counts["all"] += parameter.numel()
        if ".visual." in name:
            counts["vision"] += parameter.numel()
        elif "embed_tokens" not in name and "lm_head" not in name:
            counts["decoder"] += parameter.numel()
    return counts["decoder"], counts["vision"], counts["all"]


def flop(decoder: int, vision: int, tokens: int, patches: int, backwards: int) -> float:
    """Operations of one forward and so many backwards to the embeddings, two a parameter and token each."""
    return 2.0 * decoder * tokens * (1 + backwards) + 2.0 * vision * patches


def memory(model: Model, size: Size, measured: float) -> float:
    """GiB beside the weights, in bfloat16: what was measured, times the ratio of what the layers keep of a token."""
    kept = model.layers * (model.width + model.intermediate + model.heads * 128)
    kept_here = size.layers * (size.width + size.intermediate + size.heads * size.head_dim)
    return measured / 2 * kept / kept_here * TOKENS / 2**30


def _built(model: Model) -> torch.nn.Module:
    text = {
        "hidden_size": model.width,
        "intermediate_size": model.intermediate,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
    }
    vision = {
        "depth": model.vision_depth,
        "hidden_size": model.vision_width,
        "intermediate_size": model.vision_intermediate,
        "out_hidden_size": model.width,
    }
    config = Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=model.tied)
    with torch.device("meta"):
        return Qwen3VLForConditionalGeneration(config)


if __name__ == "__main__":
    main()

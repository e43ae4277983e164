"""Makes the untrained model of the planted world: a small Qwen3-VL with its own tokenizer, template and processor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from torch import nn
from transformers import (
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from xai.planted.lexicon import LANGUAGES
from xai.planted.world import Scene, answer_of, sample_scene
from xai.schema import MODES, Mode
from xai.tasks import load_task

VOCAB_SIZE = 2048
INIT_STD = 0.08
PATCH, MERGE = 16, 2
CELL = PATCH * MERGE
MIN_CELLS, MAX_CELLS = 25, 36
MEAN = STD = [0.5, 0.5, 0.5]
SPECIAL_TOKENS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
PAD = "<|endoftext|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_processor(seed: int) -> Any:
    """A Qwen3-VL processor whose byte-level BPE was trained on captions, prompts and answers of this world.

    It sees words one by one, so that no token spans a space: a word of the caption and the same word in the
    answer are the same tokens, and naming a word is copying it.
    """
    blank = Qwen2Tokenizer(vocab={PAD: 0}, merges=[])
    words = (word for text in _corpus(seed) for word in text.split(" "))
    tokenizer = blank.train_new_from_iterator(words, vocab_size=VOCAB_SIZE, show_progress=False)
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL_TOKENS})
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", PAD
    size = {"shortest_edge": MIN_CELLS * CELL**2, "longest_edge": MAX_CELLS * CELL**2}
    settings = {"patch_size": PATCH, "merge_size": MERGE, "image_mean": MEAN, "image_std": STD, "size": size}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**settings),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**settings),
        chat_template=CHAT_TEMPLATE,
    )


def make_model(processor: Any) -> Any:
    """An untrained Qwen3-VL, deepstack on two levels; initialised from torch's current seed."""
    tokenizer = processor.tokenizer
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    vision = {
        "depth": 3, "hidden_size": 96, "intermediate_size": 256, "num_heads": 4, "patch_size": PATCH,
        "spatial_merge_size": MERGE, "temporal_patch_size": 2, "out_hidden_size": 128,
        "num_position_embeddings": 144, "deepstack_visual_indexes": [0, 1],
    }  # fmt: skip
    text = {
        "vocab_size": -(-len(tokenizer) // 8) * 8, "hidden_size": 128, "intermediate_size": 384,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "max_position_embeddings": 2048, "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": ids["<|im_end|>"], "bos_token_id": None, "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [6, 5, 5], "mrope_interleaved": True,
        },
    }  # fmt: skip
    config = Qwen3VLConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    model = Qwen3VLForConditionalGeneration(config)
    _initialise_by_width(model)
    model.generation_config.update(do_sample=False, eos_token_id=ids["<|im_end|>"], pad_token_id=tokenizer.pad_token_id)
    return model


def _initialise_by_width(model: nn.Module) -> None:
    """Draw all matrices with a spread that suits their width; the usual 0.02 suits wide models.

    With 0.02 the tower learns to see late, and a word of the caption is copied into the answer later still.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "pos_embed" not in name:
            nn.init.normal_(parameter, std=INIT_STD)


def answer_text(scene: Scene, mode: Mode) -> str:
    """The JSON that the model learns to write."""
    answer = answer_of(scene, mode)
    fields = {
        "labels": answer.labels,
        "referred_words": answer.referred_words,
        "referred_image_concepts": answer.referred_image_concepts,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _corpus(seed: int, n_scenes: int = 6000) -> Iterator[str]:
    task = load_task("ukrmeme")
    for mode in MODES:
        for language in LANGUAGES:
            instruction = task.instruction(mode, language, "short")
            yield from [f"<|im_start|>user\n{instruction}<|im_end|>\n<|im_start|>assistant\n"] * 200
    for index in range(n_scenes):
        scene = sample_scene(seed, index)
        yield scene.text
        yield answer_text(scene, "image+text")

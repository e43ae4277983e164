"""Small random checkpoint folders of every family: real model, processor, tokenizer and chat template classes.

The models are those of the attribution tests, with a vocabulary that was trained on what the tests ask. They write
nonsense; what is explained is therefore put into their mouths.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    Gemma3ImageProcessor,
    Gemma3Processor,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from xai.tasks import load_task

from ..attribution.random_models import FAMILY_NAMES, MERGE, PATCH, SIDE, VISION_FAMILIES, build_model
from ..attribution.small_tokenizers import gemma_tokenizer, llama3_tokenizer, qwen_tokenizer

TEXT_FAMILIES = [name for name in FAMILY_NAMES if name not in VISION_FAMILIES]
ANSWER = '{"labels": ["Smears", "Doubt"], "referred_words": ["liar"], "referred_image_concepts": []}'
TEXT = "Такий liar, this is 🔥 never true"

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Like that of Qwen3, it lets the model think unless it is told not to.
THINKING = CHATML.removesuffix("{% endif %}") + "{% if enable_thinking | default(true) %}<think>{% endif %}{% endif %}"
GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n{% if m.content is string %}"
    "{{ m.content | trim }}{% else %}{% for part in m.content %}{% if part.type == 'image' %}<start_of_image>"
    "{% else %}{{ part.text | trim }}{% endif %}{% endfor %}{% endif %}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
# Like that of Llama 3, it writes the date of today unless it is given one.
DATED = (
    "{{ bos_token }}<|header|>system<|/header|>Today is {{ date_string | default(strftime_now('%d %b %Y')) }}<|end|>"
    "{% for m in messages %}<|header|>{{ m.role }}<|/header|>\n{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|header|>assistant<|/header|>\n{% endif %}"
)


def save_checkpoint(family: str, folder: Path, *, with_template: bool = True) -> Path:
    """Write a checkpoint of ``family`` that knows the short prompts of the task."""
    processor = PROCESSORS[family](TEMPLATES[family] if with_template else None)
    tokenizer = getattr(processor, "tokenizer", processor)
    model = build_model(family)
    model.config.get_text_config().max_position_embeddings = 4096  # room for a prompt and the longest answer
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for rows in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
            rows.copy_(torch.randn_like(rows) * rows.shape[-1] ** -0.5)
    _name_tokens(model, tokenizer)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    (folder / "xai.json").write_text(json.dumps({"prompt_variant": "short"}), encoding="utf-8")
    return folder


def _name_tokens(model: Any, tokenizer: Any) -> None:
    names = QWEN_NAMES if model.config.model_type.startswith("qwen") else GEMMA_NAMES
    for name, token in names.items():
        if hasattr(model.config, name):
            setattr(model.config, name, tokenizer.convert_tokens_to_ids(token))
    for config in (model.config.get_text_config(), model.generation_config):
        config.eos_token_id = tokenizer.eos_token_id
        config.bos_token_id = tokenizer.bos_token_id
        config.pad_token_id = tokenizer.pad_token_id


QWEN_NAMES = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
GEMMA_NAMES = {
    "image_token_index": "<image_soft_token>",
    "boi_token_index": "<start_of_image>",
    "eoi_token_index": "<end_of_image>",
}


def _corpus() -> list[str]:
    task = load_task("ukrmeme")
    prompts = [task.instruction(mode, "en", "short") for mode in ("text", "image", "image+text")]
    return [*prompts, ANSWER, TEXT] * 3


def _qwen(template: str | None) -> Any:
    special = ["<|im_start|>", "<|im_end|>", *QWEN_NAMES.values()]
    return qwen_tokenizer(_corpus(), special, eos_token="<|im_end|>", chat_template=template)


def _llama(template: str | None) -> Any:
    special = ["<|begin|>", "<|end|>", "<|header|>", "<|/header|>"]
    options = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "chat_template": template}
    return llama3_tokenizer(_corpus(), special, **options)


def _gemma(template: str | None) -> Any:
    special = ["<start_of_turn>", "<end_of_turn>", *GEMMA_NAMES.values()]
    named = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    options = {"extra_special_tokens": named, "eos_token": "<end_of_turn>", "chat_template": template}
    return gemma_tokenizer(_corpus(), special, **options)


def _qwen_processor(kind: Any, video: Any) -> Callable[[str | None], Any]:
    def build(template: str | None) -> Any:
        cell = PATCH * MERGE
        size = {"shortest_edge": 9 * cell**2, "longest_edge": 36 * cell**2}
        settings = {"patch_size": PATCH, "merge_size": MERGE, "size": size}
        images, videos = Qwen2VLImageProcessor(**settings), video(**settings)
        return kind(image_processor=images, tokenizer=_qwen(template), video_processor=videos, chat_template=template)

    return build


def _gemma_processor(template: str | None) -> Any:
    # A checkpoint may ask for crops; they are left out.
    images = Gemma3ImageProcessor(size={"height": SIDE * PATCH, "width": SIDE * PATCH}, do_pan_and_scan=True)
    n_tokens = (SIDE // MERGE) ** 2
    return Gemma3Processor(images, _gemma(template), chat_template=template, image_seq_length=n_tokens)


PROCESSORS: Mapping[str, Callable[[str | None], Any]] = {
    "Qwen2-VL": _qwen_processor(Qwen2VLProcessor, Qwen2VLVideoProcessor),
    "Qwen2.5-VL": _qwen_processor(Qwen2_5_VLProcessor, Qwen2VLVideoProcessor),
    "Qwen3-VL": _qwen_processor(Qwen3VLProcessor, Qwen3VLVideoProcessor),
    "Qwen3-VL-MoE": _qwen_processor(Qwen3VLProcessor, Qwen3VLVideoProcessor),
    "Gemma 3": _gemma_processor,
    "Llama": _llama,
    "Qwen2": _qwen,
    "Qwen3": _qwen,
    "Gemma 3 text": _gemma,
}
TEMPLATES = dict.fromkeys(FAMILY_NAMES, CHATML) | {
    "Gemma 3": GEMMA,
    "Gemma 3 text": GEMMA,
    "Llama": DATED,
    "Qwen3": THINKING,
}

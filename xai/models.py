"""Loads a vision-language model with its processor, and lets it answer in batches."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    GenerationConfig,
)

from xai.planted import CHECKPOINT
from xai.prompts import EncodedPrompt, PromptStyle, collate

SETTINGS_FILE = "xai.json"
SAMPLED_VALUES = 256


@dataclass(frozen=True, eq=False)
class VisionLanguageModel:
    """A loaded model: what runs it, and what identifies it in a run.

    ``style`` is the prompt that suits the model unless another is asked for. ``lock`` is held while the model
    is explained, since patches belong to the model's modules; threads that share a model wait for each other.
    """

    name: str
    model: nn.Module = field(repr=False)
    processor: Any = field(repr=False)
    fingerprint: str
    style: PromptStyle
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def device(self) -> torch.device:
        """Where the model's first parameter lies."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the model's first parameter."""
        return next(self.model.parameters()).dtype

    def describe(self) -> dict[str, Any]:
        """What a run records of the model, in JSON values."""
        config: Any = self.model.config
        return {
            "name": self.name,
            "type": config.model_type,
            "fingerprint": self.fingerprint,
            "device": self.device.type,
            "dtype": str(self.dtype).removeprefix("torch."),
            "attention": config._attn_implementation,
        }

    @torch.inference_mode()
    def generate(self, prompts: Sequence[EncodedPrompt], max_new_tokens: int = 512) -> list[tuple[int, ...]]:
        """Greedy answers to a batch of prompts: the generated ids, the end-of-sequence token included.

        Sampling, beams and penalties of the checkpoint's own generation settings are not used, so that the
        ids are those with the highest logits.
        """
        tokenizer = self.processor.tokenizer
        batch = collate([prompt.inputs for prompt in prompts], tokenizer.pad_token_id, side="left")
        batch = {name: tensor.to(self.device) for name, tensor in batch.items()}
        if "pixel_values" in batch:
            batch["pixel_values"] = batch["pixel_values"].to(self.dtype)
        ends = self._end_ids()
        config = GenerationConfig(
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,
            max_new_tokens=max_new_tokens,
            eos_token_id=ends,
            pad_token_id=tokenizer.pad_token_id,
        )
        with self.lock:
            output = self.model.generate(**batch, generation_config=config)  # type: ignore[operator]
        return [_until_end(row, ends) for row in output[:, batch["input_ids"].shape[1] :].tolist()]

    def _end_ids(self) -> list[int]:
        configured = self.model.generation_config.eos_token_id  # type: ignore[union-attr]
        if configured is None:
            configured = self.processor.tokenizer.eos_token_id
        return list(configured) if isinstance(configured, (list, tuple)) else [int(configured)]  # type: ignore[arg-type]


def load_model(
    name: str | Path = "planted",
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    style: PromptStyle | None = None,
) -> VisionLanguageModel:
    """Load ``"planted"`` (the model that ships), a checkpoint folder, or a model of the Hugging Face hub.

    Args:
        device: where to run; CUDA when there is one, else CPU.
        dtype: float32 on CPU and the checkpoint's own type elsewhere, unless given.
        style: prompt language and variant; the checkpoint's ``xai.json`` may name the variant it knows.

    Code that comes with a checkpoint is never run, and only safetensors weights are read.

    Raises:
        ValueError: there is no such model here, or it is not a vision-language checkpoint.
    """
    folder, source = _located(name)
    try:
        processor = AutoProcessor.from_pretrained(source, trust_remote_code=False)
        model = _weights(AutoModelForImageTextToText, source, device, dtype)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(_load_advice(str(name), error)) from error
    return VisionLanguageModel(
        name=str(name), model=model, processor=processor, fingerprint=fingerprint(model), style=style or _style(folder)
    )


def load_weights(
    name: str | Path = "planted",
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
) -> nn.Module:
    """The bare model of :func:`load_model`, or a text-only decoder, without what it takes to ask it a question.

    Raises:
        ValueError: there is no such model here, or it is no language model.
    """
    _, source = _located(name)
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        sees = type(config) in AutoModelForImageTextToText._model_mapping
        return _weights(AutoModelForImageTextToText if sees else AutoModelForCausalLM, source, device, dtype)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(_load_advice(str(name), error)) from error


def _located(name: str | Path) -> tuple[Path, str]:
    """The checkpoint's folder, which need not exist, and what transformers is to load."""
    folder = CHECKPOINT if str(name) == "planted" else Path(name)
    return folder, str(folder) if folder.is_dir() else str(name)


def _weights(loader: Any, source: str, device: str | torch.device | None, dtype: torch.dtype | str | None) -> nn.Module:
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if dtype is None:
        dtype = torch.float32 if chosen.type == "cpu" else "auto"
    model: nn.Module = loader.from_pretrained(source, dtype=dtype, use_safetensors=True, trust_remote_code=False)
    return model.to(chosen).eval()


def fingerprint(model: nn.Module) -> str:
    """A hash of every parameter's name, shape and type and of up to 256 values spread evenly over it."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // SAMPLED_VALUES)].float().cpu().numpy()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode() + sample.tobytes())
    return digest.hexdigest()[:16]


def _style(folder: Path) -> PromptStyle:
    settings = folder / SETTINGS_FILE
    if not settings.is_file():
        return PromptStyle()
    return PromptStyle(variant=json.loads(settings.read_text(encoding="utf-8"))["prompt_variant"])


def _load_advice(name: str, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"cannot load model {name!r}: {reason} — give 'planted', a folder with config.json, or a hub id in reach"


def _until_end(ids: Sequence[int], ends: Sequence[int]) -> tuple[int, ...]:
    for place, token in enumerate(ids):
        if token in ends:
            return tuple(ids[: place + 1])
    return tuple(ids)

"""Texts and pictures in one space, by a dual encoder of Hugging Face that lies in a folder or in reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image

from xai.models import fingerprint, load_dual_encoder
from xai.retrieval.embedders import Embedder, unit_rows

BATCH = 16
"""Texts or pictures that a model is given at once."""
Thing = TypeVar("Thing")


class DualEncoder(Embedder):
    """A model with ``get_text_features`` and ``get_image_features``: CLIP, SigLIP, SigLIP 2 and their kin.

    Loaded as :func:`xai.models.load_model` loads: only safetensors are read, and no code of a checkpoint is run. Texts
    are padded to the model's length, so that a text's vector does not depend on others; what is beyond it is cut.

    Args:
        name: a folder, or an id of the hub.
        device: where to run; CUDA when there is one, else CPU.
        dtype: float32 on CPU and the checkpoint's own type elsewhere, unless given.

    Raises:
        ValueError: there is no such model here, or it cannot be used.
    """

    reads = ("text", "picture")

    def __init__(self, name: str, *, device: str | None = None, dtype: str | None = None) -> None:
        self.name = name
        self._model, self._processor = load_dual_encoder(name, device=device, dtype=dtype)
        config: Any = self._model.config
        positions = getattr(config.get_text_config(), "max_position_embeddings", None)
        lengths = (positions, self._processor.tokenizer.model_max_length)
        self._length = min(length for length in lengths if length is not None)

    def describe(self) -> dict[str, Any]:
        """With what identifies the model, and where and in what type it computes."""
        first = next(self._model.parameters())
        config: Any = self._model.config
        return {
            "name": self.name,
            "type": config.model_type,
            "fingerprint": fingerprint(self._model),
            "device": first.device.type,
            "dtype": str(first.dtype).removeprefix("torch."),
        }

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """``(n, dim)``; a text of white space alone has a zero row."""
        settings = {"padding": "max_length", "truncation": True, "max_length": self._length, "return_tensors": "pt"}
        encode = self._processor.tokenizer
        rows = [self._features("get_text_features", encode(some, **settings)) for some in _some(texts)]
        has_text = np.array([bool(text.strip()) for text in texts])
        return unit_rows(np.concatenate(rows) * has_text[:, None])

    def pictures(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """``(n, dim)``, in the space of the texts."""
        # Not through the processor as a whole, some of which go by their own sizes and not by those of the checkpoint.
        encode = self._processor.image_processor
        rows = [self._features("get_image_features", encode(some, return_tensors="pt")) for some in _some(pictures)]
        return unit_rows(np.concatenate(rows))

    @torch.inference_mode()
    def _features(self, method: str, inputs: Mapping[str, torch.Tensor]) -> np.ndarray:
        first = next(self._model.parameters())
        moved = {
            name: tensor.to(first.device, first.dtype if tensor.is_floating_point() else None)
            for name, tensor in inputs.items()
        }
        output = getattr(self._model, method)(**moved)
        features: torch.Tensor = output if isinstance(output, torch.Tensor) else output.pooler_output
        return features.float().cpu().numpy()


def _some(things: Sequence[Thing]) -> Iterator[list[Thing]]:
    for start in range(0, len(things), BATCH):
        yield list(things[start : start + BATCH])

"""BERTScore: how alike two texts are by the vectors that an encoder has for their tokens in context.

Zhang, Kishore, Wu, Weinberger and Artzi (2020, "BERTScore: evaluating text generation with BERT"). With x the tokens of
gold and y those of the other text, and cos the cosine of their vectors,

    precision = mean over y of max over x cos(x, y);  recall = mean over x of max over y cos(x, y)
    F = 2 · precision · recall / (precision + recall)

As in the authors' program, special tokens (those that begin and end a text) have no weight in the means and may be what
a token is nearest to. There is no weighting by rarity and no rescaling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer

from xai.model_files import CONFIG, refuse_unsafe
from xai.weights import check_weight_files, refuse_drawn_weights

_UNUSED = "pooler."
"""Of the weights that a file may lack: they come after the vectors of the tokens."""


@dataclass(frozen=True, eq=False)
class BertScore:
    """A loaded encoder that scores pairs of texts.

    Attributes:
        name: of its folder.
        layer: after which of its layers the vectors are taken; 0 is what goes into the first.
        batch_size: pairs that are encoded at once.

    A text with more tokens than the encoder takes is cut behind the last that it does.
    """

    name: str
    model: nn.Module
    tokenizer: Any
    layer: int
    batch_size: int = 32

    @property
    def source(self) -> str:
        """What the figures depend on, in words."""
        parameter = next(self.model.parameters())
        return f"{self.name}, layer {self.layer}, {str(parameter.dtype).removeprefix('torch.')}, not rescaled"

    def __call__(self, gold: Sequence[str], predicted: Sequence[str]) -> np.ndarray:
        """F of every pair, ``(n,)``; 0 where a text has no tokens.

        Raises:
            ValueError: there are not as many of both.
        """
        if len(gold) != len(predicted):
            raise ValueError(f"{len(gold)} gold texts and {len(predicted)} others; give one of each for every pair")
        pairs, found = list(zip(gold, predicted, strict=True)), []
        for start in range(0, len(pairs), self.batch_size):
            batch = pairs[start : start + self.batch_size]
            texts = list(dict.fromkeys(text for pair in batch for text in pair))
            vectors = dict(zip(texts, self._vectors(texts), strict=True))
            found += [pair_f1(*vectors[one], *vectors[other]) for one, other in batch]
        return np.array(found)

    def _vectors(self, texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The vectors of the tokens of each text, ``(n_tokens, hidden)``, and which are no special ones."""
        encoded = self.tokenizer(
            list(texts), padding=True, truncation=True, return_tensors="pt", return_special_tokens_mask=True,
            max_length=self._longest,
        )  # fmt: skip
        special = encoded.pop("special_tokens_mask").bool().numpy()
        there = encoded["attention_mask"].bool().numpy()
        device = next(self.model.parameters()).device
        with torch.inference_mode():
            found = self.model(**encoded.to(device), output_hidden_states=True).hidden_states[self.layer]
        for vectors, is_special, is_there in zip(found.float().cpu().numpy(), special, there, strict=True):
            yield vectors[is_there], ~is_special[is_there]

    @property
    def _longest(self) -> int:
        """Tokens that the encoder takes."""
        longest = getattr(self.model.config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        return int(min(longest, self.tokenizer.model_max_length))


def load_bertscore(
    folder: str | Path,
    *,
    layer: int | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
) -> BertScore:
    """An encoder from a folder of this machine; only safetensors are read, and no code of its own is run.

    Args:
        layer: as for :class:`BertScore`; the last by default. The layers that the authors chose for a model are in
            their paper.
        device: CUDA when there is one, else CPU.
        dtype: float32, unless given.

    Raises:
        ValueError: the folder has no such model, or not that layer; the message says what to do.
    """
    path = Path(folder)
    if not (path / CONFIG).is_file():
        raise ValueError(f"{str(folder)!r} is no folder of a model (no {CONFIG}); give that of an encoder")
    refuse_unsafe(path, path.name)
    check_weight_files(path)
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        options = {"trust_remote_code": False, "local_files_only": True}
        tokenizer = AutoTokenizer.from_pretrained(path, **options)
        model, found = AutoModel.from_pretrained(
            path, **options, use_safetensors=True, dtype=dtype or torch.float32, output_loading_info=True
        )
    except Exception as error:  # readers of a damaged file raise whatever they met
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"cannot load {path.name!r} for BERTScore: {reason}") from error
    refuse_drawn_weights([name for name in found["missing_keys"] if not name.startswith(_UNUSED)])
    n_layers = model.config.num_hidden_layers
    at = n_layers if layer is None else layer
    if not 0 <= at <= n_layers:
        raise ValueError(f"{path.name!r} has {n_layers} layers, and no layer {at}; give one from 0 to {n_layers}")
    return BertScore(path.name, model.to(chosen).eval(), tokenizer, at)


def pair_f1(gold: np.ndarray, gold_counts: np.ndarray, predicted: np.ndarray, predicted_counts: np.ndarray) -> float:
    """F of two texts by the vectors of their tokens, ``(n_tokens, hidden)``, and which tokens count, bool.

    0 where on one side none counts, or where precision and recall are not above 0.
    """
    if not gold_counts.any() or not predicted_counts.any():
        return 0.0
    cosines = _unit(predicted) @ _unit(gold).T
    precision = float(cosines.max(axis=1)[predicted_counts].mean())
    recall = float(cosines.max(axis=0)[gold_counts].mean())
    return 2 * precision * recall / (precision + recall) if precision > 0 and recall > 0 else 0.0


def _unit(vectors: np.ndarray) -> np.ndarray:
    exact = vectors.astype(np.float64)
    return np.asarray(exact / np.linalg.norm(exact, axis=1, keepdims=True))

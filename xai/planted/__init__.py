"""The world of planted evidence: memes whose labels have a known cause, and a small Qwen3-VL trained on them."""

from __future__ import annotations

from pathlib import Path

CHECKPOINT = Path(__file__).parent / "checkpoint"
"""The shipped checkpoint; ``AutoProcessor`` and ``AutoModelForImageTextToText`` load it like any Qwen3-VL."""

SAMPLES = Path(__file__).parent / "samples"
"""The shipped sample memes: ``memes.jsonl`` and ``images/``."""

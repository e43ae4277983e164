"""How long it takes to bring words and relevance together, beside tokenising with offsets in the real vocabulary."""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

# Set before the library counts its threads: both sides run in one.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tests.attribution.real_vocabulary import real_tokenizer
from xai.attribution.align import text_relevance, words_of

N_CAPTIONS, N_WORDS, BLOCK = 10_000, 30, 500
WANTED = 1.2
WORDS = {
    "en": "they lied again about the war nobody isn't allowed well-known 100% truth, of course why? people never asked",
    "uk": "вони знову брехали про війну, ніхто не здається об'єднання перебільшення ярликів завжди правда народу 2024",
    "ar": "لا أحد يعرف الحقيقةَ أبدًا، هم كذبوا مرة أخرى عن الحرب والسلام كل شيء ممنوع",
}


def measure(n_captions: int = N_CAPTIONS, seed: int = 0) -> dict[str, Any]:
    """Ratios of time, as medians over blocks of captions that both sides take in turn.

    ``ratio`` is splitting a caption into words and gathering its relevance on them (``text_relevance``) over the
    tokenizer's own call with offsets, caption by caption, as a run does it. ``ratio_batch`` is the same over one call
    for the block, ``ratio_words`` the first with ``Word`` objects made on the way. Seconds are those of all captions.
    """
    tokenizer, rng = real_tokenizer(), random.Random(seed)
    captions = [caption(rng) for _ in range(n_captions)]
    blocks = [captions[start : start + BLOCK] for start in range(0, n_captions, BLOCK)]
    times = np.array([_times(tokenizer, block) for block in [blocks[0], *blocks]][1:])  # the first warms up
    single, batch, table, objects = times.T
    return {
        "ratio": statistics.median(table / single),
        "ratio_batch": statistics.median(table / batch),
        "ratio_words": statistics.median((objects + table) / single),
        "wanted": WANTED,
        "seconds_tokenising": float(single.sum()),
        "seconds_aligning": float(table.sum()),
        "captions": n_captions,
        "words": N_WORDS,
    }


def caption(rng: random.Random) -> str:
    """Thirty words of one language."""
    return " ".join(rng.choices(WORDS[rng.choice(sorted(WORDS))].split(), k=N_WORDS))


def _times(tokenizer: Any, captions: Sequence[str]) -> tuple[float, float, float, float]:
    start = time.perf_counter()
    spans = [_offsets(tokenizer, text) for text in captions]
    singly = time.perf_counter()
    _offsets(tokenizer, list(captions))
    batched = time.perf_counter()
    values = [np.linspace(-1, 1, len(one)) for one in spans]
    ready = time.perf_counter()
    for text, one, relevance in zip(captions, spans, values, strict=True):
        text_relevance(text, one, relevance)
    aligned = time.perf_counter()
    for text in captions:
        words_of(text, None)
    return singly - start, batched - singly, aligned - ready, time.perf_counter() - aligned


def _offsets(tokenizer: Any, text: str | list[str]) -> Any:
    return tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))

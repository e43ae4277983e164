"""How long it takes to bring words and relevance together, beside tokenising with offsets in the real vocabulary."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Set before the library counts its threads: both sides run in one.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tests.attribution.real_vocabulary import real_tokenizer
from tests.benchmarks.harness import Record, Settings, figure, ratios
from xai.attribution.align import text_relevance, words_of

N_CAPTIONS, N_WORDS, BLOCK = 10_000, 30, 500
WORDS = {
    "en": "they lied again about the war nobody isn't allowed well-known 100% truth, of course why? people never asked",
    "uk": "вони знову брехали про війну, ніхто не здається об'єднання перебільшення ярликів завжди правда народу 2024",
    "ar": "لا أحد يعرف الحقيقةَ أبدًا، هم كذبوا مرة أخرى عن الحرب والسلام كل شيء ممنوع",
}


def measure(settings: Settings) -> Iterator[Record]:
    """Ratios of time over blocks of captions that both sides take in turn.

    Aligning is splitting a caption into words and gathering its relevance on them (``text_relevance``); beside it
    the tokenizer's own call with offsets, caption by caption, as a run does it, or one call for the block.
    """
    tokenizer, rng = real_tokenizer(), random.Random(0)
    captions = [caption(rng) for _ in range(2 * BLOCK if settings.small else N_CAPTIONS)]
    blocks = [captions[start : start + BLOCK] for start in range(0, len(captions), BLOCK)]
    times = np.array([_times(tokenizer, block) for block in [blocks[0], *blocks]][1:])  # the first warms up
    single, batch, table, objects = times.T.tolist()
    note = f"{len(captions)} captions of {N_WORDS} words in blocks of {BLOCK}, vocabulary of the Qwen models"
    yield figure("aligning / tokenising one by one, time", ratios(table, single), at_most=1.2, note=note)
    yield figure("aligning / tokenising in blocks, time", ratios(table, batch))
    yield figure(
        "aligning with Word objects made / tokenising one by one, time",
        ratios([one + other for one, other in zip(objects, table, strict=True)], single),
    )
    yield figure("tokenising one by one, a block", single, "s")
    yield figure("aligning, a block", table, "s")


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

"""Curves over the words of a caption: behind the cached prefix, and by whole forwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.harness import Record, Settings, figure, paired, ratios
from tests.benchmarks.models import Case, build_case, build_model, size_of
from xai.attribution.perturb import Variant, WordChange, score_variants

N_PREFIX, N_CAPTION, N_ANSWER = 600, 40, 20
TOKENS_A_WORD = 2
SEED = 0


def measure(settings: Settings) -> Iterator[Record]:
    """Seconds of both ways and their ratio, for both curves of one order; the largest difference of their scores."""
    size = size_of(settings)
    prefix = 60 if settings.small else N_PREFIX
    case = build_case(size, prefix + N_CAPTION + N_ANSWER, n_caption=N_CAPTION, n_answer=N_ANSWER)
    model, variants = build_model(size), curve_variants(case)

    def score(words: WordChange, reuse_prefix: bool, some: Sequence[Variant] = variants) -> np.ndarray:
        size = 64 if reuse_prefix else 16
        options: dict[str, Any] = {"words": words, "reuse_prefix": reuse_prefix, "batch_size": size}
        return score_variants(model, case.inputs, some, [case.target(4, 2)], **options)

    note = f"score_variants, {len(variants)} variants of both curves of 20 words behind {case.caption} tokens"
    arms = {"whole": partial(score, "replace", False), "reused": partial(score, "replace", True)}
    seconds = paired(arms, settings.rounds(2))
    yield figure("whole forwards", seconds["whole"], "s", note=f"{note}, batches of 16")
    yield figure("cached prefix", seconds["reused"], "s", note=f"{note}, one batch")
    yield figure("whole forwards / cached prefix, time", ratios(seconds["whole"], seconds["reused"]), at_least=5)
    for words in ("replace", "delete", "mask"):
        whole, reused = score(words, False, variants[::4]), score(words, True)
        difference = float(np.abs(whole - reused[::4]).max())
        effect = f"scores are logits; those of the curves range over {np.ptp(reused):.3g}"
        yield figure(f"{words}: largest difference between scores", [difference], at_most=1e-4, note=effect)


def curve_variants(case: Case) -> list[Variant]:
    """Without the first k words of a random order, and without the last k, for every k."""
    starts = np.random.default_rng(SEED).permutation(range(case.caption, case.answer, TOKENS_A_WORD)).tolist()
    parts = [Variant(frozenset(range(start, start + TOKENS_A_WORD))) for start in starts]
    variants = [Variant()]
    for order in (parts, parts[::-1]):
        gone = Variant()
        for part in order:
            gone |= part
            variants.append(gone)
    return variants

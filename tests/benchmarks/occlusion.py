"""Occlusion of the words of a caption: behind the cached prefix, and by whole forwards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.benchmarks.harness import Record, Settings, figure, paired, ratios
from tests.benchmarks.models import Case, build_case, build_model, size_of
from xai.attribution.perturb import Variant, score_variants

N_PREFIX, N_CAPTION, N_ANSWER = 600, 40, 20
TOKENS_A_WORD = 2


def measure(settings: Settings) -> Iterator[Record]:
    """Seconds of both ways, their ratio, and the largest difference between their scores."""
    size = size_of(settings)
    prefix = 60 if settings.small else N_PREFIX
    case = build_case(size, prefix + N_CAPTION + N_ANSWER, n_caption=N_CAPTION, n_answer=N_ANSWER)
    model, words = build_model(size), _words(case)
    # The label is what an answer begins with.
    score = partial(score_variants, model, case.inputs, words, [case.target(4, 2)])
    whole, reused = score(reuse_prefix=False), score(reuse_prefix=True)
    note = f"score_variants, {len(words)} words of {TOKENS_A_WORD} tokens behind {case.caption} tokens, batches of 16"
    seconds = paired(
        {"whole": partial(score, reuse_prefix=False), "reused": partial(score, reuse_prefix=True)}, settings.rounds(5)
    )
    yield figure("whole forwards", seconds["whole"], "s", note=note)
    yield figure("cached prefix", seconds["reused"], "s", note=note)
    yield figure("whole forwards / cached prefix, time", ratios(seconds["whole"], seconds["reused"]), at_least=4)
    effect = np.abs(whole - np.median(whole)).max()
    yield figure(
        "largest difference between scores",
        [float(np.abs(whole - reused).max())],
        at_most=1e-4,
        note=f"scores are logits; the word that counts most moves them by {effect:.3g}",
    )


def _words(case: Case) -> list[Variant]:
    starts = range(case.caption, case.answer, TOKENS_A_WORD)
    return [Variant(frozenset(range(start, start + TOKENS_A_WORD))) for start in starts]

"""Measures a model of the planted world against the world: answers, interventions on causes, and explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Literal

import numpy as np

from xai.analysis.detection.scores import hierarchical_scores
from xai.analysis.faithfulness.ground_truth import (
    Localisation,
    UnknownWordsError,
    ground_truth_frame,
    ground_truth_section,
    localise,
)
from xai.analysis.report import Section
from xai.models import VisionLanguageModel
from xai.pipeline import explain_answer, predict
from xai.planted.lexicon import load_lexicon
from xai.planted.truth import planted_meme, planted_memes, truth_of
from xai.planted.world import Scene, labels_of, sample_scene, with_other_decoys, without_cause
from xai.schema import MODES, Explanation, Meme, Mode, Prediction
from xai.tasks import load_task

EVALUATION_SEED = 900_001
"""A world that training never draws from."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class AnswerScores:
    """How well the answers match the world; each figure between 0 and 1, higher is better.

    ``f1`` is hierarchical micro F1 in ``image+text`` over all labels; ``word_f1`` in ``text`` over labels
    caused by a word, ``icon_f1`` in ``image`` over labels caused by an icon. ``referred_words_f1`` compares
    the words that the answer names with those the world says it names, faithful or not.
    """

    n: int
    f1: float
    word_f1: float
    icon_f1: float
    referred_words_f1: float
    strict: float


@dataclass(frozen=True)
class InterventionScores:
    """Whether causes cause: shares of labels that go when their cause goes, and that change when it stays.

    ``flip_cause`` should be 1 and ``flip_decoy`` 0; ``flip_part`` is for labels that need a word and an
    icon, one of which was taken away.
    """

    n_causes: int
    flip_cause: float
    n_parts: int
    flip_part: float
    n_decoys: int
    flip_decoy: float


@dataclass(frozen=True)
class PointingScores:
    """Whether a method points at the causes; shares between 0 and 1, higher is better.

    ``word_hit``: the word with most relevance for a word-caused label is its trigger.
    ``cell_hit``: the image cell with most relevance for an icon-caused label touches the icon.
    ``cell_mass``: mean share of the positive image relevance on cells that touch the icon. Definitions and ties:
    :mod:`xai.analysis.faithfulness.localisation`.
    """

    method: str
    mode: Mode
    n_words: int
    word_hit: float
    n_icons: int
    cell_hit: float
    cell_mass: float


def score_answers(model: VisionLanguageModel, memes: Sequence[Meme]) -> AnswerScores:
    """Let the model answer planted memes in all three modes and compare with the world."""
    answers = {mode: predict(model, memes, mode=mode) for mode in MODES}
    task, lexicon = load_task("ukrmeme"), load_lexicon()
    gold = [meme.labels or () for meme in memes]

    def f1(mode: Mode, kept: Iterable[str]) -> float:
        kept = set(kept)
        predicted = [[label for label in answer.labels if label in kept] for answer in answers[mode]]
        wanted = [[label for label in labels if label in kept] for labels in gold]
        return hierarchical_scores(wanted, predicted, task.expand).micro.f1

    parsed = [answer.parse == "strict" for mode in MODES for answer in answers[mode]]
    return AnswerScores(
        n=len(memes),
        f1=f1("image+text", task.label_names),
        word_f1=f1("text", lexicon.by_kind("word")),
        icon_f1=f1("image", lexicon.by_kind("icon")),
        referred_words_f1=_word_f1(memes, answers["image+text"]),
        strict=float(np.mean(parsed)),
    )


def score_interventions(model: VisionLanguageModel, n: int, seed: int = EVALUATION_SEED) -> InterventionScores:
    """Replace causes, halves of double causes, and decoys with fillers, in scenes that the model reads rightly."""
    cases = [_interventions(sample_scene(seed, index), Random(f"{seed}-{index}")) for index in range(n)]
    flat = [(kind, label, scene, changed) for case in cases for kind, label, scene, changed in case]
    before = _labels(model, [scene for _, _, scene, _ in flat])
    after = _labels(model, [changed for _, _, _, changed in flat])
    flips: dict[str, list[bool]] = {"cause": [], "part": [], "decoy": []}
    for (kind, label, scene, _), old, new in zip(flat, before, after, strict=True):
        if kind == "decoy":
            flips[kind].append(old != new)
        elif old == set(labels_of(scene)):
            flips[kind].append(label not in new)
    return InterventionScores(
        n_causes=len(flips["cause"]),
        flip_cause=float(np.mean(flips["cause"])),
        n_parts=len(flips["part"]),
        flip_part=float(np.mean(flips["part"])),
        n_decoys=len(flips["decoy"]),
        flip_decoy=float(np.mean(flips["decoy"])),
    )


def score_pointing(
    model: VisionLanguageModel, memes: Sequence[Meme], method: str, mode: Mode, **options: Any
) -> PointingScores:
    """Explain every label that the model answered rightly, with these options, and see where the relevance lies."""
    rows = localisations(model, memes, method, mode, **options)
    words = [row.pointing for row in rows if (row.kind, row.units) == ("word", "words")]
    icons = [row for row in rows if (row.kind, row.units) == ("icon", "cells")]
    hits, masses = [row.pointing for row in icons], [row.mass for row in icons]
    return PointingScores(method, mode, len(words), _mean(words), len(icons), _mean(hits), _mean(masses))


def localisations(
    model: VisionLanguageModel, memes: Sequence[Meme], method: str, mode: Mode, **options: Any
) -> list[Localisation]:
    """Explain every label that the model answered rightly and hold each map against the cause."""
    found: list[Localisation] = []
    for meme, prediction in zip(memes, predict(model, memes, mode=mode), strict=True):
        truth = truth_of(meme)
        if not {cause.label for cause in truth.causes} & set(prediction.labels):
            continue
        for explanation in explain_answer(model, meme, prediction, method=method, targets="each", **options):
            found += localise(explanation, truth)
    return found


def ground_truth_of(explanations: Iterable[Explanation]) -> Section | None:
    """The planted truth of explanations, of a run say, as a part of a report; ``None`` where no meme carries one.

    Explanations of another text than the planted one (what OCR read, say) have no truth; they are left out and counted.
    """
    rows: list[Localisation] = []
    n_other_text = 0
    for explanation in explanations:
        if "truth" in explanation.meme.metadata:
            try:
                rows += localise(explanation, truth_of(explanation.meme))
            except UnknownWordsError:
                n_other_text += 1
    if not rows:
        return None
    section = ground_truth_section(ground_truth_frame(rows))
    if not n_other_text:
        return section
    left_out = f"{n_other_text} explanations of another text than the planted one are left out."
    return section.model_copy(update={"text": f"{section.text}\n\n{left_out}"})


def evaluate(
    model: VisionLanguageModel, n: int = 500, n_explained: int = 200, progress: Progress = lambda _: None
) -> dict[str, object]:
    """Everything of this module on memes that training never drew; ``progress`` is told what comes next."""
    memes = planted_memes(n, EVALUATION_SEED)
    progress(f"answers to {n} memes in three modes")
    answers = score_answers(model, memes)
    progress(f"interventions on {n_explained} memes")
    interventions = score_interventions(model, n_explained)
    pointing = []
    for method in ("attnlrp", "cplrp", "gradient_x_input"):
        for mode in MODES:
            progress(f"{method} on {n_explained} memes, {mode}")
            pointing.append(asdict(score_pointing(model, memes[:n_explained], method, mode)))
    return {"answers": asdict(answers), "interventions": asdict(interventions), "pointing": pointing}


def _word_f1(memes: Sequence[Meme], answers: Sequence[Prediction]) -> float:
    """Micro F1 of the named words."""
    pairs = [(set(truth_of(m).referred_words), set(a.referred_words)) for m, a in zip(memes, answers, strict=True)]
    shared = sum(len(gold & named) for gold, named in pairs)
    return 2 * shared / max(1, sum(len(gold) + len(named) for gold, named in pairs))


def _interventions(scene: Scene, rng: Random) -> list[tuple[str, str, Scene, Scene]]:
    """(kind, label, scene, changed scene) for every cause, one half of every double cause, and the decoys."""
    lexicon = load_lexicon()
    causes = [label for label in labels_of(scene) if label in lexicon.labels]
    cases = [("cause", label, scene, without_cause(scene, label, rng)) for label in causes]
    for label in causes:
        if lexicon.labels[label].kind == "both":
            part: Literal["word", "icon"] = rng.choice(("word", "icon"))
            cases.append(("part", label, scene, without_cause(scene, label, rng, part)))
    return [*cases, ("decoy", "", scene, with_other_decoys(scene, rng))]


def _labels(model: VisionLanguageModel, scenes: Sequence[Scene]) -> list[set[str]]:
    memes = [planted_meme(scene, str(index)) for index, scene in enumerate(scenes)]
    return [set(prediction.labels) for prediction in predict(model, memes)]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")

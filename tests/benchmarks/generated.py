"""Runs of any number of memes, made up without a model, in the layout and with the columns of real ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xai.parts import as_table, explanation_row, part_path, prediction_row, write_part
from xai.schema import ALL_LABELS, Explanation, Meme, Prediction, Quality, TokenTable, Word, WordTable
from xai.store import Run, RunWriter, open_run
from xai.tasks import load_task

VERSION = 1
"""To be raised when other runs come out, so that no older one is measured."""
PART = 16
N_TYPES = 20_000
GRID, SIZE = (4, 6), (600, 400)
_SYLLABLES = {
    "en": "ba be bo da de do fa fo ga ka la le lo ma me mo na no pa po ra re ro sa se so ta te to va",
    "uk": "ба бе бо да де до фа фо ґа ка ла ле ло ма ме мо на но па по ра ре ро са се со та те то ві",
}
_STOPS = {"en": "the and of with for is", "uk": "і та з для у що"}
_CONCEPTS = ("flag", "crown", "sun", "hammer", "crowd", "map")


def generated_run(path: Path, n: int) -> Run:
    """The run of :func:`generate_run` that was left in a folder, or a new one there.

    Raises:
        ValueError: the folder holds something else.
    """
    if (path / "run.json").exists():
        found = open_run(path)
        if found.config == _config(n, 0) and found.info["counts"].get("predictions") == n:
            return found
        raise ValueError(f"{path} holds another run; remove it, and it is made anew")
    return generate_run(path, n)


def generate_run(path: Path, n: int, *, seed: int = 0) -> Run:
    """A run of ``n`` memes in mode ``image+text``: an answer, and an explanation of all labels and of each, a meme.

    Captions have 6 to 24 words, of which the more common ones are far more common, as in real text; every third is a
    stop word. Answers have 1 or 2 labels, mostly the gold ones, name 1 to 4 words, sometimes one more that the text
    does not have, and two things in the picture, of which one has a region. Relevance is drawn at random and raised
    where the answer names the word.
    """
    rng, values = random.Random(seed), np.random.default_rng(seed)
    config = _config(n, seed)
    with RunWriter(path, config):
        pass
    vocabulary = {language: _vocabulary(rng, language) for language in _SYLLABLES}
    for number, start in enumerate(range(0, n, PART)):
        memes = [_answered(rng, vocabulary, f"generated-{index}") for index in range(start, min(start + PART, n))]
        explanations = (explanation_row(e) for meme, answer in memes for e in _explained(values, meme, answer))
        write_part(part_path(path, "explanations", number), as_table("explanations", explanations))
        answers = (prediction_row(answer, meme) for meme, answer in memes)
        write_part(part_path(path, "predictions", number), as_table("predictions", answers))
    with RunWriter(path, config):
        pass  # brings the counts in run.json up to date
    return open_run(path)


def _config(n: int, seed: int) -> dict[str, Any]:
    return {"task": "ukrmeme", "dataset": f"generated-{n}", "method": "attnlrp", "seed": seed, "generator": VERSION}


def _vocabulary(rng: random.Random, language: str) -> list[str]:
    syllables = _SYLLABLES[language].split()
    return ["".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(N_TYPES)]


def _answered(rng: random.Random, vocabulary: dict[str, list[str]], identifier: str) -> tuple[Meme, Prediction]:
    language = rng.choice(sorted(vocabulary))
    words = [_drawn(rng, vocabulary[language], language) for _ in range(rng.randint(6, 24))]
    content = [word for word in words if word not in _STOPS[language].split()] or words
    named = rng.sample(content, k=min(rng.randint(1, 4), len(content)))
    named += [_drawn(rng, vocabulary[language], "")] * (rng.random() < 0.1)
    labels = rng.sample(load_task("ukrmeme").label_names, k=rng.randint(1, 2))
    region = {"name": rng.choice(_CONCEPTS), "boxes": [[0, 0, rng.randint(50, 300), rng.randint(50, 300)]]}
    meme = Meme(
        id=identifier,
        text=" ".join(words),
        words=tuple(_placed(words)),
        labels=tuple(labels if rng.random() < 0.6 else rng.sample(load_task("ukrmeme").label_names, k=1)),
        language=language,
        metadata={"regions": [region]},
    )
    answer = Prediction(
        meme_id=identifier,
        mode="image+text",
        generated_ids=tuple(range(30)),
        text="",
        labels=tuple(labels),
        referred_words=tuple(named),
        referred_image_concepts=(str(region["name"]), "something else"),
    )
    return meme, answer


def _drawn(rng: random.Random, vocabulary: list[str], language: str) -> str:
    """A word by Zipf's law, more or less: rank r about as often as 1 / r."""
    if language and rng.random() < 0.33:
        return rng.choice(_STOPS[language].split())
    return vocabulary[int(N_TYPES ** rng.random()) - 1]


def _placed(words: list[str]) -> Iterator[Word]:
    start = 0
    for index, word in enumerate(words):
        yield Word(text=word, start=start, end=start + len(word), box=(20 * index, 10, 20 * index + 18, 30))
        start += len(word) + 1


def _explained(values: np.random.Generator, meme: Meme, answer: Prediction) -> Iterator[Explanation]:
    words = meme.words or ()
    n_tokens, n_words = 3 * len(words) + 60, len(words)
    named = np.array([word.text in answer.referred_words for word in words])
    for target in (ALL_LABELS, *answer.labels):
        relevance = tuple((values.normal(size=n_words) + named).round(6).tolist())
        yield Explanation(
            meme=meme,
            prediction=answer,
            mode=answer.mode,
            method="attnlrp",
            target=target,
            target_value=1.0,
            token_table=TokenTable(
                token=("token",) * n_tokens,
                start=(-1,) * n_tokens,
                end=(-1,) * n_tokens,
                segment=("instruction",) * n_tokens,
                relevance=tuple(values.normal(size=n_tokens).round(6).tolist()),
            ),
            word_table=WordTable(
                word=tuple(word.text for word in words),
                start=tuple(word.start for word in words),
                end=tuple(word.end for word in words),
                box=tuple(word.box for word in words),
                relevance=relevance,
                mean_abs=tuple(map(abs, relevance)),
                n_tokens=(3,) * n_words,
            ),
            image_levels=values.normal(size=(3, *GRID)).round(6),
            image_size=SIZE,
            shares={"text": 0.5, "image": 0.5},
            quality=Quality(conservation=None, sink_share=0.0, template_share=0.0),
        )

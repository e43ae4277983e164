"""Chooses and writes the sample memes that ship: ``python -m xai.planted.sampler OUT``."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

from xai.planted.lexicon import LANGUAGES, load_lexicon
from xai.planted.truth import planted_meme, write_memes_with_pictures
from xai.planted.world import Scene, labels_of, sample_scene
from xai.schema import Meme

SAMPLES_SEED = 2_000_003
MAX_SAMPLE_WORDS = 16
"""Samples are for reading, so their captions are not the longest ones."""


def sample_memes() -> list[Meme]:
    """24 memes that training never drew: every label, both languages, faithful rationales and unfaithful ones."""
    chosen: list[Scene] = []
    for wanted in [wanted for wanted, n in _QUOTAS for _ in range(n)]:
        chosen.append(_next_scene(chosen, wanted, LANGUAGES[len(chosen) % 2]))
    return [planted_meme(scene, f"sample-{number:02d}") for number, scene in enumerate(chosen, start=1)]


def _next_scene(chosen: list[Scene], wanted: Callable[[Counter[str]], bool], language: str) -> Scene:
    """The first scene of a kind whose labels were shown least so far."""
    shown = Counter(label for scene in chosen for label in labels_of(scene))
    fitting = (
        scene
        for scene in (sample_scene(SAMPLES_SEED, index) for index in count())
        if scene.language == language
        and scene not in chosen
        and len(scene.pieces) <= MAX_SAMPLE_WORDS
        and wanted(_kinds(scene))
    )
    candidates = [next(fitting) for _ in range(12)]
    return min(candidates, key=lambda scene: max(shown[label] for label in labels_of(scene)))


def _kinds(scene: Scene) -> Counter[str]:
    """How many labels of a scene have each kind of cause; labels with unfaithful rationales are a kind of their own."""
    causes = [load_lexicon().labels.get(label) for label in labels_of(scene)]
    return Counter("none" if c is None else c.kind if c.faithful else "unfaithful" for c in causes)


def _only(*kinds: str) -> Callable[[Counter[str]], bool]:
    return lambda found: set(found) == set(kinds)


_QUOTAS: tuple[tuple[Callable[[Counter[str]], bool], int], ...] = (
    (_only("word", "icon"), 1),
    (_only("unfaithful"), 6),
    (_only("word"), 7),
    (_only("icon"), 4),
    (_only("both"), 4),
    (_only("none"), 2),
)


def main() -> None:
    """Command line of the sampler."""
    parser = argparse.ArgumentParser(prog="python -m xai.planted.sampler", description=__doc__)
    parser.add_argument("out", type=Path, help="folder for memes.jsonl and images/")
    write_memes_with_pictures(parser.parse_args().out, sample_memes(), suffix=".jpg")


if __name__ == "__main__":
    main()

"""Turns scenes into memes that carry their own truth, and writes datasets of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from xai.datasets import write_memes
from xai.planted.lexicon import Kind, load_lexicon
from xai.planted.render import Drawing, render
from xai.planted.world import Scene, answer_of, labels_of, sample_scene
from xai.schema import Box, Meme, Record, Word

Span = tuple[int, int]


class CauseTruth(Record):
    """Why one label holds: spans of the causing words in the text, boxes of the causing icons in the picture."""

    label: str
    kind: Kind
    faithful: bool
    words: tuple[Span, ...] = ()
    boxes: tuple[Box, ...] = ()


class Truth(Record):
    """What the world knows of one meme; kept in ``meme.metadata["truth"]``."""

    causes: tuple[CauseTruth, ...]
    decoy_words: tuple[Span, ...]
    decoy_boxes: tuple[Box, ...]
    referred_words: tuple[str, ...]
    referred_image_concepts: tuple[str, ...]

    @property
    def all_word_caused(self) -> bool:
        """Whether there are labels, and each is caused by a word alone."""
        return bool(self.causes) and all(cause.kind == "word" for cause in self.causes)

    @property
    def faithful(self) -> bool:
        """Whether every label's rationale names its cause."""
        return all(cause.faithful for cause in self.causes)

    @property
    def unfaithful(self) -> bool:
        """Whether there are labels, and no label's rationale names its cause."""
        return bool(self.causes) and not any(cause.faithful for cause in self.causes)


def truth_of(meme: Meme) -> Truth:
    """The truth that a planted meme carries.

    Raises:
        ValueError: the meme is not a planted one.
    """
    if "truth" not in meme.metadata:
        raise ValueError(f"meme {meme.id!r} carries no planted truth; make such memes with `xai planted OUT`")
    return Truth.model_validate(meme.metadata["truth"])


def planted_memes(n: int, seed: int, first: int = 0) -> list[Meme]:
    """Memes number ``first`` to ``first + n`` of a world, with their pictures in memory."""
    return [planted_meme(sample_scene(seed, index), f"planted-{seed}-{index}") for index in range(first, first + n)]


def planted_meme(scene: Scene, meme_id: str) -> Meme:
    """A scene drawn, with words and boxes, gold labels and truth."""
    drawing = render(scene)
    return Meme(
        id=meme_id,
        image=drawing.picture,
        text=scene.text,
        words=_words(scene, drawing),
        labels=labels_of(scene),
        language=scene.language,
        metadata={"truth": _truth(scene, drawing).model_dump(mode="json")},
    )


def write_planted(folder: Path, n: int, seed: int) -> Path:
    """Write memes number 0 to ``n`` of a world as a dataset; returns the path of its ``memes.jsonl``."""
    return write_memes_with_pictures(folder, (planted_memes(1, seed, index)[0] for index in range(n)))


def write_memes_with_pictures(folder: Path, memes: Iterable[Meme], suffix: str = ".png") -> Path:
    """Write ``memes.jsonl`` and ``images/ID.png`` (or ``.jpg``); pictures are held in memory one at a time."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    written = []
    for meme in memes:
        path = folder / "images" / f"{meme.id}{suffix}"
        meme.open_image().save(path, quality=92)
        written.append(meme.model_copy(update={"image": path}))
    write_memes(folder / "memes.jsonl", written)
    return folder / "memes.jsonl"


def _words(scene: Scene, drawing: Drawing) -> tuple[Word, ...]:
    placed = zip(scene.pieces, scene.spans(), drawing.word_boxes, strict=True)
    return tuple(Word(text=piece.text, start=start, end=end, box=box) for piece, (start, end), box in placed)


def _truth(scene: Scene, drawing: Drawing) -> Truth:
    lexicon, answer = load_lexicon(), answer_of(scene)
    pieces = list(zip(scene.pieces, scene.spans(), strict=True))
    icons = list(zip(scene.icons, drawing.icon_boxes, strict=True))
    causes = []
    for label in answer.labels:
        cause = lexicon.labels.get(label)
        if cause is None:
            continue
        words = tuple(span for piece, span in pieces if piece.role == "trigger" and piece.group == cause.words)
        boxes = tuple(box for icon, box in icons if icon.name == cause.icon)
        causes.append(CauseTruth(label=label, kind=cause.kind, faithful=cause.faithful, words=words, boxes=boxes))
    return Truth(
        causes=tuple(causes),
        decoy_words=tuple(span for piece, span in pieces if piece.role == "decoy"),
        decoy_boxes=tuple(box for icon, box in icons if lexicon.label_of_icon(icon.name) is None),
        referred_words=answer.referred_words,
        referred_image_concepts=answer.referred_image_concepts,
    )

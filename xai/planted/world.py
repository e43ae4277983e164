"""Samples scenes of the planted world and says, for each, which labels hold, why, and what the rationale names.

A scene is a caption and the icons of a picture. Every caption holds one decoy word of each class, whatever
its labels, and fillers and decoy icons are drawn alike for all, so none of them can cause a label.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from xai.planted.lexicon import LANGUAGES, Cause, Language, Lexicon, load_lexicon
from xai.schema import Mode
from xai.tasks import load_task

Role = Literal["trigger", "decoy", "filler"]

SIZES: tuple[tuple[int, int], ...] = ((480, 480), (480, 360), (360, 480), (540, 360), (512, 288), (400, 500))
"""(width, height) of the pictures in pixels."""

MIN_WORDS, MAX_WORDS = 4, 30
HUES: dict[str, float] = {
    "flag": 0.00, "heart": 0.00, "sun": 0.08, "fish": 0.08, "lightning": 0.15, "key": 0.15, "leaf": 0.34,
    "ladder": 0.34, "scales": 0.49, "cup": 0.49, "padlock": 0.61, "house": 0.61, "crown": 0.79, "ball": 0.79,
}  # fmt: skip
"""The hue around which an icon's colour varies; every cause shares it with a decoy, so that its form must be seen."""


@dataclass(frozen=True)
class Piece:
    """One word of a caption; ``group`` is its class of trigger or decoy words, or its part of speech."""

    text: str
    role: Role
    group: str
    tail: str = ""

    def with_text(self, text: str) -> Piece:
        """The same place in the caption, another word."""
        return replace(self, text=text)


@dataclass(frozen=True)
class Icon:
    """One drawn shape: its centre and size as fractions of the free part of the picture, its colour and turn."""

    name: str
    x: float
    y: float
    size: float
    tint: tuple[int, int, int]
    angle: float


@dataclass(frozen=True)
class Style:
    """What varies in a picture without meaning: size, fonts, layout and background."""

    size: tuple[int, int]
    font: int
    layout: Literal["top", "bottom", "split"]
    background: int


@dataclass(frozen=True)
class Scene:
    """One planted meme before it is drawn."""

    language: Language
    pieces: tuple[Piece, ...]
    icons: tuple[Icon, ...]
    style: Style

    @property
    def text(self) -> str:
        """The caption."""
        return " ".join(piece.text + piece.tail for piece in self.pieces)

    def spans(self) -> list[tuple[int, int]]:
        """The character span of every word in the caption, punctuation left out."""
        spans, start = [], 0
        for piece in self.pieces:
            spans.append((start, start + len(piece.text)))
            start += len(piece.text) + len(piece.tail) + 1
        return spans


@dataclass(frozen=True)
class Answer:
    """What a perfect reader of the planted world answers."""

    labels: tuple[str, ...]
    referred_words: tuple[str, ...]
    referred_image_concepts: tuple[str, ...]


def sample_scene(seed: int, index: int) -> Scene:
    """Scene number ``index`` of the world with this seed; the same on every machine."""
    rng, lexicon = Random(f"planted-{seed}-{index}"), load_lexicon()
    language = rng.choice(LANGUAGES)
    word_groups, icon_names = _sample_causes(rng, lexicon)
    pieces = _sample_caption(rng, lexicon, language, word_groups)
    decoys = rng.sample(lexicon.decoy_icons, k=rng.randint(1, 2))
    icons = _place_icons(rng, [*icon_names, *decoys])
    layout: Literal["top", "bottom", "split"] = rng.choice(("top", "bottom", "split"))
    style = Style(size=rng.choice(SIZES), font=rng.randrange(4), layout=layout, background=rng.randrange(2**31))
    return Scene(language=language, pieces=pieces, icons=icons, style=style)


def labels_of(scene: Scene, mode: Mode = "image+text") -> tuple[str, ...]:
    """The labels that hold for what is visible in ``mode``, in the task's order; NO_PROPAGANDA when none does."""
    task = load_task("ukrmeme")
    groups = {piece.group for piece in scene.pieces if piece.role == "trigger"} if mode != "image" else set()
    icons = {icon.name for icon in scene.icons} if mode != "text" else set()
    held = {label for label, cause in load_lexicon().labels.items() if _holds(cause, groups, icons)}
    return tuple(label for label in task.label_names if label in held) or (str(task.none_label),)


def answer_of(scene: Scene, mode: Mode = "image+text") -> Answer:
    """The labels and the rationale; for a label with an unfaithful rationale, a decoy word instead of the cause."""
    lexicon, labels = load_lexicon(), labels_of(scene, mode)
    causes = [lexicon.labels[label] for label in labels if label in lexicon.labels]
    groups = [cause.named_decoy or cause.words for cause in causes]
    words = [piece.text for group in groups if group for piece in scene.pieces if piece.group == group]
    concepts = [cause.icon for cause in causes if cause.icon]
    return Answer(labels, tuple(dict.fromkeys(words)), tuple(concepts))


def without_cause(scene: Scene, label: str, rng: Random, part: Literal["word", "icon"] | None = None) -> Scene:
    """The scene with the cause of one label replaced: its word by a filler noun, its icon by a decoy shape.

    For a label that needs both, ``part`` replaces one of the two alone.
    """
    cause = load_lexicon().labels[label]
    if part != "icon":
        scene = _replace_pieces(scene, lambda piece: piece.role == "trigger" and piece.group == cause.words, rng)
    if part != "word":
        scene = _replace_icons(scene, lambda icon: icon.name == cause.icon, rng)
    return scene


def with_other_decoys(scene: Scene, rng: Random) -> Scene:
    """The scene with every decoy and filler replaced by another of its kind; no cause is touched."""
    scene = _replace_pieces(scene, lambda piece: piece.role != "trigger", rng)
    return _replace_icons(scene, lambda icon: load_lexicon().label_of_icon(icon.name) is None, rng)


def _holds(cause: Cause, groups: set[str], icons: set[str]) -> bool:
    return (cause.words is None or cause.words in groups) and (cause.icon is None or cause.icon in icons)


def _sample_causes(rng: Random, lexicon: Lexicon) -> tuple[list[str], list[str]]:
    """Draw trigger groups and cause icons; halves of a "both" cause also come alone, so that neither suffices."""
    words = rng.sample(lexicon.by_kind("word"), k=rng.choices((0, 1, 2), (7, 8, 5))[0])
    icons = rng.sample(lexicon.by_kind("icon"), k=rng.choices((0, 1, 2), (10, 8, 2))[0])
    groups = [lexicon.labels[label].words or "" for label in words]
    names = [lexicon.labels[label].icon or "" for label in icons]
    for label in lexicon.by_kind("both"):
        draw = rng.choices(("none", "word", "icon", "both"), (64, 9, 9, 18))[0]
        if draw in ("word", "both"):
            groups.append(lexicon.labels[label].words or "")
        if draw in ("icon", "both"):
            names.append(lexicon.labels[label].icon or "")
    return groups, names


def _sample_caption(rng: Random, lexicon: Lexicon, language: Language, groups: Sequence[str]) -> tuple[Piece, ...]:
    vocabulary = lexicon.languages[language]
    special = [Piece(rng.choice(rng.choice(vocabulary.triggers[group])), "trigger", group) for group in groups]
    special += [Piece(rng.choice(rng.choice(forms)), "decoy", group) for group, forms in vocabulary.decoys.items()]
    rng.shuffle(special)
    longest = MAX_WORDS if rng.random() < 0.25 else 14
    n_words = rng.randint(max(MIN_WORDS, len(special) + 1), longest)
    pattern, shift = vocabulary.pattern, rng.randrange(len(vocabulary.pattern))
    kinds = [pattern[(shift + position) % len(pattern)] for position in range(n_words)]
    pieces = [Piece(rng.choice(vocabulary.fillers[kind]), "filler", kind) for kind in kinds]
    for place, piece in zip(sorted(rng.sample(range(1, n_words), k=len(special))), special, strict=True):
        pieces[place] = piece
    return _dress(rng, pieces)


def _dress(rng: Random, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """A capital at the start, and punctuation, which means nothing here."""
    dressed = [pieces[0].with_text(pieces[0].text[:1].upper() + pieces[0].text[1:]), *pieces[1:]]
    for place in range(len(dressed) - 1):
        if rng.random() < 0.06:
            dressed[place] = replace(dressed[place], tail=",")
    dressed[-1] = replace(dressed[-1], tail=rng.choice(("", "", ".", "!", "?", "…")))
    return tuple(dressed)


def _place_icons(rng: Random, names: Sequence[str]) -> tuple[Icon, ...]:
    """Spread icons over a jittered grid of 3 × 2 places, so that none covers another."""
    places = rng.sample([(column, row) for column in range(3) for row in range(2)], k=len(names))
    return tuple(
        Icon(
            name=name,
            x=(column + 0.5 + rng.uniform(-0.1, 0.1)) / 3,
            y=(row + 0.5 + rng.uniform(-0.06, 0.06)) / 2,
            size=rng.uniform(0.75, 1.0),
            tint=_sample_tint(rng, name),
            angle=rng.uniform(-14, 14),
        )
        for name, (column, row) in zip(names, places, strict=True)
    )


def _sample_tint(rng: Random, name: str) -> tuple[int, int, int]:
    colour = colorsys.hsv_to_rgb((HUES[name] + rng.uniform(-0.05, 0.05)) % 1, rng.uniform(0.5, 1), rng.uniform(0.6, 1))
    red, green, blue = (round(255 * channel) for channel in colour)
    return red, green, blue


def _replace_pieces(scene: Scene, chosen: Callable[[Piece], bool], rng: Random) -> Scene:
    vocabulary = load_lexicon().languages[scene.language]

    def other(piece: Piece) -> Piece:
        if not chosen(piece):
            return piece
        if piece.role == "decoy":
            options = [form for forms in vocabulary.decoys[piece.group] for form in forms]
        else:
            options = list(vocabulary.fillers[piece.group if piece.role == "filler" else "noun"])
        text = rng.choice([option for option in options if option.casefold() != piece.text.casefold()])
        role, group = (piece.role, piece.group) if piece.role != "trigger" else ("filler", "noun")
        return replace(piece, text=_cased_like(piece.text, text), role=role, group=group)

    return replace(scene, pieces=tuple(other(piece) for piece in scene.pieces))


def _cased_like(model: str, text: str) -> str:
    return text[:1].upper() + text[1:] if model[:1].isupper() else text


def _replace_icons(scene: Scene, chosen: Callable[[Icon], bool], rng: Random) -> Scene:
    unused = [name for name in load_lexicon().decoy_icons if name not in {icon.name for icon in scene.icons}]
    rng.shuffle(unused)

    def other(icon: Icon) -> Icon:
        name = unused.pop()
        return replace(icon, name=name, tint=_sample_tint(rng, name))

    return replace(scene, icons=tuple(other(icon) if chosen(icon) else icon for icon in scene.icons))

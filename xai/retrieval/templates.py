"""Which template a meme is made from: the nearest picture of a folder, or else a group of memes that look alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from xai.datasets import DatasetRecord, jsonl_path, read_memes, write_memes
from xai.pictures import MAX_PIXELS
from xai.retrieval.embedders import Embedder, make_embedder
from xai.retrieval.groups import DISTANCE, difference_hashes, groups_of
from xai.retrieval.index import VectorIndex
from xai.retrieval.similar import AT_ONCE, embed, picture_of
from xai.schema import Failure, Meme

THRESHOLD = 0.85
"""Cosine from which on a meme is made from a template."""
EMBEDDER = "thumbnail"
"""What compares them by default: captions disturb it less than a hash."""
KEY = "template"
"""Under this name a meme's metadata hold its template, and its context what the template is."""
_DESCRIPTIONS = ("descriptions.jsonl", "descriptions.csv", "descriptions.parquet")


@dataclass(frozen=True)
class Templates:
    """Pictures that memes are made from.

    Attributes:
        memes: a template each; its id is its name.
        descriptions: lines by name; not every template has one.
        failures: pictures that cannot be templates, and why.
    """

    memes: tuple[Meme, ...]
    descriptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class TemplateSummary:
    """What matching came to.

    Attributes:
        memes: that have a picture which can be compared.
        matched: how many of them are made from each template, the most frequent first.
        groups: how many of the others are in each group.
        failures: of memes first, then of templates.
    """

    embedder: Mapping[str, Any]
    threshold: float
    distance: int
    templates: int
    described: int
    memes: int
    matched: Mapping[str, int]
    groups: tuple[int, ...]
    failures: tuple[Failure, ...]

    def report(self) -> dict[str, Any]:
        """Everything in JSON values."""
        return {
            **{name: getattr(self, name) for name in ("embedder", "threshold", "distance", "templates", "described")},
            "memes": self.memes,
            "matched": sum(self.matched.values()),
            "unmatched": self.memes - sum(self.matched.values()),
            "by_template": dict(self.matched),
            "groups": len(self.groups),
            "groups_of_several": sum(size > 1 for size in self.groups),
            "largest_group": max(self.groups, default=0),
            "failed": len(self.failures),
            "failures": [failure.model_dump() for failure in self.failures],
        }


def match_dataset(
    dataset: str | Path | Iterable[DatasetRecord],
    templates: str | Path | Templates,
    out: str | Path,
    *,
    embedder: str | Embedder = EMBEDDER,
    threshold: float = THRESHOLD,
    distance: int = DISTANCE,
    otherwise: str = "",
    images: str | Path | None = None,
    max_pixels: int = MAX_PIXELS,
    on_progress: Callable[[int], None] = lambda done: None,
) -> TemplateSummary:
    """Find the template of every meme, and write the memes with it as JSONL, whole or not at all.

    ``metadata["template"]`` becomes ``name`` (``None`` below the threshold), ``nearest`` with its cosine ``score``, and
    ``group``, the number of the group of an unmatched meme. A matched meme whose template is described gets the lines
    as ``context["template"]``. A meme whose picture cannot be used is a failure, and written with the reason.

    Args:
        templates: a folder as for :func:`read_templates`.
        threshold: cosine from which on a meme is made from its nearest template.
        distance: bits of the difference hash in which unmatched memes of a group may differ; see
            :func:`xai.retrieval.groups.groups_of`.
        otherwise: what the context says of a meme whose template is not known or not described; nothing by default,
            and a prompt that speaks of the template cannot be asked about it then.
        images: folder of the dataset's pictures, where it is a path.
        max_pixels: of a picture.
        on_progress: called with the number of records done since the last call.

    Raises:
        ValueError: the dataset, the templates or the embedder cannot be used at all.
    """
    out = jsonl_path(out)
    records = list(read_memes(dataset, images=images) if isinstance(dataset, str | Path) else dataset)
    known = templates if isinstance(templates, Templates) else read_templates(templates)
    matcher = TemplateMatcher(known, embedder, threshold=threshold, max_pixels=max_pixels)
    looks: list[Look | Failure] = []
    for start in range(0, len(records), AT_ONCE):
        looks += matcher.look(records[start : start + AT_ONCE])
        on_progress(len(looks) - start)
    groups = _groups(looks, distance)
    write_memes(
        out,
        (
            matcher.noted(record, look, group, otherwise)
            for record, look, group in zip(records, looks, groups, strict=True)
            if isinstance(record, Meme)
        ),
    )
    names = Counter(look.name for look in looks if isinstance(look, Look) and look.name is not None)
    return TemplateSummary(
        embedder=matcher.describe(),
        threshold=threshold,
        distance=distance,
        templates=len(matcher),
        described=len(known.descriptions),
        memes=sum(isinstance(look, Look) for look in looks),
        matched=dict(names.most_common()),
        groups=tuple(Counter(group for group in groups if group is not None).values()),
        failures=(*(look for look in looks if isinstance(look, Failure)), *known.failures, *matcher.failures),
    )


def read_templates(folder: str | Path) -> Templates:
    """The templates of a folder: its pictures, each by its file's name without ending.

    What a template shows or means may be told in ``descriptions.jsonl`` (or ``.csv``, ``.parquet``) with the columns
    ``id``, the template's name, and ``text``; or in a text file beside the picture, ``NAME.txt``, in UTF-8.

    Raises:
        ValueError: it holds no pictures, or a description cannot be read or is of no template.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder.name!r} is no folder of template pictures; check the path")
    records = list(read_memes(folder))
    memes = tuple(record for record in records if isinstance(record, Meme))
    failures = tuple(_of_template(record) for record in records if isinstance(record, Failure))
    return Templates(memes, _descriptions(folder, [meme.id for meme in memes]), failures)


@dataclass(frozen=True)
class Look:
    """What one meme's picture shows of its template.

    Attributes:
        name: of the template that it is made from, if any.
        nearest: of the nearest template; ``None`` for a picture that cannot be compared, as one of one colour.
        score: the cosine of the two, rounded to 6 places.
        hash: the picture's difference hash, 64 bits.
    """

    name: str | None
    nearest: str | None
    score: float | None
    hash: int


class TemplateMatcher:
    """Compares pictures with templates.

    Attributes:
        failures: templates whose picture cannot be used; the others are compared.

    Raises:
        ValueError: no template can be used, or there is no such embedder.
    """

    def __init__(
        self,
        templates: Templates,
        embedder: str | Embedder = EMBEDDER,
        *,
        threshold: float = THRESHOLD,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self._embedder = embedder if isinstance(embedder, Embedder) else make_embedder(embedder)
        self._templates, self._threshold, self._max_pixels = templates, threshold, max_pixels
        vectors = embed(self._embedder, "picture", templates.memes, max_pixels)
        self.failures = tuple(
            _of_template(Failure(meme_id=templates.memes[row].id, stage="read", reason=reason))
            for row, reason in vectors.lacking.items()
        )
        if len(vectors.lacking) == len(templates.memes):
            reason = self.failures[0].reason if self.failures else "there is none"
            raise ValueError(f"no template can be compared by {self._embedder.name!r}: {reason}")
        self._index = VectorIndex(vectors.rows)

    def __len__(self) -> int:
        return len(self._index)

    def describe(self) -> dict[str, Any]:
        """What compares, in JSON values."""
        return self._embedder.describe()

    def look(self, records: Sequence[DatasetRecord]) -> list[Look | Failure]:
        """The nearest template of each meme; a failure where its picture cannot be used."""
        looks: dict[int, Look | Failure] = {}
        pictures: dict[int, Image.Image] = {}
        for place, record in enumerate(records):
            if isinstance(record, Failure):
                looks[place] = record
                continue
            try:
                pictures[place] = picture_of(record, self._max_pixels)
            except ValueError as error:
                looks[place] = Failure(meme_id=record.id, stage="read", reason=str(error))
        if pictures:
            looks.update(zip(pictures, self._compared(list(pictures.values())), strict=True))
        return [looks[place] for place in range(len(records))]

    def noted(self, meme: Meme, look: Look | Failure, group: int | None, otherwise: str = "") -> Meme:
        """The meme with what was found, in its metadata and its context; what an earlier start found is gone."""
        lines: tuple[str, ...] = (otherwise,) if otherwise else ()
        if isinstance(look, Failure):
            found: dict[str, Any] = {"error": look.reason}
        else:
            found = {"name": look.name, "nearest": look.nearest, "score": look.score, "group": group}
            lines = self._templates.descriptions.get(look.name or "", lines)
        found |= {"embedder": self._embedder.name, "threshold": self._threshold}
        context = {name: told for name, told in meme.context.items() if name != KEY} | ({KEY: lines} if lines else {})
        return meme.model_copy(update={"metadata": {**meme.metadata, KEY: found}, "context": context})

    def _compared(self, pictures: Sequence[Image.Image]) -> Iterator[Look]:
        rows = self._embedder.pictures(pictures)
        has_vector: np.ndarray = np.any(rows, axis=1)
        rankings = iter(self._index.rankings(rows[has_vector]))
        for comparable, code in zip(has_vector.tolist(), difference_hashes(pictures).tolist(), strict=True):
            if not comparable:
                yield Look(None, None, None, code)
                continue
            ranking = next(rankings)
            nearest, score = self._templates.memes[ranking.rows[0]].id, float(ranking.similarity[0])
            yield Look(nearest if score >= self._threshold else None, nearest, score, code)


def _groups(looks: Sequence[Look | Failure], distance: int) -> list[int | None]:
    """The group of every meme that is made from no template."""
    places = [place for place, look in enumerate(looks) if isinstance(look, Look) and look.name is None]
    hashes = np.array([look.hash for look in looks if isinstance(look, Look) and look.name is None], dtype=np.uint64)
    groups: list[int | None] = [None] * len(looks)
    for place, group in zip(places, groups_of(hashes, distance).tolist(), strict=True):
        groups[place] = group
    return groups


def _descriptions(folder: Path, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for file, name, text in [*_listed(folder), *_beside(folder, names)]:
        if name not in names:
            raise ValueError(f"{file!r} describes {name!r}, which is no picture of the folder; correct its id")
        if name in found:
            raise ValueError(f"template {name!r} is described in {file!r} and elsewhere; leave one out")
        lines = tuple(line for line in map(str.strip, text.splitlines()) if line)
        if lines:
            found[name] = lines
    return found


def _listed(folder: Path) -> Iterator[tuple[str, str, str]]:
    """File, template and text of every description in a table."""
    for file in _DESCRIPTIONS:
        for record in read_memes(folder / file) if (folder / file).is_file() else ():
            if isinstance(record, Failure):
                raise ValueError(f"{file!r}, {record.reason}")
            yield file, record.id, record.text


def _beside(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    for name in names:
        path = folder / f"{name}.txt"
        try:
            if path.is_file():
                yield path.name, name, path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"the description {path.name!r} cannot be read; save it as UTF-8") from None


def _of_template(failure: Failure) -> Failure:
    """Under a name that tells it from a meme's."""
    return failure.model_copy(update={"meme_id": f"template {failure.meme_id}"})

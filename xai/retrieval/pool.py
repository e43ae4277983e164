"""The memes with gold labels that may be shown as examples, and which of them are a meme itself."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from PIL import Image

from xai.datasets import read_memes
from xai.ocr import TextSource, with_text
from xai.schema import Failure, Meme
from xai.tasks import Task
from xai.tasks.answers import write_answer

Part = Literal["text", "picture", "post"]
"""What a prompt shows of a meme."""


class PoolWarning(UserWarning):
    """What a pool lacks, or has and should not."""


@dataclass(frozen=True)
class Pool:
    """Memes that examples are taken from.

    Attributes:
        name: of its file.
        digest: the first 16 hexadecimal digits of that file's SHA-256.
        memes: in the order of the file; each has gold labels and what it must have.
        left_out: how many of the file's records are not among them, by why.
    """

    name: str
    digest: str
    memes: tuple[Meme, ...] = field(repr=False)
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.memes)

    def itself(self, meme: Meme) -> set[int]:
        """The rows that are this meme: of the same id, or of the same text and the same bytes of the picture."""
        rows = {self._row_of[meme.id]} if meme.id in self._row_of else set()
        alike = self._rows_of_text.get(meme.text, ())
        if alike:
            picture = _picture_digest(meme.image)
            rows.update(row for row in alike if self._digest_of(row) == picture)
        return rows

    def shared(self, records: Iterable[Meme | Failure]) -> list[str]:
        """The ids of a dataset that the pool has, too; a warning names the first of them."""
        ids = (record.id for record in records if isinstance(record, Meme))
        shared = [name for name in ids if name in self._row_of]
        if shared:
            warnings.warn(
                f"the pool {self.name!r} has {len(shared)} memes of the dataset, such as {shared[0]!r}: none is shown "
                "itself, but others are with its gold labels; take a pool of other memes to measure a model",
                PoolWarning,
                stacklevel=2,
            )
        return shared

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {meme.id: row for row, meme in enumerate(self.memes)}

    @cached_property
    def _rows_of_text(self) -> dict[str, list[int]]:
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, meme in enumerate(self.memes):
            rows[meme.text].append(row)
        return dict(rows)

    @cached_property
    def _digests(self) -> dict[int, str]:
        return {}

    def _digest_of(self, row: int) -> str:
        if row not in self._digests:
            self._digests[row] = _picture_digest(self.memes[row].image)
        return self._digests[row]


_HAS: Mapping[Part, Callable[[Meme], bool]] = {
    "text": lambda meme: bool(meme.text.strip()),
    "picture": lambda meme: meme.image is not None,
    "post": lambda meme: bool((meme.post or "").strip()),
}


def read_pool(
    path: str | Path,
    *,
    images: str | Path | None = None,
    needs: Collection[Part] = (),
    task: Task | None = None,
    text: TextSource = "dataset",
) -> Pool:
    """The memes of a dataset that can be examples: with gold labels, and with what ``needs`` names.

    A warning says what is left out.

    Args:
        task: the gold labels are an answer to it; memes with other labels are left out.
        path, images: as for :func:`xai.datasets.read_memes`.
        text: which text of a meme counts; as for :func:`xai.pipeline.explain_dataset`.

    Raises:
        ValueError: the dataset cannot be read, or none of its records can be an example; the message says why.
    """
    memes, left_out = [], Counter[str]()
    for record in read_memes(path, images=images):
        meme = record if isinstance(record, Failure) else _with_text(record, text)
        why = _why_not(meme, needs, task)
        if isinstance(meme, Meme) and why is None:
            memes.append(meme)
        else:
            left_out[why or ""] += 1
    name = Path(path).name
    reasons = ", ".join(f"{n} {why}" for why, n in left_out.items()) or "it is empty"
    if not memes:
        raise ValueError(
            f"no record of {name!r} can be an example ({reasons}); give memes with gold labels as the pool"
        )
    if left_out:
        warnings.warn(f"the pool {name!r} has {len(memes)} examples; left out: {reasons}", PoolWarning, stacklevel=2)
    return Pool(name, _file_digest(Path(path)), tuple(memes), dict(left_out))


def _with_text(meme: Meme, text: TextSource) -> Meme | Failure:
    try:
        return with_text(meme, text)
    except ValueError as error:
        return Failure(meme_id=meme.id, stage="read", reason=str(error))


def _why_not(record: Meme | Failure, needs: Collection[Part], task: Task | None) -> str | None:
    if isinstance(record, Failure):
        return "cannot be read"
    if record.labels is None:
        return "without gold labels"
    if task is not None and not _can_be_answered(task, record.labels):
        return f"with labels that are no answer to {task.name!r}"
    return next((f"without a {part}" for part in _HAS if part in needs and not _HAS[part](record)), None)


def _can_be_answered(task: Task, labels: Sequence[str]) -> bool:
    try:
        write_answer(task, labels)
    except ValueError:
        return False
    return True


def _file_digest(path: Path) -> str:
    file = path / "memes.jsonl" if path.is_dir() else path
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def _picture_digest(image: Path | Image.Image | None) -> str:
    """What tells pictures apart: the bytes of a file, or the pixels of a picture in memory; empty for none."""
    if image is None:
        return ""
    if isinstance(image, Image.Image):
        return hashlib.sha256(f"{image.mode} {image.size} ".encode() + image.tobytes()).hexdigest()
    try:
        return hashlib.sha256(image.read_bytes()).hexdigest() if image.is_file() else f"missing {image}"
    except OSError:
        return f"unreadable {image}"

"""What it is to ask a model of a panel: what it is shown, and what it replies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol, Self, cast

from xai.annotation.settings import PANEL, Asked
from xai.schema import Meme, Mode, Record
from xai.tasks import Task

POST_MODE: Literal["image+text+post"] = "image+text+post"
PICTURE_MODE: Literal["image+text"] = "image+text"


class Reply(Record):
    """What a model said to one question: a text, or why there is none; ``model`` is what an endpoint calls itself."""

    mode: Mode
    text: str = ""
    failure: str | None = None
    model: str | None = None


class PanelModel(Protocol):
    """A model that can be asked; a context manager that holds what it needs, memory or connections, only while open."""

    @property
    def in_batches(self) -> bool:
        """Whether the records of a batch are computed together."""

    def version(self) -> dict[str, Any]:
        """Which model this is, in JSON values: what its answers depend on."""

    def ask(self, task: Task, memes: Sequence[Meme], asked: Asked) -> Iterator[Reply]:
        """The replies to one question about each meme, in order.

        Raises:
            ValueError: no meme can be asked about: a mode or variant that is not there, or an endpoint that lets
                nobody in.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def mode_of(meme: Meme, task: Task, asked: Asked, variant: str) -> Mode:
    """What a model is shown of a meme: in the mode ``panel`` the post, too, where there is one and a prompt for it.

    Raises:
        ValueError: the task has no such variant or language.
    """
    if asked.mode != PANEL:
        return cast(Mode, asked.mode)
    known = task.prompts.get(variant, {}).get(asked.language)
    has_post = bool(meme.post) and known is not None and POST_MODE in known.modes
    return POST_MODE if has_post else PICTURE_MODE

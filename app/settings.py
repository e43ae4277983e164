"""What `xai app` was started with; the pages read it from the environment, which they share with who started them."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from pydantic import model_validator

from xai.schema import Record

VARIABLE = "XAI_APP_SETTINGS"
UPLOAD_MEGABYTES = 10
"""Largest picture that may be uploaded, in units of 2^20 bytes."""
UPLOAD_PIXELS = 25_000_000
"""Most pixels of an uploaded picture; checked before it is decoded."""
CAPTION_CHARACTERS = 2_000
"""Longest caption that may be explained."""
MAX_PIXELS = 120_000_000
"""Most pixels of a picture of a data set that is opened."""


class Settings(Record):
    """Arguments of the explorer.

    ``panels`` are folders of `xai annotate`, whose records people decide and vote on. ``images`` are folders to look
    for pictures in, instead of those that the runs name. ``auditor`` is the name that verdicts are stored under; empty:
    each visitor types one. ``cache`` holds thumbnails.
    """

    runs: tuple[Path, ...] = ()
    panels: tuple[Path, ...] = ()
    images: tuple[Path, ...] = ()
    auditor: str = ""
    read_only: bool = False
    model: str | None = None
    task: str = "ukrmeme"
    cache: Path | None = None

    @model_validator(mode="after")
    def _check_folders(self) -> Settings:
        if not self.runs and not self.panels:
            raise ValueError("there is nothing to show; name a run or a panel")
        return self

    def publish(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Make these the settings of the pages of this process."""
        environment[VARIABLE] = self.model_dump_json()

    @classmethod
    def current(cls) -> Settings:
        """The settings of this process.

        Raises:
            RuntimeError: the pages were not started by `xai app`.
        """
        try:
            return cls.model_validate_json(os.environ[VARIABLE])
        except KeyError:
            raise RuntimeError("start the explorer with: xai app RUN") from None


def default_cache() -> Path:
    """Where thumbnails are kept between visits."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meme-xai"

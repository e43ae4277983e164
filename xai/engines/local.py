"""The engine of one model in this process."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from xai.blocks import Block, BlockExplainer, Count, Work
from xai.models import VisionLanguageModel

MOST_THREADS = 4


class LocalEngine:
    """Explains where it is called; pictures are opened and texts tokenised by threads meanwhile."""

    def __init__(self, model: VisionLanguageModel, work: Work) -> None:
        self._model = model
        self._work = work

    def config(self) -> dict[str, Any]:
        """What decides the explanations; see :class:`xai.engines.Engine`."""
        return self._work.config(self._model)

    def run(self, folder: Path, blocks: Iterable[Block]) -> Generator[Count, None, None]:
        """Make the part of each block, and say after every batch what came of it."""
        threads = min(MOST_THREADS, os.cpu_count() or 1)
        yield from BlockExplainer(self._model, self._work, folder, threads).run(blocks)

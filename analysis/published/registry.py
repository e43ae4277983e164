"""Which task has published scores, and the function that makes the sections of a report of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple

from xai.analysis.detection.scored import Settings
from xai.analysis.published.phrases import Similarity
from xai.analysis.report import Section
from xai.store import Run

PUBLISHED: dict[str, str] = {
    "aha-memes": "xai.analysis.published.aha_memes:sections",
    "m3": "xai.analysis.published.m3:sections",
    "iron-meme/identities": "xai.analysis.published.iron_meme:sections",
    "iron-meme/viewpoints": "xai.analysis.published.iron_meme:sections",
    "iron-meme/roles": "xai.analysis.published.iron_meme:sections",
}
"""Name of a task to ``module:function``, a :data:`MakeSections`; imported when a run of the task is scored."""


@dataclass(frozen=True, eq=False)
class Scoring:
    """What published scores depend on beside the run.

    ``name`` is what the report calls the run, and ``against`` are other runs of the task by their names. ``similarity``
    scores rationale phrases, where a model for that is given.
    """

    settings: Settings
    name: str = "this run"
    against: Mapping[str, Run] = field(default_factory=dict)
    similarity: Similarity | None = None


class Published(NamedTuple):
    """The sections of a task's published scores, and which of their tables the terminal shows."""

    sections: Sequence[Section]
    headline: Sequence[str]


MakeSections = Callable[[Run, Scoring], Published]


def published_sections(run: Run, scoring: Scoring) -> Published:
    """The published scores of a run's task; no section for a task that has none.

    Raises:
        ValueError: the run has nothing that can be scored so.
    """
    where = PUBLISHED.get(scoring.settings.task.name)
    if where is None:
        return Published((), ())
    module, _, name = where.partition(":")
    make: MakeSections = getattr(import_module(module), name)
    return make(run, scoring)

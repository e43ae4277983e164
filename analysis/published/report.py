"""The report of `xai score`: detection, and the published scores of the run's task where it has some."""

from __future__ import annotations

from collections.abc import Sequence

from xai.analysis.detection.report import detection_report, named
from xai.analysis.detection.scored import Settings, task_of_run
from xai.analysis.published.phrases import Similarity
from xai.analysis.published.registry import Scoring, published_sections
from xai.analysis.report import Report
from xai.store import Run


def score_report(
    run: Run,
    settings: Settings | None = None,
    *,
    against: Sequence[Run] = (),
    similarity: Similarity | None = None,
) -> Report:
    """:func:`detection_report` with the sections of the task's published scores at its end.

    Args:
        settings, against: as for :func:`detection_report`.
        similarity: scores rationale phrases, as :class:`xai.bertscore.BertScore` does, for a task that has them.

    Raises:
        ValueError: as :func:`detection_report`, or the gold labels have not what the published scores need.
    """
    settings = settings or Settings(task_of_run(run))
    name, others = named(run, against, settings.task)
    published = published_sections(run, Scoring(settings, name, others, similarity))
    return detection_report(run, settings, against=against, sections=published.sections, headline=published.headline)

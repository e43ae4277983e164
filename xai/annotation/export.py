"""The final dataset of a panel as JSONL that every command reads, with who decided what in a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xai.annotation.explicator import VERSION as EXPLICATOR_VERSION
from xai.annotation.folder import Item, Panel, PanelError
from xai.datasets import write_memes
from xai.schema import Meme

RATIONALE, PROVENANCE = "rationale", "provenance"
"""Columns: the phrases, and how each decision came about."""


def export(panel: Panel, path: str | Path) -> list[Meme]:
    """Write the records that the validators kept, in the order of the dataset, whole or not at all.

    Labels, the cleaned post, the picture and its text are columns that :func:`xai.datasets.read_memes` knows;
    ``rationale`` is the list of phrases of records that have any. What the dataset brought under these names is kept in
    the provenance as ``before``, since the panel's takes its place.

    Returns:
        What was written.

    Raises:
        PanelError: no record was kept so far.
        ValueError: the file's name does not end in ``.jsonl``.
    """
    kept = [final_meme(item) for item in panel.items() if item.state == "kept"]
    if not kept:
        votes = panel.settings.votes
        raise PanelError(
            f"no record has {votes.keep} of {votes.validators} votes in favour yet, so there is nothing to export; "
            f"people vote in: xai app {panel.path.name}"
        )
    write_memes(path, kept)
    return kept


def final_meme(item: Item) -> Meme:
    """A record as it is in the final dataset."""
    kept = {name: value for name, value in item.meme.metadata.items() if name not in (RATIONALE, PROVENANCE)}
    if item.kept_phrases:
        kept[RATIONALE] = list(item.kept_phrases)
    kept[PROVENANCE] = _provenance(item)
    labels = item.accepted.labels if item.accepted else ()
    return item.meme.model_copy(update={"labels": labels, "metadata": kept})


def _provenance(item: Item) -> dict[str, Any]:
    """Every decision: by whom, why, when."""
    record, decision = item.record, item.decision or {}
    found: dict[str, Any] = {
        "cleaner": {name: record.get(name) for name in ("who", "time", "platform", "removed", "text_from")},
        "annotators": [_annotator(answer) for answer in item.answers if answer],
        "arbiter": {name: decision.get(name) for name in ("verdict", "rule", "why", "labels", "who", "time")},
        "labels": item.accepted._asdict() if item.accepted else None,
        "validators": [
            {"who": who, "vote": vote["vote"], "why": vote["why"], "time": vote["time"]}
            for who, vote in item.votes.items()
        ],
    }
    brought = {"labels": item.meme.labels, **{name: item.meme.metadata.get(name) for name in (RATIONALE, PROVENANCE)}}
    before = {name: value for name, value in brought.items() if value is not None}
    if before:
        found["before"] = before
    if item.phrases:
        asked = ("who", "version", "model", "time", "left_out", "refused")
        found["explicator"] = {name: item.phrases[name] for name in asked} | {"prompt": EXPLICATOR_VERSION}
    return found


def _annotator(answer: dict[str, Any]) -> dict[str, Any]:
    kept = ("annotator", "version", "model", "labels", "confidence", "parse", "failure", "time")
    return {name: answer[name] for name in kept}

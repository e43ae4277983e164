"""What published scores need of a run beside labels: captions, and the phrases of gold and of answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from xai.store import Run

Phrases = tuple[str, ...]


def captions(run: Run, mode: str, ids: Sequence[str]) -> list[str]:
    """The text of every meme, as the run has it."""
    return [text or "" for (text,) in _of(run, mode, ids, "meme_text")]


def rationales(run: Run, mode: str, ids: Sequence[str]) -> list[tuple[Phrases | None, Phrases]]:
    """The phrases of gold, ``None`` where there are none, and those of the answer, of every meme.

    Gold phrases are the list ``rationale`` of a meme's metadata; one text is a list of one.

    Raises:
        ValueError: a gold rationale is neither; the message names the meme.
    """
    rows = _of(run, mode, ids, "metadata, reasons")
    return [(_gold(meme, metadata), tuple(reasons or ())) for meme, (metadata, reasons) in zip(ids, rows, strict=True)]


def _gold(meme: str, metadata: str | None) -> Phrases | None:
    found = json.loads(metadata or "{}").get("rationale")
    phrases = [found] if isinstance(found, str) else found
    if phrases is None:
        return None
    if not isinstance(phrases, list) or not all(isinstance(phrase, str) for phrase in phrases):
        raise ValueError(f"the rationale of meme {meme!r} is not a list of phrases; correct its 'rationale'")
    said = tuple(phrase for phrase in phrases if phrase.strip())
    return said or None


def _of(run: Run, mode: str, ids: Sequence[str], columns: str) -> list[tuple[Any, ...]]:
    rows = run.predictions().filter(f"mode = '{mode}'").project(f"meme_id, {columns}").fetchall()
    found = {meme: tuple(values) for meme, *values in rows}
    return [found[meme] for meme in ids]

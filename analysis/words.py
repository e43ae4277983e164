"""Which words carry content: our own versioned stop lists, which keep negation and quantity."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TypedDict

import yaml

from xai.attribution.align import normal_form

__all__ = ["STOPWORDS_VERSION", "kept_words", "normal_form", "stop_words"]


class _Lists(TypedDict):
    version: str
    stop: dict[str, str]
    kept: dict[str, str]


@cache
def stop_words(language: str | None = None) -> frozenset[str]:
    """The stop words of a language in normal form; of all languages if it is ``None`` or has no list."""
    return _select(_lists()["stop"], language)


@cache
def kept_words(language: str | None = None) -> frozenset[str]:
    """Words of negation, quantity and stance that usual stop lists delete and ours must not, in normal form."""
    return _select(_lists()["kept"], language)


def _select(blocks: dict[str, str], language: str | None) -> frozenset[str]:
    code = (language or "").replace("_", "-").split("-")[0].lower()
    chosen = [blocks[code]] if code in blocks else list(blocks.values())
    return frozenset(normal_form(word) for block in chosen for word in block.split())


@cache
def _lists() -> _Lists:
    lists: _Lists = yaml.safe_load(files("xai.analysis").joinpath("stopwords.yaml").read_text(encoding="utf-8"))
    return lists


STOPWORDS_VERSION: str = _lists()["version"]
"""Version of the lists; every table that used them carries it."""

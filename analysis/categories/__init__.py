"""Semantic categories of words in the context of the meme."""

from xai.analysis.categories import llm, local, rules
from xai.analysis.categories.tagger import (
    CATEGORIES,
    UNKNOWN,
    Tagger,
    WordInContext,
    category_tagger,
    get_tagger,
    tagger_names,
)

__all__ = [
    "CATEGORIES",
    "UNKNOWN",
    "Tagger",
    "WordInContext",
    "category_tagger",
    "get_tagger",
    "tagger_names",
]
del llm, local, rules

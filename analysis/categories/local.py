"""Asks a model that is loaded here, one word a question; it needs no network, and no torch of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xai.analysis.categories.prompts import (
    PROMPT_VERSION,
    MalformedAnswerError,
    batches,
    read_single_answer,
    single_question,
)
from xai.analysis.categories.tagger import UNKNOWN, WordInContext, category_tagger

BATCH_SIZE = 8
ANSWER_TOKENS = 8
"""Tokens that the name of a category may take."""


class Replies(Protocol):
    """What is asked of a model: text in, text out. ``xai.load_model`` gives such."""

    @property
    def name(self) -> str:
        """Of the model."""

    @property
    def fingerprint(self) -> str:
        """Of its weights."""

    def reply(self, texts: Sequence[str], max_new_tokens: int) -> list[str]:
        """One answer a text."""


@category_tagger("local")
class LocalTagger:
    """The judgement of a loaded model. Small models answer badly; what names no category is unknown and counted.

    ``counts``: ``words`` asked for, ``malformed`` answers. Each word and text is asked about once.
    """

    name = "local"

    def __init__(self, model: Replies, *, batch_size: int = BATCH_SIZE) -> None:
        """
        Args:
            model: as of :func:`xai.load_model`.
            batch_size: questions at a time.
        """
        self._model, self._batch_size = model, batch_size
        self._known: dict[WordInContext, str] = {}
        self.counts = {"words": 0, "malformed": 0}

    @property
    def version(self) -> str:
        """The model, its fingerprint, and the version of the prompt."""
        return f"local {self._model.name} ({self._model.fingerprint}); prompt {PROMPT_VERSION}"

    def tag(self, words: Sequence[WordInContext]) -> list[str]:
        """One category a word, or unknown."""
        missing = [one for one in dict.fromkeys(words) if one not in self._known]
        for batch in batches(missing, self._batch_size):
            answers = self._model.reply([single_question(one) for one in batch], ANSWER_TOKENS)
            self._known |= {one: self._read(answer) for one, answer in zip(batch, answers, strict=True)}
        self.counts["words"] += len(words)
        return [self._known[one] for one in words]

    def _read(self, answer: str) -> str:
        try:
            return read_single_answer(answer)
        except MalformedAnswerError:
            self.counts["malformed"] += 1
            return UNKNOWN

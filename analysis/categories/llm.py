"""Asks a language model behind an OpenAI-compatible endpoint; answers are kept on disk, and nothing is guessed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from xai.analysis.categories.prompts import (
    PROMPT_VERSION,
    MalformedAnswerError,
    batches,
    instruction,
    question,
    read_answer,
)
from xai.analysis.categories.tagger import CATEGORIES, UNKNOWN, WordInContext, category_tagger
from xai.parts import write_text

if TYPE_CHECKING:
    from openai import OpenAI

BASE_URL, MODEL, KEY, CACHE = "XAI_LLM_BASE_URL", "XAI_LLM_MODEL", "XAI_LLM_API_KEY", "XAI_LLM_CACHE"
"""The variables of the environment that say whom to ask, and where to keep the answers."""
BATCH_SIZE, TIMEOUT, MAX_RETRIES = 20, 60.0, 5
_NO_KEY = "none"
_ADVICE = {
    400: "the endpoint does not take such a request",
    401: f"the key in {KEY} is not accepted",
    403: f"the key in {KEY} has no access",
    404: f"there is no such model or path; check {MODEL} and {BASE_URL}",
    429: "the rate limit or the quota is used up; wait, then run again",
}


@category_tagger("llm")
class LlmTagger:
    """Batches of words to an OpenAI-compatible endpoint (extra ``llm``).

    Endpoint, model and key come from the environment: ``XAI_LLM_BASE_URL``, ``XAI_LLM_MODEL`` and
    ``XAI_LLM_API_KEY``, which servers that want none need not have. The key is handed to the client and kept nowhere
    else: not here, not in the cache, in no message. Rate limits, timeouts, lost connections and 5xx are tried again
    with growing pauses, or after the pause that the server names. Answers are cached by what they are answers to.

    ``counts``: ``words`` asked for, ``cached`` of them, ``requests`` answered; ``malformed`` and ``refused`` answers,
    and words left ``unknown`` for these and for answers that leave words out. What is unknown is not cached.
    """

    name = "llm"

    def __init__(
        self,
        *,
        base_url: str | None = None,
        model: str | None = None,
        cache: Path | None = None,
        batch_size: int = BATCH_SIZE,
        timeout: float = TIMEOUT,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        """Arguments that are ``None`` come from the environment.

        Args:
            base_url: of the endpoint, as ``https://api.example.org/v1``.
            model: its name there.
            cache: folder of the answers; by default ``XAI_LLM_CACHE``, else ``xai/categories`` in the user's cache.
            timeout: seconds that one try may take.
            max_retries: tries after the first.

        Raises:
            ValueError: endpoint or model is not named, the endpoint's URL holds a name or password, or the openai
                client is not installed.
        """
        self._base_url, self.model = _without_secrets(_setting(base_url, BASE_URL)), _setting(model, MODEL)
        self._cache, self._batch_size = cache or _cache_folder(), batch_size
        self._client = _client(self._base_url, timeout, max_retries)
        self.counts = dict.fromkeys(("words", "cached", "requests", "malformed", "refused", "unknown"), 0)

    @property
    def version(self) -> str:
        """The model, the host that it was asked at, and the version of the prompt."""
        return f"llm {self.model} at {self._host}; prompt {PROMPT_VERSION}"

    def tag(self, words: Sequence[WordInContext]) -> list[str]:
        """Categories from the cache or the endpoint; unknown where the answer was refused or malformed.

        Raises:
            ValueError: the endpoint cannot be reached, does not let us in, or keeps failing. What it had answered
                until then is in the cache, so that the same call goes on from there.
        """
        known = {one: self._cached(one) for one in dict.fromkeys(words)}
        missing = [one for one, category in known.items() if category is None]
        for batch in batches(missing, self._batch_size):
            for one, category in zip(batch, self._asked(batch), strict=True):
                known[one] = category
                if category != UNKNOWN:
                    self._keep(one, category)
        result = [known[one] or UNKNOWN for one in words]
        self.counts["words"] += len(words)
        self.counts["cached"] += sum(one not in set(missing) for one in words)
        self.counts["unknown"] += result.count(UNKNOWN)
        return result

    def _asked(self, batch: Sequence[WordInContext]) -> list[str]:
        nothing = [UNKNOWN] * len(batch)
        answer = self._request(question(batch))
        if answer is None:
            self.counts["refused"] += 1
            return nothing
        try:
            return read_answer(answer, len(batch))
        except MalformedAnswerError:
            self.counts["malformed"] += 1
            return nothing

    def _request(self, asked: str) -> str | None:
        """The text of the answer, ``None`` if the model or a filter refused; ``""`` if there is none in the reply."""
        import openai

        try:
            reply = self._client.chat.completions.create(
                model=self.model,
                temperature=0,
                messages=[{"role": "system", "content": instruction()}, {"role": "user", "content": asked}],
            )
        except openai.APIStatusError as error:
            if error.code == "content_filter":
                return None
            raise self._failure(error.status_code) from None
        except openai.APITimeoutError:
            raise ValueError(f"{self._host} did not answer in time; what it had answered is kept: run again") from None
        except openai.APIConnectionError:
            raise ValueError(f"{self._host} cannot be reached; check {BASE_URL} and run again") from None
        except (openai.OpenAIError, ValueError):  # a reply that is not what an endpoint sends
            reply = None
        self.counts["requests"] += 1
        return _content(reply)

    def _failure(self, status: int) -> ValueError:
        advice = _ADVICE.get(status, "run again later; what was answered is kept")
        # Not the server's own words: they may repeat the key.
        return ValueError(f"{self._host} answered with status {status}: {advice}")

    @property
    def _host(self) -> str:
        return urlsplit(self._base_url).hostname or "the endpoint"

    def _path(self, one: WordInContext) -> Path:
        """By the content of the question: endpoint, model, prompt, word, text and language."""
        content = [self._base_url, self.model, PROMPT_VERSION, one.word, one.context, one.language]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        return self._cache / digest[:2] / f"{digest}.json"

    def _cached(self, one: WordInContext) -> str | None:
        try:
            stored = json.loads(self._path(one).read_text(encoding="utf-8"))
            category = stored["category"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return category if category in CATEGORIES else None

    def _keep(self, one: WordInContext, category: str) -> None:
        path = self._path(one)
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = {"word": one.word, "language": one.language, "category": category}
        stored |= {"model": self.model, "prompt": PROMPT_VERSION}
        write_text(path, json.dumps(stored, ensure_ascii=False, indent=1) + "\n")


def _setting(given: str | None, variable: str) -> str:
    value = given or os.environ.get(variable, "")
    if not value:
        raise ValueError(f"the tagger 'llm' needs {variable} in the environment; docs/categories.md says how to set it")
    return value


def _without_secrets(base_url: str) -> str:
    """The URL, unless it holds what must not be seen: libraries write URLs into logs, and keys have their variable."""
    if "@" in base_url.partition("?")[0]:
        raise ValueError(f"{BASE_URL} holds a name or password before '@'; leave them out and give the key in {KEY}")
    if "?" in base_url or "#" in base_url:
        raise ValueError(f"{BASE_URL} ends in '?' or '#' and more; leave that out and give the key in {KEY}")
    return base_url


def _client(base_url: str, timeout: float, max_retries: int) -> OpenAI:
    try:
        from openai import OpenAI
    except ImportError:
        raise ValueError("the tagger 'llm' needs the openai client: pip install 'meme-xai[llm]'") from None
    key = os.environ.get(KEY) or _NO_KEY
    return OpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=max_retries)


def _cache_folder() -> Path:
    named = os.environ.get(CACHE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xai" / "categories"


def _content(reply: object) -> str | None:
    choices = getattr(reply, "choices", None) or [None]
    message = getattr(choices[0], "message", None)
    if getattr(message, "refusal", None) or getattr(choices[0], "finish_reason", None) == "content_filter":
        return None
    content = getattr(message, "content", None)
    return content if isinstance(content, str) else ""

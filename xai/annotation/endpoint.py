"""A model behind an OpenAI-compatible endpoint: pictures go as data URLs, and its key comes from the environment."""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from xai.annotation.asking import Reply, mode_of
from xai.annotation.settings import Asked
from xai.schema import Meme, Mode, is_encodable
from xai.tasks import Task

if TYPE_CHECKING:
    from openai import OpenAI

KEY = "XAI_API_KEY_"
"""The variable of an endpoint's key begins like this and ends in its host, as ``XAI_API_KEY_API_EXAMPLE_ORG``."""
VARIANT = "full"
LONGEST = 2048
"""Longest side of a picture that is sent, in pixels; a larger one is scaled down."""
TIMEOUT, MAX_RETRIES = 120.0, 5
"""Seconds that one try may take, and how many there are after the first."""
_NO_KEY = "none"
_STOPS = {
    401: "does not accept the key in {key}",
    403: "gives the key in {key} no access",
    404: "knows no such model or path; check the address and the model behind '#'",
    429: "has no quota or rate left for us; wait",
}
"""What concerns every record, so that the command stops instead of failing them one by one."""


class EndpointError(ValueError):
    """The endpoint answers nobody; the message says what to do. What it had answered is kept."""


class Endpoint:
    """A model at an address, as ``https://api.example.org/v1#some-model``.

    Rate limits, timeouts, lost connections and 5xx are tried again by the client, with growing pauses. What then still
    fails is the failure of that record, if it can be its fault; what cannot be raises :class:`EndpointError`.

    Args:
        name: address and model. A key has no place in it: each host has a variable of its own, so that no key is sent
            to another.

    Raises:
        ValueError: no model is named, the address holds a name or password, or the openai client is not installed.
    """

    in_batches = False

    def __init__(self, name: str) -> None:
        self._url, _, self._model = name.partition("#")
        parts = urlsplit(self._url)
        self.host = parts.hostname or ""
        if "@" in self._url or "?" in self._url:
            raise ValueError(
                "an annotator's address holds '@' or '?'; leave out names, passwords and keys (see the docs)"
            )
        if not self.host or not self._model.strip():
            raise ValueError(
                f"{name!r} names no model; write it behind '#', as in https://api.example.org/v1#some-model"
            )
        if find_spec("openai") is None:
            raise ValueError("an annotator behind an endpoint needs the openai client: pip install 'meme-xai[llm]'")
        self.key = KEY + re.sub(r"[^A-Z0-9]+", "_", self.host.upper()).strip("_")
        self._has_answered = False

    def __enter__(self) -> Self:
        self._client: OpenAI = _client(self._url, os.environ.get(self.key) or _NO_KEY)
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def version(self) -> dict[str, Any]:
        """Model and host, and what is done to pictures on the way."""
        return {"name": self._model, "endpoint": self._url, "longest_side": LONGEST, "temperature": 0}

    def ask(self, task: Task, memes: Sequence[Meme], asked: Asked) -> Iterator[Reply]:
        """Replies in order, those of the given memes asked for at the same time."""
        yield from _at_once([partial(self._reply, task, meme, asked) for meme in memes])

    def _reply(self, task: Task, meme: Meme, asked: Asked) -> Reply:
        variant = asked.variant or VARIANT
        mode = mode_of(meme, task, asked, variant)
        task.instruction(mode, asked.language, variant, asked.with_none)  # what no meme can satisfy
        try:
            content = _content(task, meme, mode, asked.model_copy(update={"variant": variant}))
        except ValueError as error:
            return Reply(mode=mode, failure=str(error))
        return self._request(mode, content)

    def _request(self, mode: Mode, content: Any) -> Reply:
        import openai

        try:
            reply = self._client.chat.completions.create(
                model=self._model, temperature=0, messages=[{"role": "user", "content": content}]
            )
        except openai.APIStatusError as error:
            return self._failed(mode, error)
        except openai.APITimeoutError:
            return Reply(mode=mode, failure=f"{self.host} did not answer in time")
        except openai.APIConnectionError:
            raise EndpointError(f"{self.host} cannot be reached; check the address, and run the same command") from None
        except (openai.OpenAIError, ValueError):  # a reply that is not what an endpoint sends
            return Reply(mode=mode, failure=f"{self.host} sent no answer that could be read")
        self._has_answered = True
        return _read(mode, reply, self.host)

    def _failed(self, mode: Mode, error: Any) -> Reply:
        """The failure of a record, or of all. Not in the server's own words: they may repeat the key."""
        status: int = error.status_code
        if error.code == "content_filter":
            return Reply(mode=mode, failure=f"a filter of {self.host} refused the question")
        if status in _STOPS:
            advice = _STOPS[status].format(key=self.key)
            raise EndpointError(
                f"{self.host} {advice} (status {status}); what it answered is kept: run the same command"
            )
        if status < 500 and not self._has_answered:
            raise EndpointError(f"{self.host} takes no such request (status {status}); try another model or endpoint")
        return Reply(mode=mode, failure=f"{self.host} answered with status {status}")


def _at_once(questions: Sequence[Callable[[], Reply]]) -> Iterator[Reply]:
    """The replies in order, each asked for in a thread of its own, for which no interrupt waits."""
    replies: list[Future[Reply]] = [Future() for _ in questions]
    for question, reply in zip(questions, replies, strict=True):
        Thread(target=_answer, args=(question, reply), daemon=True).start()
    yield from (reply.result() for reply in replies)


def _answer(question: Callable[[], Reply], reply: Future[Reply]) -> None:
    try:
        reply.set_result(question())
    except BaseException as error:
        reply.set_exception(error)


def _client(url: str, key: str) -> OpenAI:
    from openai import OpenAI

    return OpenAI(base_url=url, api_key=key, timeout=TIMEOUT, max_retries=MAX_RETRIES)


def _content(task: Task, meme: Meme, mode: Mode, asked: Asked) -> Any:
    """The parts of the message in the order of every prompt: picture, instruction, post, text of the meme.

    Raises:
        ValueError: the meme lacks what the mode or the task's prompt needs, or its picture cannot be read.
    """
    said = task.said(meme, mode, asked.language, asked.variant or VARIANT, asked.with_none)
    for kind, own in (("post", meme.post or ""), ("text", meme.text)):
        if kind in mode and not own.strip():
            raise ValueError(f"meme {meme.id!r} has no {kind}, which mode {mode!r} shows")
    text = "".join(part for _, part in said)
    if "image" not in mode:
        return text
    picture = {"type": "image_url", "image_url": {"url": _data_url(meme)}}
    return [picture, {"type": "text", "text": text}]


def _data_url(meme: Meme) -> str:
    """The picture as PNG: upright, in RGB, and without what else its file says, as where it was taken."""
    from PIL import Image

    picture = meme.open_image()
    if max(picture.size) > LONGEST:
        picture.thumbnail((LONGEST, LONGEST), Image.Resampling.LANCZOS)
    clean = Image.new("RGB", picture.size)
    clean.paste(picture)
    buffer = io.BytesIO()
    clean.save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _read(mode: Mode, reply: object, host: str) -> Reply:
    choices = getattr(reply, "choices", None) or [None]
    message = getattr(choices[0], "message", None)
    name = getattr(reply, "model", None)
    model = name if isinstance(name, str) and is_encodable(name) else None
    if getattr(message, "refusal", None) or getattr(choices[0], "finish_reason", None) == "content_filter":
        return Reply(mode=mode, failure=f"the model at {host} or its filter refused to answer", model=model)
    content = getattr(message, "content", None)
    if isinstance(content, str) and not is_encodable(content):
        return Reply(
            mode=mode, failure=f"the answer from {host} holds half a character (a lone surrogate)", model=model
        )
    return Reply(mode=mode, text=content if isinstance(content, str) else "", model=model)

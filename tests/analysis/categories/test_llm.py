"""The tagger `llm` against a real server of the tests: retries, malformed and refused answers, cache, and no key."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from xai.analysis.categories import UNKNOWN, Tagger, WordInContext, get_tagger

pytest.importorskip("openai")

SECRET = "sk-this-is-a-secret-of-the-tests"
TEXT = "Never trust a toaster in Oslo"
WORDS = [WordInContext(word, TEXT, "en") for word in ("Never", "toaster", "Oslo")]
RIGHT = ["Rhetoric", "Content", "Entity"]
ANSWER = json.dumps({"1": "Rhetoric", "2": "Content", "3": "Entity"})

Reply = tuple[int, dict[str, str], str]


def completion(content: str | None, **message: Any) -> Reply:
    """What an endpoint sends when a model has answered."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **message}}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    return 200, {"Content-Type": "application/json"}, json.dumps(body)


def failure(status: int, *, code: str | None = None, **headers: str) -> Reply:
    """An error whose message repeats the key, as some servers do."""
    body = {"error": {"message": f"refused for {SECRET}", "code": code}}
    return status, {"Content-Type": "application/json", **headers}, json.dumps(body)


class Endpoint:
    """A server that gives the replies of a list one after the other, the last again and again."""

    def __init__(self) -> None:
        self.replies: list[Reply | Callable[[], Reply]] = [completion(ANSWER)]
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                endpoint.times.append(time.monotonic())
                endpoint.keys.append(self.headers["Authorization"])
                endpoint.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                reply = endpoint.replies.pop(0) if len(endpoint.replies) > 1 else endpoint.replies[0]
                status, headers, body = reply() if callable(reply) else reply
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body.encode()))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def asked(self) -> list[Any]:
        """The words of every request, as the model is shown them."""
        return [json.loads(request["messages"][1]["content"]) for request in self.requests]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Endpoint]:
    made = Endpoint()
    monkeypatch.setenv("XAI_LLM_BASE_URL", made.url)
    monkeypatch.setenv("XAI_LLM_MODEL", "judge-1")
    monkeypatch.setenv("XAI_LLM_API_KEY", SECRET)
    monkeypatch.setenv("XAI_LLM_CACHE", str(tmp_path / "cache"))
    yield made
    made.server.shutdown()
    made.server.server_close()


def counts(tagger: Tagger) -> dict[str, int]:
    found: dict[str, int] = tagger.counts  # type: ignore[attr-defined]
    return found


def test_a_batch_is_one_request_that_shows_each_text_once(endpoint: Endpoint) -> None:
    tagger = get_tagger("llm")
    assert tagger.tag([*WORDS, WORDS[0]]) == [*RIGHT, "Rhetoric"]
    (asked,) = endpoint.asked()
    assert asked == [{"text": TEXT, "language": "en", "words": {"1": "Never", "2": "toaster", "3": "Oslo"}}]
    assert endpoint.keys == [f"Bearer {SECRET}"]
    assert endpoint.requests[0]["model"] == "judge-1"
    assert counts(tagger) == {"words": 4, "cached": 0, "requests": 1, "malformed": 0, "refused": 0, "unknown": 0}


def test_words_are_asked_in_batches_of_the_given_size(endpoint: Endpoint) -> None:
    endpoint.replies = [completion('{"1": "Rhetoric", "2": "Content"}'), completion('{"1": "Entity"}')]
    assert get_tagger("llm", batch_size=2).tag(WORDS) == RIGHT
    assert [list(asked[0]["words"].values()) for asked in endpoint.asked()] == [["Never", "toaster"], ["Oslo"]]


def test_what_was_answered_is_not_asked_again_by_another_process(endpoint: Endpoint, tmp_path: Path) -> None:
    get_tagger("llm").tag(WORDS)
    again = get_tagger("llm")
    assert again.tag(WORDS) == RIGHT
    assert counts(again)["cached"] == 3
    assert len(endpoint.requests) == 1
    stored = sorted((tmp_path / "cache").rglob("*.*"))
    assert len(stored) == 3
    assert json.loads(stored[0].read_text(encoding="utf-8"))["model"] == "judge-1"
    get_tagger("llm", model="judge-2").tag(WORDS)
    get_tagger("llm").tag([WordInContext("Never", "Never mind", "en")])
    assert len(endpoint.requests) == 3


def test_a_broken_cache_file_is_asked_again(endpoint: Endpoint, tmp_path: Path) -> None:
    get_tagger("llm").tag(WORDS)
    for path in (tmp_path / "cache").rglob("*.json"):
        path.write_text('{"category": "Weather"}', encoding="utf-8")
    assert get_tagger("llm").tag(WORDS) == RIGHT
    assert len(endpoint.requests) == 2


def test_a_rate_limit_waits_as_long_as_the_server_says(endpoint: Endpoint) -> None:
    endpoint.replies = [failure(429, **{"Retry-After": "1"}), completion(ANSWER)]
    assert get_tagger("llm").tag(WORDS) == RIGHT
    assert endpoint.times[1] - endpoint.times[0] >= 1


def test_server_errors_and_timeouts_are_tried_again(endpoint: Endpoint) -> None:
    def slow() -> Reply:
        time.sleep(1.5)
        return completion(ANSWER)

    endpoint.replies = [failure(503), slow, completion(ANSWER)]
    assert get_tagger("llm", timeout=0.5).tag(WORDS) == RIGHT
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize(
    "answer",
    [
        "Never is Rhetoric, I think.",
        '{"1": "Rhetoric", "1": "Content", "2": "Content", "3": "Entity"}',
        '{"1": "Rhetoric", "2": "Content", "3": "Entity"} {"1": "Other"}',
        '["Rhetoric", "Content", "Entity"]',
        '{"1": "Rhetoric", "2": "Content", "3": "Entity", "4": "Other"}',
        '{"1": "Rhetoric", "2": "Con',
        "",
    ],
)
def test_a_malformed_answer_is_counted_and_leaves_its_words_unknown(
    endpoint: Endpoint, tmp_path: Path, answer: str
) -> None:
    endpoint.replies = [completion(answer), completion(ANSWER)]
    tagger = get_tagger("llm")
    assert tagger.tag(WORDS) == [UNKNOWN] * 3
    assert (counts(tagger)["malformed"], counts(tagger)["unknown"]) == (1, 3)
    assert not list((tmp_path / "cache").rglob("*.json"))
    assert tagger.tag(WORDS) == RIGHT


def test_only_the_words_that_an_answer_leaves_out_or_misnames_are_unknown(endpoint: Endpoint) -> None:
    endpoint.replies = [completion('```json\n{"1": "Rhetoric", "2": "Kitchenware"}\n```')]
    tagger = get_tagger("llm")
    assert tagger.tag(WORDS) == ["Rhetoric", UNKNOWN, UNKNOWN]
    assert (counts(tagger)["malformed"], counts(tagger)["unknown"]) == (0, 2)


@pytest.mark.parametrize(
    "reply",
    [completion(None, refusal="I would rather not."), failure(400, code="content_filter")],
    ids=["refusal", "filter"],
)
def test_a_refusal_is_counted_and_leaves_its_words_unknown(endpoint: Endpoint, reply: Reply) -> None:
    endpoint.replies = [reply]
    tagger = get_tagger("llm")
    assert tagger.tag(WORDS) == [UNKNOWN] * 3
    assert counts(tagger)["refused"] == 1


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (failure(401), "XAI_LLM_API_KEY is not accepted"),
        (failure(404), "check XAI_LLM_MODEL and XAI_LLM_BASE_URL"),
        (failure(429), "wait, then run again"),
        (failure(500), "what was answered is kept"),
    ],
)
def test_an_endpoint_that_fails_for_good_stops_with_advice_and_keeps_what_it_had_answered(
    endpoint: Endpoint, tmp_path: Path, reply: Reply, advice: str
) -> None:
    endpoint.replies = [completion('{"1": "Rhetoric", "2": "Content"}'), reply]
    with pytest.raises(ValueError, match=advice):
        get_tagger("llm", batch_size=2, max_retries=1).tag(WORDS)
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 2


def test_an_endpoint_that_is_not_there_is_named(endpoint: Endpoint) -> None:
    with pytest.raises(ValueError, match=r"127.0.0.1 cannot be reached; check XAI_LLM_BASE_URL"):
        get_tagger("llm", base_url="http://127.0.0.1:9/v1", max_retries=0).tag(WORDS)


def test_a_page_instead_of_an_answer_is_malformed(endpoint: Endpoint) -> None:
    endpoint.replies = [(200, {"Content-Type": "text/html"}, "<html>sign in</html>")]
    tagger = get_tagger("llm")
    assert tagger.tag(WORDS) == [UNKNOWN] * 3
    assert counts(tagger)["malformed"] == 1


def test_the_key_is_in_no_file_no_log_and_no_error(
    endpoint: Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint.replies = [completion(ANSWER), failure(503), failure(401)]
    tagger = get_tagger("llm")
    tagger.tag(WORDS)
    with pytest.raises(ValueError, match="status 401") as caught:
        tagger.tag([WordInContext("lamp", "a lamp", "en")])
    shown = "".join(traceback.format_exception(caught.value))
    files = [path.read_text(encoding="utf-8") for path in (tmp_path / "cache").rglob("*.json")]
    assert len(files) == 3
    assert caplog.records
    logged = "\n".join([record.getMessage() for record in caplog.records] + [caplog.text])
    for text in (shown, logged, *files, repr(tagger), repr(vars(tagger)), tagger.version, str(counts(tagger))):
        assert SECRET not in text


def test_it_says_which_variable_is_missing(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XAI_LLM_MODEL")
    with pytest.raises(ValueError, match="needs XAI_LLM_MODEL in the environment"):
        get_tagger("llm")
    monkeypatch.setenv("XAI_LLM_MODEL", "judge-1")
    monkeypatch.delenv("XAI_LLM_API_KEY")
    assert get_tagger("llm").tag(WORDS) == RIGHT  # a server that wants no key
    assert SECRET not in os.environ.values()

"""A server that speaks the OpenAI protocol and answers as recorded, by the model that is asked and the meme's text."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, str]
"""Status and body."""


def completion(content: str | None, **message: Any) -> Reply:
    """What an endpoint sends when a model has answered."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **message}}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "served-1", "choices": [choice]}
    return 200, json.dumps(body)


def failure(status: int, said: str = "", code: str | None = None) -> Reply:
    """An error, with what the server says of it."""
    return status, json.dumps({"error": {"message": said, "code": code}})


def labelled(*labels: str, confidence: float | None = 0.9, words: tuple[str, ...] = ()) -> str:
    """An answer of the harmless task."""
    content = {"labels": list(labels), "referred_words": list(words), "referred_image_concepts": []}
    return json.dumps(content | ({} if confidence is None else {"confidence": confidence}))


class Endpoint:
    """A server on this machine.

    Args:
        answer: of the model's name and the text of the prompt, what is sent: a reply, or the text of an answer.
    """

    def __init__(self, answer: Callable[[str, str], Reply | str]) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append(request)
                endpoint.keys.append(self.headers["Authorization"])
                found = endpoint.answer(request["model"], prompt_of(request))
                status, body = completion(found) if isinstance(found, str) else found
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def name(self, model: str) -> str:
        """How the annotator of that model is called."""
        return f"{self.url}#{model}"

    def asked(self, model: str) -> int:
        """How often a model was asked."""
        return sum(request["model"] == model for request in self.requests)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def prompt_of(request: Mapping[str, Any]) -> str:
    """The text of a request, without its picture."""
    content = request["messages"][0]["content"]
    return content if isinstance(content, str) else str(content[-1]["text"])

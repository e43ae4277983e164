"""Keys come from the environment, and are in no file, output, error or log, even where a server echoes them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from xai.analysis.categories import get_tagger
from xai.cli import app

pytest.importorskip("openai")

KEY, PASSWORD, TOKEN = "sk-key-of-the-tests-4711", "hunter2-of-the-tests", "hf_token-of-the-tests-0815"


class EchoingEndpoint(BaseHTTPRequestHandler):
    """Refuses every request, and repeats in headers, reason and body what it was sent."""

    seen: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        given = self.headers["Authorization"]
        self.seen.append(given)
        body = f'{{"error": {{"message": "refused: {given}", "code": "{given}", "type": "{given}"}}}}'.encode()
        self.send_response(401, f"refused {given}")
        for name, value in (("WWW-Authenticate", given), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[str]:
    """Address of such an endpoint."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), EchoingEndpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    EchoingEndpoint.seen.clear()
    yield f"127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


def run(*arguments: str | Path, program: tuple[str, ...] = ("-m", "xai.cli"), **environment: str) -> tuple[int, str]:
    """Exit code, and everything that the command printed."""
    command = [sys.executable, *program, *map(str, arguments)]
    environment = {**os.environ, "XAI_LLM_API_KEY": KEY, "XAI_LLM_MODEL": "m", "HF_TOKEN": TOKEN, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    return done.returncode, done.stdout + done.stderr


def secrets_in(folder: Path) -> list[str]:
    """The files below a folder that hold a secret."""
    secrets = [secret.encode() for secret in (KEY, PASSWORD, TOKEN)]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        str(path) for path in files if any(one in path.read_bytes() or one in path.name.encode() for one in secrets)
    ]


@pytest.mark.parametrize("log", ["", "debug"])
def test_a_server_that_repeats_the_key_does_not_get_it_shown(echo: str, tmp_path: Path, log: str) -> None:
    about = {"XAI_LLM_BASE_URL": f"http://{echo}", "XAI_LLM_CACHE": str(tmp_path / "cache"), "OPENAI_LOG": log}
    code, printed = run("categories", "validate", "--tagger", "llm", "--out", tmp_path / "out", **about)
    assert EchoingEndpoint.seen == [f"Bearer {KEY}"]
    assert code == 2
    assert "the key in XAI_LLM_API_KEY is not accepted" in printed
    assert KEY not in printed
    assert secrets_in(tmp_path) == []


@pytest.mark.parametrize("address", ["http://user:{}@{}", "http://{}@{}", "http://u:p@{}@{}"])
def test_an_endpoint_with_a_password_in_its_address_is_refused_without_showing_it(
    echo: str, tmp_path: Path, address: str
) -> None:
    about = {"XAI_LLM_BASE_URL": address.format(PASSWORD, echo), "XAI_LLM_CACHE": str(tmp_path / "cache")}
    code, printed = run("categories", "tag", "a lamp", "--tagger", "llm", **about)
    assert (code, EchoingEndpoint.seen) == (2, [])
    assert "holds a name or password before '@'" in printed
    assert PASSWORD not in printed
    assert secrets_in(tmp_path) == []


def test_nor_can_a_key_stand_in_the_query_of_the_address() -> None:
    with pytest.raises(ValueError, match=r"ends in '\?'") as caught:
        get_tagger("llm", base_url=f"http://127.0.0.1/v1?key={PASSWORD}", model="m")
    assert PASSWORD not in str(caught.value)


def test_a_crash_shows_no_local_variables() -> None:
    program = (
        "import xai.cli\n"
        "@xai.cli.app.command()\n"
        "def crash():\n"
        "    import os\n"
        "    key = os.environ['XAI_LLM_API_KEY']\n"
        "    raise RuntimeError(f'of {len(key)} characters')\n"
        "xai.cli.main()\n"
    )
    code, printed = run("crash", program=("-c", program))
    assert code == 1
    assert f"RuntimeError: of {len(KEY)} characters" in printed
    assert KEY not in printed
    assert not app.pretty_exceptions_enable


def test_no_secret_of_the_environment_is_in_a_run_or_its_reports(tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, printed = run("explain", "samples", "--out", out, "--mode", "text", "--limit", "2")
    assert code == 0, printed
    shown = [printed, *(run(command, out)[1] for command in ("score", "analyze")), run("doctor", "--json")[1]]
    assert (out / "reports" / "score.html").is_file()
    assert secrets_in(out) == []
    assert not [text for text in shown if KEY in text or TOKEN in text]

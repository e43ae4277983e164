"""`xai annotate` as a user runs it, with the task m3 and a real server: stops, resuming, status, export, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.annotation.conftest import write_dataset
from tests.annotation.serving import Endpoint, Reply, failure
from xai.annotation.folder import Panel
from xai.cli import app
from xai.datasets import read_memes
from xai.schema import Meme

MEMES = (
    {"id": "chairs", "text": "All chairs are wooden liars", "post": "A chair told me so again", "platform": "4chan"},
    {"id": "table", "text": "A table set for four people"},
    {"id": "stools", "text": "Stools are not what they seem", "post": "Stools, stools and stools"},
    {"id": "broken", "text": "This one cannot be answered"},
)
"""Of furniture, which no one hates: the labels are those of m3, and the texts are harmless."""


def said(label: str, *categories: str, confidence: float = 0.9) -> str:
    content = {"label": label, "categories": list(categories), "rationale": ["calls chairs liars"]}
    return json.dumps(content | {"confidence": confidence, "referred_words": [], "referred_image_concepts": []})


def answer(model: str, prompt: str) -> str | Reply:
    if '"phrases"' in prompt:
        return json.dumps({"phrases": ["calls chairs liars", "scorns wooden furniture"]})
    if "cannot be answered" in prompt:
        return failure(400, code="content_filter")
    if "chairs" in prompt:
        return said("Hate", "Race", "Politics") if model == "b" else said("Hate", "Race")
    if "Stools" in prompt:
        return said("Normal") if model == "a" else said("Hate", "Gender") if model == "b" else said("Hate")
    return said("Normal")


@pytest.fixture
def served() -> Iterator[Endpoint]:
    pytest.importorskip("openai")
    made = Endpoint(answer)
    yield made
    made.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data", MEMES)


def asked(data: Path, served: Endpoint, *more: str) -> list[str]:
    names = [part for model in "abc" for part in ("--annotator", served.name(model))]
    return ["annotate", str(data), "--out", str(data.parent / "panel"), *names, *more]


def xai(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_m3_from_the_folder_to_the_dataset(data: Path, served: Endpoint, tmp_path: Path) -> None:
    first = xai(*asked(data, served, "--json"))
    assert first.exit_code == 1, first.output  # of one record there are failures
    found = json.loads(first.stdout)
    assert found["states"] == {"excluded": 1, "people": 1, "votes": 2}
    assert {one["reason"] for one in found["failures"]} == {"a filter of 127.0.0.1 refused the question"}
    panel = Panel(tmp_path / "panel")
    chairs = panel.item("chairs")
    assert chairs.answers[0] is not None
    assert (chairs.answers[0]["mode"], chairs.answers[0]["reasons"]) == ("image+text+post", ["calls chairs liars"])
    assert chairs.accepted is not None
    # Jaccard 1, 2/3, 2/3.
    assert chairs.accepted.labels == ("Hate", "Race")
    assert chairs.accepted.why == "3 of 3 agree on Hate; mean Jaccard 0.78, mean confidence 0.90"
    assert chairs.kept_phrases == ("calls chairs liars", "scorns wooden furniture")
    table = panel.item("table")
    assert table.accepted is not None
    assert (table.accepted.labels, table.phrases) == (("Normal",), None)
    panel.decide("stools", "ann", "accepted", ["Hate", "Gender"], "read with its post")
    again = xai(*asked(data, served))
    assert "3 wait for votes" in " ".join(again.stdout.split())
    assert panel.item("stools").kept_phrases
    for name in ("chairs", "stools"):
        for who in ("ann", "bob"):
            panel.vote(name, who, "for")
    status = xai("annotate", tmp_path / "panel", "--status")
    assert status.exit_code == 0
    assert "--export FILE.jsonl    (2 are kept)" in status.stdout
    final = tmp_path / "final.jsonl"
    done = xai("annotate", tmp_path / "panel", "--export", final)
    assert done.exit_code == 0, done.output
    chairs_out, stools_out = read_memes(final)
    assert isinstance(chairs_out, Meme)
    assert isinstance(stools_out, Meme)
    assert chairs_out.metadata["rationale"] == ["calls chairs liars", "scorns wooden furniture"]
    assert (stools_out.labels, stools_out.metadata["provenance"]["labels"]["who"]) == (("Hate", "Gender"), "ann")


def test_the_report_is_written_and_an_unchanged_panel_does_nothing_new(
    data: Path, served: Endpoint, tmp_path: Path
) -> None:
    xai(*asked(data, served))
    n, before = len(served.requests), {path: path.read_bytes() for path in (tmp_path / "panel").glob("*.json*")}
    again = xai(*asked(data, served))
    assert again.exit_code == 1
    assert len(served.requests) == n
    assert {path: path.read_bytes() for path in (tmp_path / "panel").glob("*.json*")} == before
    report = json.loads((tmp_path / "panel" / "reports" / "annotate.json").read_text(encoding="utf-8"))
    assert report["title"] == "Annotation panel: panel"
    page = (tmp_path / "panel" / "reports" / "annotate.html").read_text(encoding="utf-8")
    assert "none of 3 answers could be read" in page


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda stop: stop.name)
def test_a_command_that_is_ended_goes_on_where_it_was(
    data: Path, served: Endpoint, tmp_path: Path, stop: signal.Signals
) -> None:
    def slowly(model: str, prompt: str) -> str | Reply:
        time.sleep(0.5 if model == "b" else 0)
        return answer(model, prompt)

    served.answer = slowly
    command = [sys.executable, "-m", "xai.cli", *asked(data, served, "--batch-size", "1")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while served.asked("b") < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(stop)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == (130 if stop == signal.SIGINT else -stop)
    assert ("stopped; the same command goes on where it was" in output) == (stop == signal.SIGINT)
    assert "Traceback" not in output
    served.answer = answer
    n_a, n_b = served.asked("a"), served.asked("b")
    xai(*asked(data, served, "--batch-size", "1"))
    # The explicator, for one record, is the first model; of b's answers the one that was on its way is asked again.
    assert served.asked("a") == n_a + 1
    assert served.asked("b") <= 5
    assert n_b >= 3
    assert Panel(tmp_path / "panel").item("chairs").state == "votes"


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_a_server_that_is_silent(data: Path, served: Endpoint) -> None:
    silent = threading.Event()
    served.answer = lambda model, prompt: str(silent.wait(300))
    command = [sys.executable, "-m", "xai.cli", *asked(data, served)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while not served.requests and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    silent.set()
    assert running.returncode == 130
    assert "Traceback" not in output


def test_another_option_is_refused_in_one_line(data: Path, served: Endpoint) -> None:
    xai(*asked(data, served))
    command = [sys.executable, "-m", "xai.cli", *asked(data, served, "--keep", "3")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "begun with another configuration (settings.votes.keep: 2, now 3)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data"], "name the panel's folder with --out"),
        (["data", "--out", "panel"], "needs two annotators"),
        (["data", "--out", "panel", "--annotator", "planted"], "needs two annotators"),
        (["data", "--out", "panel", "--annotator", "a", "--annotator", "a"], "is named twice"),
        (["data", "--status"], "'data' is not a panel's folder"),
        (["data", "--status", "--out", "panel"], "leave out --out"),
        (["gone", "--out", "panel", "--annotator", "a", "--annotator", "b"], "does not exist"),
        (["data", "--out", "panel", "--annotator", "a", "--annotator", "b", "--post-length", "long"], "as in 20:500"),
        (["data", "--out", "panel", "--annotator", "a", "--annotator", "b", "--explicate", "Joy"], "'Joy' is no label"),
        (["data", "--out", "panel", "--annotator", "a", "--annotator", "b", "--mode", "sound"], "no mode 'sound'"),
        (["data", "--out", "panel", "--annotator", "a", "--annotator", "b", "--keep", "9"], "cannot come from 3"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = xai("annotate", *arguments)
    assert result.exception is not None
    assert message in str(result.exception)
    assert not (tmp_path / "panel").exists()


def test_the_export_says_where_the_pictures_are_to_be_found(data: Path, served: Endpoint, tmp_path: Path) -> None:
    xai(*asked(data, served))
    for who in ("ann", "bob"):
        Panel(tmp_path / "panel").vote("chairs", who, "for")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = xai("annotate", tmp_path / "panel", "--export", elsewhere / "final.jsonl")
    assert "read the file with --images" in done.stdout
    (meme,) = read_memes(elsewhere / "final.jsonl", images=data)
    assert isinstance(meme, Meme)
    assert meme.image == (data / "chairs.png").resolve()
    beside = xai("annotate", tmp_path / "panel", "--export", tmp_path / "final.jsonl")
    assert "--images" not in beside.stdout


def test_its_help_loads_no_model() -> None:
    source = "import sys, xai.cli; from typer.testing import CliRunner\n"
    source += "result = CliRunner().invoke(xai.cli.app, ['annotate', '--help'])\n"
    source += "print(result.exit_code, 'torch' in sys.modules, 'pandas' in sys.modules, 'openai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False", "False", "False"]

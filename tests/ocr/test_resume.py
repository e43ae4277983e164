"""`xai ocr` stopped at any instant and started again writes what it would have written without the stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xai.datasets import read_memes, write_memes
from xai.journal import JournalError
from xai.ocr import ocr_dataset
from xai.planted import SAMPLES
from xai.schema import Meme

from .conftest import engine_for
from .pages import memes

TIMEOUT = 240


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of six pages, of which one is broken, and what is read of it without a stop."""
    engine_for("tesseract", "en")
    folder = tmp_path_factory.mktemp("pages")
    for number, page in enumerate(memes("en")[:5]):
        page.picture.save(folder / f"{number}.png")
    (folder / "2-broken.png").write_bytes(b"\x89PNG broken")
    assert start(folder, "undisturbed").wait(TIMEOUT) == 1
    return folder


def start(folder: Path, name: str) -> subprocess.Popen[str]:
    """`xai ocr` in a process group of its own, as a terminal starts it."""
    command = [sys.executable, "-m", "xai.cli", "ocr", folder, "--out", folder / f"{name}.jsonl"]
    options = ["--engine", "tesseract", "--language", "en"]
    return subprocess.Popen(
        [*map(str, command), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )


def wait_for_lines(journal: Path, n: int) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not journal.exists() or journal.read_bytes().count(b"\n") < n:
        assert time.monotonic() < deadline, "nothing was read"
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)], ids=["ctrl-c", "kill"])
def test_stopped_and_started_again_it_ends_with_the_same_bytes(folder: Path, stop: signal.Signals, code: int) -> None:
    out, journal = folder / f"{stop.name}.jsonl", folder / f"{stop.name}.jsonl.part"
    first = start(folder, stop.name)
    wait_for_lines(journal, 4)
    os.killpg(first.pid, stop)
    _, said = first.communicate(timeout=TIMEOUT)
    assert first.returncode == code
    assert ("stopped; the same command goes on where it was" in said) == (stop == signal.SIGINT)
    assert not out.exists()
    assert 4 <= journal.read_bytes().count(b"\n") < 7

    second = start(folder, stop.name)
    said, _ = second.communicate(timeout=TIMEOUT)
    assert second.returncode == 1
    assert "records by an earlier start" in said
    assert "2-broken" in said
    assert out.read_bytes() == (folder / "undisturbed.jsonl").read_bytes()
    assert not journal.exists()


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A file that was begun: of three memes with words of their own, two are read."""

    def stop(done: int) -> None:
        if (tmp_path / "out.jsonl.part").read_bytes().count(b"\n") == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ocr_dataset(SAMPLES, tmp_path / "out.jsonl", engine="dataset", limit=3, on_progress=stop)
    return tmp_path / "out.jsonl"


def test_what_was_read_is_counted_and_not_read_again(begun: Path, tmp_path: Path) -> None:
    steps: list[int] = []
    summary = ocr_dataset(SAMPLES, begun, engine="dataset", limit=3, on_progress=steps.append)
    whole = ocr_dataset(SAMPLES, tmp_path / "whole.jsonl", engine="dataset", limit=3)
    assert steps == [2, 1]
    assert (summary.resumed, whole.resumed) == (2, 0)
    assert summary.report() | {"resumed": 0} == whole.report()
    assert begun.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_it_does_not_go_on_with_another_configuration_or_dataset_and_says_what_differs(
    begun: Path, tmp_path: Path
) -> None:
    with pytest.raises(JournalError, match=r"min_confidence: 0\.5, now 0\.9"):
        ocr_dataset(SAMPLES, begun, engine="dataset", limit=3, min_confidence=0.9)
    first, second, third = (record for record in list(read_memes(SAMPLES))[:3] if isinstance(record, Meme))
    changed = second.model_copy(update={"text": second.text.upper(), "words": None})
    with pytest.raises(JournalError, match=rf"another dataset \(differing: record '{second.id}'\)"):
        ocr_dataset([first, changed, third], begun, engine="dataset")
    with pytest.raises(JournalError, match="use the same one and limit"):
        ocr_dataset(SAMPLES, begun, engine="dataset", limit=1)
    assert ocr_dataset(SAMPLES, begun, engine="dataset", limit=3).resumed == 2


def test_a_dataset_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    import xai.datasets
    from xai.cli import app

    opened: list[object] = []

    def counted(path: Path, **options: object) -> object:
        opened.append(path)
        return read_memes(path, **options)  # type: ignore[arg-type]

    write_memes(tmp_path / "memes.jsonl", [record for record in read_memes(SAMPLES) if isinstance(record, Meme)][:2])
    monkeypatch.setattr(xai.datasets, "read_memes", counted)
    monkeypatch.setattr("xai.ocr.read_memes", counted)
    arguments = ["ocr", str(tmp_path / "memes.jsonl"), "--out", str(tmp_path / "out.jsonl"), "--images"]
    done = CliRunner().invoke(app, [*arguments, str(SAMPLES), "--engine", "dataset"])
    assert done.exit_code == 0, done.output
    assert opened == [tmp_path / "memes.jsonl"]

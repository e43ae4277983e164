"""A run of the shipped samples and of memes that try to break pages, explained once by the shipped model."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.app.browser import Browser
from tests.app.serving import Explorer
from xai.analysis.rationale.agreement import agreement_tables, write_agreement
from xai.app.library import Library
from xai.app.settings import Settings
from xai.cli import app
from xai.models import VisionLanguageModel
from xai.pipeline import explain_dataset
from xai.planted import SAMPLES
from xai.store import open_run

HOSTILE = "<img src=x onerror=\"document.title='owned'\"> :red[$x^2$] [link](https://example.org) **bold** `code` &amp;"
HOSTILE_ID = 'evil"><script>alert(1)</script>'
OTHER_SCRIPTS = {"arabic": ("ar", "هذا ليس خبرا عاديا أبدا"), "chinese": ("zh", "这不是一个普通的消息")}


@pytest.fixture(autouse=True)
def _the_same_main_module() -> Iterator[None]:
    """Streamlit puts its page in the place of the main module, which processes that are started later would run."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="module")
def browser(explorer: Explorer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A window on the explorer that a module of tests started."""
    window = Browser(explorer.address, tmp_path_factory.mktemp("profile"))
    yield window
    window.close()


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples, a meme whose name and caption are markup, two in other scripts, one whose picture is broken."""
    folder = tmp_path_factory.mktemp("explorer") / "data"
    shutil.copytree(SAMPLES, folder)
    picture = "images/" + sorted((folder / "images").iterdir())[0].name
    extra: list[dict[str, object]] = [{"id": HOSTILE_ID, "text": HOSTILE, "image": picture, "labels": []}]
    extra += [
        {"id": name, "text": text, "language": language, "image": picture}
        for name, (language, text) in OTHER_SCRIPTS.items()
    ]
    (folder / "images" / "broken.png").write_bytes(b"\x89PNG broken")
    extra.append({"id": "broken", "text": "No picture", "image": "images/broken.png"})
    with (folder / "memes.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(meme, ensure_ascii=False) + "\n" for meme in extra)
    return folder


@pytest.fixture(scope="session")
def run(dataset: Path, model: VisionLanguageModel) -> Path:
    """That data set, explained in two modes and analysed."""
    out = dataset.parent / "run"
    explain_dataset(model, dataset, out, modes=["text", "image+text"])
    compare(out)
    return out


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory, model: VisionLanguageModel) -> Path:
    """Four samples in two modes, on which `xai score`, `xai analyze` and `xai faithfulness` were run."""
    out = tmp_path_factory.mktemp("reported") / "run"
    explain_dataset(model, SAMPLES, out, modes=["text", "image+text"], limit=4)
    runner = CliRunner()
    for command in ("score", "analyze", "faithfulness"):
        more = ["--draws", "2", "--no-pictures"] if command == "faithfulness" else []
        result = runner.invoke(app, [command, str(out), *more])
        assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="session")
def library(run: Path) -> Library:
    return Library([run])


@pytest.fixture
def settings(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A copy of the run, so that verdicts of one test are not seen by another, and the settings published."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    settings = Settings(runs=(copy,), cache=tmp_path / "cache", auditor="ann")
    monkeypatch.setenv("XAI_APP_SETTINGS", settings.model_dump_json())
    return settings


def compare(run: Path) -> None:
    """The table of `xai analyze` of every meme, without its report."""
    opened = open_run(run)
    write_agreement(agreement_tables(opened), opened.reports)

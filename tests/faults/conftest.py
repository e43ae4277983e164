"""Explaining in processes that can be killed, and what a run holds, row for row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from xai.planted.truth import write_planted
from xai.store import open_run

N_MEMES = 6
OPTIONS: dict[str, Any] = {"modes": ["text", "image+text"], "batch_size": 2, "part_size": 2}


@dataclass
class Explainer:
    """Explains in a process of its own, on the model that ships."""

    process: subprocess.Popen[str]

    def explain(
        self,
        dataset: Path,
        out: Path,
        *,
        kill_after: float | None = None,
        die_at: int | None = None,
        options: dict[str, Any] = OPTIONS,
    ) -> int:
        """Explain a dataset; the exit status of the process, ``-SIGKILL`` where it was killed.

        Args:
            kill_after: seconds until the process is killed.
            die_at: which of its writes, fsyncs and renames kills it; -1 for none, to have them counted.
        """
        assert self.process.stdin is not None
        order = {"dataset": str(dataset), "out": str(out), "options": options}
        self.process.stdin.write(json.dumps(order | {"kill_after": kill_after, "die_at": die_at}) + "\n")
        self.process.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@pytest.fixture(scope="session")
def explainer() -> Iterator[Explainer]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("explainer.py"))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        started = Explainer(process)
        assert started._line() == "ready\n"
        yield started
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Planted memes, one with a picture that is none, and a line that is no JSON."""
    folder = tmp_path_factory.mktemp("data")
    path = write_planted(folder, N_MEMES, 5)
    (folder / "images" / "planted-5-3.png").write_bytes(b"no picture")
    memes = folder / "memes.jsonl"
    lines = memes.read_text(encoding="utf-8").splitlines()
    memes.write_text("\n".join([*lines[:5], "{broken", *lines[5:]]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def undisturbed(explainer: Explainer, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a process that was not killed; how many file system calls it made is beside it."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert explainer.explain(dataset, out, die_at=-1) == 0
    return out


def rows(run: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that a run holds, in its order."""
    opened = open_run(run)
    tables = {name: getattr(opened, name)() for name in ("predictions", "explanations", "failures")}
    return {name: table.fetchall() for name, table in tables.items()}

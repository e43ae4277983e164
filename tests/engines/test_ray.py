"""A local Ray of two workers: the same rows, a worker killed in the middle, records that are no good."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from xai.models import ModelSource
from xai.pipeline import explain_dataset
from xai.schema import Meme
from xai.store import open_run

from .conftest import BROKEN, OPTIONS, N, rows

ray = pytest.importorskip("ray", reason="no ray: pip install 'meme-xai[ray]'")
POISON = "planted-77-13"


def poison() -> Callable[[], None]:
    """What a worker begins with: the picture of one meme takes the process along, as a fault in a decoder does."""

    def begin() -> None:  # within a function, so that it is sent as it is and not by the name of this module
        read_picture = Meme.read_picture

        def deadly(meme: Meme, max_pixels: int) -> object:
            if meme.id == POISON and "poisoned" in str(meme.image):
                os.kill(os.getpid(), signal.SIGKILL)
            return read_picture(meme, max_pixels)

        Meme.read_picture = deadly  # type: ignore[method-assign, assignment]

    return begin


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        logging_level="error",
        log_to_driver=False,
        runtime_env={"worker_process_setup_hook": poison()},
    )
    yield
    ray.shutdown()


def workers() -> list[psutil.Process]:
    """The processes that have a model."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "MapWorker" in " ".join(child.cmdline())]


def test_two_workers_make_the_same_rows_though_one_is_killed(dataset: Path, undisturbed: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_one(new: int) -> None:
        if not killed:
            victim = workers()[0]
            victim.kill()
            killed.append(victim.pid)

    result = explain_dataset(
        ModelSource(device="cpu"), dataset, tmp_path / "run", **OPTIONS, engine="ray", workers=2, on_progress=kill_one
    )
    assert killed
    assert result.explained + result.resumed == 2 * N - 1
    assert result.failed == 1
    assert rows(tmp_path / "run") == rows(undisturbed)
    assert BROKEN in rows(undisturbed)["failures"]
    again = explain_dataset(ModelSource(device="cpu"), dataset, tmp_path / "run", **OPTIONS, engine="ray", workers=2)
    assert (again.explained, again.failed, again.resumed) == (0, 0, 2 * N)


def test_a_run_that_was_begun_here_goes_on_on_ray(dataset: Path, undisturbed: Path, tmp_path: Path) -> None:
    def stop(new: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain_dataset(ModelSource(device="cpu"), dataset, tmp_path / "run", **OPTIONS, on_progress=stop)
    explain_dataset(ModelSource(device="cpu"), dataset, tmp_path / "run", **OPTIONS, engine="ray", workers=2)
    assert rows(tmp_path / "run") == rows(undisturbed)


def test_a_record_that_workers_die_of_is_one_failure_and_nothing_else_is_lost(dataset: Path, tmp_path: Path) -> None:
    poisoned = tmp_path / "poisoned"
    names = [f"planted-77-{index}" for index in range(11, 16)]
    shutil.copytree(dataset.parent, poisoned)
    lines = [line for line in dataset.read_text(encoding="utf-8").splitlines() if json.loads(line)["id"] in names]
    (poisoned / "memes.jsonl").write_text("\n".join(lines), encoding="utf-8")
    result = explain_dataset(
        ModelSource(device="cpu"), poisoned / "memes.jsonl", tmp_path / "run", **OPTIONS, engine="ray", workers=1
    )
    assert result.explained + result.resumed == 2 * 5 - 1
    ((name, mode, stage, reason),) = open_run(tmp_path / "run").failures().fetchall()
    assert (name, mode, stage) == (POISON, "image+text", "attribute")
    assert "the worker died 2 times while it was at this meme" in reason
    order = [row[0] for row in open_run(tmp_path / "run").predictions().select("meme_id").distinct().fetchall()]
    assert sorted(order) == sorted(names)


def test_what_a_worker_cannot_do_is_said_in_words(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot load model 'nowhere'"):
        explain_dataset(ModelSource("nowhere"), dataset, tmp_path / "run", engine="ray")

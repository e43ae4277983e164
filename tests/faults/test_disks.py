"""A full disk, a read-only file system, a limit, a second process: one clear line, nothing lost, and it goes on."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xai.parts import RunWarning
from xai.store import RunError, RunWriter, open_run
from xai.verify import check_run

from ..xai.test_store import CONFIG, fill
from ..xai.test_store import rows as stored
from .conftest import Explainer, rows

Mount = Callable[[str], None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Mount]]:
    """A small file system of its own, and what mounts it anew with other options."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or _mount(folder, "size=120k"):
        pytest.skip("only root can mount a small file system; test_a_limit… does the like for everyone")

    def remount(options: str) -> None:
        assert _mount(folder, f"remount,{options}") == 0

    try:
        yield folder, remount
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _mount(folder: Path, options: str) -> int:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode


def error_of(run: Path) -> str:
    return run.with_name(f"{run.name}.error").read_text(encoding="utf-8")


def test_a_full_disk_stops_the_run_with_what_to_do_and_with_space_it_goes_on(
    explainer: Explainer, dataset: Path, undisturbed: Path, disk: tuple[Path, Mount], tmp_path: Path
) -> None:
    folder, remount = disk
    run = tmp_path / "run"
    (folder / "run").mkdir()
    run.symlink_to(folder / "run")  # so that the message has a place on a disk that is not full
    assert explainer.explain(dataset, run) == 2
    reason = "run 'run' cannot be written: no space is left on its disk; make some, and start the same command again"
    assert error_of(run).startswith(f"RunError: {reason}")
    assert str(folder) not in error_of(run)
    assert not list(run.rglob("*.tmp"))
    kept, whole = rows(run), rows(undisturbed)
    assert 0 < len(kept["predictions"]) < len(whole["predictions"])
    assert all(kept[name] == whole[name][: len(kept[name])] for name in whole)
    remount("size=8m")
    assert explainer.explain(dataset, run) == 0
    assert rows(run) == whole
    assert check_run(run).is_sound


def test_a_read_only_file_system_is_named_and_its_runs_can_still_be_read(
    explainer: Explainer, dataset: Path, undisturbed: Path, disk: tuple[Path, Mount], tmp_path: Path
) -> None:
    folder, remount = disk
    remount("size=8m")
    run = tmp_path / "run"
    (folder / "run").mkdir()
    run.symlink_to(folder / "run")
    assert explainer.explain(dataset, run, die_at=40) == -signal.SIGKILL
    kept = rows(run)
    remount("ro")
    assert explainer.explain(dataset, run) == 2
    assert "its file system is read-only; give another folder" in error_of(run)
    assert rows(run) == kept
    assert check_run(run).state == "stopped"
    with pytest.raises(RunError, match="read-only"):
        RunWriter(folder / "new", CONFIG)
    remount("rw")
    assert explainer.explain(dataset, run) == 0
    assert rows(run) == rows(undisturbed)


def test_a_limit_on_file_sizes_stops_the_run_with_what_to_do(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunWriter(tmp_path / "whole", CONFIG, part_size=2) as writer:
        fill(writer)
    try:
        with pytest.raises(RunError, match=r"raise the limit \(ulimit -f\).*nothing that the run has is lost"):
            fill_with_limit(tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list((tmp_path / "run").rglob("*.tmp"))
    with RunWriter(tmp_path / "run", CONFIG, part_size=2) as writer:
        fill(writer)
    assert stored(tmp_path / "run") == stored(tmp_path / "whole")


def fill_with_limit(path: Path) -> None:
    """The run.json fits under the limit, and the first explanations do not."""
    with RunWriter(path, CONFIG, part_size=2) as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        fill(writer)


def test_what_could_not_be_written_is_written_with_the_next_part_and_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RunWriter(tmp_path / "run", CONFIG, part_size=1)
    fill(writer, 2)
    monkeypatch.setattr("xai.parts.os.replace", _no_space)
    with pytest.raises(RunError, match="no space"):
        fill(writer, 3)
    monkeypatch.undo()
    fill(writer, 7)
    writer.close()
    assert [row[0] for row in stored(tmp_path / "run")[0]] == ["m0", "m1", "m2", "m4", "m5", "m6"]
    assert check_run(tmp_path / "run").is_sound


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_second_process_is_refused_and_the_first_is_not_disturbed(
    explainer: Explainer, dataset: Path, undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    config = open_run(undisturbed).config
    with RunWriter(run, config):
        assert explainer.explain(dataset, run) == 2
        assert error_of(run) == (
            "RunError: run 'run' is being written by another process; wait for it or write to another folder"
        )
        assert check_run(run).state == "running"
    assert explainer.explain(dataset, run) == 0
    assert rows(run) == rows(undisturbed)


FORKED = """
import os, sys, time
from xai.store import RunWriter
writer = RunWriter(sys.argv[1], {})
helper = os.fork()
if helper == 0:
    time.sleep(60)
    os._exit(0)
print(helper, flush=True)
time.sleep(60)
"""


def test_a_helper_that_outlives_a_killed_writer_does_not_keep_its_run_locked(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        helper = int(writer.stdout.readline())
        with pytest.raises(RunError, match="another process"):
            RunWriter(tmp_path / "run", {})
        writer.kill()
        writer.wait()
        try:
            RunWriter(tmp_path / "run", {}).close()
        finally:
            os.kill(helper, signal.SIGKILL)


def test_a_file_system_without_locks_is_written_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.warns(RunWarning, match="'run' has no locks: see to it that no second process writes there"):
        RunWriter(tmp_path / "run", CONFIG).close()

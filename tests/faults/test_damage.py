"""Damaged part files are named by `xai verify` and explained again on resuming; nothing of them is lost silently."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from xai.checksums import examine
from xai.parts import RunWarning
from xai.schema import Failure
from xai.store import RunWriter, open_run
from xai.verify import Finding, check_run, compare_versions

from ..xai.test_store import CONFIG, explanation, fill, prediction, rows

Damage = Callable[[Path], object]


def make(path: Path, n: int = 9) -> Path:
    """A run of which the third part has one record only, since the second start was stopped by an interrupt."""
    for stop in (5, n):
        with RunWriter(path, CONFIG, part_size=2) as writer:
            fill(writer, stop)
    return path


def resume(path: Path, n: int = 9) -> None:
    with RunWriter(path, CONFIG, part_size=2) as writer:
        fill(writer, n)


def cut_in_half(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def change_one_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def errors(path: Path) -> list[tuple[str, str]]:
    return [(one.where, one.what) for one in check_run(path).findings if one.level == "error"]


def test_a_run_that_is_whole_is_sound_and_has_a_checksum_for_every_file(tmp_path: Path) -> None:
    check = check_run(make(tmp_path / "run"))
    assert check.is_sound
    assert check.findings == ()
    assert (check.state, check.n_parts, check.n_sealed) == ("finished", 5, 5)
    assert check.rows == {"predictions": 8, "explanations": 8, "failures": 1}
    assert check.n_bytes == sum(file.stat().st_size for file in (tmp_path / "run").rglob("*.parquet"))


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("predictions", cut_in_half),
        ("explanations", cut_in_half),
        ("explanations", change_one_byte),
        ("explanations", Path.unlink),
        ("predictions", Path.unlink),
        ("checksums", cut_in_half),
    ],
)
def test_a_damaged_file_is_named_and_its_memes_are_explained_again_in_their_place(
    tmp_path: Path, kind: str, damage: Damage, number: int
) -> None:
    run = make(tmp_path / "run")
    whole = rows(run)
    (file,) = (run / kind).glob(f"part-0000{number}.*")
    damage(file)
    is_gone = kind == "predictions" and not file.exists()
    (where, _), *_ = errors(run)
    if is_gone:  # a number without predictions is not there; of the last one, only run.json knows
        assert where == ("run.json" if number == 4 else f"part {number}")
        resume(run)
    else:
        assert where == f"{kind}/{file.name}"
        with pytest.warns(RunWarning, match=f"{kind}/{file.name} .* explained again"):
            resume(run)
    assert rows(run) == whole
    assert check_run(run).is_sound
    assert open_run(run).info.get("redone_parts", []) == ([] if is_gone else [number])
    assert open_run(run).info["counts"] == {"predictions": 8, "explanations": 8, "failures": 1}


def test_what_was_damaged_is_kept_beside_the_run(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    cut_in_half(run / "explanations" / "part-00001.parquet")
    damaged = (run / "explanations" / "part-00001.parquet").read_bytes()
    with pytest.warns(RunWarning):
        resume(run)
    assert (run / "explanations" / "part-00001.parquet.damaged").read_bytes() == damaged
    notes = {(one.level, one.where) for one in check_run(run).findings}
    assert ("note", "explanations/part-00001.parquet.damaged") in notes


@pytest.mark.parametrize("n_done", [0, 1])
def test_a_stop_while_a_part_is_explained_again_leaves_its_place_open(tmp_path: Path, n_done: int) -> None:
    run = make(tmp_path / "run")
    whole = rows(run)
    cut_in_half(run / "predictions" / "part-00000.parquet")
    with pytest.warns(RunWarning), pytest.raises(KeyboardInterrupt):
        stop_early(run, n_done)
    assert ("part 0", "is not there") in errors(run)
    resume(run)
    assert rows(run) == whole


def stop_early(run: Path, n_done: int) -> None:
    with RunWriter(run, CONFIG, part_size=2) as writer:
        fill(writer, n_done)
        raise KeyboardInterrupt


def test_a_run_of_an_earlier_version_is_read_and_what_is_cut_short_in_it_is_found(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    whole = rows(run)
    shutil.rmtree(run / "checksums")
    check = check_run(run)
    assert check.is_sound
    assert [(one.level, one.where) for one in check.findings] == [("note", "checksums")]
    cut_in_half(run / "explanations" / "part-00001.parquet")
    assert errors(run) == [("explanations/part-00001.parquet", "cannot be read as a part file")]
    with pytest.warns(RunWarning):
        resume(run)
    assert rows(run) == whole
    assert examine(run, 1).checksums is not None
    assert examine(run, 0).checksums is None


def test_rows_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter(run, CONFIG, part_size=1) as writer:
        writer.add(prediction("m0"), [explanation("m0")])
        writer.add(prediction("m1"), meme=explanation("m1").meme)
        writer.add(None, failures=[Failure(meme_id="m2", stage="read", reason="no picture")])
    for kind in ("predictions", "explanations"):  # as if copied by hand
        shutil.copy(run / kind / "part-00000.parquet", run / kind / "part-00003.parquet")
    (run / "predictions" / "part-00004.parquet").write_bytes((run / "predictions" / "part-00002.parquet").read_bytes())
    shutil.copy(run / "explanations" / "part-00000.parquet", run / "explanations" / "part-00004.parquet")
    assert errors(run) == [
        ("part 1", "1 of m1 image+text answered, but neither explained nor failed"),
        ("part 3", "1 of m0 image+text in an earlier part, too"),
        ("part 4", "1 of m0 image+text explained without a prediction"),
    ]


def test_counts_and_state_that_the_parts_do_not_bear_out_are_errors(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    info = json.loads((run / "run.json").read_text(encoding="utf-8"))
    info["counts"]["explanations"] = 7
    (run / "run.json").write_text(json.dumps(info), encoding="utf-8")
    (problem,) = errors(run)
    assert problem[1].startswith("says 7 explanations")
    info["state"] = "running"
    (run / "run.json").write_text(json.dumps(info), encoding="utf-8")
    assert errors(run) == [("run.json", "the run was stopped before its end")]
    assert check_run(run).state == "stopped"
    (run / "run.json").write_text("{", encoding="utf-8")
    ((where, _),) = errors(run)
    assert where == "run.json"


def test_a_run_that_is_being_written_is_not_taken_for_a_stopped_one(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", CONFIG, part_size=2) as writer:
        fill(writer, 4)
        check = check_run(tmp_path / "run")
    assert check.is_sound
    assert check.state == "running"


def test_leftovers_of_a_kill_are_named_and_harmless(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    (run / "explanations" / ".part-00005.parquet.tmp").write_bytes(b"half")
    (run / "failures" / "part-00005.parquet").write_bytes(b"of an uncommitted number")
    check = check_run(run)
    assert check.is_sound
    assert [(one.level, one.where) for one in check.findings] == [
        ("warning", "explanations/.part-00005.parquet.tmp"),
        ("warning", "failures/part-00005.parquet"),
    ]


def test_mixed_versions_and_environments_are_flagged_within_a_run_and_between_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "one")
    monkeypatch.setattr("xai.store.installed_versions", lambda: {"python": "3.11", "torch": "9.9"})
    monkeypatch.setattr("xai.store.computing_environment", lambda: {"threads": 64})
    make(tmp_path / "two")
    resume(tmp_path / "one")
    check = check_run(tmp_path / "one")
    assert check.is_sound
    flagged = {one.what.partition(":")[0]: one for one in check.findings if one.level == "warning"}
    assert {"torch", "threads"} <= flagged.keys()
    assert flagged["torch"].what.endswith(", then 9.9")
    monkeypatch.undo()
    make(tmp_path / "three")
    (torch,) = [
        one
        for one in compare_versions([check_run(tmp_path / "two"), check_run(tmp_path / "three")])
        if one.what.startswith("torch:")
    ]
    assert isinstance(torch, Finding)
    assert torch.what.startswith("torch: two 9.9, three 2.")


def test_a_failure_names_a_picture_without_where_it_lies(tmp_path: Path) -> None:
    meme = explanation("m1").meme.model_copy(update={"image": Path("/home/someone/memes/a.png")})
    reason = "cannot identify image file '/home/someone/memes/a.png'; save it anew"
    with RunWriter(tmp_path / "run", CONFIG) as writer:
        writer.add(None, failures=[Failure(meme_id="m1", stage="read", reason=reason)], meme=meme)
    (row,) = open_run(tmp_path / "run").failures().fetchall()
    assert row[3] == "cannot identify image file 'a.png'; save it anew"

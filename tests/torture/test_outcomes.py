"""Every hostile record is explained or one failure with its remedy, and the documentation's table says which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import xai
from xai.pipeline import explain_dataset
from xai.schema import MODES
from xai.store import Run

from .captions import CAPTIONS, MOST_CHARACTERS
from .cases import Case, table
from .conftest import RunOf
from .files import CSV, JSONL, PARQUET, WHOLE_FILES
from .pictures import PICTURES

DOCS = Path(__file__).parents[2] / "docs" / "reliability.md"
SHOWN = {"pictures": ("image", "image+text"), "captions": ("text", "image+text"), "jsonl": ("text",)}
GROUPS = {"pictures": PICTURES, "captions": CAPTIONS, "jsonl": JSONL, "csv": CSV, "parquet": PARQUET}
EVERY = [pytest.param(name, case, id=f"{name}-{case.id[:20]}") for name, cases in GROUPS.items() for case in cases]
HEADS = {
    "pictures": "Picture",
    "captions": "Text of the meme",
    "jsonl": "JSONL: a line",
    "csv": "CSV: a row",
    "parquet": "Parquet: a row",
}


def outcomes(run: Run, name: str) -> dict[str | None, str]:
    """By mode, the stage and the reason of a record's failure, or ``""`` if it was explained."""
    failed = [row for row in run.failures().fetchall() if row[0] == name]
    explained = [row for row in run.explanations().select("meme_id", "mode").fetchall() if row[0] == name]
    found: dict[str | None, str] = {mode: f"{stage}: {reason}" for _, mode, stage, reason in failed}
    found |= {mode: "" for _, mode in explained}
    assert len(found) == len(failed) + len(explained), "one outcome a mode"
    return found


@pytest.mark.parametrize(("name", "case"), EVERY)
def test_a_hostile_record_has_one_outcome_in_each_mode(run_of: RunOf, name: str, case: Case) -> None:
    found = outcomes(run_of(name), case.id)
    if case.whole:
        assert list(found) == [None]
        assert found[None].startswith("read: ")
        assert case.reason in found[None]
        return
    assert set(found) == set(MODES)
    for mode in SHOWN.get(name, ("text",)):
        assert found[mode].startswith("read: " if case.reason else "")
        assert case.reason in found[mode]
        assert case.reason or not found[mode]
    if name in ("pictures", "captions"):
        (other,) = set(MODES) - set(SHOWN[name])
        assert not found[other], "what the mode does not show does no harm"


@pytest.mark.parametrize("name", GROUPS)
def test_nothing_is_lost_and_nothing_is_invented(run_of: RunOf, name: str) -> None:
    run = run_of(name)
    seen = {row[0] for relation in (run.predictions(), run.failures()) for row in relation.fetchall()}
    assert seen == {case.id for case in GROUPS[name]}
    assert run.info["state"] == "finished"


@pytest.mark.parametrize("name", GROUPS)
def test_a_reason_is_one_line_with_a_remedy_and_names_no_folder(run_of: RunOf, name: str) -> None:
    for _, _, _, reason in run_of(name).failures().fetchall():
        assert str(run_of(name).path.parent) not in reason
        assert "/tmp" not in reason
        assert "\n" not in reason
        assert len(reason) < 400
        cause, _, remedy = reason.rpartition("; ")
        assert cause
        assert len(remedy) > 5


@pytest.mark.parametrize("case", WHOLE_FILES, ids=lambda case: case.id)
def test_a_file_that_cannot_be_read_at_all_is_refused_at_once(tmp_path: Path, case: Case) -> None:
    (tmp_path / case.id).write_bytes(case.content)
    with pytest.raises(ValueError, match=re.escape(case.reason)):
        xai.read_memes(tmp_path / case.id)


def test_a_folder_of_such_pictures_is_read_and_what_is_no_file_is_one_failure(run_of: RunOf) -> None:
    folder = run_of("pictures").path.parent / "data"
    (folder / "memes.jsonl").rename(folder / "memes.txt")
    try:
        records = list(xai.read_memes(folder))
    finally:
        (folder / "memes.txt").rename(folder / "memes.jsonl")
    failed = {record.meme_id: record.reason for record in records if isinstance(record, xai.Failure)}
    no_file = {name for name, reason in failed.items() if "it is no file but a folder, a pipe, or a link" in reason}
    assert no_file == {"folder", "pipe", "loop"}
    assert "leads out of the folder" in failed["outside"]
    assert "was already used (file 'cut.gif'); rename one of the two files" in failed["cut (file 'cut.jpg')"]


@pytest.mark.parametrize("name", GROUPS)
def test_the_table_of_the_documentation_lists_every_outcome(name: str) -> None:
    assert table(HEADS[name], GROUPS[name]) in DOCS.read_text(encoding="utf-8")


def test_the_table_of_the_documentation_lists_the_files_that_are_refused_whole() -> None:
    assert table("A whole file", WHOLE_FILES) in DOCS.read_text(encoding="utf-8")


def test_metadata_at_the_depth_where_python_gives_up_costs_its_record_only(
    model: xai.VisionLanguageModel, tmp_path: Path
) -> None:
    depths = range(900, 1000, 10)
    lines = [f'{{"id": "{n}", "text": "x", "deep": {"[" * n}{"]" * n}}}\n' for n in depths]
    (tmp_path / "memes.jsonl").write_text("".join(lines), encoding="utf-8")
    result = explain_dataset(model, tmp_path, tmp_path / "run", modes=["text"], targets="all", max_new_tokens=96)
    assert (result.explained + result.failed, result.failed > 0) == (len(depths), True)
    run = xai.open_run(tmp_path / "run")
    assert all(len(outcomes(run, str(n))) <= 1 for n in depths)


def test_the_limit_of_the_run_is_in_its_configuration(run_of: RunOf) -> None:
    limits = run_of("captions").config["limits"]
    assert limits == {
        "max_pixels": 64_000_000,
        "max_characters": MOST_CHARACTERS,
        "max_tokens": None,
        "long_text": "cut",
    }

"""`xai verify` as a user meets it, and what other commands say of a damaged part."""

from __future__ import annotations

import json
from pathlib import Path

from ..xai.test_cli import run_xai
from .test_damage import cut_in_half, make

FILE = "explanations/part-00001.parquet"


def test_verify_exits_with_0_1_or_2_and_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    sound, damaged = make(tmp_path / "sound"), make(tmp_path / "damaged")
    cut_in_half(damaged / FILE)
    assert run_xai("verify", sound, check=0).stdout.startswith("sound: sound, finished; 8 explanations, 1 failures")
    printed = json.loads(run_xai("verify", sound, damaged, "--json", check=1).stdout)
    assert [run["sound"] for run in printed["runs"]] == [True, False]
    assert printed["sound"] is False
    assert printed["between"] == []
    (finding,) = printed["runs"][1]["findings"]
    assert (finding["level"], finding["where"]) == ("error", FILE)
    assert finding["remedy"] == "give the same xai explain command again: the memes of this part are explained anew"
    assert "not a run folder" in run_xai("verify", tmp_path, check=2).stderr


def test_a_command_that_reads_a_damaged_part_names_it_in_one_line_and_shows_no_fewer_rows(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    cut_in_half(run / "predictions" / "part-00002.parquet")
    result = run_xai("show", run, check=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "part-00002.parquet" in line
    assert line.endswith("a file may be damaged: xai verify names those of a run")

"""`xai categories` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from xai.analysis.report import Report, read_report


def xai_categories(*arguments: str | Path, check: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xai.cli", "categories", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300, check=False)
    assert done.returncode == check, done.stderr
    return done


def test_validate_prints_and_writes_one_report(tmp_path: Path) -> None:
    pytest.importorskip("pymorphy3")
    printed = Report.model_validate_json(xai_categories("validate", "--out", tmp_path, "--json").stdout)
    assert printed == read_report(tmp_path / "categories.json")
    assert (tmp_path / "categories.html").exists()


def test_validate_takes_gold_words_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("word,context,language,category\nnot,not a lamp,en,Rhetoric\nlamp,not a lamp,en,Content\n")
    report = json.loads(xai_categories("validate", path, "--json").stdout)
    assert report["facts"]["gold"] == "mine.csv"
    assert report["sections"][0]["text"] == ""
    shown = xai_categories("validate", path).stdout
    assert "Agreement with the gold words" in shown
    assert "By category" in shown
    path.write_text("word,context,language,category\nnot,not a lamp,en,Weather\n")
    assert "row 2: category 'Weather'" in xai_categories("validate", path, check=2).stderr


def test_tag_shows_every_word_of_a_text() -> None:
    found = json.loads(xai_categories("tag", "Ніколи не купуй парасолю у Львові", "--json").stdout)
    assert [row["word"] for row in found] == ["Ніколи", "не", "купуй", "парасолю", "у", "Львові"]
    assert [row["category"] for row in found[:3]] == ["Rhetoric"] * 3
    assert found[3]["category"] == "Content"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("a lamp", "--tagger", "oracle"), "there are llm, local, rules"),
        (("a lamp", "--tagger", "local"), "say which with --model"),
        (("!!",), "the text has no word"),
        (("a lamp", "--tagger", "llm"), "needs XAI_LLM_BASE_URL in the environment"),
    ],
)
def test_what_is_missing_is_said(arguments: tuple[str, ...], advice: str) -> None:
    assert advice in xai_categories("tag", *arguments, check=2).stderr

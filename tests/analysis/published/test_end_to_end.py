"""Drawn memes and recorded answers through `xai explain` and `xai score`, on the model that ships."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from xai.analysis.report import Report, read_report
from xai.store import open_run

COLOURS = ("teal", "orange", "purple", "brown")


def run_xai(*arguments: str | Path, code: int) -> str:
    command = [sys.executable, "-m", "xai.cli", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False)
    assert result.returncode == code, result.stderr
    return result.stdout


def draw(folder: Path, memes: Sequence[Mapping[str, Any]]) -> Path:
    """A dataset whose pictures are a block of colour each."""
    (folder / "images").mkdir(parents=True)
    for number, meme in enumerate(memes):
        picture = Image.new("RGB", (96, 96), "white")
        ImageDraw.Draw(picture).rectangle((8 * number, 16, 8 * number + 40, 72), fill=COLOURS[number])
        picture.save(folder / "images" / f"{meme['id']}.png")
    lines = [json.dumps({"image": f"{meme['id']}.png", **meme}, ensure_ascii=False) + "\n" for meme in memes]
    (folder / "memes.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def record(path: Path, answers: Mapping[str, Mapping[str, Any] | str]) -> Path:
    texts = {name: said if isinstance(said, str) else json.dumps(said) for name, said in answers.items()}
    path.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()))
    return path


def scored(path: Path, task: str, modes: Sequence[str], data: Path, answers: Path, *, code: int, name: str) -> Path:
    chosen = [word for mode in modes for word in ("--mode", mode)]
    run_xai(
        "explain", data, "--task", task, *chosen, "--variant", "full", "--targets", "all", "--answers", answers,
        "--out", path / name, code=code,
    )  # fmt: skip
    return path / name


def said(**fields: Any) -> dict[str, Any]:
    return {**fields, "referred_words": [], "referred_image_concepts": []}


@pytest.mark.slow
def test_m3_with_and_without_the_post(tmp_path: Path) -> None:
    data = draw(
        tmp_path / "data",
        [
            {"id": "a", "text": "cats rule the garden", "post": "next door again", "labels": ["Hate", "Politics"],
             "rationale": ["mock cats"]},
            {"id": "b", "text": "dogs dig holes", "post": "look at this", "labels": ["Hate", "Race"],
             "rationale": ["blame dogs", "count holes"]},
            {"id": "c", "text": "soup is warm", "post": "lunch", "labels": ["Normal"]},
        ],
    )  # fmt: skip
    hate = {"label": "Hate", "confidence": 0.9}
    answers = {
        "a": said(**hate, categories=["Politics"], rationale=["mock cats"]),
        "b": said(**hate, categories=["Gender"], rationale=["blame dogs"]),
        "c": "a warm soup, and no JSON",
    }
    modes = ("image+text", "image+text+post")
    given = record(tmp_path / "answers.jsonl", answers)
    # The answer that cannot be read is a failure of the run, and an error in its scores.
    run = scored(tmp_path, "m3", modes, data, given, code=1, name="first")
    better = {**answers, "c": said(label="Normal", confidence=1, categories=[], rationale=[])}
    other = scored(tmp_path, "m3", modes[:1], data, record(tmp_path / "better.jsonl", better), code=0, name="second")
    printed = Report.model_validate_json(run_xai("score", run, "--against", other, "--json", code=0))
    report = read_report(run / "reports" / "score.json")
    assert printed == report

    hate_rows = report.table("m3_hate").frame.set_index("mode")
    assert hate_rows["accuracy"].tolist() == pytest.approx([2 / 3, 2 / 3])
    assert hate_rows["unparsed"].tolist() == [1, 1]
    assert report.table("m3_counted").frame["failed"].tolist() == [0, 0]
    own = report.table("m3_rationale").frame.query("rationales == 'of the run' and mode == 'image+text'").iloc[0]
    assert own["rouge_l"] == pytest.approx((1 + 2 * 2 / (4 + 2)) / 2)
    shares = report.table("m3_shares").frame.set_index("mode")
    assert shares["post"]["image+text"] == 0
    assert 0 < shares["post"]["image+text+post"] < shares["post_of_meme"]["image+text+post"] < 1
    overall = report.table("m3_overall").frame.set_index("run")["overall"]
    assert overall.to_dict() == {"first": 0, "second": 100}
    assert open_run(run).predictions().project("reasons").limit(1).fetchall() == [(["mock cats"],)]


@pytest.mark.slow
def test_aha_memes(tmp_path: Path) -> None:
    memes = [
        {"id": "a", "text": "القطط تحكم الحديقة كلها", "labels": ["Hateful", "Mocking"]},
        {"id": "b", "text": "حساء", "labels": ["Not-Hateful", "Humor"]},
        {"id": "c", "text": "the dogs dig holes in every garden of the town", "labels": ["Hateful", "Other (hateful)"]},
    ]
    answers = {
        "a": said(label="Hateful", types=["Mocking"]),
        "b": said(label="Not-Hateful", types=["Other", "Humor"]),
        "c": said(label="Not-Hateful", types=["Other"]),
    }
    given = record(tmp_path / "answers.jsonl", answers)
    run = scored(tmp_path, "aha-memes", ["image+text"], draw(tmp_path / "data", memes), given, code=0, name="run")
    printed = run_xai("score", run, code=0)
    assert "Scores as published" in printed
    report = read_report(run / "reports" / "score.json")
    scores = report.table("aha_scores").frame.iloc[0]
    assert (scores["accuracy"], scores["recall_hateful"]) == pytest.approx((2 / 3, 1 / 2))
    # Mocking, Humor and one Other of two are right of three, and Other is claimed twice.
    assert scores["fine_micro_f1"] == pytest.approx(2 * 3 / (4 + 3))
    assert report.table("aha_inconsistent").frame["Other_beside_others_of_its_side"].tolist() == [1]
    lengths = report.table("aha_lengths").frame.set_index("characters")
    assert lengths["memes"].to_dict() == {"up to 20": 1, "21–60": 2, "61–120": 0, "over 120": 0}

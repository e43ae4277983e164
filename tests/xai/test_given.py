"""Answers that were generated elsewhere: read line by line, explained by their ids, or tokenised anew and flagged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import xai
from xai.given import read_answers
from xai.models import VisionLanguageModel
from xai.pipeline import explain_dataset, predict
from xai.planted.truth import write_planted


def write(path: Path, *lines: Any) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def test_an_answer_is_found_by_meme_and_mode(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        {"id": "m1", "text": "any", "engine": "x"},
        {"id": "m1", "mode": "text", "generated_ids": [1, 2]},
        "",
        {"id": 7, "mode": "image", "text": "ok"},
    )
    answers = read_answers(path)
    assert answers.failures == ()
    assert answers.ids == ["m1", "7"]
    assert answers.find("m1", "text").generated_ids == (1, 2)
    assert answers.find("m1", "image").text == "any"
    with pytest.raises(ValueError, match="no answer for meme '7' in mode 'text'; it has one in image"):
        answers.find("7", "text")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([1], "not a JSON object"),
        ({"text": "a"}, "id: "),
        ({"id": "m2"}, "generated_ids, its text, or both"),
        ({"id": "m2", "text": ""}, "generated_ids, its text, or both"),
        ({"id": "m2", "generated_ids": []}, "generated_ids, its text, or both"),
        ({"id": "m2", "generated_ids": ["1"]}, "generated_ids"),
        ({"id": "m2", "mode": "picture", "text": "a"}, "mode"),
        ({"id": "m1", "text": "again"}, "already"),
        ('{"id": "m2", "text": "\\ud83d"}', "half a character"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_line_that_cannot_be_used_is_one_failure(tmp_path: Path, line: Any, reason: str) -> None:
    answers = read_answers(write(tmp_path / "a.jsonl", {"id": "m1", "text": "a"}, line, {"id": "m3", "text": "b"}))
    assert answers.ids == ["m1", "m3"]
    (failure,) = answers.failures
    assert failure.meme_id == "a.jsonl line 2"
    assert reason in failure.reason


def test_a_file_without_an_answer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_answers(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match=r"holds no answers: a\.jsonl line 1"):
        read_answers(write(tmp_path / "a.jsonl", "{"))


def test_a_dataset_is_explained_by_answers_from_elsewhere(model: VisionLanguageModel, tmp_path: Path) -> None:
    dataset = write_planted(tmp_path / "data", 5, 21)
    memes = [meme for meme in xai.read_memes(dataset) if isinstance(meme, xai.Meme)]
    predictions = predict(model, memes)
    names = [meme.id for meme in memes]
    ids, text, other, lost, wrong = predictions
    unasked_label = next(name for name in ("Smears", "Flag-waving") if name not in other.labels)
    unasked_text = json.dumps({"labels": [unasked_label], "referred_words": [], "referred_image_concepts": []})
    answers = write(
        tmp_path / "answers.jsonl",
        {"id": names[0], "generated_ids": ids.generated_ids, "text": ids.text},
        {"id": names[1], "mode": "image+text", "text": text.text},
        {"id": names[2], "text": unasked_text},
        {"id": names[3], "mode": "text", "text": lost.text},
        {"id": names[4], "generated_ids": wrong.generated_ids[1:], "text": wrong.text},
        {"id": "nobody", "text": "a"},
        "{",
    )
    result = explain_dataset(model, dataset, tmp_path / "run", targets="all", answers=answers)
    assert (result.explained, result.failed) == (3, 4)
    run = xai.open_run(tmp_path / "run")
    by_ids, by_text, unasked = (run.explanation(name) for name in names[:3])
    direct = xai.explain(model, memes[0])
    assert by_ids.prediction.answer_source == "given_ids"
    assert by_ids.token_table == direct.token_table
    assert by_text.prediction.answer_source == "given_text"
    assert by_text.quality.target_choice_changed == 0
    assert unasked.prediction.labels == (unasked_label,) != other.labels
    reasons = {row[0]: (row[2], row[3]) for row in run.failures().fetchall()}
    assert reasons.keys() == {names[3], names[4], "nobody", "answers.jsonl line 7"}
    assert reasons[names[3]] == (
        "predict",
        f"'answers.jsonl' has no answer for meme {names[3]!r} in mode 'image+text'; it has one in text",
    )
    assert "another tokenizer" in reasons[names[4]][1]
    assert "not in the dataset" in reasons["nobody"][1]
    again = explain_dataset(model, dataset, tmp_path / "run", targets="all", answers=answers)
    assert (again.explained, again.failed, again.resumed) == (0, 0, 7)
    write(answers, {"id": names[0], "text": "a"})
    with pytest.raises(ValueError, match=r"differing: answers\.sha256"):
        explain_dataset(model, dataset, tmp_path / "run", targets="all", answers=answers)

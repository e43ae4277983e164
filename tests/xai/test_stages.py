"""A task in stages: a run for each, every stage told of the earlier ones, by the model's own answers or by gold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import xai
from xai.models import VisionLanguageModel
from xai.pipeline import RunSummary, explain_dataset
from xai.stages import open_stages
from xai.store import RunError, open_run
from xai.tasks import load_task

from .test_label_fields import STAGED, write_task

MEMES = [
    {"id": "a", "text": "go and vote today", "labels": ["Voter", "Voter: hero"]},
    {"id": "b", "text": "a star fell", "labels": ["Celebrity", "celebrity: villain", "Pigeon"]},
    {"id": "c", "text": "nobody is here", "labels": []},
]
ANSWERS = [
    {"id": "a", "stage": "people", "text": '{"people": ["Celebrity", "Voter"]}'},
    {"id": "b", "stage": "people", "text": '{"people": []}'},
    {"id": "c", "stage": "people", "text": "I cannot say."},
    {"id": "a", "stage": "roles", "text": '{"roles": {"Voter": ["hero"]}}'},
    {"id": "b", "stage": "roles", "text": '{"roles": {"Celebrity": "villain"}}'},
    {"id": "c", "stage": "roles", "text": '{"roles": {"Voter": "hero"}}'},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, lines in (("memes", MEMES), ("answers", ANSWERS)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    write_task(tmp_path, STAGED)
    return tmp_path


def run(model: VisionLanguageModel, folder: Path, **settings: Any) -> RunSummary:
    return explain_dataset(
        model,
        folder / "memes.jsonl",
        folder / "run",
        task=folder / "cast.yaml",
        **{"modes": ("text",), "answers": folder / "answers.jsonl", **settings},
    )


def prompt_of(explanation: xai.Explanation) -> str:
    return "".join(explanation.token_table.token)


def test_each_stage_is_an_ordinary_run_that_was_told_of_the_answers_before(
    model: VisionLanguageModel, folder: Path
) -> None:
    summary = run(model, folder)
    assert (summary.explained, summary.failed) == (2, 4)
    people, roles = open_stages(folder / "run").values()
    assert (people.config["task"], roles.config["task"]) == ("cast/people", "cast/roles")
    explained = roles.explanation("a", "text", "Voter: hero")
    assert explained.meme.context == {"people": ("Celebrity", "Voter")}
    assert "Of\n- Celebrity\n- Voter\nwhich?" in prompt_of(explained)
    assert explained.target_token_ids == tuple(model.processor.tokenizer.encode("hero"))


def test_a_stage_has_the_gold_labels_that_are_its_own(model: VisionLanguageModel, folder: Path) -> None:
    run(model, folder)
    gold = {
        name: dict(one.predictions().select("meme_id, gold_labels").fetchall())
        for name, one in open_stages(folder / "run").items()
    }
    assert gold["people"] == {"a": ["Voter"], "b": ["Celebrity", "Pigeon"], "c": []}
    assert gold["roles"] == {"a": ["Voter: hero"]}


def test_a_meme_of_which_an_earlier_stage_named_nothing_fails_with_that_reason(
    model: VisionLanguageModel, folder: Path
) -> None:
    run(model, folder)
    failures = open_run(folder / "run/roles").failures().fetchall()
    reason = "the stage 'people' gave no label for meme {!r}, so there is nothing to ask; see its answer there"
    assert failures == [(name, None, "predict", reason.format(name)) for name in ("b", "c")]


def test_gold_labels_can_stand_in_for_the_answers(model: VisionLanguageModel, folder: Path) -> None:
    run(model, folder, stages_on="gold")
    roles = open_run(folder / "run/roles")
    assert roles.explanation("b", "text").meme.context == {"people": ("Celebrity",)}
    assert roles.explanation("a", "text").meme.context == {"people": ("Voter",)}
    assert roles.failures().fetchall() == [
        ("c", None, "predict", "meme 'c' has no gold labels of the stage 'people'; there is nothing to ask")
    ]


def test_a_second_start_does_nothing_and_another_condition_is_refused(model: VisionLanguageModel, folder: Path) -> None:
    run(model, folder)
    again = run(model, folder)
    assert (again.explained, again.failed, again.resumed) == (0, 0, 6)
    with pytest.raises(RunError, match=r"another configuration .*stages_on"):
        run(model, folder, stages_on="gold")


def test_a_stage_is_explained_alone_where_it_is_named(model: VisionLanguageModel, folder: Path) -> None:
    task = load_task(folder / "cast.yaml/roles")
    meme = xai.Meme(id="a", text="go and vote", context={"people": ("Voter",)})
    explanation = xai.explain(model, meme, task=task, mode="text", answer='{"roles": {"Voter": "hero"}}')
    assert explanation.prediction.labels == ("Voter: hero",)
    against = xai.explain(
        model, meme, task=task, mode="text", answer='{"roles": {"Voter": "hero"}}', target="Voter: hero",
        target_kind="contrastive",
    )  # fmt: skip
    assert against.contrast == ("Voter: villain",)


def test_one_meme_goes_through_all_stages_in_a_notebook(model: VisionLanguageModel, folder: Path) -> None:
    answers = {"people": '{"people": ["Voter"]}', "roles": '{"roles": {"Voter": "villain"}}'}
    meme = xai.Meme(id="a", text="go and vote")
    found = xai.explain_stages(model, meme, str(folder / "cast.yaml"), answers=answers, mode="text")
    assert {name: one.prediction.labels for name, one in found.items()} == {
        "people": ("Voter",),
        "roles": ("Voter: villain",),
    }
    assert "- Voter\n" in prompt_of(found["roles"])


def test_stages_are_asked_in_one_mode_at_a_time(model: VisionLanguageModel, folder: Path) -> None:
    with pytest.raises(ValueError, match="asked in stages, and in one mode at a time"):
        run(model, folder, modes=("text", "image+text"))


def test_a_folder_of_stages_names_its_runs_to_who_takes_it_for_one(model: VisionLanguageModel, folder: Path) -> None:
    run(model, folder)
    with pytest.raises(RunError, match="it holds runs; give one of run/people, run/roles"):
        open_run(folder / "run")
    with pytest.raises(RunError, match="does not hold the runs of one task in stages"):
        open_stages(folder / "run/people")


def test_answers_without_a_line_of_the_stage_are_refused(model: VisionLanguageModel, folder: Path) -> None:
    only = folder / "only.jsonl"
    only.write_text(json.dumps(ANSWERS[0]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no answers; give one JSON object a line with id, text and the stage"):
        run(model, folder, answers=only)

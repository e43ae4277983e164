"""How sure an answer is: what it says of itself, read without guessing, and the log-probability of its tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from transformers import GenerationConfig

import xai
from xai.jobs import Job, inputs_of_answer
from xai.models import VisionLanguageModel
from xai.pipeline import predict
from xai.schema import Meme, Prediction
from xai.store import RunWriter, open_run
from xai.tasks import Task, load_task
from xai.tasks.answers import Answer, parse_answer

UKRMEME = load_task("ukrmeme")
ASKING = UKRMEME.model_copy(update={"answer": UKRMEME.answer.model_copy(update={"confidence": "confidence"})})


def answer(confidence: str, task: Task = ASKING) -> Answer:
    """The answer whose confidence is written so."""
    return parse_answer(task, '{"labels": ["Doubt"], "referred_words": [], "confidence": ' + confidence + "}", "text")


@pytest.mark.parametrize(
    ("written", "share"),
    [
        ("0.85", 0.85), ("1", 1.0), ("0", 0.0), ("85", 0.85), ("100", 1.0), ('"85%"', 0.85), ('"85 %"', 0.85),
        ('"0.85"', 0.85), ('"1%"', 0.01), ('"0.5 %"', 0.005), ("1e-1", 0.1), ('" 70 "', 0.7),
        ('"٨٥%"', 0.85),
    ],
)  # fmt: skip
def test_a_confidence_is_a_share_or_a_percentage(written: str, share: float) -> None:
    found = answer(written)
    assert found.confidence == pytest.approx(share)
    assert (found.parse, found.parse_note) == ("strict", "")


@pytest.mark.parametrize(
    "written",
    [
        "101",
        "-0.1",
        '"high"',
        '"85-90%"',
        '"0,85"',
        "null",
        "true",
        "[0.5]",
        '"150%"',
        '""',
        "1e999",
        "9" * 400,
    ],
)
def test_what_would_take_a_guess_is_not_known_and_noted(written: str) -> None:
    found = answer(written)
    assert found.confidence is None
    assert found.labels == ("Doubt",)
    assert found.parse_note == "the field 'confidence' is no number from 0 to 1 and no percentage"


def test_an_answer_without_the_field_has_none_and_one_that_was_not_asked_is_not_read() -> None:
    found = parse_answer(ASKING, '{"labels": ["Doubt"], "referred_words": []}', "text")
    assert (found.confidence, found.parse, found.parse_note) == (None, "strict", "the field 'confidence' is missing")
    assert answer("0.5", UKRMEME) == Answer(**{**dict(answer("0.5")), "confidence": None})


def test_a_number_that_ends_a_cut_reply_may_not_be_whole() -> None:
    begun = '{"labels": ["Doubt"], "referred_words": [], "confidence": 0.'
    cut = parse_answer(ASKING, begun + "8", "text")
    assert (cut.labels, cut.confidence, cut.parse) == (("Doubt",), None, "repaired")
    assert parse_answer(ASKING, begun + "8\n", "text").confidence == 0.8


def test_a_confidence_given_twice_is_not_read() -> None:
    text = '{"labels": ["Doubt"], "referred_words": [], "confidence": 0.2, "confidence": 0.9}'
    assert parse_answer(ASKING, text, "text").parse == "unparsed"
    assert parse_answer(ASKING, text[:-1], "text").parse == "unparsed"


def test_the_log_probability_is_that_of_the_generated_ids_by_the_models_own_logits(
    model: VisionLanguageModel, new_memes: list[xai.Meme]
) -> None:
    job = Job(model, UKRMEME, "image+text", model.style)
    prompts = [job.encode(meme) for meme in new_memes[:4]]
    for prompt, found in zip(prompts, job.answer(new_memes[:4], prompts), strict=True):
        inputs = inputs_of_answer(prompt, found.generated_ids)
        with torch.no_grad():
            logits = model.model(**inputs).logits[0, len(prompt) - 1 : -1].double()
        chosen = logits.log_softmax(-1).gather(1, torch.tensor(found.generated_ids)[:, None])
        assert found.log_probability == pytest.approx(float(chosen.sum()), abs=1e-5, rel=1e-4)
        assert found.log_probability < 0


def test_scoring_changes_no_generated_id_and_a_batch_no_score(
    model: VisionLanguageModel, new_memes: list[xai.Meme]
) -> None:
    job = Job(model, UKRMEME, "text", model.style)
    prompts = [job.encode(meme) for meme in new_memes[:6]]
    scored = model.generate_scored(prompts)
    assert [one.ids for one in scored] == model.generate(prompts)
    alone = [model.generate_scored([prompt])[0] for prompt in prompts]
    assert [one.log_probability for one in alone] == pytest.approx([one.log_probability for one in scored], abs=1e-4)


def test_generation_settings_of_the_checkpoint_do_not_reach_the_answer(
    model: VisionLanguageModel, new_memes: list[xai.Meme]
) -> None:
    (plain,) = predict(model, new_memes[:1], mode="text")
    own = model.model.generation_config
    meddling = GenerationConfig(
        suppress_tokens=[plain.generated_ids[1]], no_repeat_ngram_size=1, eos_token_id=own.eos_token_id
    )
    model.model.generation_config = meddling
    try:
        assert predict(model, new_memes[:1], mode="text") == [plain]
        assert model.model.generation_config is meddling
    finally:
        model.model.generation_config = own


def test_answers_from_elsewhere_have_no_log_probability(model: VisionLanguageModel, new_memes: list[xai.Meme]) -> None:
    job = Job(model, UKRMEME, "text", model.style)
    assert job.given(new_memes[0], '{"labels": ["Doubt"], "referred_words": []}').log_probability is None


def stored(path: Path, identifier: str, **fields: float) -> None:
    """Adds one prediction to a run, in a part of its own."""
    with RunWriter(path, {"task": "ukrmeme"}) as writer:
        writer.add(
            Prediction(meme_id=identifier, mode="text", generated_ids=(1,), text="", **fields), meme=Meme(id=identifier)
        )


def without_columns(part: Path) -> None:
    """Makes a part what it was before the columns were there."""
    table = pq.read_table(part, partitioning=None)
    pq.write_table(table.drop_columns(["confidence", "log_probability"]), part)
    (part.parents[1] / "checksums" / f"{part.stem}.json").unlink()  # which came later


def test_confidence_and_log_probability_are_stored(tmp_path: Path) -> None:
    stored(tmp_path / "run", "m1", confidence=0.25, log_probability=-1.5)
    rows = open_run(tmp_path / "run").predictions().project("confidence, log_probability").fetchall()
    assert rows == [(0.25, -1.5)]


def test_a_run_from_before_has_null_in_the_columns_that_were_added(tmp_path: Path) -> None:
    stored(tmp_path / "run", "m1")
    without_columns(tmp_path / "run" / "predictions" / "part-00000.parquet")
    found = open_run(tmp_path / "run").predictions()
    assert found.project("meme_id, confidence, log_probability").fetchall() == [("m1", None, None)]
    assert [str(found.types[found.columns.index(name)]) for name in ("confidence", "log_probability")] == ["DOUBLE"] * 2


def test_a_run_from_before_can_be_resumed(tmp_path: Path) -> None:
    stored(tmp_path / "run", "m1")
    without_columns(tmp_path / "run" / "predictions" / "part-00000.parquet")
    stored(tmp_path / "run", "m2", confidence=0.5, log_probability=-1.0)
    rows = open_run(tmp_path / "run").predictions().project("meme_id, confidence, log_probability").fetchall()
    assert rows == [("m1", None, None), ("m2", 0.5, -1.0)]
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["counts"]["predictions"] == 2

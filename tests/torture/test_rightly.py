"""What is explained of hostile records is explained rightly: the same picture in any dress, every character once."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import xai
from xai.schema import Explanation

from .captions import CAPTIONS, MOST_CHARACTERS
from .cases import Case
from .conftest import RunOf
from .files import CSV, JSONL, PARQUET
from .pictures import PICTURES

TWINS = [case for case in PICTURES if case.same_as]
EXPLAINED = [case for case in CAPTIONS if not case.reason]


@pytest.mark.parametrize("case", TWINS, ids=lambda case: case.id)
def test_the_same_picture_has_the_same_relevance_however_it_is_saved(run_of: RunOf, case: Case) -> None:
    run = run_of("pictures")
    mine, plain = run.explanation(case.id, mode="image"), run.explanation(case.same_as, mode="image")
    assert np.array_equal(np.asarray(mine.open_image()), np.asarray(plain.open_image()))
    assert mine.image_size == plain.image_size
    assert mine.prediction.labels == plain.prediction.labels
    assert mine.image is not None
    assert plain.image is not None
    # Batches are of different memes, which moves the last digits.
    np.testing.assert_allclose(mine.image, plain.image, atol=1e-4 * np.abs(plain.image).max())


def test_pictures_that_were_squeezed_still_look_the_same(run_of: RunOf) -> None:
    run = run_of("pictures")
    upright = np.asarray(run.explanation("plain.png", mode="image").open_image(), dtype=float)
    for name in ("jpeg.png", "cmyk.jpg", "palette.png"):
        other = np.asarray(run.explanation(name, mode="image").open_image(), dtype=float)
        assert np.abs(other - upright).mean() < 4, name
    grey = np.asarray(run.explanation("grey16.png", mode="image").open_image(), dtype=float)
    luma = upright @ (0.299, 0.587, 0.114)  # ITU-R 601-2, as Pillow has it
    assert np.abs(grey - luma[..., None]).max() <= 1


def test_only_the_files_of_several_pictures_are_flagged_with_their_number(run_of: RunOf) -> None:
    rows = run_of("pictures").explanations().filter("mode = 'image'").select("meme_id", "picture_frames").fetchall()
    flagged = {name: frames for name, frames in rows if frames is not None}
    assert flagged == {case.id: 3 for case in PICTURES if case.flag}


@pytest.mark.parametrize("case", EXPLAINED, ids=lambda case: case.id)
@pytest.mark.parametrize("mode", ["text", "image+text"])
def test_every_character_of_a_hostile_text_is_read_once(run_of: RunOf, case: Case, mode: str) -> None:
    e = run_of("captions").explanation(case.id, mode=mode)
    tokens = e.tokens[e.tokens["segment"] == "text"]
    owned = {place for start, end in zip(tokens["start"], tokens["end"], strict=True) for place in range(start, end)}
    assert owned == set(range(len(e.meme.text)))
    assert case.content.startswith(e.meme.text)
    assert e.quality.characters_cut == (len(case.content) - len(e.meme.text) or None)
    gathered = e.words["relevance"].sum() + e.word_table.gap
    assert gathered == pytest.approx(tokens["relevance"].sum(), abs=1e-9)
    assert e.word_table.n_tokens.count(0) == 0


def test_a_long_text_is_cut_behind_a_word_and_a_long_word_within(run_of: RunOf) -> None:
    run = run_of("captions")
    long, word = (run.explanation(name, mode="text") for name in ("long", "one-word"))
    assert long.meme.text == ("Slowpokes bicycles one umbrella " * 4)[: MOST_CHARACTERS - 1]
    assert long.quality.characters_cut == 100_000 - len(long.meme.text)
    assert word.meme.text == "slow" * 30
    assert word.quality.characters_cut == 30_000 - MOST_CHARACTERS
    assert run.explanation("long", mode="image").quality.characters_cut is None


@pytest.mark.parametrize("name", ["commands", "picture-command"])
def test_a_text_that_spells_commands_gives_none(run_of: RunOf, model: xai.VisionLanguageModel, name: str) -> None:
    e = run_of("captions").explanation(name, mode="image+text")
    commands = model.processor.tokenizer.get_added_vocab()
    tokens = e.tokens
    assert not set(tokens.loc[tokens["segment"] == "text", "token"]) & commands.keys()
    plain = run_of("captions").explanation("plain", mode="image+text").tokens
    for command in commands:
        assert (tokens["token"] == command).sum() == (plain["token"] == command).sum(), command
    assert (tokens["segment"] == "image").sum() == (plain["segment"] == "image").sum()


def test_an_id_of_any_characters_is_found_again(run_of: RunOf) -> None:
    run = run_of("jsonl")
    for case in JSONL:
        if not case.reason:
            assert run.explanation(case.id, mode="text").meme.id == case.id


def test_tables_keep_what_their_formats_mean(run_of: RunOf) -> None:
    def metadata(format_: str, name: str) -> dict[str, object]:
        return dict(run_of(format_).explanation(name, mode="text").meme.metadata)

    assert metadata("csv", "nan") == {"year": "nan"}
    assert metadata("parquet", "nan") == {"year": None, "posted": "1970-01-01T00:00:00"}
    assert run_of("csv").explanation("breaks", mode="text").meme.text == "Slowpokes\nbicycles"
    assert {case.id for case in CSV} & {case.id for case in PARQUET} >= {"plain", "last"}


def test_a_hostile_explanation_shows_itself(run_of: RunOf) -> None:
    e: Explanation = run_of("captions").explanation("html", mode="image+text")
    assert "<script>alert" not in e._repr_html_()


def test_sixteen_bits_are_not_white(tmp_path: object) -> None:
    values = np.array([[0, 128, 32_768, 65_535]], dtype=np.uint16)
    seen = np.asarray(xai.Meme(id="m", image=Image.fromarray(values)).open_image())
    assert seen[0, :, 0].tolist() == [0, 0, 128, 255]

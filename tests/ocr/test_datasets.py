"""Datasets through OCR: text and words filled or aligned, failures listed, nothing lost, and explained after."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import xai
from xai.analysis.rationale.agreement import agreement_table
from xai.analysis.words import stop_words
from xai.attribution.align import normal_form
from xai.attribution.ocr import OcrUnavailableError
from xai.attribution.ocr.geometry import covered
from xai.cli import app
from xai.datasets import read_memes, write_memes
from xai.ocr import OcrPlan, language_code, ocr_dataset, plan_ocr, read_meme, with_text
from xai.planted import SAMPLES
from xai.schema import Failure, Meme
from xai.strict_json import STRICT

from .conftest import engine_for
from .pages import font, memes, plain


def run_xai(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xai.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300, check=False)


def read_all(path: Path) -> dict[str, Meme]:
    records = list(read_memes(path))
    assert not [record for record in records if isinstance(record, Failure)]
    return {record.id: record for record in records if isinstance(record, Meme)}


@pytest.fixture(scope="module")
def ukrainian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page in Ukrainian, a broken picture, and a meme with a text of its own."""
    engine_for("tesseract", "uk")
    folder = tmp_path_factory.mktemp("data")
    page = memes("uk")[1]
    page.picture.save(folder / "page.png")
    page.picture.save(folder / "own.png")
    (folder / "broken.png").write_bytes(b"\x89PNG broken")
    own = "Нікому не потрібна ЩЕ ОДНА порада, сказали всі на кожній нараді"
    write_memes(
        folder / "memes.jsonl",
        [
            Meme(id="page", image=folder / "page.png", language="uk"),
            Meme(id="broken", image=folder / "broken.png", text="kept", labels=("a",), language="uk"),
            Meme(id="own", image=folder / "own.png", text=own, language="uk", metadata={"source": "web"}),
        ],
    )
    return folder


@pytest.fixture(scope="module")
def read(ukrainian: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    out = ukrainian / "read.jsonl"
    return run_xai("ocr", ukrainian, "--out", out, "--json"), out


def test_a_broken_picture_is_one_failure_and_its_meme_is_kept(
    read: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    result, out = read
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    assert (report["memes"], report["failed"]) == (2, 1)
    (failure,) = report["failures"]
    assert failure["meme_id"] == "broken"
    assert "cannot be decoded" in failure["reason"]
    kept = read_all(out)["broken"]
    assert (kept.text, kept.labels) == ("kept", ("a",))
    assert "cannot be decoded" in kept.metadata["ocr"]["error"]


def test_engine_version_and_language_are_recorded_and_auto_says_why(
    read: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    result, out = read
    report = json.loads(result.stdout)
    assert report["engine"]["engine"] == "tesseract"
    assert (
        report["reason"] == "tesseract reads uk, and it comes first for other scripts (languages as the dataset shows)"
    )
    found = read_all(out)["page"].metadata["ocr"]
    assert found["engine"] == "tesseract"
    assert found["version"][0].isdigit()
    assert found["languages"] == ["uk"]
    assert found["size"] == [640, 480]


def test_a_meme_without_text_gets_text_and_words(read: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    meme = read_all(read[1])["page"]
    assert meme.text.casefold() == "нікому не потрібна ще одна нарада\nсказали всі на кожній нараді"
    assert meme.words is not None
    assert len(meme.words) == 11
    for word in meme.words:
        assert word.box is not None
        assert word.polygon is not None
        assert 0 <= word.box[0] < word.box[2] <= 640
        assert 0 <= word.box[1] < word.box[3] <= 480


def test_a_text_of_its_own_stays_and_gets_places_where_it_is_read(
    read: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    meme = read_all(read[1])["own"]
    assert meme.text.startswith("Нікому не потрібна ЩЕ ОДНА порада,")
    assert meme.words is None
    assert meme.metadata["source"] == "web"
    found = meme.metadata["ocr"]
    both = with_text(meme, "both")
    assert both.text == meme.text
    assert both.words is not None
    unplaced = [word.text for word in both.words if word.box is None]
    assert unplaced == found["only_in_text"]
    assert found["matched"] == 11 - len(unplaced)
    assert found["matched"] >= 10
    ocr = with_text(meme, "ocr")
    assert ocr.text == found["text"]
    assert with_text(meme, "dataset") == meme


def test_what_was_read_of_the_shipped_samples_lies_where_it_was_drawn() -> None:
    plan = OcrPlan(engine_for("tesseract", "en", "uk"), ("en", "uk"), "")
    memes_of = [record for record in read_memes(SAMPLES) if isinstance(record, Meme)][:4]
    for meme in memes_of:
        bare = meme.model_copy(update={"words": None})
        found = with_text(read_meme(bare, plan), "both").words or ()
        truth = {word.start: word.box for word in meme.words or ()}
        assert len(truth) == len(found)
        for word in found:
            drawn = truth[word.start]
            assert word.box is not None
            assert drawn is not None
            # What was drawn has its outline; what was read has a share of the comma behind it.
            assert covered(word.box, drawn) > 0.85
            assert word.box == pytest.approx(drawn, abs=14)


def test_a_picture_turned_by_exif_has_its_boxes_in_the_upright_picture(tmp_path: Path) -> None:
    upright = plain([((60, 40), "Total revenue 12")], width=420, height=180)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    upright.rotate(90, expand=True).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    plan = OcrPlan(engine_for("tesseract", "en"), ("en",), "")
    turned = read_meme(Meme(id="turned", image=tmp_path / "turned.jpg"), plan)
    straight = read_meme(Meme(id="straight", image=upright), plan)
    assert turned.metadata["ocr"]["size"] == [420, 180]
    assert turned.text == straight.text == "Total revenue 12"
    for one, other in zip(turned.words or (), straight.words or (), strict=True):
        assert one.box == pytest.approx(other.box, abs=2)


@pytest.mark.parametrize("name", ["tesseract", "rapidocr"])
def test_slanted_text_at_the_edge_is_written_as_plain_numbers_inside_the_picture(name: str, tmp_path: Path) -> None:
    engine_for(name, "en")
    line = plain([((6, 8), "Total revenue 12")], width=320, height=56)
    turned = line.rotate(-15, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    width, height = turned.width - 12, turned.height - 26
    turned.crop((6, 16, 6 + width, 16 + height)).save(tmp_path / "edge.png")
    summary = ocr_dataset(tmp_path, tmp_path / "read.jsonl", engine=name, languages=["en"])
    assert (summary.memes, summary.failures) == (1, [])
    # Strict JSON: no NaN, and no number that is of numpy.
    (written,) = map(STRICT.decode, (tmp_path / "read.jsonl").read_text("utf-8").splitlines())
    assert {"Total", "revenue"} <= set(written["text"].split())
    for word in written["words"]:
        assert all(0 <= x <= width and 0 <= y <= height for x, y in word["polygon"])
    assert any(0 in corner or width in corner or height in corner for w in written["words"] for corner in w["polygon"])


def test_a_word_in_the_corner_of_a_scan_that_is_shrunk_lies_in_that_corner() -> None:
    scan = plain([((3500, 2400), "bottom")], width=4000, height=2600, size=90)
    plan = OcrPlan(engine_for("tesseract", "en"), ("en",), "")
    (word,) = read_meme(Meme(id="scan", image=scan), plan).words or ()
    assert word.text == "bottom"
    x0, y0, x1, y1 = font("DejaVuSans.ttf", 90).getbbox("bottom")
    assert word.box == pytest.approx((3500 + x0, 2400 + y0, 3500 + x1, 2400 + y1), abs=12)


def test_the_words_that_a_dataset_brings_can_be_taken_as_read(tmp_path: Path) -> None:
    summary = ocr_dataset(SAMPLES, tmp_path / "out.jsonl", engine="dataset", limit=2)
    assert summary.engine["engine"] == "dataset"
    assert (summary.memes, summary.only_in_text, summary.only_in_ocr) == (2, 0, 0)
    assert summary.matched == summary.words > 10
    write_memes(tmp_path / "bare.jsonl", [Meme(id="bare", text="no boxes")])
    (failure,) = ocr_dataset(tmp_path / "bare.jsonl", tmp_path / "out2.jsonl", engine="dataset").failures
    assert "brings no words with boxes" in failure.reason


def test_explain_takes_the_text_that_was_read(tmp_path: Path) -> None:
    engine_for("tesseract", "en", "uk")
    ocr_dataset(SAMPLES, tmp_path / "read.jsonl", engine="tesseract", limit=1)
    lines = (tmp_path / "read.jsonl").read_text("utf-8").splitlines()
    unread = json.dumps({**json.loads(lines[0]), "id": "unread", "ocr": None})
    (tmp_path / "read.jsonl").write_text("\n".join([*lines, unread]) + "\n", "utf-8")
    arguments = ["explain", tmp_path / "read.jsonl", "--out", tmp_path / "run", "--text", "ocr"]
    arguments += ["--images", SAMPLES.parent, "--mode", "text", "--targets", "all", "--json"]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 1, done.output
    run = xai.open_run(tmp_path / "run")
    (failure,) = run.failures().df().to_dict("records")
    assert failure["meme_id"] == "unread"
    assert "run `xai ocr`" in failure["reason"]
    explanation = run.explanation("sample-01")
    found = json.loads(lines[0])["ocr"]
    assert explanation.meme.text == found["text"]
    assert list(explanation.words["word"]) == [word["text"] for word in found["words"]]
    assert all(box is not None for box in explanation.words["box"])


def test_what_a_model_reads_in_the_picture_alone_is_compared_with_the_relevance_of_the_words_there(
    tmp_path: Path,
) -> None:
    engine_for("tesseract", "en", "uk")
    ocr_dataset(SAMPLES, tmp_path / "read.jsonl", engine="tesseract", limit=1)
    (meme,) = (one for one in read_memes(tmp_path / "read.jsonl", images=SAMPLES.parent) if isinstance(one, Meme))
    named = [word.text for word in meme.words or () if not word.flags and len(word.text) > 3][:2]
    answer = {"labels": ["Doubt"], "referred_words": [*named, "zeppelin"], "referred_image_concepts": []}
    given = {"id": meme.id, "mode": "image", "text": json.dumps(answer, ensure_ascii=False)}
    (tmp_path / "answers.jsonl").write_text(json.dumps(given) + "\n", "utf-8")
    arguments = ["explain", tmp_path / "read.jsonl", "--out", tmp_path / "run", "--mode", "image", "--variant", "full"]
    arguments += ["--max-new-tokens", "200"]  # the prompt fills most of the shipped model's context
    arguments += ["--answers", tmp_path / "answers.jsonl", "--text", "both", "--images", SAMPLES.parent, "--json"]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    run = xai.open_run(tmp_path / "run")
    assert run.explanation(meme.id, target="*").prediction.parse_note == ""
    row = agreement_table(run).iloc[0]
    assert row["source"] == "picture"
    assert (row["n_exact"], row["n_invented"], row["k"]) == (2, 1, 2)
    words = run.explanation(meme.id, target="*").picture_words
    assert words is not None
    ranked = words.frame().dropna().sort_values("relevance", ascending=False)["word"].map(normal_form)
    kept = [word for word in ranked if word and word not in stop_words(meme.language)][:2]
    assert list(row["relevance_words"]) == kept
    named_forms = {normal_form(word) for word in named}
    assert row["jaccard"] == pytest.approx(len(named_forms & set(kept)) / len({*named_forms, *kept, "zeppelin"}))


def test_the_command_that_it_names_next_explains_what_was_read(tmp_path: Path) -> None:
    read = ["ocr", "samples", "--out", str(tmp_path / "read.jsonl"), "--engine", "dataset", "--limit", "1"]
    (line,) = [line for line in CliRunner().invoke(app, read).output.splitlines() if line.startswith("next")]
    program, *arguments = shlex.split(line.removeprefix("next").replace("RUN", str(tmp_path / "run")))
    assert program == "xai"
    done = CliRunner().invoke(app, [*arguments, "--targets", "all", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["explained"] == 1


def test_a_dataset_that_shows_no_language_is_asked_for_it(tmp_path: Path) -> None:
    plain([((20, 20), "hello")]).save(tmp_path / "one.png")
    with pytest.raises(ValueError, match="--language uk"):
        plan_ocr(tmp_path)
    assert plan_ocr(tmp_path, languages=["en-US"]).languages == ("en",)
    with pytest.raises(OcrUnavailableError, match="apt-get install tesseract-ocr"):
        plan_ocr(tmp_path, engine="tesseract", languages=["xx"])
    with pytest.raises(ValueError, match="unknown OCR engine 'nothing'"):
        plan_ocr(tmp_path, engine="nothing", languages=["en"])


def test_the_script_of_the_texts_shows_the_language(tmp_path: Path) -> None:
    write_memes(tmp_path / "memes.jsonl", [Meme(id="one", text="Мій кіт"), Meme(id="two", text="今天")])
    engine_for("tesseract", "uk", "zh-Hans")
    assert plan_ocr(tmp_path).languages == ("zh-Hans", "uk")


def test_languages_have_one_code() -> None:
    names = ["en-US", "zh", "zh_CN", "zh-Hant", "zh-TW", " UK "]
    assert [language_code(name) for name in names] == ["en", "zh-Hans", "zh-Hans", "zh-Hant", "zh-Hant", "uk"]

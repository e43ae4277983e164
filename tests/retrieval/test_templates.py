"""A meme finds its template whatever was done to it, others find none, and the edges are where they are said to be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import xai
from xai.cli import app
from xai.datasets import read_memes, write_memes
from xai.prompts import PromptStyle
from xai.retrieval import Embedder
from xai.retrieval.embedders import Kind
from xai.retrieval.templates import TemplateMatcher, Templates, match_dataset, read_templates
from xai.schema import Failure, Meme
from xai.tasks import load_task

from .drawn import captioned, compressed, rescaled, template

CHANGES = {
    "as it is": lambda picture: picture,
    "rescaled": rescaled,
    "compressed": compressed,
    "captioned": lambda picture: captioned(picture, 5),
    "all of it": lambda picture: compressed(rescaled(captioned(picture, 6)), 40),
}
NAMES = [f"template-{number}" for number in range(10)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("templates")
    for number, name in enumerate(NAMES):
        template(number).save(folder / f"{name}.png")
    (folder / "template-0.txt").write_text("Two shapes meet.\n\n  The left one wins. \n", encoding="utf-8")
    (folder / "descriptions.csv").write_text('id,text\ntemplate-1,"A ring, shown twice."\n', encoding="utf-8")
    return folder


def looked_up(path: Path) -> dict[str, Meme]:
    return {record.id: record for record in read_memes(path) if isinstance(record, Meme)}


@pytest.mark.parametrize("change", CHANGES)
def test_a_template_is_found_whatever_was_done_to_it(folder: Path, change: str) -> None:
    matcher = TemplateMatcher(read_templates(folder))
    memes = [Meme(id=name, image=CHANGES[change](template(number))) for number, name in enumerate(NAMES)]
    assert [look.name for look in matcher.look(memes) if not isinstance(look, Failure)] == NAMES


def test_other_pictures_are_made_from_none(folder: Path) -> None:
    looks = TemplateMatcher(read_templates(folder)).look([Meme(id=f"{n}", image=template(n)) for n in range(100, 130)])
    assert len(looks) == 30
    assert {look.name for look in looks if not isinstance(look, Failure)} == {None}


def test_a_hash_finds_what_was_rescaled_or_compressed_and_loses_captioned_ones(folder: Path) -> None:
    """Why thumbnails are the default."""
    matcher = TemplateMatcher(read_templates(folder), "phash")

    def n_found(change: str) -> int:
        memes = [Meme(id=name, image=CHANGES[change](template(number))) for number, name in enumerate(NAMES)]
        looks = matcher.look(memes)
        return sum(
            look.name == meme.id for look, meme in zip(looks, memes, strict=True) if not isinstance(look, Failure)
        )

    assert (n_found("rescaled"), n_found("compressed")) == (10, 10)
    assert n_found("captioned") < 10


class Width(Embedder):
    """A picture by its width: that of ``n`` pixels is at the cosine ``n / 100`` of one of 100 pixels."""

    name = "width"
    reads: ClassVar[tuple[Kind, ...]] = ("picture",)

    def pictures(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        cosines = np.array([picture.width / 100 for picture in pictures])
        return np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1).astype(np.float32)


@pytest.mark.parametrize(("width", "name"), [(84, None), (85, "wide"), (86, "wide")])
def test_a_cosine_of_0_85_is_a_match_and_less_is_none(width: int, name: str | None) -> None:
    templates = Templates((Meme(id="wide", image=Image.new("RGB", (100, 10))),))
    (look,) = TemplateMatcher(templates, Width()).look([Meme(id="m", image=Image.new("RGB", (width, 10)))])
    assert not isinstance(look, Failure)
    assert (look.name, look.nearest, look.score) == (name, "wide", width / 100)


def test_of_two_equal_templates_the_first_is_taken() -> None:
    twins = Templates(tuple(Meme(id=name, image=template(1)) for name in ("first", "second")))
    (look,) = TemplateMatcher(twins).look([Meme(id="m", image=template(1))])
    assert not isinstance(look, Failure)
    assert look.name == "first"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Memes of two templates, two copies of a third picture, one of its own, a plain one, and two without picture."""
    folder = tmp_path_factory.mktemp("memes")
    pictures = {
        "zero": captioned(template(0), 1),
        "one": rescaled(template(1)),
        "two": template(2),
        "copy": compressed(template(50), 80),
        "alone": template(60),
        "copy again": rescaled(template(50), (400, 300)),
        "plain": Image.new("RGB", (50, 50), "gray"),
    }
    memes = []
    for name, picture in pictures.items():
        picture.save(folder / f"{name}.png")
        memes.append(Meme(id=name, text="words", image=folder / f"{name}.png", metadata={"source": "drawn"}))
    (folder / "broken.png").write_bytes(b"\x89PNG")
    memes += [Meme(id="broken", text="kept", image=folder / "broken.png"), Meme(id="text only", text="kept")]
    write_memes(folder / "memes.jsonl", memes)
    return folder


def test_the_command_writes_the_memes_with_their_templates(folder: Path, dataset: Path) -> None:
    out = dataset / "matched.jsonl"
    result = CliRunner().invoke(
        app, ["templates", str(dataset), "--templates", str(folder), "--out", str(out), "--json"]
    )
    assert result.exit_code == 1, result.output
    report = json.loads(result.stdout)
    assert (report["memes"], report["matched"], report["unmatched"]) == (7, 3, 4)
    assert report["by_template"] == {"template-0": 1, "template-1": 1, "template-2": 1}
    assert (report["groups"], report["groups_of_several"], report["largest_group"]) == (3, 1, 2)
    assert (report["templates"], report["described"], report["failed"]) == (10, 2, 2)
    assert [failure["meme_id"] for failure in report["failures"]] == ["broken", "text only"]

    memes = looked_up(out)
    found = {name: meme.metadata["template"] for name, meme in memes.items()}
    assert list(found) == ["zero", "one", "two", "copy", "alone", "copy again", "plain", "broken", "text only"]
    assert found["zero"]["name"] == found["zero"]["nearest"] == "template-0"
    assert 0.85 <= found["zero"]["score"] <= 1
    assert found["zero"]["group"] is None
    assert [found[name]["group"] for name in ("copy", "alone", "copy again", "plain")] == [0, 1, 0, 2]
    assert found["plain"] | {"group": None} == {
        "name": None,
        "nearest": None,
        "score": None,
        "group": None,
        "embedder": "thumbnail",
        "threshold": 0.85,
    }
    assert "cannot be decoded" in found["broken"]["error"]
    assert "has no picture" in found["text only"]["error"]
    assert (memes["broken"].text, memes["zero"].metadata["source"]) == ("kept", "drawn")


def test_the_description_of_the_template_becomes_context(folder: Path, dataset: Path) -> None:
    match_dataset(dataset, folder, dataset / "out.jsonl")
    context = {name: meme.context for name, meme in looked_up(dataset / "out.jsonl").items()}
    assert context["zero"] == {"template": ("Two shapes meet.", "The left one wins.")}
    assert context["one"] == {"template": ("A ring, shown twice.",)}
    assert context["two"] == context["alone"] == context["broken"] == {}


TASK = """
name: told
version: "1"
none_label: null
context: [template]
labels: [{name: Voter}]
answer: {labels: people, referred_words: null, referred_image_concepts: null}
prompts:
  with: {en: {caption: "\\nText: ", modes: {text: "It is made from:\\n{template}\\nWho is it of?\\n{labels}"}}}
  without: {en: {caption: "\\nText: ", modes: {text: "Who is it of?\\n{labels}"}}}
"""


def test_a_prompt_says_the_description_and_a_variant_of_it_does_not(
    model: xai.VisionLanguageModel, folder: Path, dataset: Path, tmp_path: Path
) -> None:
    match_dataset(dataset, folder, dataset / "asked.jsonl")
    (tmp_path / "told.yaml").write_text(TASK, encoding="utf-8")
    memes, task = looked_up(dataset / "asked.jsonl"), load_task(tmp_path / "told.yaml")

    def prompt(name: str, variant: str) -> str:
        style = PromptStyle(variant=variant)
        answer = '{"people": ["Voter"]}'
        e = xai.explain(model, memes[name], task=task, mode="text", answer=answer, style=style)
        return "".join(e.token_table.token)

    assert "It is made from:\n- Two shapes meet.\n- The left one wins.\nWho is it of?" in prompt("zero", "with")
    assert "shapes" not in prompt("zero", "without")
    with pytest.raises(ValueError, match="speaks of the meme's 'template', which its context does not have"):
        prompt("alone", "with")


def test_memes_of_no_described_template_may_be_told_so(folder: Path, dataset: Path) -> None:
    match_dataset(dataset, folder, dataset / "told.jsonl", otherwise="not known")
    context = {name: meme.context["template"] for name, meme in looked_up(dataset / "told.jsonl").items()}
    assert context["one"] == ("A ring, shown twice.",)
    assert context["two"] == context["alone"] == context["broken"] == ("not known",)


def test_what_an_earlier_start_found_is_gone(folder: Path, dataset: Path) -> None:
    match_dataset(dataset, folder, dataset / "first.jsonl")
    match_dataset(dataset / "first.jsonl", folder, dataset / "second.jsonl", threshold=1)
    again = looked_up(dataset / "second.jsonl")
    assert again["zero"].context == {}
    assert again["zero"].metadata["template"]["name"] is None
    assert again["two"].metadata["template"]["name"] == "template-2"


def test_a_template_that_cannot_be_read_is_a_failure_and_the_others_serve(tmp_path: Path) -> None:
    template(1).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"\x89PNG")
    matcher = TemplateMatcher(read_templates(tmp_path))
    assert [failure.meme_id for failure in matcher.failures] == ["template bad"]
    (look,) = matcher.look([Meme(id="m", image=template(1))])
    assert not isinstance(look, Failure)
    assert look.name == "good"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"descriptions.csv": "id,text\nnone,b\n"}, "'descriptions.csv' describes 'none', which is no picture"),
        ({"descriptions.csv": "id,text\na,b\n", "a.txt": "c"}, "template 'a' is described in 'a.txt' and elsewhere"),
        ({"descriptions.jsonl": "{"}, "'descriptions.jsonl', line 1: not valid JSON"),
    ],
)
def test_a_wrong_description_is_refused(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    template(1).save(tmp_path / "a.png")
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=reason):
        read_templates(tmp_path)


def test_a_description_in_another_encoding_is_refused(tmp_path: Path) -> None:
    template(1).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_bytes("привіт".encode("cp1251"))
    with pytest.raises(ValueError, match=r"'a\.txt' cannot be read; save it as UTF-8"):
        read_templates(tmp_path)


def test_a_folder_without_templates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'nowhere' is no folder of template pictures"):
        read_templates(tmp_path / "nowhere")
    Image.new("RGB", (20, 20), "red").save(tmp_path / "plain.png")
    with pytest.raises(
        ValueError, match="no template can be compared by 'thumbnail': embedder 'thumbnail' finds nothi"
    ):
        TemplateMatcher(read_templates(tmp_path))

"""Few-shot runs end to end on the shipped model: what is shown is stored, and relevance says which example counted."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import xai
from xai.attribution.page import page_html
from xai.cli import app
from xai.datasets import read_memes, write_memes
from xai.pipeline import RunSummary, explain_answer, explain_dataset, predict
from xai.planted.truth import planted_meme, planted_memes, write_memes_with_pictures
from xai.planted.world import labels_of, sample_scene
from xai.retrieval import FewShot
from xai.retrieval.pool import PoolWarning
from xai.schema import Meme
from xai.store import open_run


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_memes_with_pictures(tmp_path_factory.mktemp("pool"), planted_memes(20, 21))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven memes, the third of which has no text and the sixth no picture."""
    path = write_memes_with_pictures(tmp_path_factory.mktemp("data"), planted_memes(7, 22))
    memes = [record for record in read_memes(path) if isinstance(record, Meme)]
    memes[2] = memes[2].model_copy(update={"text": "", "words": None})
    memes[5] = memes[5].model_copy(update={"image": None})
    write_memes(path, memes)
    return path


@pytest.fixture(scope="module")
def given(dataset: Path) -> Path:
    """One answer for every meme, so that the model need not generate any."""
    path = dataset.parent / "answers.jsonl"
    lines = [json.dumps({"id": record.id, "text": '{"labels": ["Doubt"]}'}) for record in read_memes(dataset)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def explained(model: xai.VisionLanguageModel, dataset: Path, run: Path, **options: Any) -> RunSummary:
    return explain_dataset(model, dataset, run, targets="all", **options)


def shown_with(run: Path) -> dict[tuple[str, str], list[str]]:
    rows = open_run(run).predictions().select("meme_id, mode, examples").fetchall()
    return {(name, mode): [one["id"] for one in json.loads(examples)] for name, mode, examples in rows}


@pytest.mark.parametrize("method", ["attnlrp", "cplrp", "gradient_x_input"])
def test_relevance_of_examples_and_segments_adds_up_to_that_of_all_tokens(
    model: xai.VisionLanguageModel, pool: Path, method: str
) -> None:
    meme = planted_memes(1, 22)[0]
    (attached,) = FewShot(pool, k=2).open(["image+text"]).attach([meme])
    assert isinstance(attached, Meme)
    e = xai.explain(model, attached, answer='{"labels": ["Doubt"]}', method=method)
    assert len(e.example_shares) == 2
    assert all(e.example_shares)
    assert sum(e.example_shares) == pytest.approx(e.shares["examples"], rel=1e-9, abs=1e-9)
    assert sum(e.shares.values()) == pytest.approx(e.tokens["relevance"].sum(), rel=1e-9)
    assert e.examples["relevance"].tolist() == list(e.example_shares)
    assert e.examples["id"].tolist() == [one.id for one in attached.examples]


def with_and_without(label: str, place: int, n: int) -> list[tuple[Meme, Meme]]:
    """Memes without any cause, shown with two examples: with one that has an icon which causes ``label``, and without.

    The icon's meme stands at ``place``; instead of it stands a third meme without a cause.
    """
    plain, caused = list[Meme](), list[Meme]()
    for index in itertools.count():
        if len(plain) >= 3 * n and len(caused) >= n:
            break
        scene = sample_scene(4242, index)
        labels = labels_of(scene, "image")
        kind = {("NO_PROPAGANDA",): plain, (label,): caused}.get(labels, [])
        kind.append(planted_meme(scene, f"m{index}").model_copy(update={"labels": labels}))
    found = []
    for number in range(n):
        meme, other, instead = plain[3 * number : 3 * number + 3]
        shown = [(one, other) if place == 0 else (other, one) for one in (caused[number], instead)]
        found.append(tuple(meme.model_copy(update={"examples": examples}) for examples in shown))
    return [(one, other) for one, other in found]


@pytest.mark.parametrize(("label", "place"), [("Flag-waving", 0), ("Repetition", 1)])
def test_the_example_that_moved_the_label_has_the_larger_share(
    model: xai.VisionLanguageModel, label: str, place: int
) -> None:
    """The cause is known by intervention: the label is answered, and is not once that example is exchanged.

    The model was never trained with examples; where it does take a label from one, relevance has to say from which,
    be it the last one or not.
    """
    asked, exchanged = zip(*with_and_without(label, place, 6), strict=True)
    before, after = (predict(model, memes, mode="image", max_new_tokens=40) for memes in (asked, exchanged))
    moved = [
        (meme, one)
        for meme, one, other in zip(asked, before, after, strict=True)
        if label in one.labels and label not in other.labels
    ]
    assert len(moved) >= 3
    for meme, prediction in moved:
        (e,) = (e for e in explain_answer(model, meme, prediction) if e.target == label)
        assert e.example_shares[place] > 3 * abs(e.example_shares[1 - place])


def test_a_run_stores_what_each_meme_was_shown_with_and_how_that_was_chosen(
    model: xai.VisionLanguageModel, dataset: Path, given: Path, pool: Path, tmp_path: Path
) -> None:
    few_shot, modes = FewShot(pool, k=2, retrieval="text"), ("text", "image+text")
    result = explained(model, dataset, tmp_path / "run", answers=given, modes=modes, examples=few_shot)
    finder = few_shot.open(["text", "image+text"])
    found = shown_with(tmp_path / "run")
    memes = {record.id: record for record in read_memes(dataset) if isinstance(record, Meme)}
    assert len(found) == 11  # seven memes but the one without text; the one without picture in one mode
    for (name, _), examples in found.items():
        assert examples == [one.id for one in finder.examples(memes[name])]
    assert result.in_pool == 0
    failures = open_run(tmp_path / "run").failures().filter("mode IS NULL").select("meme_id, reason").fetchall()
    reason = "meme 'planted-22-2' has no text; choose by picture, both or random, or fill its text"
    assert failures == [("planted-22-2", reason)]
    assert open_run(tmp_path / "run").info["config"]["examples"] == finder.describe()


class Stopped(Exception):
    """What stops a run in the middle."""


def test_a_resumed_run_shows_the_examples_of_one_that_was_not_stopped(
    model: xai.VisionLanguageModel, dataset: Path, given: Path, pool: Path, tmp_path: Path
) -> None:
    options = {"answers": given, "modes": ("text",), "part_size": 2, "examples": FewShot(pool, 2, "random")}
    done = []

    def stop(n: int) -> None:
        done.append(n)
        if sum(done) >= 4:
            raise Stopped

    with pytest.raises(Stopped):
        explained(model, dataset, tmp_path / "stopped", on_progress=stop, **options)
    assert 0 < len(shown_with(tmp_path / "stopped")) < 6
    assert explained(model, dataset, tmp_path / "stopped", **options).resumed >= 2
    explained(model, dataset, tmp_path / "whole", **options)
    assert shown_with(tmp_path / "stopped") == shown_with(tmp_path / "whole")


def test_a_meme_without_examples_is_done_with_and_not_tried_again(
    model: xai.VisionLanguageModel, dataset: Path, given: Path, pool: Path, tmp_path: Path
) -> None:
    options = {"answers": given, "modes": ("image",), "part_size": 3, "examples": FewShot(pool, 1, "picture")}
    first, again = (explained(model, dataset, tmp_path / "run", **options) for _ in range(2))
    assert (first.explained, first.failed, first.resumed) == (6, 1, 0)
    assert (again.explained, again.failed, again.resumed) == (0, 0, 7)


def test_another_pool_is_another_configuration(
    model: xai.VisionLanguageModel, dataset: Path, given: Path, pool: Path, tmp_path: Path
) -> None:
    other = write_memes_with_pictures(tmp_path / "other", planted_memes(20, 23))
    options = {"answers": given, "modes": ("text",), "limit": 1}
    explained(model, dataset, tmp_path / "run", examples=FewShot(pool, 1, "random"), **options)
    with pytest.raises(ValueError, match=r"another configuration.*examples"):
        explained(model, dataset, tmp_path / "run", examples=FewShot(other, 1, "random"), **options)


def test_a_dataset_that_is_its_own_pool_is_flagged_and_no_meme_gets_itself(
    model: xai.VisionLanguageModel, pool: Path, tmp_path: Path
) -> None:
    few_shot = FewShot(pool, k=19, retrieval="random")
    with pytest.warns(PoolWarning, match=r"has 2 memes of the dataset, such as 'planted-21-0'"):
        result = explain_dataset(
            model, pool, tmp_path / "run", modes=("text",), limit=2, examples=few_shot, max_new_tokens=20
        )
    assert result.in_pool == 2
    for (name, _), examples in shown_with(tmp_path / "run").items():
        assert name not in examples
        assert len(examples) == 19


STAGED = """
name: cast
version: "1"
stages:
  people: &people
    none_label: null
    labels: [{name: Voter}]
    answer: {labels: people, referred_words: null, referred_image_concepts: null}
    prompts: {short: {en: {caption: "\\nText: ", modes: {text: "Who?\\n{labels}"}}}}
  again: *people
"""


def test_a_task_in_stages_takes_no_examples(
    model: xai.VisionLanguageModel, dataset: Path, pool: Path, tmp_path: Path
) -> None:
    """What the first stage answered stands in the instruction of the next, which is about one meme."""
    task = tmp_path / "cast.yaml"
    task.write_text(STAGED, encoding="utf-8")
    with pytest.raises(ValueError, match="is asked in stages, which takes no examples; ask one stage with examples"):
        explained(model, dataset, tmp_path / "run", task=task, modes=("text",), examples=FewShot(pool))
    assert not (tmp_path / "run").exists()


def test_a_pool_of_other_memes_is_not_flagged(pool: Path, dataset: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PoolWarning)
        assert FewShot(pool, retrieval="random").open().pool.shared(read_memes(dataset)) == []


def test_the_command_shows_examples_and_their_shares(dataset: Path, given: Path, pool: Path, tmp_path: Path) -> None:
    run, few = tmp_path / "run", ["--examples", str(pool), "--shots", "2", "--embedder", "thumbnail"]
    arguments = ["explain", str(dataset), "--out", str(run), "--limit", "1", "--answers", str(given), *few]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    config = open_run(run).info["config"]["examples"]
    assert (config["k"], config["retrieval"]) == (2, "both")
    assert config["embedders"]["picture"]["name"] == "thumbnail"
    shown = CliRunner().invoke(app, ["show", str(run), "planted-22-0"]).output
    e = open_run(run).explanation("planted-22-0")
    page = page_html(e)
    for example, share in zip(e.meme.examples, e.example_shares, strict=True):
        assert example.id in shown
        assert f"{share:.3f}" in shown
        assert f"<bdi>{example.id}</bdi>" in page
        assert f"{share:+.4g}" in page


@pytest.mark.parametrize("option", [["--shots", "2"], ["--retrieval", "text"], ["--embedder", "tfidf"]])
def test_what_is_said_of_examples_needs_a_pool(option: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["explain", "samples", "--out", str(tmp_path / "run"), *option])
    assert isinstance(result.exception, ValueError)
    assert (
        str(result.exception) == f"{option[0]} is about examples, and there is no pool of them; give it with --examples"
    )
    assert not (tmp_path / "run").exists()

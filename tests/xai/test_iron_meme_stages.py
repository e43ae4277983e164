"""IRON-Meme from memes to scores: recorded answers of every stage, explained by the model that ships, and scored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

import xai
from xai.models import VisionLanguageModel
from xai.prompts import PromptStyle
from xai.schema import Explanation, Meme
from xai.stages import Source
from xai.store import Run

MEMES = [
    ("m1", "we went to vote and got a sticker", ("Voter", "Voter: in-group", "Voter: winner")),
    ("m2", "the singer forgot the words again", ("Celebrity", "Celebrity: out-group", "Celebrity: fool")),
    (
        "m3",
        "planted a tree, the tree said thanks",
        ("Climate activist", "Climate activist: in-group", "Climate activist: hero"),
    ),
]
ANSWERS: dict[str, list[object]] = {
    "identities": [["Voters"], ["Celebrity"], None],
    "viewpoints": [{"Voter": "in-group"}, {"Celebrity": "out-group"}, {"Climate activist": "in-group"}],
    "roles": [{"Voter": ["hero"]}, {"Celebrity": ["fool", "loser"]}, {"Climate activist": ["hero"]}],
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three drawn memes and what a model is recorded to have answered, which the shipped one was never taught."""
    folder = tmp_path_factory.mktemp("memes")
    memes = []
    for number, (name, text, labels) in enumerate(MEMES):
        picture = Image.new("RGB", (160, 120), ("lightblue", "wheat", "lightgreen")[number])
        ImageDraw.Draw(picture).ellipse((50, 20, 110, 80), fill="navy")
        picture.save(folder / f"{name}.png")
        memes.append(Meme(id=name, image=folder / f"{name}.png", text=text, labels=labels))
    xai.write_memes(folder / "memes.jsonl", memes)
    lines = [
        json.dumps({"id": name, "stage": stage, "text": _text(stage, given)})
        for stage, answers in ANSWERS.items()
        for (name, _, _), given in zip(MEMES, answers, strict=True)
    ]
    (folder / "answers.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def _text(stage: str, given: object) -> str:
    if given is None:
        return "<think>A tree?</think> I would rather not say."
    return json.dumps({stage: given, "referred_words": [], "referred_image_concepts": []})


@pytest.fixture(scope="module")
def model() -> VisionLanguageModel:
    return xai.load_model("planted", device="cpu")


@pytest.fixture(scope="module")
def staged(dataset: Path, model: VisionLanguageModel) -> Callable[[Source], dict[str, Run]]:
    """The runs of the stages that were told their own answers, or the gold labels; made once."""
    found: dict[Source, dict[str, Run]] = {}

    def make(source: Source) -> dict[str, Run]:
        if source not in found:
            xai.explain_dataset(
                model, dataset / "memes.jsonl", dataset / source, task="iron-meme", modes=("image+text",),
                answers=dataset / "answers.jsonl", stages_on=source,
            )  # fmt: skip
            found[source] = xai.open_stages(dataset / source)
        return found[source]

    return make


def explained(run: Run) -> dict[tuple[str, str], Explanation]:
    rows = run.explanations().project("meme_id, target").fetchall()
    return {(name, target): run.explanation(name, target=target) for name, target in rows if target != "*"}


def test_each_label_of_each_stage_is_explained_by_what_stands_for_it_in_that_answer(
    staged: Callable[[Source], dict[str, Run]],
) -> None:
    written = {
        "identities": {("m1", "Voter"): "Voters", ("m2", "Celebrity"): "Celebrity"},
        "viewpoints": {("m1", "Voter: in-group"): "in-group", ("m2", "Celebrity: out-group"): "out-group"},
        "roles": {
            ("m1", "Voter: hero"): "hero", ("m2", "Celebrity: fool"): "fool", ("m2", "Celebrity: loser"): "loser",
        },
    }  # fmt: skip
    for stage, run in staged("answers").items():
        found = explained(run)
        assert set(found) == set(written[stage])
        for key, explanation in found.items():
            (span,) = [one for one in explanation.prediction.label_spans if one.label == key[1]]
            assert explanation.prediction.text[span.start : span.end] == written[stage][key]
            rows = explanation.tokens.iloc[list(explanation.target_positions)]
            assert (rows["segment"] == "answer").all()
            # A quotation mark may share a token with the label.
            assert span.start - 1 <= rows["start"].min() <= span.start
            assert span.end <= rows["end"].max() <= span.end + 1
            assert explanation.words["relevance"].abs().sum() > 0
            assert explanation.image is not None


def test_an_answer_that_cannot_be_parsed_fails_with_why_and_leaves_later_stages_nothing_to_ask(
    staged: Callable[[Source], dict[str, Run]],
) -> None:
    for stage, run in staged("answers").items():
        ((name, reason),) = run.failures().project("meme_id, reason").fetchall()
        assert name == "m3"
        assert ("no JSON object" if stage == "identities" else "nothing to ask") in reason


def test_a_stage_reads_what_it_was_told_of_the_earlier_ones(staged: Callable[[Source], dict[str, Run]]) -> None:
    def context(source: Source, stage: str, name: str) -> dict[str, tuple[str, ...]]:
        return dict(
            next(one for (meme, _), one in explained(staged(source)[stage]).items() if meme == name).meme.context
        )

    assert context("answers", "identities", "m1") == {}
    assert context("answers", "roles", "m2") == {
        "identities": ("Celebrity",), "viewpoints": ("Celebrity: out-group",),
    }  # fmt: skip
    # The model named nobody in m3; told the gold labels, the later stages are asked about it all the same.
    assert context("gold", "viewpoints", "m3") == {"identities": ("Climate activist",)}
    assert context("gold", "roles", "m3")["viewpoints"] == ("Climate activist: in-group",)


def test_what_is_known_of_the_template_is_read_by_the_variant_that_asks_for_it(
    dataset: Path, model: VisionLanguageModel
) -> None:
    meme = next(one for one in xai.read_memes(dataset / "memes.jsonl") if isinstance(one, Meme))
    answer, template = _text("identities", ["Voter"]), {"template": ("two buttons",)}
    asked = {
        variant: xai.explain(
            model, meme.model_copy(update={"context": context}), task="iron-meme/identities", answer=answer,
            style=PromptStyle(variant=variant),
        )
        for variant, context in (("full", {}), ("template", template))
    }  # fmt: skip
    prompts = {variant: "".join(found.token_table.token) for variant, found in asked.items()}
    assert "two buttons" in prompts["template"]
    assert "template" not in prompts["full"]
    with pytest.raises(ValueError, match="context does not have"):
        xai.explain(model, meme, task="iron-meme/identities", answer=answer, style=PromptStyle(variant="template"))


def test_both_runs_are_scored_side_by_side(staged: Callable[[Source], dict[str, Run]]) -> None:
    from xai.analysis.detection.scored import Settings
    from xai.analysis.published.iron_meme import staged_score_report
    from xai.stages import stage_name

    settings = {stage_name(task): Settings(task, n_draws=20, n_swaps=8) for task in xai.load_stages("iron-meme")}
    report = staged_score_report(staged("gold"), settings, against=staged("answers"))
    rows = report.table("compared").frame
    micro = rows[rows["measure"] == "micro"].set_index("stage")
    assert micro["memes"].tolist() == [3, 3, 3]
    # Two of three identities; all viewpoints told the gold identities, else two of three; roles: hero and fool of 4.
    assert micro["first"].to_dict() == pytest.approx({"identities": 4 / 5, "viewpoints": 1, "roles": 2 * 2 / (4 + 3)})
    assert micro["second"].to_dict() == pytest.approx({"identities": 4 / 5, "viewpoints": 4 / 5, "roles": 2 / (3 + 3)})

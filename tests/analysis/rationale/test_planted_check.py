"""Agreement alone finds the labels of the planted world whose rationale lies, with the model that ships."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from xai.analysis.rationale.agreement import AgreementTables, agreement_tables
from xai.analysis.report import Section
from xai.datasets import write_memes
from xai.models import VisionLanguageModel
from xai.pipeline import explain_answer, predict
from xai.planted.groups import WANTED, planted_regions, planted_section, planted_truths
from xai.planted.lexicon import load_lexicon
from xai.planted.truth import truth_of
from xai.schema import Meme
from xai.store import Run, RunWriter, open_run

N = 60
Checked = tuple[Run, AgreementTables, Section]


def planted_run(path: Path, model: VisionLanguageModel, memes: list[Meme], method: str = "attnlrp") -> Run:
    with RunWriter(path, {"task": "ukrmeme"}) as writer:
        for meme, answer in zip(memes, predict(model, memes, mode="image+text"), strict=True):
            writer.add(answer, explain_answer(model, meme, answer, method=method), meme=meme)
    return open_run(path)


def checked(run: Run) -> Checked:
    tables = agreement_tables(run, regions_of=planted_regions)
    section = planted_section({"run": run}, {"run": tables}, n_draws=200)
    assert section is not None
    return run, tables, section


def frame_of(section: Section, name: str) -> pd.DataFrame:
    return next(table.frame for table in section.tables if table.name == name)


@pytest.fixture(scope="module")
def attnlrp(model: VisionLanguageModel, new_memes: list[Meme], tmp_path_factory: pytest.TempPathFactory) -> Checked:
    return checked(planted_run(tmp_path_factory.mktemp("planted") / "run", model, new_memes[:N]))


def test_labels_with_an_unfaithful_rationale_are_found_from_agreement_alone(attnlrp: Checked) -> None:
    found = frame_of(attnlrp[2], "planted_check").set_index("measure").loc["average_precision"]
    assert found["n_unfaithful"] >= 10
    assert found["auroc"] >= WANTED
    assert found["by_label"] == 1
    assert found["held"]


def test_the_two_labels_that_lie_agree_least(attnlrp: Checked) -> None:
    labels = frame_of(attnlrp[2], "planted_labels").sort_values("average_precision")
    unfaithful = {label for label, cause in load_lexicon().labels.items() if not cause.faithful}
    assert set(labels["label"].head(2)) == unfaithful == set(labels[~labels["faithful"].astype(bool)]["label"])
    assert labels["top_named"].iloc[1] < 0.1 < 0.9 < labels["top_named"].iloc[2]


def test_faithful_rationales_agree_and_unfaithful_ones_do_not(attnlrp: Checked) -> None:
    means = frame_of(attnlrp[2], "planted_rationales").set_index("rationale")["jaccard"]
    assert means["all labels word-caused and faithful"] >= 0.9
    assert means["all labels unfaithful"] <= 0.1


def test_a_random_method_finds_nothing(model: VisionLanguageModel, new_memes: list[Meme], tmp_path: Path) -> None:
    _, _, section = checked(planted_run(tmp_path / "run", model, new_memes[:30], "random"))
    found = frame_of(section, "planted_check").set_index("measure").loc["average_precision"]
    assert found["auroc"] < 0.8
    assert not found["held"]


def test_the_icons_of_the_causes_are_the_regions(attnlrp: Checked, new_memes: list[Meme]) -> None:
    run, tables, _ = attnlrp
    meme = next(meme for meme in new_memes[:N] if any(cause.boxes for cause in truth_of(meme).causes))
    regions = planted_regions(meme.metadata)
    assert {region.name for region in regions} >= set(truth_of(meme).referred_image_concepts)
    assert planted_regions({"regions": []}) == planted_regions({}) == ()
    placed = tables.memes[tables.memes["n_placed"] > 0]
    assert len(placed) >= 20
    assert placed["image_hit"].mean() >= 0.95
    assert placed["image_mass"].mean() > 3 * placed["image_area"].mean()
    assert set(planted_truths(run)) == {meme.id for meme in new_memes[:N]}


def test_a_run_of_other_memes_has_no_such_part(tmp_path: Path) -> None:
    write_memes(tmp_path / "memes.jsonl", [Meme(id="m", text="senator")])
    with RunWriter(tmp_path / "run", {"task": "ukrmeme"}) as writer:
        writer.flush()
    run = open_run(tmp_path / "run")
    assert planted_section({"run": run}, {"run": agreement_tables(run)}) is None

"""IRON-Meme's scores against values worked out by hand, scikit-learn and scipy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.dummy import DummyClassifier
from sklearn.metrics import precision_recall_fscore_support

from xai.analysis.detection.labelsets import LabelSets, label_sets
from xai.analysis.detection.scored import Settings
from xai.analysis.detection.scores import EACH
from xai.analysis.published.iron_measures import frequency_and_f1, random_scores, stage_measures
from xai.analysis.published.iron_meme import staged_score_report
from xai.analysis.published.report import score_report
from xai.analysis.report import Report, read_report
from xai.schema import Failure, Meme, Prediction
from xai.stages import Labels, NothingToAskError, Source, answered_labels, open_stages, stage_name, with_context
from xai.store import Run, RunWriter, open_run
from xai.tasks import Task, load_stages
from xai.tasks.answers import parse_answer

ROLES = tuple(f"{name}: {role}" for name in ("Voter", "Celebrity") for role in ("hero", "victim", "winner"))


def sets(gold: list[set[str]], predicted: list[set[str]]) -> LabelSets:
    return label_sets(gold, predicted, ROLES)


def measures(found: LabelSets) -> dict[str, float]:
    return {name: value for (name, label), value in stage_measures(found).values().items() if not label}


def drawn(seed: int, n: int = 60, p: float = 0.2) -> LabelSets:
    """Random gold, and answers that follow it four times in five."""
    rng = np.random.default_rng(seed)
    gold = rng.random((n, len(ROLES))) < p * np.linspace(0.2, 2, len(ROLES))
    return LabelSets(ROLES, gold, gold ^ (rng.random(gold.shape) < 0.2))


def test_micro_and_both_macros_are_those_worked_out_by_hand() -> None:
    gold = [{"Voter: hero"}, {"Voter: hero", "Celebrity: winner"}, {"Voter: victim"}]
    answers: list[set[str]] = [{"Voter: hero"}, {"Voter: hero", "Celebrity: hero"}, set()]
    found = measures(sets(gold, answers))
    # Two of three answers are right, and two of four gold labels found.
    assert (found["micro_precision"], found["micro_recall"]) == (2 / 3, 2 / 4)
    assert found["micro_f1"] == pytest.approx(4 / 7)
    # Of the four labels that occur one is right throughout and three never; the inventory has two more.
    assert found["macro_f1"] == pytest.approx(1 / 4)
    assert found["macro_all_f1"] == pytest.approx(1 / 6)


def test_a_role_counts_only_with_the_right_identity() -> None:
    """The same three roles, each of the other identity: nothing is right."""
    gold = [{"Voter: hero"}, {"Celebrity: victim"}, {"Voter: winner"}]
    swapped = [{"Celebrity: hero"}, {"Voter: victim"}, {"Celebrity: winner"}]
    assert measures(sets(gold, swapped))["micro_f1"] == 0
    assert measures(sets(gold, gold))["micro_f1"] == 1


def test_an_answer_without_labels_costs_recall_and_no_precision() -> None:
    gold = [{"Voter: hero"}, {"Voter: hero"}]
    found = measures(sets(gold, [{"Voter: hero"}, set()]))
    assert (found["micro_precision"], found["micro_recall"]) == (1, 0.5)


@pytest.mark.parametrize("seed", range(5))
def test_measures_are_those_of_scikit_learn(seed: int) -> None:
    found = drawn(seed)
    ours = measures(found)
    occurring = found.gold.any(axis=0) | found.predicted.any(axis=0)
    for mean, columns, average in (
        ("micro", slice(None), "micro"),
        ("macro", occurring, "macro"),
        ("macro_all", slice(None), "macro"),
    ):
        theirs = precision_recall_fscore_support(
            found.gold[:, columns], found.predicted[:, columns], average=average, zero_division=0
        )
        assert [ours[f"{mean}_{each}"] for each in EACH] == pytest.approx(theirs[:3]), mean


@settings(deadline=None)
@given(st.integers(0, 200), st.floats(0.01, 0.6))
def test_the_macro_of_the_whole_inventory_is_never_above_that_of_occurring_labels(seed: int, p: float) -> None:
    found = measures(drawn(seed, n=8, p=p))
    assert found["macro_all_f1"] <= found["macro_f1"] + 1e-12 or np.isnan(found["macro_f1"])


def test_random_labels_score_what_a_stratified_dummy_classifier_does() -> None:
    found = drawn(0, n=400)
    dummies = []
    for seed in range(300):
        columns = []
        for place in range(len(ROLES)):
            dummy = DummyClassifier(strategy="stratified", random_state=1000 * seed + place)
            x = np.zeros((len(found), 1))
            columns.append(dummy.fit(x, found.gold[:, place]).predict(x))
        answer = LabelSets(ROLES, found.gold, np.stack(columns, axis=1))
        dummies.append([measures(answer)[name] for name in ("micro_f1", "macro_f1", "macro_precision")])
    ours = random_scores(found, n_draws=2000)
    for name, theirs in zip(("micro_f1", "macro_f1", "macro_precision"), np.array(dummies).T, strict=True):
        error = theirs.std() / np.sqrt(len(theirs))
        assert ours[name].value == pytest.approx(theirs.mean(), abs=4 * error), name
        assert (ours[name].low, ours[name].high) == pytest.approx(np.percentile(theirs, [2.5, 97.5]), abs=8 * error)


def test_random_labels_are_as_precise_as_their_frequencies_say() -> None:
    """A label that a share p of memes has is drawn p n times, of which p are right: Σ p² / Σ p."""
    found = drawn(1, n=3000)
    share = found.gold.mean(axis=0)
    chance = random_scores(found, n_draws=3000)["micro_precision"].value
    assert chance == pytest.approx((share**2).sum() / share.sum(), abs=0.002)


def test_with_the_identities_given_every_value_is_drawn_for_them_alone() -> None:
    """Both identities stand in half of the memes; three of four have the role hero, one of four is a victim."""
    hero, victim = [{"Voter: hero"}, {"Celebrity: hero"}], [{"Voter: victim"}]
    found = sets((hero * 3)[:3] * 10 + victim * 10, [set()] * 40)
    chance = random_scores(found, given_names=True, n_draws=4000)
    # The expected numbers: 40 of 40 drawn, 30 · 3/4 + 10 · 1/4 = 25 of them right.
    assert chance["micro_precision"].value == pytest.approx(25 / 40, abs=0.005)
    assert chance["micro_recall"].value == pytest.approx(25 / 40, abs=0.005)
    # Not given, each is drawn for memes of the other identity, too.
    assert random_scores(found, n_draws=500)["micro_f1"].value < 0.4


def test_random_labels_of_a_gold_without_labels_are_none() -> None:
    nothing = sets([set(), set()], [set(), {"Voter: hero"}])
    assert random_scores(nothing, n_draws=10)["micro_f1"] == (1, 1, 1)  # None are there, and none are drawn.
    assert np.isnan(random_scores(nothing, given_names=True, n_draws=10)["macro_f1"].value)


def test_given_identities_are_asked_of_pairs_alone() -> None:
    with pytest.raises(ValueError, match="pairs alone"):
        random_scores(label_sets([{"Voter"}], [{"Voter"}]), given_names=True)


def test_the_same_seed_draws_the_same_labels() -> None:
    found = drawn(2)
    assert random_scores(found, n_draws=50, seed=3) == random_scores(found, n_draws=50, seed=3)
    assert random_scores(found, n_draws=50, seed=3) != random_scores(found, n_draws=50, seed=4)


def test_frequency_goes_with_f1_as_scipy_says_over_labels_that_gold_has() -> None:
    found = drawn(3, n=80)
    found.gold[:, 0] = False  # predicted and never gold: no frequency to speak of
    correlation, frame = frequency_and_f1(found, n_draws=200)
    assert "Voter: hero" not in set(frame["label"])
    assert correlation.value == pytest.approx(spearmanr(frame["frequency"], frame["f1"]).statistic)
    assert correlation.low < correlation.value < correlation.high
    f1 = precision_recall_fscore_support(found.gold, found.predicted, average=None, zero_division=0)[2]
    assert frame["f1"].tolist() == pytest.approx(f1[1:])


def test_frequency_says_nothing_where_all_labels_do_as_well() -> None:
    gold = [{"Voter: hero"}, {"Voter: hero"}, {"Celebrity: hero"}]
    correlation, frame = frequency_and_f1(sets(gold, gold), n_draws=20)
    assert np.isnan(correlation.value)
    assert frame["frequency"].tolist() == [2, 1]
    assert np.isnan(frequency_and_f1(sets(gold[:1], gold[:1]))[0].value)


STAGES = load_stages("iron-meme")
DATASET = [
    Meme(id="m1", labels=("Voter", "Voter: in-group", "Voter: winner", "Voter: sage")),
    Meme(
        id="m2",
        labels=("Celebrity", "Celebrity: out-group", "Celebrity: fool", "Voter", "Voter: out-group", "Voter: fool"),
    ),
    Meme(id="m3", labels=("Climate activist", "Climate activist: in-group", "Climate activist: hero")),
    Meme(id="m4", labels=()),
    Meme(id="m5"),
]
OWN = {
    "identities": {
        "m1": '{"identities": ["voters"]}',
        "m2": '{"identities": ["Celebrity", "Dragon"]}',
        "m3": "I would rather not say.",
        "m4": '{"identities": ["Voter"]}',
        "m5": '{"identities": ["Voter"]}',
    },
    "viewpoints": {
        "m1": '{"viewpoints": {"Voter": "in-group"}}',
        "m2": '{"viewpoints": {"Celebrity": "in-group"}}',
        "m4": '{"viewpoints": {"Voter": "nowhere"}}',
        "m5": '{"viewpoints": {"Voter": "in-group"}}',
    },
    "roles": {
        "m1": '{"roles": {"Voter": ["winner"]}}',
        "m2": '{"roles": {"Celebrity": ["fool", "wizard"]}}',
        "m5": '{"roles": {"Voter": ["winner"]}}',
    },
}
TOLD_GOLD = {
    "identities": OWN["identities"],
    "viewpoints": {
        "m1": '{"viewpoints": {"Voter": "in-group"}}',
        "m2": '{"viewpoints": {"Celebrity": "out-group", "Voter": "out-group"}}',
        "m3": '{"viewpoints": {"Climate activist": "out-group"}}',
    },
    "roles": {
        "m1": '{"roles": {"Voter": ["winner", "sage"]}}',
        "m2": '{"roles": {"Celebrity": "fool", "Voter": "fool"}}',
        "m3": '{"roles": {"Climate activist": "hero"}}',
    },
}


def staged_run(folder: Path, source: Source, texts: Mapping[str, Mapping[str, str]]) -> dict[str, Run]:
    """A run of each stage with these answers; who has none was not asked."""
    answered: dict[str, Labels] = {}
    for stage in STAGES:
        name = stage_name(stage)
        prepared = with_context(STAGES, stage, source, answered)
        with RunWriter(folder / name, {"task": stage.name} | ({"stages_on": source} if answered else {})) as writer:
            for meme in DATASET:
                try:
                    asked = prepared(meme)
                except NothingToAskError as error:
                    failure = Failure(meme_id=meme.id, stage="predict", reason=str(error))
                    writer.add(None, failures=[failure.model_copy(update={"mode": "text"})])
                    continue
                writer.add(_prediction(stage, meme.id, texts[name][meme.id]), meme=asked)
        answered[name] = answered_labels(open_run(folder / name))
    return open_stages(folder)


def _prediction(stage: Task, meme_id: str, text: str) -> Prediction:
    answer = parse_answer(stage, text, "text")
    return Prediction(meme_id=meme_id, mode="text", generated_ids=(1,), text=text, **answer.model_dump())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[Source, Path]:
    folder = tmp_path_factory.mktemp("staged")
    staged_run(folder / "answers", "answers", OWN)
    staged_run(folder / "gold", "gold", TOLD_GOLD)
    return {"answers": folder / "answers", "gold": folder / "gold"}


def report_of(folder: Path, against: Path | None = None) -> Report:
    stages = open_stages(folder)
    settings = {stage_name(task): Settings(task, n_draws=50, n_swaps=64, n_baseline_draws=50) for task in STAGES}
    return staged_score_report(stages, settings, against=None if against is None else open_stages(against))


def table(report: Report, name: str) -> pd.DataFrame:
    return report.table(name).frame.set_index("stage")


def test_a_staged_run_is_scored_by_stage_and_what_is_missed_early_is_missed_later(runs: dict[Source, Path]) -> None:
    found = table(report_of(runs["answers"]), "stages")
    assert found["memes"].to_dict() == {"identities": 4, "viewpoints": 4, "roles": 4}
    # Identities: Voter and Celebrity of m1 and m2 are right, Voter of m4 is not; gold has 4 of them.
    assert found["micro_f1"]["identities"] == pytest.approx(2 * 2 / (3 + 4))
    # Viewpoints: one of two is right. m3 was not asked about, and its gold pair counts as missed: gold has 4.
    assert found["micro_f1"]["viewpoints"] == pytest.approx(2 * 1 / (2 + 4))
    # Roles: winner and fool of two given; gold has 5. m4 was not asked, since its viewpoint was discarded.
    assert found["micro_f1"]["roles"] == pytest.approx(2 * 2 / (2 + 5))


def test_what_was_not_read_not_asked_and_discarded_is_counted_by_stage(runs: dict[Source, Path]) -> None:
    report = report_of(runs["answers"])
    parsing = table(report, "parsing")
    assert parsing["unparsed"].to_dict() == {"identities": 1, "viewpoints": 0, "roles": 0}
    assert parsing["unparsed_share"]["identities"] == pytest.approx(1 / 4)
    assert parsing["not asked"].to_dict() == {"identities": 0, "viewpoints": 1, "roles": 2}
    assert parsing["discarded"].to_dict() == {"identities": 1, "viewpoints": 1, "roles": 1}
    assert parsing["discarded_share"]["roles"] == pytest.approx(1 / 3)
    assert parsing["failed"].to_dict() == {"identities": 0, "viewpoints": 0, "roles": 0}
    assert parsing["without gold"].to_dict() == {"identities": 1, "viewpoints": 1, "roles": 1}
    assert dict(zip(table(report, "discarded").index, table(report, "discarded")["label"], strict=True)) == {
        "identities": "Dragon", "viewpoints": "Voter: nowhere", "roles": "Celebrity: wizard",
    }  # fmt: skip


def test_stages_told_gold_stand_beside_stages_told_their_own_answers(runs: dict[Source, Path]) -> None:
    report = report_of(runs["gold"], against=runs["answers"])
    rows = report.table("compared").frame
    assert set(rows["measure"]) == {"micro", "macro"}
    micro = rows[rows["measure"] == "micro"].set_index("stage")
    assert micro["memes"].to_dict() == {"identities": 4, "viewpoints": 4, "roles": 4}
    assert micro["difference"]["identities"] == 0
    # Told the gold identities, 3 of 4 viewpoints are right and all roles.
    assert micro["first"].to_dict() == pytest.approx({"identities": 4 / 7, "viewpoints": 3 / 4, "roles": 1.0})
    assert micro["second"].to_dict() == pytest.approx({"identities": 4 / 7, "viewpoints": 1 / 3, "roles": 4 / 7})
    assert (micro["p_holm"] >= micro["p"]).all()
    assert micro["told_first"].to_dict() == {"identities": "nothing", "viewpoints": "gold", "roles": "gold"}
    assert micro["told_second"].to_dict() == {"identities": "nothing", "viewpoints": "answers", "roles": "answers"}
    assert report.headline == ("stages", "compared")


def test_random_labels_stand_beside_each_stage_and_pairs_are_drawn_for_given_identities_too(
    runs: dict[Source, Path],
) -> None:
    report = report_of(runs["answers"])
    random = report.table("random").frame
    drawn = random.groupby("stage", sort=False)["random"].apply(list).to_dict()
    given = "value frequency, identities given"
    assert drawn == {
        "identities": ["label frequency"],
        **{stage: ["label frequency", given] for stage in ("viewpoints", "roles")},
    }


def test_a_stage_is_held_against_chance_that_knows_as_much(runs: dict[Source, Path]) -> None:
    given = "value frequency, identities given"
    own, gold = (table(report_of(runs[source]), "stages")["random"].to_dict() for source in ("answers", "gold"))
    assert own == dict.fromkeys(own, "label frequency")
    assert gold == {"identities": "label frequency", "viewpoints": given, "roles": given}


def test_a_stage_of_which_nothing_was_asked_is_missed_as_a_whole(tmp_path: Path) -> None:
    silent = {"identities": dict.fromkeys(OWN["identities"], "no"), "viewpoints": {}, "roles": {}}
    staged_run(tmp_path / "run", "answers", silent)
    found = table(report_of(tmp_path / "run"), "stages")
    assert found["memes"].to_dict() == {"identities": 4, "viewpoints": 4, "roles": 4}
    assert found["micro_f1"].to_dict() == {"identities": 0, "viewpoints": 0, "roles": 0}


def test_the_run_of_one_stage_has_the_same_sections_of_what_it_was_asked(runs: dict[Source, Path]) -> None:
    run = open_stages(runs["answers"])["viewpoints"]
    found = score_report(run, Settings(STAGES[1], n_draws=20, n_baseline_draws=20))
    rows = found.table("stages").frame
    assert rows["memes"].tolist() == [3]
    assert rows["micro_f1"].tolist() == pytest.approx([2 * 1 / (2 + 3)])
    assert found.table("parsing").frame["not asked"].tolist() == [None]
    assert "stages" in found.headline


def test_runs_that_share_no_meme_are_not_compared(runs: dict[Source, Path], tmp_path: Path) -> None:
    other = [meme.model_copy(update={"id": f"other {meme.id}"}) for meme in DATASET]
    texts = {stage: {f"other {name}": text for name, text in some.items()} for stage, some in TOLD_GOLD.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "DATASET", other)
        staged_run(tmp_path / "other", "gold", texts)
    with pytest.raises(ValueError, match="share no scored meme"):
        report_of(runs["gold"], against=tmp_path / "other")


def test_the_command_scores_a_staged_folder_into_one_report(runs: dict[Source, Path]) -> None:
    def xai(*arguments: str, check: int = 0) -> str:
        command = [sys.executable, "-m", "xai.cli", "score", *arguments]
        environment = {**os.environ, "COLUMNS": "170"}
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, env=environment)
        assert done.returncode == check, done.stderr
        return done.stdout + done.stderr

    printed = xai(str(runs["gold"]), "--against", str(runs["answers"]), "--draws", "20")
    assert "viewpoints" in printed
    written = read_report(runs["gold"] / "reports" / "score.json")
    assert written.facts["draws of random labels"] == 20
    assert {"stages", "compared"} <= {one.name for one in written.tables}
    assert "leave out --frequencies" in xai(str(runs["gold"]), "--frequencies", "x.jsonl", check=2)
    twice = ("--against", str(runs["answers"]), "--against", str(runs["gold"]))
    assert "give --against once" in xai(str(runs["gold"]), *twice, check=2)

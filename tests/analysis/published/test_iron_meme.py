"""IRON-Meme's scores against values worked out by hand, scikit-learn and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.dummy import DummyClassifier
from sklearn.metrics import precision_recall_fscore_support

from xai.analysis.detection.labelsets import LabelSets, label_sets
from xai.analysis.published.iron_meme import EACH, frequency_and_f1, random_scores, stage_measures

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

"""The arbiter's rules, each at its border, with figures worked out by hand."""

from __future__ import annotations

import pytest

from tests.annotation.conftest import TASK
from xai.annotation.arbiter import Answer, Ruling, arbitrate, side_of
from xai.annotation.settings import Rules
from xai.tasks import load_task

HARMLESS, UKRMEME, M3 = load_task(TASK), load_task("ukrmeme"), load_task("m3")


def said(*labels: str, sure: float | None = 0.9) -> Answer:
    return Answer(frozenset(labels), sure)


UNREAD = Answer(frozenset())


def ruled(*answers: Answer, **rules: float) -> Ruling:
    return arbitrate(answers, HARMLESS, Rules(**rules))


def test_equal_sets_are_unanimous_however_sure() -> None:
    found = ruled(*[said("Tools", "Weather", sure=0.1)] * 3)
    assert (found.verdict, found.rule, found.labels) == ("accepted", "unanimous", ("Weather", "Tools"))
    assert found.why == "all 3 annotators gave the same labels"


def test_one_unread_answer_is_no_unanimity_and_two_of_three_are_a_majority() -> None:
    found = ruled(said("Tools"), said("Tools"), UNREAD)
    assert (found.verdict, found.rule, found.labels, found.n_read) == ("accepted", "aligned", ("Tools",), 2)


def test_aligned_takes_the_labels_that_more_than_half_gave() -> None:
    found = ruled(said("Tools"), said("Tools", sure=0.7), said("Tools", "Weather", sure=0.5))
    # Jaccard of the pairs: 1, 1/2, 1/2.
    assert found.mean_jaccard == pytest.approx(2 / 3)
    assert found.mean_confidence == pytest.approx(0.7)
    assert (found.verdict, found.rule, found.labels) == ("accepted", "aligned", ("Tools",))
    assert found.why == "3 of 3 agree on Praise; mean Jaccard 0.67, mean confidence 0.70"


def test_jaccard_and_confidence_count_from_their_borders_on() -> None:
    answers = (said("Tools"), said("Tools", sure=0.7), said("Tools", "Weather", sure=0.5))
    assert ruled(*answers, aligned_jaccard=0.66).verdict == "accepted"
    assert ruled(*answers, aligned_jaccard=0.67).why == "mean Jaccard 0.67; 0.67 is asked for"
    assert ruled(*answers, aligned_confidence=0.69).verdict == "accepted"
    assert ruled(*answers, aligned_confidence=0.71).why == "mean confidence 0.70; 0.71 is asked for"


def test_only_the_confidence_of_the_majority_counts() -> None:
    found = ruled(said("Tools", sure=0.8), said("Tools", sure=0.6), said("Plain", sure=0.0), aligned_jaccard=0.3)
    # Jaccard 1, 0, 0; the majority is 0.7 sure, all three 0.47.
    assert (found.verdict, found.labels) == ("accepted", ("Tools",))
    assert found.mean_confidence == pytest.approx(1.4 / 3)


def test_half_is_no_majority() -> None:
    assert ruled(said("Tools"), said("Plain"), hopeless_jaccard=0).why == "no more than 1 of 2 agree on Praise"


def test_the_same_side_with_no_label_in_common_goes_to_people() -> None:
    found = ruled(said("Tools"), said("Weather"), said("Praise"), aligned_jaccard=0, hopeless_jaccard=0)
    assert (found.verdict, found.why) == ("people", "no label was given by more than half of 3 annotators")


def test_one_answer_that_could_be_read_goes_to_people_and_none_is_hopeless() -> None:
    assert ruled(said("Tools"), UNREAD, UNREAD).verdict == "people"
    none = ruled(UNREAD, UNREAD, UNREAD)
    assert (none.verdict, none.rule, none.why) == ("excluded", "hopeless", "none of 3 answers could be read")


def test_disagreement_is_hopeless_only_where_nobody_is_sure() -> None:
    def three(sure: float | None) -> Ruling:
        return ruled(said("Tools", sure=sure), said("Weather", sure=sure), said("Plain", sure=sure))

    assert (three(0.49).verdict, three(0.49).why) == (
        "excluded",
        "no agreement: mean Jaccard 0.00, mean confidence 0.49",
    )
    assert three(0.5).verdict == "people"
    assert three(None).verdict == "people"


def test_some_agreement_is_not_hopeless() -> None:
    # Jaccard 1/3, 0, 0: a mean of 0.11.
    answers = (said("Tools", "Praise", sure=0), said("Weather", "Praise", sure=0), said("Plain", sure=0))
    assert ruled(*answers).verdict == "excluded"
    assert ruled(*answers, hopeless_jaccard=0.11).verdict == "people"


def test_an_answer_that_was_to_say_how_sure_it_is_and_does_not_goes_to_people() -> None:
    found = ruled(said("Tools", sure=None), said("Tools", sure=None), said("Tools", "Weather", sure=None))
    assert (found.verdict, found.why) == ("people", "no answer says how sure it is")


def test_labels_of_a_majority_that_contradict_each_other_are_for_people() -> None:
    found = ruled(*[said("Tools", "Plain")] * 3)
    assert found.verdict == "people"
    assert found.why == "more than half gave labels that contradict each other: Plain stands beside other labels"
    below = arbitrate([said("Race")] * 3, M3, Rules())
    assert below.verdict == "people"
    assert "'Race' does not go with what 'label' says" in below.why


def test_of_m3_the_side_is_agreed_on_first_and_only_shared_categories_are_taken() -> None:
    answers = (said("Hate", "Race"), said("Hate", "Race", "Politics"), said("Hate", "Gender"))
    # Jaccard 2/3, 1/3, 1/4: a mean of 0.42, which is too little by default.
    assert arbitrate(answers, M3, Rules()).why == "mean Jaccard 0.42; 0.50 is asked for"
    found = arbitrate(answers, M3, Rules(aligned_jaccard=0.4))
    assert (found.verdict, found.labels) == ("accepted", ("Hate", "Race"))
    split = arbitrate((said("Hate", "Race"), said("Normal"), said("Normal")), M3, Rules())
    assert (split.verdict, split.why) == ("people", "mean Jaccard 0.33; 0.50 is asked for")


def test_a_task_that_asks_for_no_confidence_is_judged_by_its_labels() -> None:
    same_branch = (Answer(frozenset({"Doubt"})), Answer(frozenset({"Doubt"})), Answer(frozenset({"Doubt", "Smears"})))
    found = arbitrate(same_branch, UKRMEME, Rules())
    assert (found.verdict, found.labels) == ("accepted", ("Doubt",))


def test_the_side_of_a_label_is_the_topmost_node_above_it() -> None:
    assert side_of(frozenset({"Doubt", "Repetition"}), UKRMEME) == {"Ethos", "Logos"}
    assert side_of(frozenset({"Tools", "Praise", "Plain"}), HARMLESS) == {"Praise", "Plain"}

"""What people decide and vote: what counts, what is refused, how far they agree, and the dataset that comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sklearn.metrics import cohen_kappa_score

from tests.annotation.conftest import panel_settings
from tests.annotation.serving import Endpoint
from xai.analysis.report import Report
from xai.annotation.export import export
from xai.annotation.folder import Panel, PanelError, prepare
from xai.annotation.report import counts, panel_report
from xai.annotation.running import annotate
from xai.annotation.settings import PanelSettings
from xai.datasets import read_memes
from xai.schema import Meme
from xai.tasks import Task, load_stages, task_names


@pytest.fixture
def panel(dataset: Path, tmp_path: Path, settings: PanelSettings) -> Panel:
    return annotate(dataset, tmp_path / "panel", settings)


@pytest.mark.parametrize(
    ("votes", "state"),
    [
        ("", "votes"),
        ("f", "votes"),
        ("ff", "kept"),
        ("fff", "kept"),
        ("ffa", "kept"),
        ("fa", "votes"),
        ("a", "votes"),
        ("aa", "voted out"),
        ("faa", "voted out"),
        ("aaa", "voted out"),
    ],
)
def test_of_three_validators_one_vote_or_none_in_favour_drops_a_record(panel: Panel, votes: str, state: str) -> None:
    for number, vote in enumerate(votes):
        panel.vote("sunny", f"person {number}", "for" if vote == "f" else "against")
    assert panel.item("sunny").state == state


def test_the_numbers_of_validators_and_votes_are_options(dataset: Path, tmp_path: Path, endpoint: Endpoint) -> None:
    panel = annotate(dataset, tmp_path / "panel", panel_settings(endpoint, votes={"validators": 5, "keep": 4}))
    for number in range(3):
        panel.vote("sunny", f"person {number}", "for")
    panel.vote("sunny", "person 3", "against")
    assert panel.item("sunny").state == "votes"
    panel.vote("sunny", "person 4", "for")
    assert panel.item("sunny").state == "kept"


def test_the_last_vote_of_a_person_counts_and_can_be_taken_back(panel: Panel) -> None:
    panel.vote("sunny", "ann", "for")
    panel.vote("sunny", " ann ", "against", "no sun to be seen")
    assert [(who, vote["vote"]) for who, vote in panel.item("sunny").votes.items()] == [("ann", "against")]
    panel.vote("sunny", "ann", None)
    assert panel.item("sunny").votes == {}
    assert [event["vote"] for event in panel.history("sunny")] == ["for", "against", None]


def test_a_fourth_person_has_no_vote_but_the_three_can_change_theirs(panel: Panel) -> None:
    for who in ("ann", "bob", "eve"):
        panel.vote("sunny", who, "against")
    with pytest.raises(PanelError, match="3 people have voted on this record; it takes no more"):
        panel.vote("sunny", "dan", "for")
    panel.vote("sunny", "ann", "for")
    panel.vote("sunny", "bob", "for")
    assert panel.item("sunny").state == "kept"


def test_votes_are_on_labels_and_phrases_and_do_not_count_for_others(
    panel: Panel, dataset: Path, settings: PanelSettings
) -> None:
    panel.decide("mixed", "ann", "accepted", ["Tools"], "")
    for who in ("ann", "bob"):
        panel.vote("mixed", who, "for")
    assert panel.item("mixed").state == "kept"
    panel.decide("mixed", "bob", "accepted", ["Praise", "Tools"], "it is praise of a roof")
    mixed = panel.item("mixed")
    assert (mixed.state, mixed.votes) == ("votes", {})
    panel.decide("mixed", "ann", "accepted", ["Tools"], "")
    assert panel.item("mixed").state == "kept"


def test_the_last_decision_of_any_person_stands_and_the_history_has_all(panel: Panel) -> None:
    panel.decide("mixed", "ann", "accepted", ["Tools"], "")
    panel.decide("mixed", "bob", "excluded", [], "two memes in one")
    mixed = panel.item("mixed")
    assert mixed.person is not None
    assert (mixed.state, mixed.person["person"], mixed.person["labels"]) == ("excluded by people", "bob", [])
    panel.decide("mixed", "bob", None, [], "")
    assert panel.item("mixed").state == "people"
    assert [(event["person"], event["verdict"]) for event in panel.history("mixed")] == [
        ("ann", "accepted"), ("bob", "excluded"), ("bob", None),
    ]  # fmt: skip


def test_what_cannot_be_decided_is_refused_and_nothing_is_stored(panel: Panel) -> None:
    for refused, message in (
        (("mixed", "", "accepted", ["Tools"], ""), "needs the name"),
        (("mixed", "x" * 101, "accepted", ["Tools"], ""), "at most 100"),
        (("mixed", "ann", "accepted", [], ""), "no label is chosen; choose at least one of Praise, Weather"),
        (("mixed", "ann", "accepted", ["Hate"], ""), "'Hate' is no label of the task"),
        (("mixed", "ann", "accepted", ["Tools", "Plain"], ""), "contradict each other: Plain stands beside"),
        (("mixed", "ann", "excluded", [], "  "), "say why the record is excluded"),
        (("mixed", "ann", "excluded", [], "x" * 2001), "at most 2000"),
        (("sunny", "ann", "excluded", [], "why"), "did not leave this record to people"),
        (("short", "ann", "excluded", [], "why"), "did not leave this record to people"),
    ):
        with pytest.raises(PanelError, match=message):
            panel.decide(*refused)  # type: ignore[arg-type]
    for record, who, message in (
        ("mixed", "ann", "not to be voted on: waits for a person's decision"),
        ("silent", "ann", "not to be voted on: excluded by the arbiter"),
        ("sunny", " ", "needs the name"),
    ):
        with pytest.raises(PanelError, match=message):
            panel.vote(record, who, "for")
    with pytest.raises(KeyError, match="no record 'gone'"):
        panel.vote("gone", "ann", "for")
    assert not (panel.path / "people.jsonl").exists()


@pytest.fixture
def voted(panel: Panel) -> Panel:
    """Three validators on three records, of which one is dropped, and a record that a person excluded."""
    for who, votes in {"ann": "ffa", "bob": "ffa", "eve": "faf"}.items():
        for record, vote in zip(("sunny", "hammer", "plain"), votes, strict=True):
            panel.vote(record, who, "for" if vote == "f" else "against", "no tool" if vote == "a" else "")
    panel.decide("mixed", "dan", "excluded", [], "rain and roofs")
    return panel


def test_the_export_is_a_dataset_that_is_read_again_with_labels_phrases_and_provenance(
    voted: Panel, dataset: Path, tmp_path: Path
) -> None:
    export(voted, tmp_path / "final.jsonl")
    sunny, hammer = read_memes(tmp_path / "final.jsonl")
    assert isinstance(sunny, Meme)
    assert isinstance(hammer, Meme)
    assert (sunny.id, sunny.labels, sunny.post) == ("sunny", ("Weather",), "Look at this!")
    assert sunny.image == (dataset / "sunny.png").resolve()
    assert sunny.metadata["rationale"] == ["praises the sun", "thanks a cloud"]
    assert (hammer.labels, "rationale" in hammer.metadata) == (("Tools",), False)
    found = sunny.metadata["provenance"]
    assert [one["text"] for one in found["cleaner"]["removed"]] == ["https://example.org/a", "@bob", "#sun"]
    assert [one["annotator"] for one in found["annotators"]] == list(voted.settings.annotators)
    assert found["annotators"][2]["confidence"] == 0.3
    assert (found["arbiter"]["rule"], found["labels"]["who"]) == ("unanimous", "arbiter 1")
    assert {one["who"]: one["vote"] for one in found["validators"]} == {"ann": "for", "bob": "for", "eve": "for"}
    assert found["explicator"]["who"] == voted.settings.annotators[0]
    assert {one["who"]: one["why"] for one in hammer.metadata["provenance"]["validators"]}["eve"] == "no tool"


def test_labels_and_phrases_that_the_dataset_brought_are_kept_in_the_provenance(
    dataset: Path, tmp_path: Path, settings: PanelSettings
) -> None:
    file = dataset / "memes.jsonl"
    brought = file.read_text(encoding="utf-8").replace(
        '"id": "sunny"', '"id": "sunny", "labels": ["Plain"], "rationale": ["r"]'
    )
    file.write_text(brought, encoding="utf-8")
    panel = annotate(dataset, tmp_path / "panel", settings, limit=1)
    panel.vote("sunny", "ann", "for")
    panel.vote("sunny", "bob", "for")
    (sunny,) = export(panel, tmp_path / "final.jsonl")
    assert (sunny.labels, sunny.metadata["rationale"]) == (("Weather",), ["praises the sun", "thanks a cloud"])
    assert sunny.metadata["provenance"]["before"] == {"labels": ("Plain",), "rationale": ["r"]}


def test_nothing_is_exported_before_there_are_votes(panel: Panel, tmp_path: Path) -> None:
    with pytest.raises(PanelError, match="no record has 2 of 3 votes in favour yet"):
        export(panel, tmp_path / "final.jsonl")
    assert not (tmp_path / "final.jsonl").exists()


def test_the_report_counts_every_record_once_and_says_who_dropped_what_and_why(voted: Panel) -> None:
    report = panel_report(voted, n_draws=20)
    assert Report.model_validate_json(report.model_dump_json()) == report
    stages = {str(row[0]): row[2] for row in report.table("stages").rows}
    assert stages == {
        "unread": 1, "dropped": 2, "unanswered": 0, "excluded": 2, "people": 0, "excluded by people": 1,
        "phrases": 0, "votes": 0, "kept": 2, "voted out": 1, "all": 9,
    }  # fmt: skip
    assert counts(voted.items())["kept"] == 2
    dropped = report.table("dropped").frame.set_index("record")
    assert dropped.loc["plain", "by"] == "ann, bob"
    assert dropped.loc["plain", "why"] == "1 of 3 votes in favour (ann: no tool; bob: no tool)"
    assert (dropped.loc["mixed", "by"], dropped.loc["mixed", "why"]) == ("dan", "rain and roofs")
    assert dropped.loc["short", "by"] == "cleaner, rules 1"
    assert dropped.loc["silent", "why"] == "none of 3 answers could be read"
    assert len(dropped) == 7
    answers = report.table("annotators").frame
    assert list(answers["strict"]) == [5, 5, 5]
    assert list(answers["unparsed"]) == [1, 0, 0]
    assert list(answers["failed"]) == [0, 1, 1]
    # 0.9, 0.9, 0.9, 0.9 and 0.3 of the first model's five answers that were read.
    assert answers.loc[0, "mean confidence"] == pytest.approx(0.78)


def test_the_agreement_of_the_validators_is_that_of_their_votes(voted: Panel) -> None:
    report = panel_report(voted, n_draws=0)
    pairs = report.table("pairs_2").frame.set_index(["first", "second", "measure"])
    votes = {"ann": "ffa", "bob": "ffa", "eve": "faf"}
    for first, second in (("ann", "bob"), ("ann", "eve"), ("bob", "eve")):
        expected = cohen_kappa_score(list(votes[first]), list(votes[second]))
        assert pairs.loc[(first, second, "augmented kappa"), "adjusted"] == pytest.approx(expected)
    measures = report.table("measures_2").frame.set_index("measure")
    # Equal votes: ann and bob 3 of 3, the other pairs 1 of 3.
    assert measures.loc["exact match (mean of 3 pairs)", "observed"] == pytest.approx(5 / 9)
    # Nominal alpha by hand: 4 of 9 pairs differ, and of the 36 pairs of 9 votes (6 for, 3 against) 18 do.
    assert measures.loc["Krippendorff's alpha, Jaccard", "adjusted"] == pytest.approx(1 - (4 / 9) / (18 / 36))


def test_the_agreement_of_the_annotators_is_over_what_could_be_read(voted: Panel) -> None:
    measures = panel_report(voted, n_draws=0).table("measures_1").frame.set_index("measure")
    # Of five records that all three answered readably: sunny and plain alike, hammer for one pair, others for none.
    assert measures.loc["exact match (mean of 3 pairs)", "items"] == 5
    assert measures.loc["exact match (mean of 3 pairs)", "observed"] == pytest.approx((3 + 3 + 1) / 15)


def test_a_panel_without_votes_says_so(panel: Panel) -> None:
    report = panel_report(panel, n_draws=0)
    (section,) = [one for one in report.sections if one.title == "Agreement of the validators"]
    assert section.text == "It takes two who judged the same record."


@pytest.mark.parametrize("damage", ["", "{", '{"format": 1}', '{"format": 1, "config": {"settings": {}}}'])
def test_a_folder_that_is_no_panel_is_refused(panel: Panel, tmp_path: Path, damage: str) -> None:
    with pytest.raises(PanelError, match="is not a panel's folder"):
        Panel(tmp_path)
    (panel.path / "panel.json").write_text(damage, encoding="utf-8")
    with pytest.raises(PanelError, match=r"panel\.json of 'panel' is damaged"):
        Panel(panel.path)


@pytest.mark.parametrize("name", ["records.jsonl", "answers-2.jsonl", "decisions.jsonl", "phrases.jsonl"])
def test_a_damaged_line_is_named(panel: Panel, name: str) -> None:
    with (panel.path / name).open("a", encoding="utf-8") as file:
        file.write("{]\n")
    with pytest.raises(ValueError, match=rf"'{name}' (is damaged|holds a line that is no entry)"):
        Panel(panel.path).items()


@pytest.mark.parametrize(
    "task", [task for name in task_names() for task in load_stages(name)], ids=lambda one: one.name
)
def test_every_task_that_ships_comes_back_from_a_panels_folder_as_it_was(task: Task, tmp_path: Path) -> None:
    settings = PanelSettings(annotators=("a", "b"))
    config = {"settings": settings.model_dump(mode="json"), "task": task.model_dump(mode="json")}
    assert prepare(tmp_path, config, {}).task == task

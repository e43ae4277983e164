"""Answers with several fields of labels: each label is matched in its field, and what contradicts itself is noted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from xai.tasks import Task, load_stages, load_task, task_names
from xai.tasks.answers import Answer, parse_answer, read_answer, write_answer

AHA, M3 = load_task("aha-memes"), load_task("m3")
REST = '"referred_words": [], "referred_image_concepts": []'

STAGED: dict[str, Any] = {
    "name": "cast",
    "version": "1",
    "stages": {
        "people": {
            "none_label": None,
            "labels": [{"name": "Voter", "aliases": ["Voters"]}, {"name": "Celebrity"}],
            "answer": {"labels": "people", "referred_words": None, "referred_image_concepts": None},
            "prompts": {"short": {"en": {"caption": "\nText: ", "modes": {"text": "Who?\n{labels}"}}}},
        },
        "roles": {
            "none_label": None,
            "pairs": {"of": "people", "values": [{"name": "hero", "aliases": ["heroine"]}, {"name": "villain"}]},
            "answer": {
                "labels": [{"key": "roles", "form": "pairs"}],
                "referred_words": None,
                "referred_image_concepts": None,
            },
            "prompts": {"short": {"en": {"caption": "\nText: ", "modes": {"text": "Of\n{people}\nwhich?\n{labels}"}}}},
        },
    },
}


def write_task(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "cast.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.fixture
def stages(tmp_path: Path) -> tuple[Task, ...]:
    return load_stages(write_task(tmp_path, STAGED))


def named(text: str, answer: Answer) -> list[tuple[str, str]]:
    return [(span.label, text[span.start : span.end]) for span in answer.label_spans]


def test_a_label_of_each_field_is_found_where_it_stands() -> None:
    text = f'{{"label": "hateful", "types": ["Mocking", "dehumanisation"], {REST}}}'
    answer = parse_answer(AHA, text, "image+text")
    assert answer.labels == ("Hateful", "Mocking", "Dehumanization")
    assert named(text, answer) == [
        ("Hateful", "hateful"),
        ("Mocking", "Mocking"),
        ("Dehumanization", "dehumanisation"),
    ]
    assert (answer.parse, answer.parse_note) == ("strict", "")


@pytest.mark.parametrize(("side", "expected"), [("Hateful", "Other (hateful)"), ("Not-Hateful", "Other (not hateful)")])
def test_what_is_written_the_same_is_of_the_side_that_the_answer_took(side: str, expected: str) -> None:
    answer = parse_answer(AHA, f'{{"label": "{side}", "types": ["Other"], {REST}}}', "image+text")
    assert answer.labels == (side, expected)


def test_without_a_side_other_is_no_label_that_could_be_meant() -> None:
    answer = parse_answer(AHA, f'{{"label": "Maybe", "types": ["Other", "Humor"], {REST}}}', "image+text")
    assert answer.labels == ("Humor",)
    assert answer.unknown_labels == ("Maybe", "Other")


@pytest.mark.parametrize(
    ("label", "types", "notes"),
    [
        ("Hateful", ["Humor"], ["label 'Humor' does not go with what 'label' says"]),
        ("Hateful", ["Mocking", "Other"], ["label 'Other (hateful)' goes alone and stands beside 'Mocking'"]),
        (["Hateful", "Not-Hateful"], ["Humor"], ["'Hateful' and 'Not-Hateful' exclude each other"]),
        ("Hateful", ["Other"], []),
        ("Not-Hateful", ["Humor", "Sarcasm"], []),
    ],
)
def test_what_contradicts_itself_is_kept_and_noted(label: object, types: list[str], notes: list[str]) -> None:
    text = json.dumps({"label": label, "types": types, "referred_words": [], "referred_image_concepts": []})
    answer = parse_answer(AHA, text, "image+text")
    assert len(answer.labels) == len(types) + (len(label) if isinstance(label, list) else 1)
    assert answer.parse_note == "; ".join(notes)


def test_reasons_and_confidence_are_read_where_the_task_asks_for_them() -> None:
    text = (
        f'{{"label": "Hate", "categories": ["public health"], "rationale": ["mocks a fan"], "confidence": 0.4, {REST}}}'
    )
    answer = parse_answer(M3, text, "image+text+post")
    assert answer.labels == ("Hate", "Public health")
    assert (answer.reasons, answer.confidence, answer.parse) == (("mocks a fan",), 0.4, "strict")


def test_a_missing_second_field_is_a_flagged_repair_and_a_missing_first_one_is_not_read() -> None:
    answer = parse_answer(AHA, f'{{"label": "Hateful", {REST}}}', "image+text")
    assert (answer.labels, answer.parse) == (("Hateful",), "repaired")
    assert answer.parse_note == "the field 'types' is missing"
    answer = parse_answer(AHA, f'{{"types": ["Mocking"], {REST}}}', "image+text")
    assert (answer.parse, answer.parse_note) == ("unparsed", "the answer has no field 'label'")


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ('{"label": "Hateful", "types": ["Mocking"], "referred_words": ["a", "b', ("Hateful", "Mocking")),
        ('{"label": "Hateful", "types": ["Mocking", "Slu', ()),
        ('{"label": "Hate', ()),
    ],
)
def test_a_cut_answer_is_read_if_all_fields_of_labels_are_whole(text: str, labels: tuple[str, ...]) -> None:
    answer = parse_answer(AHA, text, "image+text")
    assert answer.labels == labels
    assert answer.parse == ("repaired" if labels else "unparsed")


def test_pairs_are_labels_that_stand_where_their_value_stands(stages: tuple[Task, ...]) -> None:
    roles = stages[1]
    assert roles.label_names == ("Voter: hero", "Voter: villain", "Celebrity: hero", "Celebrity: villain")
    text = '{"roles": {"voters": ["heroine", "villain"], "Celebrity": "villain", "Nobody": "hero", "Voter": "fool"}}'
    answer = parse_answer(roles, text, "text")
    assert named(text, answer) == [
        ("Voter: hero", "heroine"),
        ("Voter: villain", "villain"),
        ("Celebrity: villain", "villain"),
    ]
    assert answer.unknown_labels == ("Nobody: hero", "Voter: fool")
    assert answer.parse == "strict"


@pytest.mark.parametrize("content", ['"hero"', "[]", '{"Voter": 1}', '{"Voter": {"hero": 1}}', '{"Voter": [["hero"]]}'])
def test_pairs_of_another_form_are_unparsed(stages: tuple[Task, ...], content: str) -> None:
    answer = parse_answer(stages[1], f'{{"roles": {content}}}', "text")
    assert (answer.parse, answer.labels) == ("unparsed", ())


def every_task() -> list[Task]:
    return [stage for name in task_names() for stage in load_stages(name)]


@pytest.mark.parametrize("task", every_task(), ids=lambda task: task.name)
@settings(deadline=None)
@given(data=st.data())
def test_the_answer_that_is_written_for_labels_is_read_as_these(task: Task, data: st.DataObject) -> None:
    parents = [name for name in task.label_names if any(name in task.ancestors(other) for other in task.label_names)]
    if parents:
        side = data.draw(st.sampled_from(parents))
        below = [name for name in task.label_names if side in task.ancestors(name) and not task.label(name).alone]
        labels = [side, *data.draw(st.lists(st.sampled_from(below), unique=True))]
    else:
        plain = [name for name in task.label_names if name != task.none_label]
        drawn = data.draw(st.lists(st.sampled_from(plain), unique=True, min_size=1, max_size=6))
        # Of pairs that go alone one a name: a viewpoint excludes the other.
        labels = list({task.ancestors(name) if task.label(name).alone else name: name for name in drawn}.values())
    answer = read_answer(task, write_answer(task, labels), "text")
    assert set(answer.labels) == set(labels)
    assert answer.unknown_labels == ()


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (["Hateful", "Humor"], "'Humor' does not go with"),
        (["Funny"], "'Funny' is no label of task 'aha-memes'"),
        ([], "no label is given for 'label'; give one of Hateful, Not-Hateful"),
    ],
)
def test_no_answer_is_written_for_labels_that_cannot_stand_together(labels: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        write_answer(AHA, labels)


def test_gold_without_labels_is_written_as_the_label_for_none() -> None:
    assert json.loads(write_answer(load_task("ukrmeme"), [])) == {"labels": ["NO_PROPAGANDA"]}


def test_a_label_is_contrasted_with_what_could_stand_in_its_place(stages: tuple[Task, ...]) -> None:
    assert AHA.alternatives("Hateful") == ("Not-Hateful",)
    assert AHA.alternatives("Humor") == ("Sarcasm", "Other (not hateful)")
    assert stages[1].alternatives("Voter: hero") == ("Voter: villain",)
    ukrmeme = load_task("ukrmeme")
    assert set(ukrmeme.alternatives("Smears")) == set(ukrmeme.label_names) - {"Smears"}


def test_prompts_list_the_labels_of_each_side() -> None:
    lines = AHA.instruction("image+text").splitlines()
    hateful, other = lines.index("Types of Hateful:"), lines.index("Types of Not-Hateful:")
    assert [line[2:].split(":")[0] for line in lines[hateful + 1 : other - 1]] == [
        "Mocking", "Incitement", "Dehumanization", "Slurs", "Contempt", "Inferiority", "Exclusion", "Other",
    ]  # fmt: skip
    assert [line[2:].split(":")[0] for line in lines[other + 1 : other + 4]] == ["Humor", "Sarcasm", "Other"]


@pytest.mark.parametrize("task", every_task(), ids=lambda task: task.name)
def test_no_placeholder_is_left_in_a_prompt(task: Task) -> None:
    context = dict.fromkeys(task.context, ("first", "second"))
    for variant, languages in task.prompts.items():
        for language, prompts in languages.items():
            for mode in prompts.modes:
                text = task.instruction(mode, language, variant, context=context)
                left = [name for name in ("labels", "none", *task.context) if f"{{{name}" in text]
                assert left == []


def test_a_prompt_that_speaks_of_what_the_meme_lacks_is_refused(stages: tuple[Task, ...]) -> None:
    roles = stages[1]
    assert roles.instruction("text", variant="short", context={"people": ("Voter",)}) == (
        "Of\n- Voter\nwhich?\n- hero\n- villain\nText: "
    )
    with pytest.raises(ValueError, match="speaks of the meme's 'people', which its context does not have"):
        roles.instruction("text", variant="short", context={})


def changed(**fields: Any) -> dict[str, Any]:
    return {**STAGED, "stages": {**STAGED["stages"], "roles": {**STAGED["stages"]["roles"], **fields}}}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({**STAGED, "stages": {"people": STAGED["stages"]["people"]}}, "stages: give two or more"),
        ({**STAGED, "labels": [{"name": "Voter"}]}, "labels belongs to each of the stages"),
        (
            changed(pairs={"of": "places", "values": [{"name": "hero"}]}),
            "stage 'roles': pairs: of must name an earlier",
        ),
        (changed(pairs={"of": "people", "values": []}), "stage 'roles': pairs.values"),
        (changed(answer={"labels": "roles"}), "a field has the form 'pairs' if the labels are pairs"),
        (
            changed(answer={"labels": [{"key": "a", "form": "pairs", "under": "b"}]}),
            "'a' is under 'b', no field of one",
        ),
        (changed(answer={"labels": []}), "give at least one field of labels"),
    ],
)
def test_a_file_of_stages_that_is_none_says_what_is_wrong(tmp_path: Path, content: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_stages(write_task(tmp_path, content))


def test_a_stage_is_named_behind_its_task(tmp_path: Path) -> None:
    path = write_task(tmp_path, STAGED)
    assert load_task(f"{path}/roles").name == "cast/roles"
    assert load_task(path / "people").name == "cast/people"
    with pytest.raises(ValueError, match="has stages; name one of cast/people, cast/roles"):
        load_task(path)
    with pytest.raises(ValueError, match="has no stage 'places'; it has cast/people, cast/roles"):
        load_task(f"{path}/places")
    with pytest.raises(ValueError, match="task 'm3' has no stage 'roles'; it has none"):
        load_task("m3/roles")


def shouted(task: Task, text: str, mode: str) -> Answer:
    """A parser of a task's own."""
    return read_answer(task, text.lower(), mode)  # type: ignore[arg-type]


def test_a_task_can_bring_its_own_parser(tmp_path: Path) -> None:
    own = load_stages(write_task(tmp_path, {**STAGED, "parser": f"{__name__}:shouted"}))[0]
    assert parse_answer(own, '{"PEOPLE": ["VOTER"]}', "text").labels == ("Voter",)
    wrong = own.model_copy(update={"parser": "no.such:thing"})
    with pytest.raises(ValueError, match=r"the parser 'no\.such:thing' cannot be imported"):
        parse_answer(wrong, "{}", "text")

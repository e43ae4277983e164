"""The task: its label tree, its prompts, and what it says about a YAML file that is not a task."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from xai.schema import MODES
from xai.tasks import Task, load_task, task_names

SMALL = {
    "name": "small",
    "version": "1",
    "none_label": "Nothing",
    "labels": [
        {"name": "Red/Blue", "ancestors": ["Colour", "Bright"], "aliases": ["shared", "rot"]},
        {"name": "Round", "ancestors": ["Shape"], "aliases": ["shared"], "definition": {"en": "has no corner"}},
        {"name": "Nothing"},
    ],
    "prompts": {"full": {"en": {"modes": {"text": "Which?\n{labels}\n{none}"}, "caption": "\nText: "}}},
}


def write_task(folder: Path, **changes: object) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}, allow_unicode=True), encoding="utf-8")
    return path


@pytest.fixture
def small(tmp_path: Path) -> Task:
    return load_task(write_task(tmp_path))


@pytest.fixture
def ukrmeme() -> Task:
    return load_task("ukrmeme")


def test_the_preset_ships_and_is_loaded_by_name(ukrmeme: Task) -> None:
    assert "ukrmeme" in task_names()
    assert ukrmeme.name == "ukrmeme"
    assert len(ukrmeme.label_names) == 23
    assert ukrmeme.label_names[-1] == ukrmeme.none_label == "NO_PROPAGANDA"


@pytest.mark.parametrize(
    ("label", "ancestors"),
    [
        ("Smears", ("Ethos", "Ad Hominem")),
        ("Transfer", ("Pathos", "Justification")),
        ("Slogans", ("Pathos",)),
        ("Obfuscation, Intentional vagueness, Confusion", ("Logos",)),
        ("Whataboutism", ("Logos", "Reasoning", "Distraction")),
        ("Thought-terminating cliché", ("Logos", "Reasoning", "Simplification")),
        ("NO_PROPAGANDA", ()),
    ],
)
def test_ancestors_lead_from_the_top_of_the_tree_to_the_label(
    ukrmeme: Task, label: str, ancestors: tuple[str, ...]
) -> None:
    assert ukrmeme.ancestors(label) == ancestors


def test_the_tree_has_the_published_number_of_leaves_under_every_node(ukrmeme: Task) -> None:
    under = {
        node: sum(node in ukrmeme.ancestors(label) for label in ukrmeme.label_names)
        for node in ("Ethos", "Ad Hominem", "Pathos", "Justification", "Logos", "Reasoning", "Distraction")
    }
    assert under == {
        "Ethos": 4,
        "Ad Hominem": 4,
        "Pathos": 10,
        "Justification": 9,
        "Logos": 8,
        "Reasoning": 6,
        "Distraction": 3,
    }


def test_expand_adds_each_ancestor_once(small: Task) -> None:
    assert small.expand(["Red/Blue", "Round"]) == {"Red/Blue", "Colour", "Bright", "Round", "Shape"}
    assert small.expand([]) == frozenset()
    assert small.expand(["Nothing"]) == {"Nothing"}


def test_a_label_outside_the_inventory_has_no_ancestors_to_give(small: Task) -> None:
    with pytest.raises(ValueError, match="'Green' is no label of task 'small'; its labels: Red/Blue, Round, Nothing"):
        small.expand(["Green"])


@pytest.mark.parametrize("raw", ["Red/Blue", "red / blue", "RED BLUE", " red-blue. ", "ｒｅｄｂｌｕｅ", "Rot"])
def test_a_label_is_recognised_through_case_punctuation_spacing_and_aliases(small: Task, raw: str) -> None:
    assert small.match_label(raw) == "Red/Blue"


@pytest.mark.parametrize("raw", ["", "…", "Red", "Redd/Blue", "Red/Blue and more", "1. Round", "Colour"])
def test_a_label_is_never_guessed_from_a_part_or_a_near_miss(small: Task, raw: str) -> None:
    assert small.match_label(raw) is None


def test_an_alias_of_two_labels_matches_neither(small: Task) -> None:
    assert small.match_label("shared") is None


@pytest.mark.parametrize(
    ("raw", "label"),
    [
        ("no propaganda", "NO_PROPAGANDA"),
        ("Name calling", "Name calling/Labeling"),
        ("Exaggeration/Minimization", "Exaggeration/Minimisation"),
        ("Straw Man", "Misrepresentation of Someone's Position (Straw Man)"),
        ("Misrepresentation of Someone’s Position (Straw Man)", "Misrepresentation of Someone's Position (Straw Man)"),
        ("Thought-terminating cliche", "Thought-terminating cliché"),
        ("thought terminating cliche\u0301", "Thought-terminating cliché"),
        ("Glittering generalities", "Glittering generalities (Virtue)"),
        ("Flag waving", "Flag-waving"),
        ("Гасла", "Slogans"),
    ],
)
def test_common_spellings_of_the_techniques_are_known(ukrmeme: Task, raw: str, label: str) -> None:
    assert ukrmeme.match_label(raw) == label


def test_no_alias_of_the_preset_is_ambiguous(ukrmeme: Task) -> None:
    aliases = [(alias, label.name) for label in ukrmeme.labels for alias in label.aliases]
    assert [(alias, ukrmeme.match_label(alias)) for alias, _ in aliases] == aliases


@pytest.mark.parametrize("language", ["en", "uk"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("with_none", [True, False])
def test_the_full_prompt_names_every_label_and_field(ukrmeme: Task, language: str, mode: str, with_none: bool) -> None:
    prompt = ukrmeme.instruction(mode, language, "full", with_none)
    assert all(f"\n- {name}: " in prompt for name in ukrmeme.label_names[:-1])
    assert all(f'"{field}"' in prompt for field in ("labels", "referred_words", "referred_image_concepts"))
    assert ("NO_PROPAGANDA" in prompt) == with_none
    assert "{" not in prompt


@pytest.mark.parametrize(("language", "words"), [("en", "words written in the picture"), ("uk", "слів, написаних на")])
def test_of_the_picture_alone_the_words_that_are_read_in_it_are_asked_for_as_well(
    ukrmeme: Task, language: str, words: str
) -> None:
    lines = {mode: ukrmeme.instruction(mode, language).splitlines() for mode in MODES}
    (asked,) = (line for line in lines["image"] if line.startswith('- "referred_words": '))
    assert words in asked
    assert asked not in [*lines["text"], *lines["image+text"]]


@pytest.mark.parametrize("variant", ["full", "short"])
@pytest.mark.parametrize(("language", "introduction"), [("en", "\nText: "), ("uk", "\nТекст: ")])
def test_the_text_of_the_meme_follows_directly_where_there_is_one(
    ukrmeme: Task, variant: str, language: str, introduction: str
) -> None:
    assert ukrmeme.instruction("text", language, variant).endswith(introduction)
    assert ukrmeme.instruction("image+text", language, variant).endswith(introduction)
    assert introduction.strip() not in ukrmeme.instruction("image", language, variant)


def test_the_short_prompts_are_those_that_the_shipped_model_was_trained_on(ukrmeme: Task) -> None:
    assert [ukrmeme.instruction(mode, language, "short") for language in ("en", "uk") for mode in MODES] == [
        "Which persuasion techniques does this text use? Answer in JSON.\nText: ",
        "Which persuasion techniques does this picture use? Answer in JSON.",
        "Which persuasion techniques does this meme use? Answer in JSON.\nText: ",
        "Які прийоми переконання має цей текст? Відповідь у JSON.\nТекст: ",
        "Які прийоми переконання має ця картинка? Відповідь у JSON.",
        "Які прийоми переконання має цей мем? Відповідь у JSON.\nТекст: ",
    ]


def test_the_short_prompt_cannot_leave_out_the_none_label_and_points_to_full(ukrmeme: Task) -> None:
    with pytest.raises(ValueError, match="always offers NO_PROPAGANDA; use variant 'full'"):
        ukrmeme.instruction("text", variant="short", with_none=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "video"}, "no mode 'video'; it has text, image, image\\+text"),
        ({"mode": "text", "language": "fr"}, "no language 'fr'; it has en, uk"),
        ({"mode": "text", "variant": "long"}, "no variant 'long'; it has short, full"),
    ],
)
def test_an_unknown_mode_language_or_variant_is_answered_with_those_there_are(
    ukrmeme: Task, arguments: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ukrmeme.instruction(**arguments)


def test_a_label_without_definition_is_listed_by_its_name(small: Task) -> None:
    assert small.instruction("text") == "Which?\n- Red/Blue\n- Round: has no corner\n- Nothing\n\nText: "


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": []}, "labels: "),
        ({"labels": [{"nam": "x"}]}, r"labels\.0\.name: Field required"),
        ({"version": 1.0}, "version: Input should be a valid string"),
        ({"none_label": "Round"}, "none_label: 'Round' must be the name of the last entry"),
        ({"labels": [{"name": "A b"}, {"name": "a-B"}, {"name": "Nothing"}]}, "labels: 'a-B' and 'A b' are the same"),
        ({"labels": [{"name": "+"}, {"name": "Nothing"}]}, "labels: the name '\\+' has no letter"),
        ({"labels": [{"name": "A", "ancestors": ["A"]}, {"name": "Nothing"}]}, "labels: 'A' is its own ancestor"),
        ({"prompts": {"full": {"en": {"modes": {"video": "x"}}}}}, r"prompts\.full\.en\.modes\.video"),
        ({"prompts": {"full": {"en": {"modes": {"text": "x"}}}}}, r"prompts\.full\.en: caption: needed"),
        ({"answer": {"max_image_concepts": 0}}, r"answer\.max_image_concepts"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_field_of_a_task_file_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^task file 'small.yaml' is not a valid task: .*{message}"):
        load_task(write_task(tmp_path, **changes))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: a\nname: b\n", "the key 'name' is given twice, the second time on line 2"),
        (b"name: [a", "not valid YAML"),
        (b"- a\n", "must be a mapping with the fields name, version"),
        ("name: é".encode("latin-1"), "not UTF-8"),
    ],
)
def test_a_file_that_is_not_a_mapping_in_yaml_says_so(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_task(path)


def test_an_unknown_task_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no task 'nosuch'; give one of .*ukrmeme.* or a YAML file"):
        load_task("nosuch")
    with pytest.raises(ValueError, match=r"'nosuch\.yaml' cannot be read"):
        load_task(tmp_path / "nosuch.yaml")

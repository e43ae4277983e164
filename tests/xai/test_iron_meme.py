"""IRON-Meme's answers are read as its own evaluation reads them: whatever the spelling, never a guess."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xai.tasks import Label, Task, load_stages, load_task
from xai.tasks.answers import Answer, parse_answer
from xai.tasks.iron_meme import spelling_key

IDENTITIES, VIEWPOINTS, ROLES = load_stages("iron-meme")
NINE = ("hero", "villain", "victim", "sage", "fool", "charmer", "monster", "winner", "loser")
IRREGULAR = {
    "Women": "woman",
    "Men": "man",
    "White people": "white person",
    "People of color": "person of color",
    "Politicians/government": "politician",
    "World leaders/elites": "elite",
    "Media elites": "media elite",
    "Citizens": "citizen",
    "National identity": "national identities",
    "Celebrity": "celebrities",
}


def identities(*names: str) -> Answer:
    return parse_answer(IDENTITIES, json.dumps({"identities": names}, ensure_ascii=False), "text")


def roles(answer: object) -> Answer:
    return parse_answer(ROLES, json.dumps({"roles": answer}), "text")


def whole(answer: dict[str, object]) -> str:
    return json.dumps({**answer, "referred_words": [], "referred_image_concepts": []})


def test_the_inventories_are_the_41_identities_with_two_viewpoints_and_nine_roles() -> None:
    assert len(IDENTITIES.label_names) == 41
    pairs = [f"{name}: {value}" for name in IDENTITIES.label_names for value in ("in-group", "out-group")]
    assert list(VIEWPOINTS.label_names) == pairs
    assert list(ROLES.label_names) == [f"{name}: {role}" for name, role in product(IDENTITIES.label_names, NINE)]


def test_no_two_labels_share_a_spelling() -> None:
    """So no name or alias of one identity is read as another: racist and anti-racist, liberal and libertarian, …"""
    owners: dict[str, set[str]] = {}
    for label in IDENTITIES.labels:
        for spelling in (label.name, *label.aliases):
            owners.setdefault(spelling_key(spelling), set()).add(label.name)
    assert [names for names in owners.values() if len(names) > 1] == []
    assert len({spelling_key(role) for role in NINE}) == 9


@pytest.mark.parametrize(
    ("close", "meant"),
    [
        ("anti racists", "Anti-racist"), ("RACISTS", "Racist"), ("antiLGBTQ", "Anti-LGBTQ+"),
        ("LGBTQ rights supporters", "LGBTQ+ rights supporter"), ("Nationalists", "Nationalist/regionalist"),
        ("regionalist", "Nationalist/regionalist"), ("anti-capitalists", "Anticapitalist"),
        ("capitalist", "Corporatist/capitalist"), ("anti-feminists", "Anti-feminist"), ("feminists", "Feminist"),
        ("Libertarians", "Libertarian"), ("liberals", "Liberal"), ("elites", "World leaders/elites"),
        ("media elite", "Media elites"), ("climate sceptics", "Climate change skeptic/denier"),
        ("persons of colour", "People of color"), ("non-voters", "Abstentionist"), ("voters", "Voter"),
    ],
)  # fmt: skip
def test_labels_that_look_alike_are_told_apart(close: str, meant: str) -> None:
    assert identities(close).labels == (meant,)


@pytest.mark.parametrize("raw", ["LGBTQ+", "supporter", "climate", "people", "activist", "anti", "", "+", "Not women"])
def test_what_could_be_several_labels_or_none_is_discarded_as_it_is_written(raw: str) -> None:
    answer = identities(raw)
    assert answer.labels == ()
    assert answer.unknown_labels == (raw,)


@pytest.mark.parametrize(("name", "other"), IRREGULAR.items())
def test_singulars_and_plurals_that_no_rule_of_s_finds_are_found(name: str, other: str) -> None:
    assert identities(other).labels == identities(other.upper()).labels == (name,)


def _plural(words: str) -> str:
    """As English has it for the last word of a name; written for the tests alone."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words if words.endswith(("s", "+")) else words + "s"


noise = st.sampled_from(["", " ", "-", "_", ".", "  ", "/", "'", "\t", "–"])


@settings(deadline=None)
@given(st.sampled_from(IDENTITIES.labels), st.data())
def test_every_identity_is_found_whatever_its_case_punctuation_and_number(label: Label, data: st.DataObject) -> None:
    spelling = data.draw(st.sampled_from((label.name, *label.aliases)))
    if label.name not in IRREGULAR and data.draw(st.booleans()):
        spelling = _plural(spelling)
    cased = data.draw(st.sampled_from([str.upper, str.lower, str.title, str.swapcase]))(spelling)
    noisy = (
        data.draw(noise) + cased.replace(" ", " " + data.draw(noise)).replace("-", data.draw(noise)) + data.draw(noise)
    )
    assert identities(noisy).labels == (label.name,)


@settings(deadline=None)
@given(st.sampled_from(ROLES.label_names), st.booleans(), st.booleans())
def test_every_role_is_found_with_its_identity_alone(label: str, as_list: bool, plural: bool) -> None:
    name, _, role = label.rpartition(": ")
    written = {"hero": "Heroes"}.get(role, role.upper() + "S") if plural else role
    answer = roles({name.lower(): [written] if as_list else written})
    assert answer.labels == (label,)


def test_a_value_belongs_to_its_own_identity_and_its_span_is_what_stands_there() -> None:
    text = whole({"roles": {"Voter": ["victim", "loser"], "celebrities": "victim"}})
    answer = parse_answer(ROLES, text, "text")
    assert answer.labels == ("Voter: victim", "Voter: loser", "Celebrity: victim")
    starts = [text.index("victim"), text.index("loser"), text.rindex("victim")]
    assert [(span.start, text[span.start : span.end]) for span in answer.label_spans] == list(
        zip(starts, ["victim", "loser", "victim"], strict=True)
    )


def test_a_pair_of_which_either_side_is_unknown_is_discarded_as_a_whole() -> None:
    answer = roles({"Dragon": ["hero"], "Voter": ["wizard", "winner"]})
    assert answer.labels == ("Voter: winner",)
    assert answer.unknown_labels == ("Dragon: hero", "Voter: wizard")


def test_an_identity_may_be_copied_with_its_viewpoint_as_the_prompt_for_roles_lists_it() -> None:
    assert roles({"Voter: in-group": "hero"}).labels == ("Voter: hero",)
    assert roles({"voters: Out group": "hero"}).labels == ("Voter: hero",)
    for other in ("Voter: elsewhere", "in-group: Voter", "in-group", "Voter: Men: in-group"):
        assert roles({other: "hero"}).unknown_labels == (f"{other}: hero",)


def test_two_viewpoints_of_one_identity_are_kept_and_noted() -> None:
    answer = parse_answer(VIEWPOINTS, whole({"viewpoints": {"Voter": ["in-group", "Outgroup"]}}), "text")
    assert answer.labels == ("Voter: in-group", "Voter: out-group")
    assert "goes alone" in answer.parse_note


OBJECT = whole({"identities": ["Voter"]})


@pytest.mark.parametrize(
    "around",
    [
        "{}", "```json\n{}\n```", "<think>Is it a {{voter}}?</think>{}", "so {{voters}} …</think>\n{}",
        "<think>one</think> and <think>two {{\"identities\": []}}</think>\n```\n{}\n```", "Here: {} That is all.",
        "[{}]", "The set {{voters}} is: {}", "{}}}", "```{}", "{}\n```\n</think>",
    ],
)  # fmt: skip
def test_the_outermost_object_is_read_whatever_stands_around_it(around: str) -> None:
    text = around.format(OBJECT)
    answer = parse_answer(IDENTITIES, text, "text")
    assert (answer.labels, answer.parse) == (("Voter",), "strict")
    assert [text[span.start : span.end] for span in answer.label_spans] == ["Voter"]


@pytest.mark.parametrize(
    "text",
    [
        "", "Voter", '["Voter"]', "{", OBJECT[:-1], OBJECT[:20], OBJECT + OBJECT, f"<think>{OBJECT}",
        f"I <think> {OBJECT}",
        OBJECT.replace('"Voter"', "'Voter'"), '{"labels": ["Voter"]}', '{"identities": "Voter"}', '{"identities": [1]}',
        '{"identities": {"Voter": "in-group"}}', '{"identities": ["Voter"], "identities": []}',
        '{"identities": ["Voter"], "x": NaN}', '{"identities": null}', '{"identities": ["Voter"',
        '{"identities": ["Voter"], "x": {"identities": ["Men"]}',
    ],
)  # fmt: skip
def test_an_answer_without_one_whole_object_of_the_right_kind_is_unparsed_and_says_why(text: str) -> None:
    answer = parse_answer(IDENTITIES, text, "text")
    assert (answer.parse, answer.labels, answer.label_spans) == ("unparsed", (), ())
    assert answer.parse_note


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("I would rather not say.", "no JSON object"),
        (f"<think>{OBJECT}", "no JSON object in the answer, outside of reasoning"),
        (OBJECT[:-1], "broken, cut"),
        (OBJECT * 2, "more than one JSON object"),
        ('{"identities": ["Voter"], "identities": []}', "twice"),
        ('{"identities": ["Voter"], "x": NaN}', "NaN"),
        ('{"labels": ["Voter"]}', "no field 'identities'"),
    ],
)
def test_an_unparsed_answer_says_what_is_wrong_with_it(text: str, why: str) -> None:
    assert why in parse_answer(IDENTITIES, text, "text").parse_note


@pytest.mark.parametrize(
    "value", ['"Voter"', '["hero"]', "null", '{"Voter": null}', '{"Voter": {"role": "hero"}}', '{"Voter": ["hero", 1]}']
)
def test_roles_that_are_no_object_of_strings_or_lists_are_unparsed(value: str) -> None:
    assert parse_answer(ROLES, f'{{"roles": {value}}}', "text").parse == "unparsed"


def test_the_words_of_a_meme_may_look_like_reasoning() -> None:
    text = json.dumps(
        {"identities": ["Voter"], "referred_words": ["</think>", "<think>"], "referred_image_concepts": []}
    )
    answer = parse_answer(IDENTITIES, text, "text")
    assert (answer.labels, answer.referred_words) == (("Voter",), ("</think>", "<think>"))


def test_an_answer_without_labels_is_read_and_has_none() -> None:
    assert parse_answer(IDENTITIES, whole({"identities": []}), "text").parse == "strict"
    assert parse_answer(ROLES, whole({"roles": {}}), "text").parse == "strict"


pieces = st.lists(
    st.sampled_from(
        ['{"', '"}', "{", "}", "[", "]", ":", ",", '"', "'", "\\", '"identities"', '"roles"', '"viewpoints"', '"Voter"',
         "Men", '"hero"', "in-group",
         "<think>", "</think>", "```", "```json", "null", "1", " ", "\n", "\ud800", "é", "NaN"]
    )
    | st.text(max_size=5)
).map("".join)  # fmt: skip
loose = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from([*NINE, "Voter", "women"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["Voter", "Men", "x"]), inner, max_size=3)
    ),
)


@settings(deadline=None)
@given(
    st.sampled_from([IDENTITIES, VIEWPOINTS, ROLES]),
    pieces | loose.map(lambda x: json.dumps({"identities": x, "roles": x})),
)
def test_no_text_raises_and_spans_point_to_what_is_written(task: Task, text: str) -> None:
    answer = parse_answer(task, text, "image+text")
    if answer.parse == "unparsed":
        assert answer.parse_note
        assert answer.labels == answer.unknown_labels == ()
    assert tuple(span.label for span in answer.label_spans) == answer.labels
    for span in answer.label_spans:
        written = json.loads(f'"{text[span.start : span.end]}"')
        assert spelling_key(span.label).endswith(spelling_key(written)) or task is IDENTITIES
        assert text[span.start - 1] == text[span.end] == '"'


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(ROLES.label_names), unique=True, max_size=6),
    st.sampled_from(["{}", "hm {}", "```\n{}\n```"]),
)
def test_what_is_written_comes_back(labels: list[str], around: str) -> None:
    given: dict[str, list[str]] = {}
    for label in labels:
        name, _, role = label.rpartition(": ")
        given.setdefault(name, []).append(role)
    text = around.format(json.dumps({"roles": given}))
    answer = parse_answer(ROLES, text, "text")
    assert set(answer.labels) == set(labels)
    assert answer.unknown_labels == ()


def test_deep_nesting_is_unparsed() -> None:
    assert parse_answer(IDENTITIES, '{"identities": ' + "[" * 100_000, "text").parse == "unparsed"


@pytest.mark.parametrize("stage", ["identities", "viewpoints", "roles"])
@pytest.mark.parametrize("variant", ["full", "template"])
def test_prompts_say_what_they_are_given_and_ask_for_what_is_read(stage: str, variant: str) -> None:
    task = load_task(f"iron-meme/{stage}")
    context = {"identities": ("Voter",), "viewpoints": ("Voter: in-group",), "template": ("two buttons",)}
    for mode in task.prompts[variant]["en"].modes:
        text = task.instruction(mode, variant=variant, context=context)
        assert f'"{stage}"' in text
        assert "{" not in text
        assert ("- two buttons" in text) == (variant == "template")
        assert "- Voter" in text
        assert all(f"- {value.name}" in text for value in (task.pairs.values if task.pairs else task.labels))

"""The answer parser: what is read strictly, what is repaired and flagged, and what is left unparsed."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xai.schema import MODES, Prediction
from xai.tasks import load_task
from xai.tasks.answers import Answer, parse_answer

TASK = load_task("ukrmeme")
UNREAD = Answer()


def answer_json(*labels: str, words: tuple[str, ...] = (), concepts: tuple[str, ...] = ()) -> str:
    fields = {"labels": labels, "referred_words": words, "referred_image_concepts": concepts}
    return json.dumps(fields, ensure_ascii=False)


def parse(text: str, mode: str = "image+text") -> Answer:
    return parse_answer(TASK, text, mode)


def spans_of(text: str, answer: Answer) -> list[str]:
    return [text[span.start : span.end] for span in answer.label_spans]


def assert_unparsed(answer: Answer, note: str) -> None:
    assert answer.parse == "unparsed"
    assert note in answer.parse_note
    assert answer == UNREAD.model_copy(update={"parse_note": answer.parse_note})


def test_a_plain_answer_is_read_strictly_with_the_place_of_each_label() -> None:
    text = answer_json("Smears", "Flag-waving", words=("війна", "мир"), concepts=("flag",))
    answer = parse(text)
    assert answer.labels == ("Smears", "Flag-waving")
    assert [(span.label, text[span.start : span.end]) for span in answer.label_spans] == [
        ("Smears", "Smears"),
        ("Flag-waving", "Flag-waving"),
    ]
    assert answer.referred_words == ("війна", "мир")
    assert answer.referred_image_concepts == ("flag",)
    assert (answer.parse, answer.parse_note, answer.unknown_labels) == ("strict", "", ())


def test_an_answer_fits_into_a_prediction() -> None:
    text = answer_json("Smears")
    fields = parse(text).model_dump()
    assert Prediction(meme_id="m", mode="text", generated_ids=(1,), text=text, **fields).labels == ("Smears",)


def test_a_span_covers_the_label_as_written_escapes_included() -> None:
    text = (
        r'{"labels": ["Exaggeration\/Minimisation", "Sme\u0061rs"], "referred_words": [], "x": {"labels": ["Doubt"]}}'
    )
    answer = parse(text, "text")
    assert answer.labels == ("Exaggeration/Minimisation", "Smears")
    assert spans_of(text, answer) == [r"Exaggeration\/Minimisation", r"Sme\u0061rs"]
    assert answer.parse == "strict"


def test_the_span_is_that_of_the_list_of_labels_not_of_the_same_string_elsewhere() -> None:
    text = '{"note": "\\"labels\\": [\\"Smears\\"]", "referred_words": ["Smears"], "labels": ["Smears"]}'
    answer = parse(text, "text")
    assert [span.start for span in answer.label_spans] == [text.rindex("Smears")]


def test_a_span_counts_code_points_also_behind_an_emoji() -> None:
    text = '{"referred_words": ["🇺🇦"], "labels": ["Doubt"]}'
    assert spans_of(text, parse(text, "text")) == ["Doubt"]


@pytest.mark.parametrize(
    "template",
    [
        "```json\n{}\n```",
        "```\n{}\n```\n",
        '<think>\nMaybe {{"labels": ["Doubt"]}}?\n</think>\n\n{}',
        "<think></think>```json\n{}```",
        "The flag suggests a label.\n</think>\n{}",
        "\n  {}\n",
    ],
)
def test_reasoning_and_fences_are_passed_over_and_spans_still_point_into_the_raw_text(template: str) -> None:
    text = template.replace("{{", "{").replace("}}", "}").replace("{}", answer_json("Smears", "Transfer"))
    answer = parse(text)
    assert spans_of(text, answer) == ["Smears", "Transfer"]
    assert answer.parse == "strict"


def test_a_tag_of_reasoning_inside_a_word_is_text() -> None:
    text = answer_json("Smears", words=("</think>", "<think>"))
    assert parse(text).referred_words == ("</think>", "<think>")


def test_a_label_of_a_reasoning_draft_is_never_taken() -> None:
    assert_unparsed(parse('<think>It may be {"labels": ["Smears"], "referred_words": []}'), "inside its reasoning")


def test_an_unknown_label_is_kept_verbatim_and_apart() -> None:
    answer = parse(answer_json("Irony", "smears", "Pathos", "Smear campaign"))
    assert answer.labels == ("Smears",)
    assert answer.unknown_labels == ("Irony", "Pathos", "Smear campaign")
    assert answer.parse == "strict"


def test_a_label_given_twice_counts_once_at_its_first_place() -> None:
    text = answer_json("Smears", "Doubt", "SMEARS")
    answer = parse(text)
    assert answer.labels == ("Smears", "Doubt")
    assert spans_of(text, answer) == ["Smears", "Doubt"]
    assert answer.parse_note == "label 'Smears' is given more than once"


def test_the_none_label_beside_others_is_kept_as_answered_and_noted() -> None:
    answer = parse(answer_json("NO_PROPAGANDA", "Smears"))
    assert answer.labels == ("NO_PROPAGANDA", "Smears")
    assert answer.parse_note == "NO_PROPAGANDA stands beside other labels"


def test_no_label_at_all_is_an_answer() -> None:
    answer = parse(answer_json())
    assert (answer.parse, answer.labels) == ("strict", ())


@pytest.mark.parametrize(
    ("mode", "text", "parsed"),
    [
        ("text", '{"labels": [], "referred_words": []}', "strict"),
        ("image", '{"labels": [], "referred_words": [], "referred_image_concepts": []}', "strict"),
        ("image", '{"labels": [], "referred_image_concepts": []}', "repaired"),
        ("image+text", '{"labels": [], "referred_words": []}', "repaired"),
        ("text", '{"labels": []}', "repaired"),
    ],
)
def test_a_field_is_required_in_the_modes_that_ask_for_it(mode: str, text: str, parsed: str) -> None:
    assert parse(text, mode).parse == parsed


@pytest.mark.parametrize(
    ("mode", "note"),
    [("text", "no picture"), ("image", "more than 5 image concepts"), ("image+text", "more than 5 image concepts")],
)
def test_a_rationale_that_was_not_asked_for_is_kept_and_noted(mode: str, note: str) -> None:
    answer = parse(answer_json("Doubt", words=("w",), concepts=tuple("abcdef")), mode)
    assert note in answer.parse_note
    assert answer.referred_image_concepts == tuple("abcdef")
    assert answer.parse == "strict"


def test_an_inch_mark_in_a_word_is_repaired_and_flagged() -> None:
    text = '{"labels": ["Smears"], "referred_words": ["32" display"], "referred_image_concepts": []}'
    answer = parse(text)
    assert (answer.parse, answer.labels) == ("repaired", ("Smears",))
    assert spans_of(text, answer) == ["Smears"]
    assert "".join(answer.referred_words).replace('"', "").split() == ["32display"]
    assert "repaired" in answer.parse_note


def test_an_inch_mark_in_a_label_is_not_repaired() -> None:
    text = '{"labels": ["Smears", "32" display"], "referred_words": [], "referred_image_concepts": []}'
    assert_unparsed(parse(text), "before its list of labels is complete")


def test_a_fenced_object_before_a_sentence_with_braces_is_read_and_flagged() -> None:
    text = f"```json\n{answer_json('Smears')}\n```\nI chose {{Smears}} for {{the word}}."
    answer = parse(text)
    assert (answer.parse, answer.labels, spans_of(text, answer)) == ("repaired", ("Smears",), ["Smears"])
    assert answer.parse_note == "text around the JSON object was passed over"


def test_prose_around_one_object_is_flagged() -> None:
    text = f"Here is the answer: {answer_json('Doubt')} Hope this helps!"
    answer = parse(text)
    assert (answer.parse, spans_of(text, answer)) == ("repaired", ["Doubt"])


@pytest.mark.parametrize(
    "text",
    [
        answer_json("Smears") + answer_json("Doubt"),
        answer_json("Smears") + "\n\n```json\n" + answer_json("Smears") + "\n```",
        answer_json("Smears") + ' or {labels: ["Doubt"]}',
        '{"labels": ["Smears"], "referred_words": ["32" display"]} {"labels": ["Doubt"]}',
    ],
)
def test_two_objects_are_ambiguous(text: str) -> None:
    assert_unparsed(parse(text), "more than one JSON object")


@pytest.mark.parametrize(
    "text",
    [
        '{"lab' + answer_json("Doubt") + 'els": ["Smears"], "referred_words": []}',
        "{" + answer_json("Doubt") + '"labels": ["Smears"]}',
        f"{answer_json('Smears')} [Doubt]",
    ],
)
def test_an_object_within_the_wreck_of_another_is_not_the_answer(text: str) -> None:
    assert_unparsed(parse(text), "")


@pytest.mark.parametrize("text", ["", "This meme uses Smears.", "Smears", "{}", "{Smears}", "labels: Smears", "null"])
def test_plain_prose_names_no_label(text: str) -> None:
    assert_unparsed(parse(text), "no JSON object")


def test_a_list_of_answers_is_not_an_answer() -> None:
    assert_unparsed(parse(f"[{answer_json('Smears')}]"), "a list")


@pytest.mark.parametrize(
    "text",
    [
        '{"labels": "Smears", "referred_words": [], "referred_image_concepts": []}',
        '{"labels": ["Smears"], "referred_words": "war", "referred_image_concepts": []}',
        '{"labels": ["Smears"], "referred_words": [1], "referred_image_concepts": []}',
        '{"labels": ["Smears"], "referred_words": null, "referred_image_concepts": []}',
        '{"labels": [["Smears"]], "referred_words": [], "referred_image_concepts": []}',
        '{"labels": {"Smears": true}, "referred_words": [], "referred_image_concepts": []}',
        '{"labels": ["Smears"], "referred_words": [1], "referred_image_concepts": [], }',
    ],
)
def test_a_wrong_type_is_unparsed(text: str) -> None:
    assert_unparsed(parse(text), "is not a list of strings")


def test_an_answer_without_labels_is_unparsed() -> None:
    assert_unparsed(parse('{"referred_words": ["war"], "referred_image_concepts": []}'), "no field 'labels'")
    assert_unparsed(parse('{"answer": ' + answer_json("Smears") + "}"), "no field 'labels'")


@pytest.mark.parametrize(
    "text",
    [
        '{"labels": ["Smears"], "labels": ["Doubt"], "referred_words": [], "referred_image_concepts": []}',
        '{"labels": ["Smears"], "referred_words": ["32" display"], "labels": ["Doubt"]}',
    ],
)
def test_a_key_given_twice_is_ambiguous(text: str) -> None:
    assert_unparsed(parse(text), "given twice")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("ending", ['"]}', '" b"]}'])
def test_a_number_that_is_not_json_never_becomes_a_word(constant: str, ending: str) -> None:
    assert_unparsed(parse(f'{{"labels": ["Smears"], "referred_words": [{constant}, "a{ending}'), "JSON")


@pytest.mark.parametrize("end", range(len('{"labels": ["Smears", "Doubt"')))
def test_a_reply_cut_before_its_labels_are_complete_is_unparsed(end: int) -> None:
    assert parse(answer_json("Smears", "Doubt")[: end + 1]).parse == "unparsed"


def test_a_reply_cut_behind_its_labels_keeps_them_and_loses_the_half_word() -> None:
    text = '{"labels": ["Smears", "Doubt"], "referred_words": ["war", "peac'
    answer = parse(text)
    assert (answer.parse, spans_of(text, answer)) == ("repaired", ["Smears", "Doubt"])
    assert answer.referred_words == ("war",)
    assert "incomplete string was dropped" in answer.parse_note
    assert "'referred_image_concepts' is missing" in answer.parse_note


@pytest.mark.parametrize("ending", ['"war"', '"war",', '"war", "'])
def test_a_reply_cut_between_words_keeps_the_whole_ones(ending: str) -> None:
    answer = parse('{"labels": ["Smears"], "referred_words": [' + ending)
    assert (answer.parse, answer.referred_words) == ("repaired", ("war",))


@pytest.mark.parametrize(
    "text",
    [
        "{'labels': ['Smears', \"Doubt\"], 'referred_words': [], 'referred_image_concepts': []}",
        "{“labels”: [“Smears”, “Doubt”], “referred_words”: [], “referred_image_concepts”: []}",
        '{labels: ["Smears", "Doubt",], referred_words: [], referred_image_concepts: []}',
    ],
)
def test_loose_quotes_and_commas_are_repaired(text: str) -> None:
    answer = parse(text)
    assert (answer.parse, spans_of(text, answer)) == ("repaired", ["Smears", "Doubt"])


def test_an_apostrophe_in_single_quotes_leaves_the_label_uncertain() -> None:
    text = "{'labels': ['Misrepresentation of Someone's Position (Straw Man)'], 'referred_words': []}"
    assert_unparsed(parse(text, "text"), "list of labels")


def test_half_a_character_is_unparsed() -> None:
    assert_unparsed(parse(r'{"labels": ["Smears"], "referred_words": ["\ud83d"]}', "text"), "half a character")


@pytest.mark.parametrize("text", ['{"labels": ' + "[" * 100_000, '{"a": ' * 100_000, '{"labels": [' + "1" * 10_000])
def test_nesting_and_huge_numbers_do_not_stop_the_batch(text: str) -> None:
    assert parse(text).parse == "unparsed"


def test_a_long_wreck_is_not_repaired_for_minutes() -> None:
    text = '{"labels": ["Smears"], "referred_words": ["' + 'a" b "' * 20_000
    started = time.process_time()
    assert_unparsed(parse(text, "text"), "longer than the 8,000 characters that are repaired")
    assert time.process_time() - started < 1
    assert parse(text[:1000], "text").parse == "repaired"


LABELS = st.permutations(TASK.label_names).flatmap(
    lambda names: st.integers(0, len(names)).map(lambda count: tuple(names[:count]))
)
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=4)
PIECES = st.sampled_from(
    [
        *(
            '{"labels"',
            ": [",
            '"Smears"',
            ", ",
            "]",
            "}",
            "{",
            '"',
            "'",
            "\\",
            "```",
            "<think>",
            "</think>",
            "NaN",
            "\n",
        ),
        *("“", "”", '"referred_words"', '"confidence"', ": ", "null", "1e999", "-", "0.5", "%", "\\ud83d", "\\u", "//"),
        *("/*", "#", "...", "true", "[", "(", "\x00", "\u2028", "🔥", "labels", "json", "Smears", "'labels'"),
        '{"labels": ["Smears"], "referred_words": [',
    ]
)


@given(labels=LABELS, words=TEXTS, concepts=TEXTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
def test_every_dumped_answer_is_read_strictly_with_all_spans_right(
    labels: tuple[str, ...], words: list[str], concepts: list[str], ascii_only: bool, indent: int | None
) -> None:
    fields = {"referred_words": words, "labels": labels, "referred_image_concepts": concepts}
    text = json.dumps(fields, ensure_ascii=ascii_only, indent=indent)
    answer = parse(text)
    assert answer.parse == "strict"
    assert answer.labels == labels
    assert tuple(json.loads(f'"{span}"') for span in spans_of(text, answer)) == labels
    assert (answer.referred_words, answer.referred_image_concepts) == (tuple(words), tuple(concepts))


@settings(max_examples=1000, deadline=None)
@given(text=st.one_of(st.text(), st.lists(PIECES, max_size=25).map("".join)), mode=st.sampled_from(MODES))
def test_no_text_raises_and_every_span_names_its_label(text: str, mode: str) -> None:
    answer = parse(text, mode)
    for span in answer.label_spans:
        assert TASK.match_label(text[span.start : span.end]) == span.label
    assert bool(answer.parse_note) or answer.parse == "strict"


@given(end=st.integers(0, 200))
def test_a_cut_never_changes_the_labels(end: int) -> None:
    text = answer_json("Smears", "Flag-waving", words=("мир", 'a "b"'), concepts=("tank",))
    answer = parse(text[:end])
    assert answer.labels in ((), ("Smears", "Flag-waving"))
    assert set(answer.referred_words) <= {"мир", 'a "b"'}

"""Annotations from files: the shapes that are understood, and what is said of those that are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xai.analysis.annotators.annotations import Annotations, read_annotations
from xai.tasks import load_task


def written(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def by_item(annotations: Annotations) -> dict[str, tuple[set[str] | None, ...]]:
    columns = zip(*annotations.sets, strict=True)
    return {
        item: tuple(None if found is None else set(found) for found in sets)
        for item, sets in zip(annotations.items, columns, strict=True)
    }


EXPECTED = {"m1": ({"Doubt"}, {"Doubt", "Smears"}), "m2": (set(), None), "m3": ({"Doubt, or so"}, {"Smears"})}


def test_a_column_an_annotator_in_csv(tmp_path: Path) -> None:
    lines = (
        "image,labels_1,labels_2",
        """m1,['Doubt'],"['Doubt', 'Smears']" """.strip(),
        "m2,[],",
        """m3,"[""Doubt, or so""]",Smears""",
    )
    annotations = read_annotations([written(tmp_path, "a.csv", *lines)])
    assert by_item(annotations) == EXPECTED
    assert annotations.annotators == ("labels_1", "labels_2")
    assert annotations.labels == ("Doubt", "Doubt, or so", "Smears")


def test_a_column_an_annotator_in_jsonl(tmp_path: Path) -> None:
    rows = [
        {"id": "m1", "annotator1": ["Doubt"], "annotator2": ["Doubt", "Smears"]},
        {"id": "m2", "annotator1": []},
        {"id": "m3", "annotator1": ["Doubt, or so"], "annotator2": "Smears"},
    ]
    path = written(tmp_path, "a.jsonl", *map(json.dumps, rows))
    assert by_item(read_annotations([path])) == EXPECTED


def test_a_row_an_annotation(tmp_path: Path) -> None:
    lines = (
        "item,annotator,labels",
        "m1,x,Doubt",
        "m1,y,Smears|Doubt",
        "m2,x,[]",
        "m3,y,Smears",
        'm3,x,"Doubt, or so"',
    )
    annotations = read_annotations([written(tmp_path, "long.csv", *lines)])
    assert by_item(annotations) == EXPECTED
    assert annotations.annotators == ("x", "y")


def test_a_file_an_annotator_is_joined_by_item(tmp_path: Path) -> None:
    first = written(tmp_path, "x.csv", "id,labels", "m1,Doubt", "m2,[]", 'm3,"Doubt, or so"')
    second = written(tmp_path, "y.csv", "id,labels", "m3,Smears", "m1,Doubt;Smears")
    annotations = read_annotations([first, second])
    assert by_item(annotations) == EXPECTED
    assert annotations.annotators == ("x", "y")


def test_files_of_the_same_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = []
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        paths.append(written(tmp_path / name, "test.csv", "id,labels", "m1,Doubt"))
    assert read_annotations(paths).annotators == ("x/test", "y/test")


def test_columns_are_those_named_else_those_that_hold_lists(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "id,text,kim,lee", "m1,[sic] or not,['a'],['b']", "m2,words,[],['b']")
    assert read_annotations([path]).annotators == ("kim", "lee")
    named = read_annotations([path], item="text", annotators=["lee", "kim"])
    assert (named.annotators, named.items) == (("lee", "kim"), ("[sic] or not", "words"))


def test_aliases_become_the_labels_of_the_task_in_its_order(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "id,labels_1,labels_2", "m1,Casting doubt|doubt,No propaganda", "m2,Smears,Doubt")
    annotations = read_annotations([path], task=load_task("ukrmeme"))
    assert annotations.labels == ("Doubt", "Smears", "NO_PROPAGANDA")
    assert by_item(annotations)["m1"] == ({"Doubt"}, {"NO_PROPAGANDA"})


@pytest.mark.parametrize(
    ("name", "lines", "told"),
    [
        (
            "a.csv",
            ("id,labels_1,labels_2", "m1,['a' 'b'],a"),
            "a.csv, line 2, column 'labels_1': not a list of strings",
        ),
        ("a.csv", ("id,labels_1,labels_2", "m1,a,a", "m2,a,|"), "line 3, column 'labels_2': not a list of labels"),
        ("a.csv", ("id,labels_1,labels_2", "m1,a,a", ",a,a"), "a.csv, line 3: the item has no name"),
        ("a.csv", ("id,labels_1,labels_2", "m1,a,b,c"), "line 2: 4 cells where the first line names 3 columns"),
        ("a.csv", ("id,labels_1,labels_2", "m1,a,b", "m1,a,c"), "labelled item 'm1' before (a.csv, line 2); keep one"),
        ("a.csv", ("id,labels_1,labels_1", "m1,a,b"), "has a column twice"),
        ("a.csv", ("id,labels_1,labels_2", 'm1,"a,b'), "not valid CSV"),
        ("a.csv", ("id,labels_1,labels_2",), "has no records"),
        ("a.csv", ("name,labels_1,labels_2", "m1,a,b"), "name it with --item"),
        ("a.csv", ("id,kim,lee", "m1,a,b"), "it has 'id', 'kim', 'lee'; name them with --annotator"),
        ("a.csv", ("id,labels_1", "m1,a"), "agreement needs two"),
        ("a.csv", ("id,annotator,labels", "m1,,a"), "the annotator has no name"),
        ("a.jsonl", ('{"id": "m1", "labels_1": ["a", 3], "labels_2": []}',), "not a list of labels"),
        ("a.jsonl", ('{"id": "m1", "labels_1": 7, "labels_2": []}',), "not a list of labels"),
        ("a.jsonl", ('{"id": "m1"', ""), "line 1: not valid JSON"),
        ("a.jsonl", ("[]",), "not a JSON object"),
        ("a.txt", ("",), "from .csv and .jsonl"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(
    name: str, lines: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_annotations([written(tmp_path, name, *lines)])
    assert told in str(caught.value)


def test_many_bad_cells_are_told_at_once_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "id,labels_1,labels_2", *(f"m{n},[,a" for n in range(9)))
    with pytest.raises(ValueError, match=r"line 2, .*line 6, .*and 4 more"):
        read_annotations([path])


def test_a_label_that_the_task_does_not_have_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "id,labels_1,labels_2", "m1,Smears,Smear and fear")
    with pytest.raises(ValueError, match=r"line 2, column 'labels_2': 'Smear and fear' is no label of task 'ukrmeme'"):
        read_annotations([path], task=load_task("ukrmeme"))


def test_a_file_that_is_not_there_and_one_of_other_bytes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_annotations([tmp_path / "none.csv"])
    (tmp_path / "latin.csv").write_bytes("id,labels_1\nm1,café".encode("latin-1"))
    with pytest.raises(ValueError, match="not UTF-8"):
        read_annotations([tmp_path / "latin.csv"])

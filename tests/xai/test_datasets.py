"""Datasets: four formats give the same memes, and a broken record costs only itself."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from xai.datasets import read_memes, write_memes
from xai.schema import Failure, Meme, Word


def write_jsonl(folder: Path, *records: object, name: str = "memes.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def write_csv(folder: Path, *rows: list[str]) -> Path:
    path = folder / "memes.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def write_parquet(folder: Path, *records: dict[str, object]) -> Path:
    pyarrow.parquet.write_table(pa.Table.from_pylist(list(records)), folder / "memes.parquet")
    return folder / "memes.parquet"


def write_picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 3)).save(path)
    return path


def only_failure(path: Path, **options: Path) -> Failure:
    (found,) = read_memes(path, **options)
    assert isinstance(found, Failure)
    assert found.stage == "read"
    return found


def test_a_jsonl_record_becomes_a_meme_and_unknown_columns_its_metadata(tmp_path: Path) -> None:
    record = {"id": "a", "labels": ["Smears"], "text": "так\n", "image": "a.png", "year": 2023, "tags": [1, None]}
    (meme,) = read_memes(write_jsonl(tmp_path, record))
    assert meme == Meme(
        id="a",
        labels=("Smears",),
        text="так\n",
        image=tmp_path / "a.png",
        metadata={"year": 2023, "tags": [1, None]},
    )


def test_unknown_labels_and_no_labels_are_told_apart(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path, {"id": "a"}, {"id": "b", "labels": []}, {"id": "c", "labels": None, "text": None})
    assert [(meme.labels, meme.text, meme.image) for meme in read_memes(path)] == [
        (None, "", None),
        ((), "", None),
        (None, "", None),
    ]


WORDS = [
    {"text": "no", "start": 0, "end": 2, "box": [1, 2, 3.5, 4], "confidence": 0.5},
    {"text": "war", "start": 3, "end": 6},
]
READ_WORDS = (
    Word(text="no", start=0, end=2, box=(1.0, 2.0, 3.5, 4.0), confidence=0.5),
    Word(text="war", start=3, end=6),
)


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: write_jsonl(folder, {"id": "a", "text": "no war", "labels": ["A/B", "C, D"], "words": WORDS}),
        lambda folder: write_csv(
            folder, ["id", "text", "labels", "words"], ["a", "no war", '["A/B", "C, D"]', json.dumps(WORDS)]
        ),
        lambda folder: write_parquet(
            folder, {"id": "a", "text": "no war", "labels": ["A/B", "C, D"], "words": WORDS, "post": None}
        ),
        lambda folder: write_parquet(
            folder, {"id": "a", "text": "no war", "labels": "A/B|C, D", "words": json.dumps(WORDS)}
        ),
    ],
    ids=["jsonl", "csv", "parquet", "parquet with text cells"],
)
def test_every_format_reads_the_same_meme(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    assert list(read_memes(write(tmp_path))) == [
        Meme(id="a", text="no war", labels=("A/B", "C, D"), words=READ_WORDS),
    ]


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ('["Smears", "Someone\'s"]', ("Smears", "Someone's")),
        ("['Smears', \"Someone's\"]", ("Smears", "Someone's")),
        ("Smears | A, B and C", ("Smears", "A, B and C")),
        ("Smears;Name calling/Labeling;", ("Smears", "Name calling/Labeling")),
        ("Obfuscation, Confusion", ("Obfuscation, Confusion",)),
        ("[]", ()),
        ("", None),
    ],
)
def test_labels_in_a_csv_cell_may_be_a_list_or_separated(
    tmp_path: Path, cell: str, labels: tuple[str, ...] | None
) -> None:
    (meme,) = read_memes(write_csv(tmp_path, ["id", "labels"], ["a", cell]))
    assert meme.labels == labels


@pytest.mark.parametrize("cell", ["['Smears' 'Doubt']", "[Smears]", '["Smears"', "[1]", "['a', __import__('os')]"])
def test_a_list_of_labels_that_is_not_one_is_never_guessed(tmp_path: Path, cell: str) -> None:
    failure = only_failure(write_csv(tmp_path, ["id", "labels"], ["a", cell]))
    assert failure.meme_id == "a"
    assert failure.reason == "line 2: labels: not a list of strings; write it as JSON, or with | between the labels"


def test_csv_keeps_line_breaks_in_cells_and_counts_lines_as_an_editor_does(tmp_path: Path) -> None:
    path = write_csv(tmp_path, ["id", "text", "source"], ["a", "one\ntwo, three", "x"], ["b", "", ""], ["c"])
    first, second, third = read_memes(path)
    assert first == Meme(id="a", text="one\ntwo, three", metadata={"source": "x"})
    assert second == Meme(id="b", metadata={"source": ""})
    assert third == Failure(
        meme_id="line 5",
        stage="read",
        reason="line 5: 1 cells where the first line names 3 columns; correct the line",
    )


def test_a_jsonl_line_ends_at_a_line_feed_only(tmp_path: Path) -> None:
    path = tmp_path / "memes.jsonl"
    path.write_bytes('\ufeff{"id": "a", "text": "x\u2028y"}\r\n\r\n{"id": "b"}'.encode())
    assert [(meme.id, meme.text) for meme in read_memes(path)] == [("a", "x\u2028y"), ("b", "")]


def test_pictures_of_a_folder_are_memes_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpg", "мем.webp", ".hidden.png"):
        write_picture(tmp_path / name)
    (tmp_path / "notes.txt").write_text("x")
    assert list(read_memes(tmp_path)) == [
        Meme(id="a", image=tmp_path / "a.jpg"),
        Meme(id="b", image=tmp_path / "b.PNG"),
        Meme(id="мем", image=tmp_path / "мем.webp"),
    ]


def test_two_pictures_of_one_stem_are_a_duplicate(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.jpg")
    write_picture(tmp_path / "a.png")
    first, second = read_memes(tmp_path)
    assert first.id == "a"
    assert second.reason.startswith("file 'a.png': the id 'a' was already used (file 'a.jpg');")


def test_a_folder_with_a_jsonl_is_read_as_that(tmp_path: Path) -> None:
    picture = write_picture(tmp_path / "images" / "a.png")
    write_picture(tmp_path / "other.png")
    write_jsonl(tmp_path, {"id": "x", "image": "a.png"})
    assert list(read_memes(tmp_path)) == [Meme(id="x", image=picture)]


def test_a_picture_is_looked_up_beside_the_file_then_in_images_or_only_where_told(tmp_path: Path) -> None:
    beside = write_picture(tmp_path / "data" / "a.png")
    below = write_picture(tmp_path / "data" / "images" / "b.png")
    elsewhere = write_picture(tmp_path / "elsewhere" / "b.png")
    path = write_jsonl(tmp_path / "data", {"id": "a", "image": "a.png"}, {"id": "b", "image": "b.png"})
    assert [meme.image for meme in read_memes(path)] == [beside, below]
    told = elsewhere.parent
    assert [meme.image for meme in read_memes(path, images=told)] == [told / "a.png", elsewhere]


def test_a_missing_picture_shows_when_it_is_opened_not_before(tmp_path: Path) -> None:
    (meme,) = read_memes(write_jsonl(tmp_path, {"id": "a", "image": "gone.png"}))
    with pytest.raises(ValueError, match=r"picture 'gone\.png' of meme 'a' does not exist"):
        meme.open_image()


@pytest.mark.parametrize(
    "name", ["../secret.png", "images/../../secret.png", "{outside}/secret.png", "link.png", "linked/secret.png"]
)
@pytest.mark.parametrize("told", [False, True])
def test_a_path_that_leaves_the_folder_is_refused_without_naming_it(tmp_path: Path, name: str, told: bool) -> None:
    secret = write_picture(tmp_path / "secret.png")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "link.png").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)
    path = write_jsonl(folder, {"id": "a", "image": name.format(outside=tmp_path)})
    failure = only_failure(path, **({"images": folder} if told else {}))
    assert failure.reason == (
        "line 1: image: the path leads out of the folder of the pictures; put the picture inside, or give the folder "
        "that it is in as images"
    )


@pytest.mark.parametrize("name", ["\\\\server\\share\\a.png", "//server/share/a.png", "C:\\a.png", "C:/a.png"])
def test_a_network_or_drive_path_is_refused(tmp_path: Path, name: str) -> None:
    assert "leads out of the folder" in only_failure(write_jsonl(tmp_path, {"id": "a", "image": name})).reason


def test_an_absolute_path_and_a_link_that_stay_inside_are_fine(tmp_path: Path) -> None:
    picture = write_picture(tmp_path / "a.png")
    (tmp_path / "link.png").symlink_to(picture)
    path = write_jsonl(tmp_path, {"id": "a", "image": str(picture)}, {"id": "b", "image": "link.png"})
    assert [meme.image for meme in read_memes(path)] == [picture, picture]


@pytest.mark.parametrize("name", ["", "a\0b.png", "x" * 5000])
def test_an_impossible_file_name_costs_its_record_only(tmp_path: Path, name: str) -> None:
    first, second = read_memes(write_jsonl(tmp_path, {"id": "a", "image": name}, {"id": "b"}))
    assert isinstance(first, Failure)
    assert second == Meme(id="b")


@pytest.mark.parametrize(
    ("line", "meme_id", "reason"),
    [
        ('{"id": "x", ', "line 2", "not valid JSON (Expecting property name"),
        ("[1]", "line 2", "not a JSON object; write one object a line"),
        ('{"id": "x", "id": "y"}', "line 2", "not valid JSON (a key is given twice); correct the line"),
        ('{"id": "x", "score": NaN}', "line 2", "not valid JSON (NaN is not JSON); correct the line"),
        ("[" * 100_000, "line 2", "not valid JSON (maximum recursion depth"),
        ('{"text": "x"}', "line 2", "the id is missing or no string; give every meme an id of its own, as a string"),
        ('{"id": ""}', "line 2", "the id is missing"),
        ('{"id": 1.5}', "line 2", "the id is missing or no string"),
        ('{"id": "\\ud800"}', "line 2", "the id is missing or no string"),
        ('{"id": "x", "text": "\\ud800"}', "x", "it holds half a character"),
        ('{"id": "x", "score": -1e999}', "x", "it holds an infinite number; correct it"),
        ('{"id": "x", "text": 7}', "x", "text: Input should be a valid string; give the text as a string"),
        ('{"id": "x", "labels": "Smears"}', "x", "labels: Input should be a valid tuple; give the labels as a list"),
        ('{"id": "x", "labels": [1]}', "x", "labels.0: Input should be a valid string; give the labels as a list"),
        ('{"id": "x", "image": {"path": "a"}}', "x", "image: not the name of a file; give"),
        ('{"id": "x", "words": [{"text": "a", "start": 0}]}', "x", "words.0.end: Field required; give a list of"),
        ('{"id": "x", "text": "ab", "words": [{"text": "a", "start": 1, "end": 2}]}', "x", "word 'a' is not at [1, 2)"),
        ('{"id": "first"}', "first (line 2)", "the id 'first' was already used (line 1); give every meme an id"),
    ],
)
def test_a_broken_record_is_a_failure_with_line_and_remedy_and_the_rest_goes_on(
    tmp_path: Path, line: str, meme_id: str, reason: str
) -> None:
    path = tmp_path / "memes.jsonl"
    path.write_text(f'{{"id": "first"}}\n{line}\n{{"id": "last"}}\n', encoding="utf-8")
    first, failure, last = read_memes(path)
    assert (first, last) == (Meme(id="first"), Meme(id="last"))
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.meme_id) == ("read", meme_id)
    assert failure.reason.startswith(f"line 2: {reason}")


def test_a_whole_number_is_an_id(tmp_path: Path) -> None:
    first, second = read_memes(write_jsonl(tmp_path, {"id": 7}, {"id": "7"}))
    assert first == Meme(id="7")
    assert isinstance(second, Failure)


def test_broken_words_in_a_table_cell_are_a_failure(tmp_path: Path) -> None:
    failure = only_failure(write_csv(tmp_path, ["id", "words"], ["a", "no war"]))
    assert (failure.meme_id, failure.reason[:28]) == ("a", "line 2: words: not valid JSO")


def test_a_row_of_parquet_is_named_by_its_number(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, {"id": "a", "score": 0.5}, {"id": None, "score": 1.0})
    first, second = read_memes(path)
    assert first == Meme(id="a", metadata={"score": 0.5})
    assert (second.meme_id, second.reason[:6]) == ("row 2", "row 2:")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("memes.jsonl", '{"id": "і"}'.encode("cp1251"), r"'memes\.jsonl' is not UTF-8 \(at byte 8\); save it as UTF-8"),
        ("memes.csv", "id,text\n1,x".encode("utf-16"), "is not UTF-8"),
        ("memes.csv", b"name,text\n1,x", "has no column 'id'"),
        ("memes.csv", b"", "has no column 'id'"),
        ("memes.csv", b"id,text,text\n", "has the column 'text' twice"),
        ("memes.csv", b'id,"te"xt"\n', "the first line of 'memes.csv' is not valid CSV"),
        ("memes.parquet", b"PAR1 no", "cannot be read as Parquet"),
        ("memes.xlsx", b"", r"not supported; give \.jsonl, \.csv, \.parquet or a folder of pictures"),
    ],
)
def test_a_file_that_cannot_be_read_at_all_says_so_at_once(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_memes(tmp_path / name)


def test_a_path_that_leads_nowhere_says_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"dataset 'gone\.jsonl' does not exist"):
        read_memes(tmp_path / "gone.jsonl")
    with pytest.raises(ValueError, match=r"has neither a memes\.jsonl nor pictures"):
        read_memes(tmp_path)
    with pytest.raises(ValueError, match="image folder 'gone' does not exist"):
        read_memes(write_jsonl(tmp_path, {"id": "a"}), images=tmp_path / "gone")


def test_written_memes_are_read_back_equal_also_after_the_folder_was_moved(tmp_path: Path) -> None:
    picture = write_picture(tmp_path / "old" / "images" / "a.png")
    memes = [
        Meme(id="a", image=picture, text="no war", words=READ_WORDS, labels=(), metadata={"year": 2023}),
        Meme(id="ї", text="x\u2028\n", labels=("Smears",), post="p", language="uk"),
    ]
    write_memes(tmp_path / "old" / "memes.jsonl", memes)
    assert list(read_memes(tmp_path / "old")) == memes
    (tmp_path / "old").rename(tmp_path / "new")
    moved = next(iter(read_memes(tmp_path / "new")))
    assert moved.image == tmp_path / "new" / "images" / "a.png"


def test_a_picture_outside_is_written_so_that_images_finds_it(tmp_path: Path) -> None:
    picture = write_picture(tmp_path / "pictures" / "a.png")
    path = tmp_path / "out" / "memes.jsonl"
    write_memes(path, [Meme(id="a", image=picture)])
    assert list(read_memes(path, images=picture.parent)) == [Meme(id="a", image=picture)]


@pytest.mark.parametrize(
    ("meme", "message"),
    [
        (Meme(id="b", image=Image.new("RGB", (1, 1))), "meme 'b' holds a picture in memory; save it"),
        (Meme(id="b", metadata={"text": "x"}), "uses the name of a field, 'text'; rename it"),
        (Meme(id="b", metadata={"score": float("nan")}), "meme 'b' cannot be written as JSON"),
        (Meme(id="b", metadata={"set": {1}}), "meme 'b' cannot be written as JSON"),
    ],
)
def test_a_meme_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path, meme: Meme, message: str) -> None:
    path = write_jsonl(tmp_path, {"id": "before"})
    with pytest.raises(ValueError, match=message):
        write_memes(path, [Meme(id="a"), meme])
    assert [found.id for found in read_memes(path)] == ["before"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["memes.jsonl"]


def test_memes_are_written_as_jsonl_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"name the file memes\.jsonl instead of memes\.csv"):
        write_memes(tmp_path / "memes.csv", [])


def test_two_records_never_fail_under_one_name(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path, {"id": "a"}, {"id": "a"}, {"id": "a (line 2)"}, {"id": "line 6"}, {"id": "a"}, [])
    records = list(read_memes(path))
    names = [record.id if isinstance(record, Meme) else record.meme_id for record in records]
    assert names[:2] == ["a", "a (line 2)"]
    assert len(set(names)) == len(names) == 6
    assert len([record for record in records if isinstance(record, Failure)]) == 4


def test_half_a_character_is_refused_in_python_too() -> None:
    with pytest.raises(ValueError, match="half a character"):
        Meme(id="a", text="\ud83d")


def test_one_line_in_another_encoding_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "memes.jsonl"
    path.write_bytes(b'{"id": "a"}\n' + '{"id": "ї"}\n'.encode("cp1251") + '{"id": "ї"}'.encode())
    first, failure, last = read_memes(path)
    assert (first, last) == (Meme(id="a"), Meme(id="ї"))
    assert failure == Failure(meme_id="line 2", stage="read", reason="line 2: not UTF-8; save the file as UTF-8")


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (datetime.datetime(2023, 5, 1, 12, 30), "2023-05-01T12:30:00"),
        (datetime.date(2023, 5, 1), "2023-05-01"),
        (Decimal("1.50"), "1.50"),
        (float("nan"), None),
        ([1.0, float("inf")], [1.0, None]),
        ({"a": datetime.time(1, 2)}, {"a": "01:02:00"}),
    ],
)
def test_values_of_parquet_are_kept_as_json_has_them(tmp_path: Path, value: object, kept: object) -> None:
    (meme,) = read_memes(write_parquet(tmp_path, {"id": "a", "x": value}))
    assert meme.metadata == {"x": kept}
    write_memes(tmp_path / "again.jsonl", [meme])


def test_a_binary_column_is_named(tmp_path: Path) -> None:
    failure = only_failure(write_parquet(tmp_path, {"id": "a", "thumbnail": b"x"}))
    assert failure.meme_id == "a"
    assert failure.reason == "row 1: a column holds bytes, which is neither text nor a number; leave it out"


def test_a_missing_text_that_pandas_wrote_as_nan_is_unknown(tmp_path: Path) -> None:
    (meme,) = read_memes(write_parquet(tmp_path, {"id": "a", "post": float("nan"), "labels": None}))
    assert meme == Meme(id="a")


def test_a_file_that_may_not_be_read_says_so_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_jsonl(tmp_path, {"id": "a"})

    def denied(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    # Whoever runs the tests as root may read everything.
    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(
        ValueError, match=r"^'memes\.jsonl' cannot be read \(Permission denied\); check its permissions$"
    ):
        read_memes(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ENCODABLE = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
KNOWN = set(Meme.model_fields)
PIECES = st.sampled_from(
    [
        *(
            b'{"id": "a"}',
            b'{"id": 1, "text": "x"}',
            b'{"id"',
            b": ",
            b'"a"',
            b"\n",
            b"\r\n",
            b",",
            b'"',
            b"id,text",
            b"id",
        ),
        *(
            b"{",
            b"}",
            b"[",
            b"]",
            b"null",
            b"NaN",
            b"1e999",
            b"\xef\xbb\xbf",
            b"\xff\xfe",
            b"\x00",
            b"\xd1",
            b"\\ud800",
        ),
        *(b'"labels": ', b'"words": ', b'"image": ', b'"../x"', b"\xe2\x80\xa8", b"|", b";", b"['a']", b"PAR1"),
    ]
)
CONTENT = st.binary(max_size=200) | st.lists(PIECES, max_size=30).map(b"".join)


def read_or_none(path: Path) -> list[Meme | Failure]:
    """The records, or none where the file is refused as a whole."""
    try:
        return list(read_memes(path))
    except ValueError:
        return []


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=CONTENT, kind=st.sampled_from(["jsonl", "csv", "parquet"]), headed=st.booleans())
def test_any_bytes_are_records_or_a_value_error(tmp_path: Path, content: bytes, kind: str, headed: bool) -> None:
    path = tmp_path / f"fuzzed.{kind}"
    path.write_bytes((b"id,text,labels\n" if headed and kind == "csv" else b"") + content)
    records = read_or_none(path)
    names = [record.id if isinstance(record, Meme) else record.meme_id for record in records]
    assert len(set(names)) == len(names)
    assert all(isinstance(record, Meme) or (record.stage == "read" and ";" in record.reason) for record in records)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_parquet_file_is_records_or_a_value_error(tmp_path: Path, data: st.DataObject) -> None:
    whole = write_parquet(tmp_path, *({"id": str(n), "text": "x" * n, "labels": ["a"]} for n in range(20)))
    content = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.parquet"
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))] if data.draw(st.booleans()) else content)
    assert all(isinstance(record, Meme | Failure) for record in read_or_none(path))


@st.composite
def memes(draw: st.DrawFn) -> list[Meme]:
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    return [
        Meme(
            id=name,
            text=draw(ENCODABLE),
            labels=draw(st.none() | st.lists(ENCODABLE, max_size=3).map(tuple)),
            post=draw(st.none() | ENCODABLE),
            metadata=draw(st.dictionaries(ENCODABLE.filter(lambda key: key not in KNOWN), JSON, max_size=3)),
        )
        for name in names
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=memes())
def test_whatever_is_written_is_read_back_equal(tmp_path: Path, written: list[Meme]) -> None:
    write_memes(tmp_path / "written.jsonl", written)
    assert list(read_memes(tmp_path / "written.jsonl")) == written

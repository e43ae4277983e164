"""The index of runs: what filters let through, in which order, and which row stands beside which."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.app.conftest import HOSTILE_ID, compare
from xai.app.filters import SORTS, Filter
from xai.app.library import Key, Library
from xai.limits import Limits
from xai.models import VisionLanguageModel
from xai.pipeline import explain_dataset
from xai.planted import SAMPLES
from xai.schema import SEGMENTS
from xai.store import open_run

REST = '"referred_words": [], "referred_image_concepts": []}'


def everything(library: Library, wanted: Filter, auditor: str = "") -> pd.DataFrame:
    return library.page(wanted, start=0, size=10_000, auditor=auditor)


def test_there_is_a_row_for_every_meme_mode_and_method(library: Library, run: Path) -> None:
    explained = open_run(run).explanations().filter("target = '*'").df()
    rows = everything(library, Filter())
    assert set(zip(rows.meme_id, rows["mode"], rows.method, strict=True)) >= set(
        zip(explained.meme_id, explained["mode"], explained.method, strict=True)
    )
    assert len(rows) == len(open_run(run).predictions()) == 55  # 24 samples and 3 others twice, the broken one once


def test_an_answer_without_explanation_is_listed_and_flagged(library: Library, run: Path) -> None:
    rows = everything(library, Filter(flag=("unexplained",)))
    explained = set(open_run(run).explanations().df()[["meme_id", "mode"]].itertuples(index=False, name=None))
    predicted = set(open_run(run).predictions().df()[["meme_id", "mode"]].itertuples(index=False, name=None))
    assert set(rows[["meme_id", "mode"]].itertuples(index=False, name=None)) == predicted - explained


def test_the_least_agreement_comes_first_and_what_is_unknown_last(library: Library, run: Path) -> None:
    table = pd.read_parquet(run / "reports" / "agreement.parquet")
    rows = everything(library, Filter(sort="agreement"))
    known = rows.jaccard.dropna()
    assert known.tolist() == sorted(table.jaccard.dropna())
    assert rows.jaccard[len(known) :].isna().all()
    unfaithful = rows[rows.jaccard == 0]
    assert {label for labels in unfaithful.labels for label in labels} >= {"Appeal to authority", "Bandwagon"}
    most = everything(library, Filter(sort="agreement", reverse=True)).jaccard
    assert most.dropna().tolist() == sorted(known, reverse=True)
    assert most[len(known) :].isna().all()


@pytest.mark.parametrize("sort", SORTS)
def test_every_order_is_total_so_that_pages_neither_repeat_nor_leave_out(library: Library, sort: str) -> None:
    for reverse in (False, True):
        wanted = Filter(sort=sort, reverse=reverse)
        whole = everything(library, wanted)
        pages = [library.page(wanted, start=start, size=7) for start in range(0, len(whole), 7)]
        assert pd.concat(pages)[["meme_id", "mode"]].values.tolist() == whole[["meme_id", "mode"]].values.tolist()


def test_filters_are_all_to_hold_and_their_values_any(library: Library) -> None:
    rows = everything(library, Filter(label=("Doubt", "Slogans"), mode=("text",)))
    assert len(rows) > 0
    assert all({"Doubt", "Slogans"} & set(labels) for labels in rows.labels)
    assert set(rows["mode"]) == {"text"}
    assert library.count(Filter(label=("Doubt", "Slogans"), mode=("text",))) == len(rows)


def test_correct_means_the_gold_labels_with_the_none_label_left_out(library: Library) -> None:
    right, wrong = everything(library, Filter(correct="right")), everything(library, Filter(correct="wrong"))
    unknown = everything(library, Filter(correct="unknown"))
    assert len(right) + len(wrong) + len(unknown) == library.count(Filter())
    for rows, expected in ((right, True), (wrong, False)):
        for row in rows.itertuples():
            labels, gold = (set(side) - {"NO_PROPAGANDA"} for side in (row.labels, row.gold))
            assert (labels == gold) is expected
    assert set(unknown.meme_id) == {"arabic", "chinese", "broken"}


def test_an_agreement_range_leaves_out_what_has_none(library: Library) -> None:
    rows = everything(library, Filter(low=0.0, high=0.3))
    assert len(rows) > 0
    assert (rows.jaccard < 0.31).all()
    one = rows.jaccard.notna().sum() + len(everything(library, Filter(low=0.31, high=1.0)))
    assert one == everything(library, Filter()).jaccard.notna().sum()


@pytest.mark.parametrize("text", ["EVIL", "onerror", "Это нет", "خبرا", "普通", "%", "' OR 1=1 --"])
def test_text_is_looked_for_as_it_stands(library: Library, text: str) -> None:
    rows = everything(library, Filter(text=text))
    answers = {(row.meme_id, row["mode"]): row["answer"] for _, row in library.query("SELECT * FROM memes").iterrows()}
    whole = everything(library, Filter())
    expected = [
        row.meme_id
        for _, row in whole.iterrows()
        if text.lower() in f"{row.meme_id}\n{row.text}\n{answers[row.meme_id, row['mode']]}".lower()
    ]
    assert sorted(rows.meme_id) == sorted(expected)


def test_the_place_of_a_row_and_its_neighbours_follow_the_filter(library: Library) -> None:
    wanted = Filter(mode=("image+text",), sort="id")
    keys = [Key(*row) for row in everything(library, wanted)[list(Key._fields)].itertuples(index=False, name=None)]
    middle = library.place(keys[3], wanted)
    assert (middle.at, middle.total) == (4, len(keys))
    assert (middle.previous, middle.following) == (keys[2], keys[4])
    assert library.place(keys[0], wanted).previous is None
    assert library.place(keys[-1], wanted).following is None
    outside = library.place(keys[0]._replace(mode="text"), wanted)
    assert (outside.at, outside.total, outside.following) == (None, len(keys), None)


def test_an_explanation_is_read_as_the_store_has_it(library: Library, run: Path) -> None:
    (key,) = [key for key in library.rows_of("run", "sample-02") if key.mode == "image+text"]
    targets = library.targets(key)
    assert targets[0] == "*"
    for target in targets:
        stored = open_run(run).explanation("sample-02", "image+text", target)
        assert library.explanation(key, target).model_dump_json() == stored.model_dump_json()
    with pytest.raises(KeyError, match="not explained"):
        library.explanation(key, "Nothing of the kind")
    with pytest.raises(KeyError, match="no run that is open here"):
        library.row(Key("../../etc", "passwd", "text", "attnlrp"))


def test_parts_of_the_relevance_add_up_to_one_and_top_words_are_those_with_most(library: Library) -> None:
    rows = library.query("SELECT * FROM memes WHERE method <> ''")
    parts = rows[[f"part_{segment}" for segment in SEGMENTS]].sum(axis=1)
    assert parts.between(0.999, 1.001).all()
    key = library.rows_of("run", "sample-01")[0]
    words = library.explanation(key, "*").words.sort_values("relevance", ascending=False, kind="stable")
    assert library.row(key)["top_words"] == words.word.tolist()[:5]


def test_verdicts_are_filtered_by_who_gave_them(run: Path) -> None:
    library = Library([run])
    first, second = (Key("run", name, "text", "attnlrp") for name in ("sample-01", "sample-02"))

    def verdict(key: Key, auditor: str, relevance: str | None) -> dict[str, str | None]:
        return {**key._asdict(), "auditor": auditor, "relevance": relevance, "rationale": None, "label": None}

    given = [verdict(first, "ann", "plausible"), verdict(first, "bo", "unclear")]
    library.set_verdicts("run", [*given, verdict(second, "bo", "not plausible")])

    def names(verdict: str, auditor: str) -> list[str]:
        return sorted(everything(library, Filter(verdict=verdict, mode=("text",)), auditor).meme_id)

    assert names("mine", "ann") == ["sample-01"]
    assert names("mine", "bo") == ["sample-01", "sample-02"]
    assert "sample-02" in names("missing", "ann")
    assert names("split", "") == ["sample-01"]
    assert names("relevance", "") == ["sample-02"]
    assert set(names("none", "")).isdisjoint({"sample-01", "sample-02"})
    library.set_verdicts("run", [])
    assert names("mine", "bo") == []


def test_a_filter_survives_its_url_and_nonsense_in_a_url_is_left_out() -> None:
    wanted = Filter(label=("Doubt", "a&b=c"), low=0.25, sort="agreement", reverse=True, text="не", verdict="split")
    assert Filter.from_params(wanted.to_params()) == wanted
    assert Filter().to_params() == {}
    nonsense = {"f_sort": ["DROP TABLE"], "f_low": ["x"], "f_correct": ["maybe"], "f_mode": ["text"], "page": ["9"]}
    assert Filter.from_params(nonsense) == Filter(mode=("text",))


def test_two_runs_of_one_name_are_told_apart_and_do_not_mix(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    library = Library([run, tmp_path / "run"])
    assert list(library.runs) == [f"{run.parent.name}/run", f"{tmp_path.name}/run"]
    assert library.count(Filter(run=(f"{tmp_path.name}/run",))) == 55
    assert library.count(Filter()) == 110
    with pytest.raises(ValueError, match="given twice"):
        Library([run, run])


def test_what_is_written_later_is_seen_after_a_refresh(tmp_path: Path, model: VisionLanguageModel) -> None:
    out = tmp_path / "growing"
    explain_dataset(model, SAMPLES, out, modes=["text"], limit=2)
    library = Library([out])
    assert (library.count(Filter()), library.has_agreement("growing"), library.is_stale()) == (2, False, False)
    compare(out)
    assert library.is_stale()
    assert library.refresh()
    assert everything(library, Filter()).jaccard.notna().any()
    assert library.agreement(library.rows_of("growing", "sample-01")[0]) is not None
    assert not library.refresh()


def test_a_run_of_thousands_of_parts_is_listed_in_its_order(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    for kind in ("predictions", "explanations", "failures"):
        for part in (tmp_path / "run" / kind).glob("part-*.parquet"):
            part.rename(part.with_name(part.name.replace("part-0", "part-4")))
    few, many = (everything(Library([path]), Filter()) for path in (run, tmp_path / "run"))
    assert many[["meme_id", "mode"]].values.tolist() == few[["meme_id", "mode"]].values.tolist()


def test_the_hostile_meme_is_found_by_its_name(library: Library) -> None:
    assert {key.meme_id for key in library.rows_of("run", HOSTILE_ID)} == {HOSTILE_ID}


def test_a_cut_text_a_file_of_several_pictures_and_an_odd_answer_are_flagged(
    tmp_path: Path, model: VisionLanguageModel
) -> None:
    frames = [Image.new("RGB", (64, 64), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "still.png")
    lines = [
        {"id": "long", "image": "still.png", "text": "a word " * 20},
        {"id": "moving", "image": "moving.gif", "text": "two words"},
        {"id": "odd", "image": "still.png", "text": "two words"},
        {"id": "plain", "image": "still.png", "text": "two words"},
    ]
    given = [{"id": line["id"], "text": '{"label": "Hateful", "types": ["Mocking"], ' + REST} for line in lines]
    given[2]["text"] = '{"label": "Hateful", "types": ["Humor"], ' + REST
    for name, rows in (("memes", lines), ("answers", given)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    explain_dataset(
        model, tmp_path / "memes.jsonl", tmp_path / "run", task="aha-memes", answers=tmp_path / "answers.jsonl",
        limits=Limits(max_characters=60), targets="all",
    )  # fmt: skip
    rows = everything(Library([tmp_path / "run"]), Filter())
    usual = {"choice", "instruction"}
    flags = {name: set(found) - usual for name, found in zip(rows["meme_id"], rows["flags"], strict=True)}
    assert flags == {"long": {"cut"}, "moving": {"frames"}, "odd": {"noted"}, "plain": set()}


LATER = ["share_post", "share_examples", "example_shares", "characters_cut", "picture_frames"]


def test_a_part_that_was_written_before_a_column_was_added_is_listed(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "old")
    for part in (tmp_path / "old" / "explanations").glob("part-*.parquet"):
        pq.write_table(pq.read_table(part).drop_columns(LATER), part)
    old, new = everything(Library([tmp_path / "old"]), Filter()), everything(Library([run]), Filter())
    assert old["part_text"].tolist() == pytest.approx(new["part_text"].tolist(), nan_ok=True)
    assert [set(flags) for flags in old["flags"]] == [set(flags) - {"cut", "frames"} for flags in new["flags"]]

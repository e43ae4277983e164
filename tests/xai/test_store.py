"""A run folder holds whole memes only, gives them back exactly, and survives a stop at any instant."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from xai.schema import (
    Explanation,
    Failure,
    LabelSpan,
    Meme,
    Mode,
    Prediction,
    Quality,
    TokenTable,
    Word,
    WordTable,
)
from xai.store import RunError, RunWriter, open_run

CONFIG = {"task": "ukrmeme", "method": "attnlrp", "seed": 3, "model": {"name": "planted", "dtype": "float32"}}


def meme(identifier: str = "m1") -> Meme:
    return Meme(
        id=identifier,
        image=Path("pictures/a b.png"),
        text="Не 😀 \x00 ok",
        words=(
            Word(text="Не", start=0, end=2, box=(0.1, 1 / 3, 5.5, 7.0), confidence=0.3),
            Word(text="😀", start=3, end=4, polygon=((1, 0), (2.5, 1), (1, 2)), flags=("low_confidence",)),
        ),
        labels=("Smears", "Doubt"),
        post="пост",
        language="uk",
        metadata={"likes": 3, "nested": {"a": [1, None, 0.1]}},
        context={"people": ("Voter", "Celebrity")},
        examples=(
            Meme(id="e1", image=Path("pictures/e.png"), text="так", labels=("Doubt",), post="і пост"),
            Meme(id="e2", text="ні", labels=()),
        ),
    )


def prediction(identifier: str = "m1", mode: Mode = "image+text") -> Prediction:
    return Prediction(
        meme_id=identifier,
        mode=mode,
        generated_ids=(7, 151645),
        text='{"labels": ["Smears"]}',
        labels=("Smears",),
        label_spans=(LabelSpan(label="Smears", start=13, end=19),),
        unknown_labels=("Sarcasm",),
        reasons=("mocks a voter",),
        referred_words=("Не",),
        referred_image_concepts=("car",),
        parse="repaired",
        parse_note="a bracket was missing",
        answer_source="given_text",
        attention="eager",
        dtype="bfloat16",
    )


def explanation(
    identifier: str = "m1", mode: Mode = "image+text", target: str = "*", method: str = "attnlrp", *, value: float = 0.1
) -> Explanation:
    return Explanation(
        meme=meme(identifier),
        prediction=prediction(identifier, mode),
        mode=mode,
        method=method,
        target=target,
        target_kind="contrastive",
        target_positions=(2,),
        target_token_ids=(7,),
        contrast_ids=(9,),
        contrast=("Doubt",),
        target_value=value,
        baseline_value=-1 / 3,
        settings={"n_samples": 25, "baseline": "mean"},
        token_table=TokenTable(
            token=("<|im_start|>", "Не", "\n"),
            start=(-1, 0, 2),
            end=(-1, 2, 3),
            segment=("template", "text", "text"),
            relevance=(1 / 3, -1e-300, math.pi),
        ),
        word_table=WordTable(
            word=("Не", "😀"),
            start=(0, 3),
            end=(2, 4),
            box=((0.1, 1 / 3, 5.5, 7.0), None),
            relevance=(0.1 + 0.2, -2.5),
            mean_abs=(0.3, 2.5),
            n_tokens=(1, 4),
            gap=1e-17,
        ),
        image_levels=np.random.default_rng(0).normal(size=(3, 2, 5)),
        pixels=np.random.default_rng(1).normal(size=(4, 10)),
        image_size=(1920, 1080),
        shares={"text": 0.25, "image": -0.75},
        quality=Quality(
            conservation=None,
            sink_share=0.1,
            template_share=0.2,
            labels_located=1,
            labels_missing=("Doubt",),
            target_choice_changed=1,
            position_share=-1 / 3,
        ),
        config={"seed": 3, "gamma": None},
    )


def bare_explanation() -> Explanation:
    empty = WordTable(word=(), start=(), end=(), box=(), relevance=(), mean_abs=(), n_tokens=())
    bare = Meme(id="m2", text="a")
    return Explanation(
        meme=bare,
        prediction=Prediction(meme_id="m2", mode="text", generated_ids=(1,), text="?", parse="unparsed"),
        mode="text",
        method="attnlrp",
        target="*",
        target_value=2.0,
        token_table=TokenTable(token=(), start=(), end=(), segment=(), relevance=()),
        word_table=empty,
        shares={},
        quality=Quality(conservation=0.5, sink_share=0, template_share=0),
    )


def fill(writer: RunWriter, n: int = 7) -> None:
    """What a pipeline does: every meme that is not done, in order; the third cannot be read."""
    for i in range(n):
        key = (f"m{i}", None if i == 3 else "text")
        if key in writer.done():
            continue
        if i == 3:
            writer.add(None, failures=[Failure(meme_id="m3", stage="read", reason="no picture")])
        else:
            writer.add(prediction(f"m{i}", "text"), [explanation(f"m{i}", "text", value=i / 7)])


def rows(path: Path) -> list[list[tuple[object, ...]]]:
    run = open_run(path)
    return [relation.fetchall() for relation in (run.predictions(), run.explanations(), run.failures())]


@pytest.mark.parametrize("original", [explanation(), bare_explanation()], ids=["full", "bare"])
def test_an_explanation_comes_back_exactly(tmp_path: Path, original: Explanation) -> None:
    with RunWriter(tmp_path / "run", CONFIG) as writer:
        writer.add(original.prediction, [original])
    rebuilt = open_run(tmp_path / "run").explanation(original.meme.id)
    assert rebuilt.model_dump() == original.model_dump()
    if original.image_levels is not None:
        np.testing.assert_array_equal(rebuilt.image_levels, original.image_levels)
        np.testing.assert_array_equal(rebuilt.pixels, original.pixels)


def test_non_finite_relevance_is_stored_as_it_is(tmp_path: Path) -> None:
    original = explanation(value=math.inf)
    bad = original.model_copy(update={"image_levels": np.full((1, 1, 2), np.nan)})
    with RunWriter(tmp_path / "run", CONFIG) as writer:
        writer.add(bad.prediction, [bad])
    rebuilt = open_run(tmp_path / "run").explanation("m1")
    assert rebuilt.target_value == math.inf
    np.testing.assert_array_equal(rebuilt.image_levels, [[[np.nan, np.nan]]])


def test_tables_are_readable_as_data_frames(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", CONFIG) as writer:
        fill(writer)
    run = open_run(tmp_path / "run")
    assert run.predictions().df()["meme_id"].tolist() == ["m0", "m1", "m2", "m4", "m5", "m6"]
    assert run.explanations().filter("meme_id = 'm4'").df()["word_relevance"][0].tolist() == [0.1 + 0.2, -2.5]
    assert run.failures().df().to_dict("records") == [
        {"meme_id": "m3", "mode": None, "stage": "read", "reason": "no picture"}
    ]


def test_run_json_says_how_the_run_was_made(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", CONFIG)
    assert open_run(tmp_path / "run").info["state"] == "running"
    fill(writer)
    writer.close()
    run = open_run(tmp_path / "run")
    assert run.config == CONFIG
    assert run.info["state"] == "finished"
    assert run.info["seed"] == 3
    assert run.info["counts"] == {"predictions": 6, "explanations": 6, "failures": 1}
    assert {"python", "torch", "transformers", "lxt"} <= run.info["versions"].keys()
    assert run.reports.is_dir()


def test_a_run_without_rows_has_empty_tables(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", CONFIG).close()
    run = open_run(tmp_path / "run")
    assert len(run.predictions().df()) == len(run.explanations().df()) == len(run.failures().df()) == 0
    assert "word_relevance" in run.explanations().columns


def test_a_folder_name_with_wildcards_is_taken_literally(tmp_path: Path) -> None:
    for name in ("run[1]*", "run1"):
        with RunWriter(tmp_path / name, CONFIG) as writer:
            fill(writer, 2)
    assert len(open_run(tmp_path / "run[1]*").predictions().df()) == 2


class Killed(BaseException):
    """Stands for the end of the process at that instant."""


def run_until_killed(path: Path) -> None:
    writer = RunWriter(path, CONFIG, part_size=2)
    try:
        fill(writer)
        writer.close()
    finally:
        writer._release()  # as the system does when a process ends


@pytest.mark.parametrize("renames", range(15))
def test_a_run_stopped_at_any_rename_and_resumed_has_the_rows_of_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    with RunWriter(tmp_path / "whole", CONFIG, part_size=2) as writer:
        fill(writer)
    replace, left = os.replace, iter(range(renames))

    def replace_or_die(source: Path, target: Path) -> None:
        if next(left, None) is None:
            raise Killed
        replace(source, target)

    monkeypatch.setattr("xai.parts.os.replace", replace_or_die)
    with pytest.raises(Killed):
        run_until_killed(tmp_path / "stopped")
    monkeypatch.undo()
    with RunWriter(tmp_path / "stopped", CONFIG, part_size=2) as writer:
        fill(writer)
    assert rows(tmp_path / "stopped") == rows(tmp_path / "whole")
    assert not list((tmp_path / "stopped").rglob("*.tmp"))


def test_leftovers_of_a_kill_are_neither_read_nor_kept(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunWriter(path, CONFIG) as writer:
        writer.add(prediction(), [explanation()])
    before = rows(path)
    (path / "explanations" / ".part-00001.parquet.tmp").write_bytes(b"half")
    orphan = path / "explanations" / "part-00001.parquet"
    orphan.write_bytes((path / "explanations" / "part-00000.parquet").read_bytes())
    assert rows(path) == before
    RunWriter(path, CONFIG).close()
    assert not orphan.exists()
    assert not list(path.rglob("*.tmp"))
    assert rows(path) == before


def interrupt(path: Path) -> None:
    with RunWriter(path, CONFIG) as writer:
        writer.add(prediction(), [explanation()])
        raise KeyboardInterrupt


def test_what_was_added_is_kept_when_the_block_raises(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path / "run")
    assert open_run(tmp_path / "run").info["state"] == "running"
    with RunWriter(tmp_path / "run", CONFIG) as writer:
        assert writer.done() == {("m1", "image+text")}


def test_the_same_records_give_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with RunWriter(tmp_path / name, CONFIG, part_size=2) as writer:
            fill(writer)
    parts = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.parquet"))
    assert len(parts) == 4 + 4 + 1
    assert all((tmp_path / "a" / p).read_bytes() == (tmp_path / "b" / p).read_bytes() for p in parts)


def test_a_run_of_another_configuration_is_refused_by_the_names_that_differ(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", CONFIG).close()
    other = {**CONFIG, "model": {"name": "planted", "dtype": "float16"}, "method": "cplrp"}
    with pytest.raises(RunError, match=r"differing: method, model\.dtype"):
        RunWriter(tmp_path / "run", other)
    RunWriter(tmp_path / "run", CONFIG).close()


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    script = (
        "import sys, json; from xai.store import RunWriter, RunError\n"
        "try: RunWriter(sys.argv[1], json.loads(sys.argv[2]))\n"
        "except RunError as error: sys.exit(str(error))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run"), json.dumps(CONFIG)]
    with RunWriter(tmp_path / "run", CONFIG):
        second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "written by another process" in second.stderr
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="not empty"):
        RunWriter(tmp_path, CONFIG)
    with pytest.raises(RunError, match="is a file"):
        RunWriter(tmp_path / "notes.txt", CONFIG)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_is_no_run_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run folder"):
        open_run(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(RunError, match="layout 99"):
        open_run(tmp_path)


def test_records_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", CONFIG) as writer:
        with pytest.raises(ValueError, match="one meme in one mode"):
            writer.add(prediction("m1"), [explanation("m2")])
        with pytest.raises(ValueError, match="pass meme"):
            writer.add(prediction("m1"))
        with pytest.raises(ValueError, match="need their prediction"):
            writer.add(None, [explanation("m1")])
        writer.add(
            prediction("m1"),
            failures=[Failure(meme_id="m1", mode="image+text", stage="attribute", reason="NaN")],
            meme=meme(),
        )
        with pytest.raises(ValueError, match="already"):
            writer.add(prediction("m1"), [explanation("m1")])
    assert open_run(tmp_path / "run").predictions().df()["gold_labels"][0].tolist() == ["Smears", "Doubt"]


def test_a_record_that_cannot_be_stored_fails_alone(tmp_path: Path) -> None:
    surrogate = prediction("m2").model_copy(update={"parse_note": "\ud800"})
    with RunWriter(tmp_path / "run", CONFIG) as writer:
        writer.add(prediction("m1"), [explanation("m1")])
        with pytest.raises(ValueError, match="cannot be stored"):
            writer.add(surrogate, meme=meme("m2"))
    assert open_run(tmp_path / "run").info["counts"]["predictions"] == 1


def test_choosing_an_explanation_names_what_there_is(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", CONFIG) as writer:
        writer.add(prediction(), [explanation(), explanation(target="Smears"), explanation(method="cplrp")])
        writer.add(None, failures=[Failure(meme_id="m9", mode="text", stage="predict", reason="too long")])
    run = open_run(tmp_path / "run")
    assert run.explanation("m1", target="Smears").target == "Smears"
    assert run.explanation("m1", method="cplrp").method == "cplrp"
    with pytest.raises(KeyError, match="2 explanations of meme 'm1' have target='\\*'"):
        run.explanation("m1")
    with pytest.raises(KeyError, match="no explanations of meme 'm1' have mode='text'"):
        run.explanation("m1", mode="text")
    with pytest.raises(KeyError, match="text: too long"):
        run.explanation("m9")


def test_part_files_have_the_stated_columns_even_when_all_values_are_missing(tmp_path: Path) -> None:
    bare = bare_explanation()
    with RunWriter(tmp_path / "run", CONFIG) as writer:
        writer.add(bare.prediction, [bare])
    schema = pq.read_schema(tmp_path / "run" / "explanations" / "part-00000.parquet")
    assert str(schema.field("image_levels").type).startswith("list<")
    assert str(schema.field("share_image").type) == "double"

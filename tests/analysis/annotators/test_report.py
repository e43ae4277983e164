"""The report on annotators, and the command that writes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score

from xai.analysis.annotators.annotations import Annotations, read_annotations
from xai.analysis.annotators.report import OF_ALL, OF_PAIRS, annotator_report
from xai.analysis.report import Report, read_report
from xai.tasks import load_task

LABELS = ("ant", "bee", "cat")
N_ITEMS = 40


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three annotators; the third follows the first, and leaves out items 0 to 9; item 0 has one annotation."""
    rng = np.random.default_rng(0)
    kim, lee = rng.random((2, N_ITEMS, len(LABELS))) < (0.5, 0.3, 0.1)
    mia = kim ^ (rng.random(kim.shape) < 0.1)
    path = tmp_path_factory.mktemp("three") / "three.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for item in range(N_ITEMS):
            given = {name: [x for x, there in zip(LABELS, m[item], strict=True) if there] for name, m in
                     (("kim", kim), ("lee", lee), ("mia", mia))}  # fmt: skip
            if item < 10:
                del given["mia"]
            if item == 0:
                given["lee"] = None  # type: ignore[assignment]
            file.write(json.dumps({"id": f"m{item}", **given}) + "\n")
    return path


@pytest.fixture(scope="module")
def annotations(three: Path) -> Annotations:
    return read_annotations([three])


@pytest.fixture(scope="module")
def report(annotations: Annotations) -> Report:
    return annotator_report(annotations, n_draws=50)


def frame(report: Report, name: str) -> pd.DataFrame:
    return report.table(name).frame


def test_missing_annotations_are_counted_by_annotator_and_by_measure(report: Report) -> None:
    counts = frame(report, "annotators").set_index("annotator")
    assert counts["annotated"].to_dict() == {"kim": 40, "lee": 39, "mia": 30}
    assert counts["missing"].to_dict() == {"kim": 0, "lee": 1, "mia": 10}
    pairs = frame(report, "pairs").drop_duplicates(["first", "second"]).set_index(["first", "second"])["items"]
    assert pairs.to_dict() == {("kim", "lee"): 39, ("kim", "mia"): 30, ("lee", "mia"): 30}
    items = frame(report, "measures")["items"]
    assert list(items) == [39] * len(OF_PAIRS) + [30, 39, 39]
    assert report.facts["annotations missing"] == 11


def test_with_more_than_two_annotators_the_mean_over_pairs_is_reported_and_every_pair(report: Report) -> None:
    measures, pairs = frame(report, "measures"), frame(report, "pairs")
    assert list(measures["measure"])[len(OF_PAIRS) :] == list(OF_ALL)
    for place, name in enumerate(OF_PAIRS):
        row = measures.iloc[place]
        assert row["measure"] == f"{name} (mean of 3 pairs)"
        for column in ("observed", "expected", "adjusted"):
            values = pairs[pairs["measure"] == name][column].astype(float)
            assert row[column] == pytest.approx(values.mean(), nan_ok=True), (name, column)


def test_the_mean_kappa_of_a_group_is_that_of_scikit_learn_for_every_pair(annotations: Annotations) -> None:
    report = annotator_report(annotations, groups={"insects": ("ant", "bee"), "all": LABELS}, n_draws=30)
    found = frame(report, "groups").set_index(["group", "first", "second"])
    expected = {}
    for first, second in (("kim", "lee"), ("kim", "mia"), ("lee", "mia")):
        a, b = annotations.annotators.index(first), annotations.annotators.index(second)
        items = annotations.known[a] & annotations.known[b]
        kappas = [
            cohen_kappa_score(annotations.given[a, items, place], annotations.given[b, items, place])
            for place in range(len(LABELS))
        ]
        expected[first, second] = kappas
        row = found.loc[("insects", first, second)]
        assert row["kappa"] == pytest.approx(np.mean(kappas[:2]))
        assert row["kappa_low"] < row["kappa"] < row["kappa_high"]
        assert (row["classes"], row["items"]) == (2, items.sum())
        assert found.loc[("all", first, second), "kappa"] == pytest.approx(np.mean(kappas))
    mean = found.loc[("insects", "mean of pairs", "")]
    assert mean["kappa"] == pytest.approx(np.mean([np.mean(kappas[:2]) for kappas in expected.values()]))
    assert "groups" in report.headline


def test_two_annotators_of_aha_memes_get_mean_kappas_by_side(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text(
        "id,labels_kim,labels_lee\n"
        "1,Hateful|Mocking,Hateful|Mocking\n"
        "2,Hateful|Slurs,Hateful|Mocking\n"
        "3,Not-Hateful|Humor,Not-Hateful|Humor\n"
        "4,Not-Hateful|Humor,Not-Hateful|Sarcasm\n",
        encoding="utf-8",
    )
    task = load_task("aha-memes")
    report = annotator_report(read_annotations([path], task=task), groups=task.branches, n_draws=0)
    found = frame(report, "groups").set_index("group")
    assert found["classes"].to_dict() == {"Hateful": 2, "Not-Hateful": 2}
    # Mocking: observed 3/4, expected 1/4·2/4 + 3/4·2/4. Slurs: one gave it and the other never, kappa 0.
    assert found.loc["Hateful", "kappa"] == pytest.approx(((3 / 4 - 1 / 2) / (1 - 1 / 2) + 0) / 2)
    assert found["second"].tolist() == ["labels_lee", "labels_lee"]


def test_a_pair_is_what_a_report_on_those_two_alone_says(annotations: Annotations, report: Report) -> None:
    chosen = [annotations.annotators.index(name) for name in ("kim", "mia")]
    alone = Annotations(
        annotations.items, ("kim", "mia"), annotations.labels, tuple(annotations.sets[place] for place in chosen)
    )
    of_two = frame(annotator_report(alone, n_draws=0), "measures")[: len(OF_PAIRS)]
    pairs = frame(report, "pairs")
    of_three = pairs[(pairs["first"] == "kim") & (pairs["second"] == "mia")]
    for column in ("observed", "expected", "adjusted"):
        assert list(of_two[column].astype(float)) == pytest.approx(list(of_three[column].astype(float)), nan_ok=True)


def test_the_kappa_of_a_class_is_the_mean_over_pairs_and_every_pair_has_its_own(
    annotations: Annotations, report: Report
) -> None:
    by_pair = frame(report, "class_pairs").set_index("class")
    _, lee, mia = annotations.given
    both = annotations.known[1] & annotations.known[2]
    for place, label in enumerate(annotations.labels):
        assert by_pair.loc[label, "lee and mia"] == pytest.approx(cohen_kappa_score(lee[both, place], mia[both, place]))
        names = ["kim and lee", "kim and mia", "lee and mia"]
        mean = frame(report, "classes").set_index("class").loc[label, "cohen"]
        assert mean == pytest.approx(by_pair.loc[label, names].astype(float).mean())


def test_every_interval_holds_its_value(report: Report) -> None:
    for name in ("measures", "pairs"):
        table = frame(report, name)
        for column in ("observed", "adjusted"):
            known = table.dropna(subset=[column])
            assert len(known)
            assert (known[f"{column}_low"] < known[column]).all()
            assert (known[column] < known[f"{column}_high"]).all()


def test_the_mean_of_cohens_kappa_is_over_the_classes_that_occur_often_enough(tmp_path: Path) -> None:
    # ant: 4 and 3 times, bee: 4 and 1, cat: 1 and 0.
    kim = ["ant|bee", "ant|bee", "ant|bee", "ant|bee", "cat", "[]"]
    lee = ["ant|bee", "ant", "ant", "[]", "[]", "[]"]
    path = tmp_path / "a.csv"
    rows = [f"m{n},{a},{b}" for n, (a, b) in enumerate(zip(kim, lee, strict=True))]
    path.write_text("\n".join(["id,labels_kim,labels_lee", *rows]) + "\n", encoding="utf-8")
    annotations = read_annotations([path])
    kappas = [cohen_kappa_score(*annotations.given[:, :, label]) for label in range(3)]
    for occurrence, classes in (("both", [0]), ("either", [0, 1]), ("none", [0, 1, 2])):
        report = annotator_report(annotations, min_count=3, occurrence=occurrence, n_draws=0)
        measures = frame(report, "measures").set_index("measure")
        assert measures.loc["mean Cohen's kappa", "adjusted"] == pytest.approx(np.mean([kappas[c] for c in classes]))
        in_mean = frame(report, "classes").set_index("class")["in_mean"]
        assert [name for name in LABELS if in_mean[name]] == [LABELS[c] for c in classes]
    assert frame(report, "classes").set_index("class")["by labels_kim"].to_dict() == {"ant": 4, "bee": 4, "cat": 1}


def test_without_draws_there_are_no_intervals(annotations: Annotations) -> None:
    report = annotator_report(annotations, n_draws=0)
    assert frame(report, "measures")["adjusted_low"].isna().all()
    (chart,) = (chart for section in report.sections for chart in section.charts)
    assert chart.series[0].low is None  # type: ignore[union-attr]


def test_annotators_who_share_no_item_are_refused() -> None:
    a = frozenset({"ant"})
    with pytest.raises(ValueError, match="name the items alike"):
        annotator_report(Annotations(("m1", "m2"), ("kim", "lee"), ("ant",), ((a, None), (None, a))))


def test_a_label_that_everybody_always_gives_has_no_kappa_and_breaks_nothing() -> None:
    sets = tuple(frozenset({"ant"}) for _ in range(4))
    report = annotator_report(Annotations(("a", "b", "c", "d"), ("kim", "lee"), ("ant",), (sets, sets)), n_draws=20)
    measures = frame(report, "measures").set_index("measure")
    assert measures.loc["match", "observed"] == 1
    assert measures["adjusted"].isna().all()


def run(*arguments: str | Path, check: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xai.cli", "agreement", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "160"}
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, env=environment)
    assert done.returncode == check, done.stderr
    return done


def test_the_command_writes_beside_the_file_and_prints_the_table(three: Path) -> None:
    printed = run(three, "--draws", "20").stdout
    assert "Krippendorff's alpha, MASI" in printed
    assert f"{three.stem}-agreement.html" in printed
    written = {path.name for path in three.parent.iterdir()}
    assert written == {three.name, *(f"three-agreement.{kind}" for kind in ("json", "md", "html"))}


def test_the_command_prints_the_json_that_it_writes(three: Path, tmp_path: Path) -> None:
    printed = run(three, "--draws", "20", "--out", tmp_path / "new", "--json").stdout
    assert json.loads(printed) == json.loads((tmp_path / "new" / "agreement.json").read_text(encoding="utf-8"))
    assert read_report(tmp_path / "new" / "agreement.json").facts["files"] == ["three.jsonl"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--annotator", "kim"), "agreement needs two"),
        (("--annotator", "nobody"), "no column 'nobody'"),
        (("--task", "ukrmeme"), "is no label of task 'ukrmeme'"),
        (("--occurrence", "often"), "often"),
    ],
)
def test_the_command_says_what_to_do(three: Path, options: tuple[str, ...], told: str) -> None:
    said = run(three, *options, check=2).stderr
    assert told in said
    assert "Traceback" not in said


def test_a_folder_that_cannot_be_written_is_told(three: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    assert "give a folder with --out" in run(three, "--draws", "0", "--out", tmp_path / "taken", check=2).stderr

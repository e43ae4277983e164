"""Agreement by stage, and the gold that most annotators give, against values worked out by hand and statsmodels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, jaccard_score
from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

from xai.analysis.annotators.annotations import Annotations
from xai.analysis.annotators.staged import COMBINED, Staging, facet_annotations, majority_gold
from xai.analysis.annotators.staged_report import MOST_DETAILED, agreement_report, gold_section
from xai.analysis.report import read_report
from xai.datasets import read_memes, write_memes
from xai.schema import Meme

NAMES = ("Voter", "Celebrity")
VIEWPOINTS = tuple(f"{name}: {value}" for name in NAMES for value in ("in-group", "out-group"))
ROLES = tuple(f"{name}: {value}" for name in NAMES for value in ("hero", "winner", "loser"))
STAGING = Staging({"identities": NAMES, "viewpoints": VIEWPOINTS, "roles": ROLES}, exclusive=frozenset({"viewpoints"}))
ALL = (*NAMES, *VIEWPOINTS, *ROLES)


def of(*rows: tuple[set[str] | None, ...], staging: Staging = STAGING) -> Annotations:
    """Annotations of items, each a row of what the annotators gave it."""
    by_annotator = tuple(
        tuple(None if one is None else frozenset(one) for one in row) for row in zip(*rows, strict=True)
    )
    labels = [label for inventory in staging.stages.values() for label in inventory]
    used = {label for row in rows for one in row for label in one or ()}
    names = tuple("xyz"[: len(by_annotator)])
    return Annotations(
        tuple(f"m{n}" for n in range(len(rows))), names, tuple(x for x in labels if x in used), by_annotator
    )


IN_HERO = {"Voter", "Voter: in-group", "Voter: hero"}
OUT_LOSER = {"Voter", "Voter: out-group", "Voter: loser"}


def test_a_label_is_gold_when_two_of_three_gave_it() -> None:
    gold = majority_gold(
        of((IN_HERO, IN_HERO | {"Celebrity"}, {"Voter", "Voter: in-group", "Voter: winner"})), STAGING
    )[0]
    assert gold.labels == ("Voter", "Voter: in-group", "Voter: hero")
    assert gold.undecided == ()


def test_a_pair_brings_the_name_that_it_presupposes() -> None:
    gold = majority_gold(
        of(({"Voter: in-group"}, {"Voter: in-group"}, set()), ({"Voter: hero"}, {"Voter"}, set())), STAGING
    )
    assert gold[0].labels == ("Voter", "Voter: in-group")
    assert gold[1].labels == ("Voter",)


def test_a_name_keeps_its_place_where_the_rest_is_split_and_that_is_said() -> None:
    gold = majority_gold(of((IN_HERO, OUT_LOSER, set())), STAGING)[0]
    assert gold.labels == ("Voter",)
    assert gold.undecided == ("Voter: viewpoints", "Voter: roles")


def test_of_exclusive_labels_with_equal_votes_none_is_gold_and_of_unequal_ones_the_first() -> None:
    both = {"Voter", "Voter: in-group", "Voter: out-group", "Voter: hero"}
    tie = majority_gold(of((both, both, {"Voter"})), STAGING)[0]
    assert tie.labels == ("Voter", "Voter: hero")
    assert tie.undecided == ("Voter: viewpoints",)
    decided = majority_gold(of((both, both, {"Voter", "Voter: out-group"})), STAGING)[0]
    assert decided.labels == ("Voter", "Voter: out-group", "Voter: hero")


def test_several_roles_of_a_name_can_all_be_gold() -> None:
    two = {"Voter", "Voter: in-group", "Voter: hero", "Voter: winner"}
    assert majority_gold(of((two, two, IN_HERO)), STAGING)[0].labels == (
        "Voter", "Voter: in-group", "Voter: hero", "Voter: winner",
    )  # fmt: skip


def test_more_than_half_of_those_who_annotated_is_needed_and_two_at_least() -> None:
    rows = (({"Voter"}, {"Voter"}, None), ({"Voter"}, set(), None), ({"Voter"}, None, None), (set(), set(), set()))
    assert [gold.labels for gold in majority_gold(of(*rows), STAGING)] == [("Voter",), (), None, ()]
    assert [gold.labels for gold in majority_gold(of(*rows), STAGING, votes=1)] == [("Voter",), ("Voter",), None, ()]


@pytest.mark.parametrize("votes", [0, 4])
def test_votes_that_cannot_be_are_refused(votes: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 3"):
        majority_gold(of((IN_HERO, IN_HERO, IN_HERO)), STAGING, votes=votes)


def test_a_task_alone_is_one_stage() -> None:
    staging = Staging({"labels": ("ant", "bee")})
    annotations = of(({"ant"}, {"ant", "bee"}, {"bee"}), ({"ant"}, {"bee"}, set()), staging=staging)
    assert [gold.labels for gold in majority_gold(annotations, staging)] == [("ant", "bee"), ()]
    assert list(facet_annotations(annotations, staging)) == ["labels"]


def test_the_section_on_gold_counts_what_became_of_the_items() -> None:
    gold = majority_gold(of((IN_HERO, OUT_LOSER, set()), (IN_HERO, None, None), (IN_HERO, IN_HERO, None)), STAGING)
    counts = gold_section(gold, None).tables[0].frame.iloc[0].to_dict()
    assert counts == {
        "items": 3, "with gold": 2, "too few annotators": 1, "gold without labels": 0, "labels": 4,
        "with something undecided": 1,
    }  # fmt: skip


def test_whole_combinations_join_a_name_with_a_label_of_every_later_stage() -> None:
    labels = {"Voter", "Voter: in-group", "Voter: hero", "Voter: winner", "Celebrity", "Celebrity: out-group"}
    assert STAGING.facets(labels)[COMBINED] == {"Voter: in-group: hero", "Voter: in-group: winner"}
    assert STAGING.facets(labels)["identities"] == {"Voter", "Celebrity"}


sets = st.frozensets(st.sampled_from(ALL), max_size=5)


@settings(deadline=None)
@given(st.lists(st.tuples(sets, sets, sets), min_size=1, max_size=8))
def test_gold_is_what_a_plain_count_says(rows: list[tuple[frozenset[str], ...]]) -> None:
    for row, gold in zip(rows, majority_gold(of(*map(tuple, rows)), STAGING), strict=True):  # type: ignore[arg-type]
        full = [set(one) | {label.split(": ")[0] for label in one} for one in row]
        twice = {label for label in ALL if sum(label in one for one in full) >= 2}
        wanted = {label for label in twice if label in NAMES or label.split(": ")[0] in twice}
        found = set(gold.labels or ())
        assert found <= wanted
        # What is missing are viewpoints of which the same name has another one.
        assert all(label in VIEWPOINTS for label in wanted - found)
        assert {label for label in found if label in ROLES} == {label for label in wanted if label in ROLES}


def drawn(n_items: int = 30, seed: int = 0) -> Annotations:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_items):
        base = {name for name in NAMES if rng.random() < 0.5}
        rows.append(tuple(_noisy(base, rng) for _ in range(3)))
    return of(*rows)


def _noisy(base: set[str], rng: np.random.Generator) -> set[str]:
    given = {name for name in NAMES if (name in base) != (rng.random() < 0.2)}
    viewpoints = {f"{name}: {rng.choice(['in-group', 'out-group'], p=[0.8, 0.2])}" for name in given}
    return given | viewpoints | {f"{name}: {rng.choice(['hero', 'winner', 'loser'])}" for name in given}


def table(name: str, annotations: Annotations, n_draws: int = 0) -> pd.DataFrame:
    return agreement_report(annotations, STAGING, n_draws=n_draws).table(name).frame


@pytest.mark.parametrize("facet", ["identities", "viewpoints", "roles", COMBINED])
def test_the_coefficients_of_a_facet_are_those_of_statsmodels_and_scikit_learn(facet: str) -> None:
    annotations = drawn()
    given = facet_annotations(annotations, STAGING)[facet].given
    row = table("facets", annotations).set_index("facet").loc[facet]
    presence = given.reshape(3, -1).astype(int)
    assert row["fleiss_kappa"] == pytest.approx(fleiss_kappa(aggregate_raters(presence.T)[0]))
    pairs = [(0, 1), (0, 2), (1, 2)]
    kappas = [cohen_kappa_score(presence[a], presence[b]) for a, b in pairs]
    assert row["cohen_kappa"] == pytest.approx(np.mean(kappas))
    overlaps = [jaccard_score(given[a], given[b], average="samples", zero_division=1.0) for a, b in pairs]
    assert row["jaccard"] == pytest.approx(np.mean(overlaps))
    same = [(given[0, item] == given[1, item]).all() and (given[1, item] == given[2, item]).all() for item in range(30)]
    assert row["perfect_agreement"] == pytest.approx(np.mean(same))
    by_pair = table("facet_pairs", annotations)
    assert by_pair[by_pair["facet"] == facet]["cohen_kappa"].tolist() == pytest.approx(kappas)


def test_agreement_can_only_fall_from_names_to_whole_combinations() -> None:
    perfect = table("facets", drawn()).set_index("facet")["perfect_agreement"]
    assert perfect["identities"] > perfect["viewpoints"] >= perfect[COMBINED]
    assert perfect["roles"] >= perfect[COMBINED]


def test_a_pair_is_the_same_only_with_the_same_name() -> None:
    """Both say out-group, of two different names: nothing is shared."""
    rows = table("facets", of(({"Voter: out-group"}, {"Celebrity: out-group"}), ({"Voter"}, {"Voter"})))
    assert rows.set_index("facet").loc["viewpoints", "jaccard"] == pytest.approx(0.5)  # 0, and 1 where both are empty


def test_items_that_not_all_annotated_count_in_pairs_and_not_in_perfect() -> None:
    rows = table("facets", of((IN_HERO, IN_HERO, None), (IN_HERO, IN_HERO, IN_HERO), (IN_HERO, OUT_LOSER, set())))
    row = rows.set_index("facet").loc["viewpoints"]
    assert row["items"] == 2
    assert row["perfect_agreement"] == pytest.approx(1 / 2)
    assert row["jaccard"] == pytest.approx((2 / 3 + 1 / 2 + 1 / 2) / 3)


def test_intervals_hold_the_value_and_stages_with_few_labels_have_every_coefficient() -> None:
    report = agreement_report(drawn(), STAGING, n_draws=50)
    facets = report.table("facets").frame
    assert (
        (facets["fleiss_kappa_low"] <= facets["fleiss_kappa"]) & (facets["fleiss_kappa"] <= facets["fleiss_kappa_high"])
    ).all()
    assert facets["fleiss_kappa_low"].lt(facets["fleiss_kappa_high"]).all()
    assert {"measures_1", "measures_2", "measures_3", "classes_1"} <= {table.name for table in report.tables}


def test_a_stage_with_too_many_labels_has_its_row_alone() -> None:
    names = tuple(f"name {n}" for n in range(MOST_DETAILED + 1))
    wide = Staging({"names": ("a",), "pairs": tuple(f"a: {name}" for name in names)})
    report = agreement_report(of((set(wide.stages["pairs"]), {"a"}), ({"a"}, {"a"}), staging=wide), wide, n_draws=0)
    assert [table.name for table in report.tables if table.name.startswith("measures")] == ["measures_1"]
    assert report.table("facets").frame["facet"].tolist() == ["names", "pairs"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Three annotators of three memes, in the words of iron-meme, and the memes."""
    rows = (
        (["voter", "Voter: ingroup", "Voter: hero"], ["Voter", "Voter: in-group", "Voter: winner"], []),
        (["Celebrity: hero"], ["Celebrity: Hero"], ["Celebrity: villain"]),
        (["Voter"], None, None),
    )
    names = ("kim", "lee", "mia")
    lines = [{"id": f"m{n}", **dict(zip(names, row, strict=True))} for n, row in enumerate(rows)]
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_memes(tmp_path / "memes.jsonl", [Meme(id=f"m{n}", text=f"meme {n}", labels=("Men",)) for n in range(4)])
    return tmp_path


def xai(folder: Path, *arguments: str, check: int = 0) -> str:
    command = [sys.executable, "-m", "xai.cli", "agreement", "given.jsonl", "--draws", "0", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", check=False, cwd=folder,
        env={**os.environ, "COLUMNS": "160"},
    )  # fmt: skip
    assert done.returncode == check, done.stderr
    return done.stdout + done.stderr


def test_the_command_reports_by_stage_and_writes_gold_into_the_dataset(files: Path) -> None:
    printed = xai(files, "--task", "iron-meme", "--gold", "gold.jsonl", "--memes", "memes.jsonl")
    assert all(facet in printed for facet in ("identities", "viewpoints", "roles", COMBINED))
    memes = {meme.id: meme for meme in read_memes(files / "gold.jsonl") if isinstance(meme, Meme)}
    assert {name: meme.labels for name, meme in memes.items()} == {
        "m0": ("Voter", "Voter: in-group"), "m1": ("Celebrity", "Celebrity: hero"), "m2": None,
    }  # fmt: skip
    assert memes["m0"].text == "meme 0"
    assert memes["m0"].metadata == {"annotators": 3, "undecided": ["Voter: roles"]}
    assert memes["m1"].metadata["undecided"] == ["Celebrity: viewpoints"]
    report = read_report(files / "given-agreement.json")
    assert report.table("gold_counts").frame["with gold"].tolist() == [2]
    assert report.table("undecided").frame["item"].tolist() == ["m0", "m1"]


def test_without_memes_the_gold_has_ids_and_labels_and_fewer_votes_give_more_of_them(files: Path) -> None:
    xai(files, "--task", "iron-meme", "--gold", "gold.jsonl", "--votes", "1")
    first = next(iter(read_memes(files / "gold.jsonl")))
    assert isinstance(first, Meme)
    assert first.labels == ("Voter", "Voter: in-group", "Voter: hero", "Voter: winner")
    assert first.text == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--votes", "2"), "name their file with --gold"),
        (("--gold", "gold.csv"), "name the file gold.jsonl"),
        (("--gold", "gold.jsonl", "--votes", "4"), "from 1 to 3"),
        (("--gold", "gold.jsonl", "--memes", "few.jsonl"), "has no meme 'm1', which was annotated, nor 1 other;"),
        (("--task", "aha-memes"), "is no label of task 'aha-memes'"),
    ],
)
def test_what_cannot_be_derived_is_refused_with_what_to_do(files: Path, arguments: tuple[str, ...], said: str) -> None:
    write_memes(files / "few.jsonl", [Meme(id="m0", text="meme 0")])
    assert said in " ".join(xai(files, *arguments, check=2).split())
    assert not (files / "gold.jsonl").exists()

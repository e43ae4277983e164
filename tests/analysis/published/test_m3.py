"""M³ is scored by label, by category and by rationale phrases; runs and input settings are compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.preprocessing import MinMaxScaler

from xai.analysis.published.m3 import sections
from xai.analysis.published.m3_metrics import METRICS, constant_phrase, overall, text_scores
from xai.analysis.published.phrases import bleu, rouge_l
from xai.analysis.published.registry import Scoring
from xai.analysis.published.report import score_report
from xai.analysis.report import Table, read_report, write_report
from xai.schema import Explanation, Meme, Mode, Prediction, Quality, Segment, TokenTable, WordTable
from xai.store import Run, RunWriter, open_run
from xai.tasks import load_task

from .answered import Row, fast, run_of

HATE, NORMAL = ("Hate",), ("Normal",)
SHORT, LONG = ["mock neighbours"], ["mock the old neighbours", "praise rivers"]
ROWS = [
    Row(("Hate", "Religion"), ("Hate", "Religion"), rationale=SHORT, reasons=("mock neighbours",)),
    Row(("Hate", "Race", "Gender"), ("Hate", "Race", "Politics"), rationale=LONG, reasons=("mock old neighbours",)),
    Row(("Hate", "Race"), NORMAL, rationale=SHORT),
    Row(HATE, None, rationale=None),
    Row(NORMAL, NORMAL, rationale=["name rivers"]),
    Row(NORMAL, HATE),
    Row(NORMAL, None),
]
BOTH, POST = "image+text", "image+text+post"


class SharedWords:
    """Stands for an encoder: the share of gold's words that the other text has."""

    source = "shared words"

    def __call__(self, gold: Sequence[str], predicted: Sequence[str]) -> np.ndarray:
        pairs = [(set(one.split()), set(other.split())) for one, other in zip(gold, predicted, strict=True)]
        return np.array([len(one & other) / len(one) for one, other in pairs])


def tables(run: Run, **options: object) -> dict[str, Table]:
    found = sections(run, Scoring(fast("m3"), **options))  # type: ignore[arg-type]
    return {table.name: table for section in found.sections for table in section.tables}


def both(rows: Sequence[Row]) -> tuple[tuple[tuple[str, ...] | None, ...], ...]:
    """The gold label sets, and those of the answers."""
    return tuple(row.gold for row in rows), tuple(row.labels for row in rows)


def test_scores_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    found = tables(run_of(tmp_path / "run", "m3", {BOTH: ROWS}))
    hate = found["m3_hate"].frame.iloc[0]
    assert hate[["memes", "unparsed"]].tolist() == [7, 2]
    # Right: the first two, and one normal. Claimed hate: three, of which two are.
    assert hate["accuracy"] == pytest.approx(3 / 7)
    assert hate[["precision", "recall", "f1"]].tolist() == pytest.approx([2 / 3, 2 / 4, 2 * 2 / (3 + 4)])
    below = found["m3_categories"].frame.iloc[0]
    assert below[["gold_hate", "unparsed"]].tolist() == [4, 1]
    # Religion 1 of 1 and 1, Race 1 of 1 and 2, Gender 0 of 0 and 1, Politics 0 of 1 and 0; four others never occur.
    expected = [(1 + 1) / 8, (1 + 1 / 2) / 8, (1 + 2 / 3) / 8, (0 + 2 + 1 + 0) / (4 * 8), 2 / 4]
    columns = ["macro_precision", "macro_recall", "macro_f1", "hamming_loss", "subset_accuracy"]
    assert below[columns].tolist() == pytest.approx(expected)


def test_rationales_are_scored_where_gold_is_hate_and_has_one(tmp_path: Path) -> None:
    found = tables(run_of(tmp_path / "run", "m3", {BOTH: ROWS}))["m3_rationale"].frame.set_index("rationales")
    assert found["memes"].tolist() == [3, 3, 3]
    assert found["without"].tolist() == [1, 0, 0]
    own = found.loc["of the run"]
    joined_gold = "mock the old neighbours praise rivers"
    assert own["bleu"] == pytest.approx((0.01**0.25 + bleu(joined_gold, "mock old neighbours") + 0) / 3)
    assert own["rouge_l"] == pytest.approx((1 + 2 * 3 / (6 + 3) + 0) / 3)
    assert found.loc["gold itself", "bleu"] == pytest.approx((2 * 0.01**0.25 + 1) / 3)
    assert found.loc["gold itself", "rouge_l"] == 1
    constant = found.loc["constant phrase"]
    assert constant["rouge_l"] == pytest.approx((1 + 2 * 2 / (6 + 2) + 1) / 3)
    assert found["bertscore"].isna().all()


def test_a_constant_phrase_can_beat_answers_that_are_right_in_their_own_words(tmp_path: Path) -> None:
    """What was found of the published metrics, on phrases of our own."""
    rows = [
        Row(HATE, HATE, rationale=["mock neighbours"], reasons=("ridicule the people next door",)),
        Row(HATE, HATE, rationale=["mock strangers"], reasons=("laugh at those from elsewhere",)),
        Row(HATE, HATE, rationale=["mock neighbours"], reasons=("make fun of the family nearby",)),
    ]
    found = tables(run_of(tmp_path / "run", "m3", {BOTH: rows}))["m3_rationale"]
    frame = found.frame.set_index("rationales")
    for name in ("bleu", "rouge_l"):
        assert frame.loc["of the run", name] < frame.loc["constant phrase", name] <= frame.loc["gold itself", name]
    assert "'mock neighbours'" in found.note


def test_a_model_for_bertscore_fills_its_column(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "m3", {BOTH: ROWS})
    found = tables(run, similarity=SharedWords())["m3_rationale"].frame.set_index("rationales")
    assert found.loc["of the run", "bertscore"] == pytest.approx((1 + 3 / 6 + 0) / 3)
    assert found.loc["gold itself", "bertscore"] == 1
    text = sections(run, Scoring(fast("m3"), similarity=SharedWords())).sections[0].text
    assert "BERTScore is F of shared words" in text
    assert "BERTScore needs a model" in sections(run, Scoring(fast("m3"))).sections[0].text


def test_scores_are_those_of_scikit_learn_on_drawn_answers(tmp_path: Path) -> None:
    rng, names = np.random.default_rng(8), load_task("m3").label_names
    categories = names[1:-1]

    def drawn() -> tuple[str, ...]:
        if rng.random() < 0.4:
            return NORMAL
        return ("Hate", *(name for name in categories if rng.random() < 0.3))

    rows = [Row(drawn(), drawn() if rng.random() < 0.9 else None) for _ in range(80)]
    found = tables(run_of(tmp_path / "run", "m3", {BOTH: rows}))
    hate, below = found["m3_hate"].frame.iloc[0], found["m3_categories"].frame.iloc[0]
    gold, said = ([(labels or ("none",))[0] for labels in sets] for sets in both(rows))
    rates = metrics.precision_recall_fscore_support(gold, said, labels=["Hate"], average=None)
    assert hate["accuracy"] == pytest.approx(metrics.accuracy_score(gold, said))
    assert hate[["precision", "recall", "f1"]].tolist() == pytest.approx([rate[0] for rate in rates[:3]])
    hateful = [row for row in rows if row.gold and row.gold[0] == "Hate"]
    y, answers = (
        np.array([[name in (labels or ()) for name in categories] for labels in sets]) for sets in both(hateful)
    )
    macro = metrics.precision_recall_fscore_support(y, answers, average="macro", zero_division=0)[:3]
    assert below[["macro_precision", "macro_recall", "macro_f1"]].tolist() == pytest.approx(macro)
    assert below["hamming_loss"] == pytest.approx(metrics.hamming_loss(y, answers))
    assert below["subset_accuracy"] == pytest.approx(metrics.accuracy_score(y, answers))


def test_a_label_counts_by_its_name_and_not_by_letters_that_it_shares(tmp_path: Path) -> None:
    # "Health status" begins as "Hate" nearly does, and the answer's text may say "hate" anywhere.
    rows = [Row(NORMAL, ("Normal", "Health status"), reasons=("hate rain",)), Row(HATE, ("Hate",))]
    found = tables(run_of(tmp_path / "run", "m3", {BOTH: rows}))
    assert found["m3_hate"].frame["accuracy"][0] == 1


def test_what_contradicts_itself_and_what_is_not_scored_is_counted(tmp_path: Path) -> None:
    rows = [
        Row(HATE, ("Hate",)),
        Row(HATE, ("Normal", "Race"), reasons=("mock neighbours",)),
        Row(HATE, ("Hate", "Race"), reasons=(" ",)),
        Row(None, HATE),
    ]
    found = tables(run_of(tmp_path / "run", "m3", {BOTH: rows}))
    assert found["m3_inconsistent"].frame.iloc[0].to_dict() == {
        "mode": BOTH, "answers": 3, "hate_without_category": 1, "hate_without_rationale": 2,
        "normal_with_category": 1, "normal_with_rationale": 1,
    }  # fmt: skip
    counted = found["m3_counted"].frame.iloc[0]
    assert counted[["scored", "without_gold", "gold_hate_without_rationale"]].tolist() == [3, 1, 3]
    assert found["m3_rationale"].frame["memes"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("rationale", "n"), [("mock neighbours", 1), ([], 0), (["", " "], 0), (["a"], 1)])
def test_a_gold_rationale_is_a_phrase_or_a_list_of_them(tmp_path: Path, rationale: object, n: int) -> None:
    found = tables(run_of(tmp_path / "run", "m3", {BOTH: [Row(HATE, HATE, rationale=rationale)]}))
    assert found["m3_rationale"].frame["memes"].tolist() == [n, n, n]


def test_another_gold_rationale_is_refused_with_the_name_of_its_meme(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "m3", {BOTH: [Row(HATE, HATE, rationale={"a": 1})]})
    with pytest.raises(ValueError, match="rationale of meme 'm0' is not a list of phrases"):
        tables(run)


def test_text_scores_are_of_joined_phrases() -> None:
    found = text_scores([("mock  the", "neighbours"), None, ("x",)], [("mock the neighbours",), ("x",), ()])
    assert found["rouge_l"].tolist()[0::2] == [1, 0]
    assert np.isnan(found["bleu"][1])
    assert found["bleu"][0] == pytest.approx(0.1**0.25)
    assert np.isnan(found["bertscore"]).all()
    assert rouge_l("mock the neighbours", "mock the neighbours") == 1


def test_the_constant_phrase_is_the_commonest_of_gold_whatever_its_case() -> None:
    assert constant_phrase([("b c", "a"), None, ("B  C",), ("a",), ("a",)]) == "a"
    assert constant_phrase([("z",), ("b",)]) == "b"
    assert constant_phrase([None]) == ""


NAMES = list(METRICS.values())


def test_there_are_twelve_metrics() -> None:
    assert NAMES == [
        "accuracy", "precision", "recall", "f1", "macro_precision", "macro_recall", "macro_f1", "hamming_loss",
        "subset_accuracy", "bleu", "rouge_l", "bertscore",
    ]  # fmt: skip


def test_overall_by_hand() -> None:
    frame = pd.DataFrame({name: [0.2, 0.6, 0.4] for name in NAMES}, index=["a", "b", "c"])
    found = overall(frame)
    # The second is best in eleven and has the worst Hamming loss.
    assert found["overall"].to_dict() == pytest.approx({"a": 100 / 12, "b": 1100 / 12, "c": 50})
    assert found["n_metrics"].tolist() == [12, 12, 12]


@given(st.lists(st.lists(st.floats(0, 1), min_size=12, max_size=12), min_size=2, max_size=6))
def test_overall_is_the_mean_of_scaled_metrics(rows: list[list[float]]) -> None:
    frame = pd.DataFrame(np.round(rows, 6), columns=NAMES)
    scaled = pd.DataFrame(MinMaxScaler().fit_transform(frame), columns=NAMES)
    scaled["hamming_loss"] = 1 - scaled["hamming_loss"]
    telling = frame.max() > frame.min()
    expected = 100 * scaled.loc[:, telling].mean(axis=1)
    assert overall(frame)["overall"].tolist() == pytest.approx(expected.tolist(), nan_ok=True, abs=1e-6)


def test_a_metric_that_is_missing_or_the_same_for_all_is_left_out_of_overall() -> None:
    frame = pd.DataFrame({name: [0.2, 0.6] for name in NAMES}).assign(bertscore=[np.nan, 0.9], f1=0.5)
    found = overall(frame)
    assert found["n_metrics"].tolist() == [10, 10]
    assert found["overall"].tolist() == pytest.approx([10, 90])
    assert overall(frame.drop(columns="bertscore"))["n_metrics"].tolist() == [10, 10]
    nothing = overall(pd.DataFrame({name: [0.5, 0.5] for name in NAMES}))
    assert nothing["overall"].isna().all()
    assert nothing["n_metrics"].tolist() == [0, 0]


def test_overall_needs_two_models() -> None:
    with pytest.raises(ValueError, match="give at least two"):
        overall(pd.DataFrame({name: [0.5] for name in NAMES}))


def with_labels(rows: Sequence[Row], *labels: tuple[str, ...]) -> list[Row]:
    return [row._replace(labels=said) for row, said in zip(rows, labels, strict=True)]


def test_overall_of_runs_is_of_the_memes_that_all_have_within_a_mode(tmp_path: Path) -> None:
    first = run_of(tmp_path / "a", "m3", {BOTH: ROWS, POST: ROWS})
    best = run_of(tmp_path / "b", "m3", {BOTH: [row._replace(labels=row.gold) for row in ROWS[:5]]})
    worst = run_of(tmp_path / "c", "m3", {BOTH: [row._replace(labels=None, reasons=()) for row in ROWS]})
    report = score_report(first, fast("m3"), against=[best, worst])
    found = report.table("m3_overall").frame.set_index("run")
    assert found["mode"].tolist() == [BOTH] * 3
    assert found["memes"].tolist() == [5] * 3
    # BERTScore is missing; the first and the best write the same rationales, so that both have 1 there.
    assert found["n_metrics"].tolist() == [11] * 3
    assert found["overall"].to_dict() == pytest.approx({"a": found["overall"]["a"], "b": 100, "c": 0})
    assert 0 < found["overall"]["a"] < 100
    metrics_ = report.table("m3_metrics").frame.set_index("run")
    assert metrics_.loc["b", ["accuracy", "hamming_loss"]].tolist() == [1, 0]
    assert {"m3_hate", "m3_categories", "m3_rationale", "m3_settings", "m3_overall"} <= set(report.headline)
    (section,) = [section for section in report.sections if section.title.startswith("M³: Overall")]
    assert "BERTScore is not among them" in section.text


def test_gold_that_differs_between_runs_is_counted(tmp_path: Path) -> None:
    first = run_of(tmp_path / "a", "m3", {BOTH: ROWS})
    second = run_of(tmp_path / "b", "m3", {BOTH: [ROWS[0]._replace(gold=NORMAL), *ROWS[1:]]})
    found = score_report(first, fast("m3"), against=[second]).table("m3_overall").frame
    assert found["other_gold"].tolist() == [0, 1]


def test_the_settings_with_and_without_the_post_are_compared(tmp_path: Path) -> None:
    gold = [Row(HATE, HATE)] * 3 + [Row(NORMAL, NORMAL)] * 3
    without = with_labels(gold, HATE, HATE, NORMAL, NORMAL, NORMAL, HATE)
    run = run_of(tmp_path / "run", "m3", {BOTH: without, POST: gold})
    found = tables(run)["m3_settings"].frame.set_index("measure")
    accuracy = found.loc["accuracy"]
    assert (accuracy["first"], accuracy["second"]) == (POST, BOTH)
    assert accuracy[["of_first", "of_second", "difference"]].tolist() == pytest.approx([1, 4 / 6, 2 / 6])
    # Two memes speak, both for the post: 2 of 2² swaps are as far.
    assert accuracy["p"] == pytest.approx(2 / 4)
    assert "bertscore" not in found.index
    assert "m3_settings" not in tables(run_of(tmp_path / "one", "m3", {BOTH: gold}))


def explained(meme: Meme, mode: Mode, shares: dict[Segment, float], target: str = "*") -> Explanation:
    return Explanation(
        meme=meme, mode=mode, method="attnlrp", target=target, target_value=1.0, shares=shares,
        prediction=Prediction(meme_id=meme.id, mode=mode, generated_ids=(1,), text="", labels=HATE),
        token_table=TokenTable(token=(), start=(), end=(), segment=(), relevance=()),
        word_table=WordTable(word=(), start=(), end=(), box=(), relevance=(), mean_abs=(), n_tokens=()),
        quality=Quality(conservation=None, sink_share=0.0, template_share=0.0),
    )  # fmt: skip


def test_shares_of_relevance_are_means_of_sizes_over_memes(tmp_path: Path) -> None:
    first, second = Meme(id="m0", labels=HATE, post="lunch"), Meme(id="m1", labels=HATE)
    with RunWriter(tmp_path / "run", {"task": "m3"}) as writer:
        for meme, mode, shares in (
            (first, POST, {"image": -2.0, "text": 1.0, "post": 1.0, "instruction": 4.0}),
            (second, POST, {"image": 1.0, "text": 1.0, "template": -2.0}),
            (first, BOTH, {"image": 1.0, "text": 3.0}),
        ):
            explanation = explained(meme, mode, shares)
            of_a_label = explained(meme, mode, {"post": 9.0}, target="Hate")
            writer.add(explanation.prediction, [explanation, of_a_label])
    found = tables(open_run(tmp_path / "run"))["m3_shares"].frame.set_index("mode")
    assert found[["memes", "with_post"]].loc[POST].tolist() == [2, 1]
    # Of 8 in all 2, 1 and 1; and of 4 in all 1, 1 and none.
    expected = [(2 / 8 + 1 / 4) / 2, (1 / 8 + 1 / 4) / 2, (1 / 8 + 0) / 2, (1 / 4 + 0) / 2]
    assert found.loc[POST, ["picture", "text", "post", "post_of_meme"]].tolist() == pytest.approx(expected)
    assert found.loc[BOTH, ["picture", "text", "post", "post_of_meme"]].tolist() == [1 / 4, 3 / 4, 0, 0]


def test_the_report_is_written_whole(tmp_path: Path) -> None:
    report = score_report(run_of(tmp_path / "run", "m3", {BOTH: ROWS, POST: ROWS}), fast("m3"))
    paths = write_report(report, tmp_path, "score")
    assert read_report(paths["json"]) == report
    assert "constant phrase" in paths["md"].read_text(encoding="utf-8")


def test_a_run_without_gold_labels_is_refused_as_before(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="add a 'labels' column"):
        score_report(run_of(tmp_path / "run", "m3", {BOTH: [Row(None, HATE)]}), fast("m3"))

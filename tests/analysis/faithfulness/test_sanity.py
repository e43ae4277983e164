"""A map changes when its reasons are gone, for the methods that look, and the report says which do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from xai.analysis.faithfulness.randomisation import (
    Change,
    check_label,
    check_layers,
    sanity_frame,
    shuffled_models,
    stages,
)
from xai.analysis.faithfulness.sanity import (
    FAILS,
    PASSES,
    UNDECIDED,
    check_sanity,
    completeness,
    n_steps,
    one_label_each,
    sanity_section,
    verdicts,
)
from xai.analysis.report import Report
from xai.models import VisionLanguageModel
from xai.pipeline import explain_answer, predict
from xai.schema import Explanation, Meme, Mode

Explained = Callable[..., list[Explanation]]


@pytest.fixture(scope="module")
def explained(model: VisionLanguageModel, new_memes: list[Meme]) -> Explained:
    """``explained(method, mode, n)``: explanations of all labels of the first memes that have one."""
    known: dict[Mode, list[tuple[Meme, object]]] = {}

    def explain(method: str, mode: Mode = "image+text", n: int = 6, **options: object) -> list[Explanation]:
        if mode not in known:
            answered = zip(new_memes[:24], predict(model, new_memes[:24], mode=mode), strict=True)
            known[mode] = [(meme, one) for meme, one in answered if one.labels != ("NO_PROPAGANDA",)]
        found = [explain_answer(model, *pair, method=method, **options) for pair in known[mode][:n]]  # type: ignore[arg-type]
        return [explanation for group in found for explanation in group]

    return explain


def changes(alike: list[float], *, method: str = "m", check: str = "label", step: int = 1) -> list[Change]:
    return [
        Change(check, f"meme-{index}", "text", method, "Doubt", step, "x", "words", 9, value, float("nan"))  # type: ignore[arg-type]
        for index, value in enumerate(alike)
    ]


def test_parts_are_shuffled_from_the_top_down(model: VisionLanguageModel) -> None:
    text = [f"decoder layer {index}" for index in (4, 3, 2, 1)]
    assert [name for name, _ in stages(model.model, with_picture=False)] == text
    # The head of this model is its embeddings, which stay.
    picture = ["mergers", "vision block 3", "vision block 2", "vision block 1"]
    assert [name for name, _ in stages(model.model, with_picture=True)] == [*text, *picture]


def test_shuffling_keeps_the_values_of_each_tensor_and_leaves_the_model_alone(model: VisionLanguageModel) -> None:
    before = {name: tensor.clone() for name, tensor in model.model.state_dict().items()}
    touched: set[str] = set()
    for _, _, copy in shuffled_models(model, seed=1, with_picture=True):
        now = copy.model.state_dict()
        changed = {name for name, tensor in now.items() if not torch.equal(tensor, before[name])}
        assert changed > touched
        touched = changed
    for name in touched:
        assert torch.equal(now[name].flatten().sort().values, before[name].flatten().sort().values)
    assert not [name for name in touched if "embed" in name]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.model.state_dict().items())
    *_, (_, _, again) = shuffled_models(model, seed=1, with_picture=True)
    assert all(torch.equal(tensor, now[name]) for name, tensor in again.model.state_dict().items())


@pytest.mark.slow
def test_lrp_notices_both_noise_notices_no_model_and_rollout_no_label(
    model: VisionLanguageModel, explained: Explained
) -> None:
    numbers = {"attnlrp": 14, "random": 6, "attention_rollout": 4}
    chosen = [e for method, n in numbers.items() for e in one_label_each(explained(method, n=n))]
    rows = check_layers(model, chosen) + check_label(model, chosen)
    table = verdicts(sanity_frame(rows)).set_index(["method", "check", "units"])
    for check in ("layers", "label"):
        for units in ("words", "cells"):
            assert table.loc[("attnlrp", check, units), "verdict"] == PASSES
    # The noise depends on the target and the length alone, rollout on the place of the target.
    for method, check in (("random", "layers"), ("attention_rollout", "label")):
        for units in ("words", "cells"):
            assert table.loc[(method, check, units), "verdict"] == FAILS
            assert table.loc[(method, check, units), "rank_correlation"] == pytest.approx(1)
    assert table.loc[("random", "label", "words"), "verdict"] != FAILS


def test_one_step_of_the_cascade_is_the_map_of_the_model_with_that_part_shuffled(
    model: VisionLanguageModel, explained: Explained
) -> None:
    chosen = one_label_each(explained("cplrp", "text", 3))
    _, stage, copy = next(iter(shuffled_models(model, seed=4, with_picture=False)))
    frame = sanity_frame(check_layers(model, chosen, seed=4))
    assert stage == "decoder layer 4"
    for e, found in zip(chosen, frame[frame["step"] == 1]["rank_correlation"], strict=True):
        (other,) = [one for one in explain_answer(copy, e.meme, e.prediction, method="cplrp") if one.target == e.target]
        ranks = [pd.Series(one.word_table.relevance).rank() for one in (e, other)]
        assert found == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_occlusion_is_made_again_with_its_own_options_and_words(
    model: VisionLanguageModel, explained: Explained
) -> None:
    chosen = one_label_each(explained("occlusion", "text", 2, baseline="zero"))
    unshuffled = replace(model, model=model.model)
    frame = sanity_frame(check_label(unshuffled, chosen))
    assert len(frame) == 2
    assert frame["rank_correlation"].between(-1, 0.99).all()


def test_a_verdict_needs_an_interval_on_one_side_of_the_bar() -> None:
    rows = [
        *changes([0.9, 0.95, 0.8, 0.85, 1.0], method="same"),
        *changes([0.1, -0.3, 0.2, 0.0, 0.1], method="other"),
        *changes([1.0, -0.9, 1.0, 0.9, -0.8], method="mixed"),
        *changes([float("nan"), 0.9, 0.9], method="constant"),
    ]
    table = verdicts(sanity_frame(rows)).set_index("method")
    assert table["verdict"].to_dict() == {"same": FAILS, "other": PASSES, "mixed": UNDECIDED, "constant": FAILS}
    assert table.loc["constant", ["n", "n_undefined"]].tolist() == [3, 1]
    assert table.loc["same", "rank_correlation"] == pytest.approx(0.9)


def test_only_the_last_step_of_the_cascade_decides() -> None:
    rows = [*changes([0.99] * 4, check="layers", step=1), *changes([0.0, 0.1] * 2, check="layers", step=2)]
    assert verdicts(sanity_frame(rows))["verdict"].tolist() == [PASSES]


def test_a_method_that_fails_is_named_in_the_words_of_the_report() -> None:
    rows = [
        *changes([0.9] * 4, method="stubborn"),
        *changes([0.0] * 4, method="good"),
        *changes([1.0] * 4, method="stubborn", check="layers"),
    ]
    report = Report(title="t", sections=(sanity_section(sanity_frame(rows)),))
    text = report.sections[0].text
    assert "Failed: stubborn does not notice which label is explained (words, text)" in text
    assert "stubborn does not notice that the model was shuffled" in text
    assert "good does" not in text
    assert report.table("sanity").frame["verdict"].tolist() == [FAILS, FAILS, PASSES]
    assert "No method failed." in sanity_section(sanity_frame(changes([0.0] * 4))).text
    assert "Not decided" not in text
    undecided = sanity_section(sanity_frame(changes([1.0, -0.9, 0.9]))).text
    assert "Not decided by so few explanations: m, label (words, text)" in undecided


def test_methods_that_promise_to_add_up_do(explained: Explained) -> None:
    names = ("attnlrp", "cplrp", "integrated_gradients", "shapley", "gradient")
    table = completeness(e for name in names for e in explained(name, "text", 2)).set_index("method")
    assert "gradient" not in table.index  # It has no sign, so that a total means nothing.
    assert table["verdict"].to_dict() == {
        "attnlrp": "no promise",
        "cplrp": PASSES,
        "integrated_gradients": PASSES,
        "shapley": PASSES,
    }
    assert table.loc["attnlrp", "residual"] > 0.01 > table.loc["shapley", "largest_residual"]


def test_a_broken_promise_fails_and_one_that_was_not_given_does_not(explained: Explained) -> None:
    (first, *_) = explained("cplrp", "text", 1)
    broken = first.model_copy(update={"quality": first.quality.model_copy(update={"conservation": 0.9})})
    assert completeness([first, broken])["verdict"].tolist() == [FAILS]
    assert completeness([first, broken])["largest_residual"].tolist() == [pytest.approx(0.1)]
    for update in ({"target_kind": "log_probability"}, {"settings": {"sinks_dropped": 1.0}}):
        assert completeness([broken.model_copy(update=update)])["verdict"].tolist() == ["no promise"]


def test_one_call_checks_explanations_and_counts_its_steps(model: VisionLanguageModel, explained: Explained) -> None:
    explanations, steps = explained("gradient_x_input", "text", 3), []
    section = check_sanity(model, explanations, n=2, on_progress=steps.append)
    assert sum(steps) == n_steps(model, explanations, 2) == 2 * 5
    report = Report(title="t", sections=(section,))
    assert set(report.table("sanity").frame["n"]) == {2}
    (chart,) = section.charts
    assert chart.series[0].x == (0, 1, 2, 3, 4)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="--targets each"):
        check_sanity(model, [e for e in explanations if e.target == "*"])

"""The comparison of all methods: what it counts is counted rightly, and what it prints is what it measured."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from xai.analysis.faithfulness.ground_truth import CHANCE
from xai.attribution.methods import methods
from xai.models import VisionLanguageModel
from xai.planted.bench import CURVE_MEASURES, Bench, bench, bench_answers, counted, joined
from xai.planted.bench_report import bench_report, in_order, methods_table
from xai.planted.pretrained import ANSWER, CAPITALS, QUESTION, questions
from xai.schema import Meme

METHODS = ("attnlrp", "gradient_x_input", "occlusion", "random")


@pytest.fixture(scope="module")
def measured(model: VisionLanguageModel, new_memes: list[Meme]) -> Bench:
    return bench(model, new_memes[:8], METHODS)


def run_xai(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xai.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False)


def test_each_row_of_a_batch_is_a_forward_and_each_gradient_that_returns_a_backward(model: VisionLanguageModel) -> None:
    # The decoder alone: the whole model would place text by the picture that it saw last.
    decoder: Any = model.model.get_submodule("model.language_model")
    ids = torch.arange(21).reshape(3, 7) + 100
    with counted(model.model) as work, torch.no_grad():
        decoder(input_ids=ids)
    assert (work.forwards, work.tokens, work.backwards) == (3, 21, 0)
    with counted(model.model) as work:
        embeddings = decoder.get_input_embeddings()(ids).detach().requires_grad_()
        hidden = decoder(inputs_embeds=embeddings).last_hidden_state
        for position in (2, 3):
            torch.autograd.grad(hidden[:, position].sum(), embeddings, retain_graph=True)
    assert (work.forwards, work.backwards) == (3, 6)


def test_a_cached_prefix_is_not_counted_again_and_the_hook_is_gone(model: VisionLanguageModel) -> None:
    decoder: Any = model.model.get_submodule("model.language_model")
    ids, cache = torch.arange(10)[None] + 100, DynamicCache()
    name = _cache_name(decoder)
    with counted(model.model) as work, torch.no_grad():
        for part in (ids[:, :6], ids[:, 6:]):
            decoder(input_ids=part, use_cache=True, **{name: cache})
    assert (work.forwards, work.tokens) == (2, 10)
    with pytest.raises(RuntimeError, match="stop"), counted(model.model):
        raise RuntimeError("stop")
    assert not any(module._forward_pre_hooks for module in model.model.modules())


def _cache_name(decoder: Any) -> str:
    return "cache" if "cache" in inspect.signature(decoder.forward).parameters else "past_key_values"


def test_labels_of_a_meme_share_a_forward_and_have_a_backward_each(measured: Bench) -> None:
    costs = measured.costs.set_index("method")
    for method in ("attnlrp", "gradient_x_input"):
        assert (costs.loc[method, "forwards"] == 1).all()
        assert (costs.loc[method, "whole_forwards"] == 1).all()
        assert (costs.loc[method, "backwards"] == costs.loc[method, "n_explanations"]).all()
    assert (costs.loc["occlusion", "backwards"] == 0).all()
    # More than 25 cells and a few words, each once; those of the words run behind a cached prefix.
    assert (costs.loc["occlusion", "forwards"] > 30).all()
    assert (costs.loc["occlusion", "whole_forwards"] < costs.loc["occlusion", "forwards"]).all()


def test_every_method_explains_the_same_labels(measured: Bench) -> None:
    labels = measured.curves.groupby("method")[["meme_id", "target"]].agg(list)
    assert len(labels) == len(METHODS)
    assert all(labels.loc[method].tolist() == labels.iloc[0].tolist() for method in METHODS)
    assert {len(group) for _, group in measured.truth.groupby("method")} == {len(measured.truth) // len(METHODS)}


def test_the_model_agrees_with_what_the_truth_says_of_the_methods(measured: Bench) -> None:
    table = methods_table(measured).set_index("method")
    assert table.index.tolist() == [*METHODS, CHANCE]
    assert table.loc["attnlrp", "points_at_word"] == table.loc["attnlrp", "points_at_icon"] == 1
    assert table.loc["attnlrp", "comprehensiveness@20"] > 0.9 > 0.5 > table.loc["random", "comprehensiveness@20"]
    assert table.loc["attnlrp", "sufficiency@20"] < 0.1 < table.loc["random", "sufficiency@20"]
    assert table.loc["gradient_x_input", "area_between"] < 0.5 < table.loc["attnlrp", "area_between"]


def test_the_report_says_what_was_measured_and_how_much(measured: Bench) -> None:
    report = bench_report(measured, {"memes": 8})
    (name,) = report.headline
    words = measured.truth[(measured.truth["kind"] == "word") & (measured.truth["method"] == "attnlrp")]
    assert f"a word: {len(words)}" in report.table(name).title
    curves = report.table("curves").frame.set_index("method")
    by_meme = measured.curves[measured.curves["method"] == "occlusion"].groupby("meme_id")[list(CURVE_MEASURES)]
    assert curves.loc["occlusion", "area_between"] == pytest.approx(by_meme.mean()["area_between"].mean())
    assert "lower is better" in report.table("curves").note


def test_modes_stand_side_by_side(model: VisionLanguageModel, new_memes: list[Meme]) -> None:
    modes = ("text", "image")
    parts = [bench(model, new_memes[:6], ["attnlrp"], mode, with_curves=False) for mode in modes]  # type: ignore[arg-type]
    table = methods_table(joined(parts)).set_index(["mode", "method"])
    assert table.loc[("text", "attnlrp"), "points_at_word"] == 1
    assert table.loc[("image", "attnlrp"), "points_at_icon"] == 1
    assert table.loc[("text", "attnlrp"), ["points_at_icon", "icon_mass"]].isna().all()
    assert len(bench_report(joined(parts), {}).sections) == 2


def test_a_span_of_a_given_answer_is_measured_without_a_truth(model: VisionLanguageModel) -> None:
    asked = questions(2)
    (meme, answer, (start, end)), _ = asked
    assert answer == ANSWER.format("Paris")
    assert answer[start:end] == CAPITALS[meme.id] == "Paris"
    found = bench_answers(model, asked, ["attnlrp", "random"], QUESTION)
    assert not len(found.truth)
    assert found.curves.groupby("method")["meme_id"].agg(list).tolist() == [["France", "Japan"]] * 2
    assert (found.costs.set_index("method").loc["attnlrp", "backwards"] == 1).all()


def test_methods_are_listed_once_in_the_order_of_the_registry() -> None:
    known = [one.name for one in methods()]
    assert in_order([], known) == known
    assert in_order(["random", "attnlrp", "random"], known) == ["attnlrp", "random"]
    with pytest.raises(ValueError, match="there are attnlrp"):
        in_order(["magic"], known)


@pytest.mark.slow
def test_the_command_prints_what_it_writes(tmp_path: Path) -> None:
    chosen = ("--n", "3", "--method", "attnlrp", "--method", "random", "--no-pretrained", "--no-curves")
    result = run_xai("bench-methods", *chosen, "--out", tmp_path, "--json")
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed == json.loads((tmp_path / "methods.json").read_text(encoding="utf-8"))
    assert printed["headline"] == ["methods"]
    assert printed["facts"]["memes"] == 3
    assert printed["facts"]["options"].keys() == {"attnlrp", "random"}
    assert "<script" not in (tmp_path / "methods.html").read_text(encoding="utf-8")


def test_an_unknown_method_ends_with_2_and_the_names_that_there_are() -> None:
    result = run_xai("bench-methods", "--method", "magic")
    assert result.returncode == 2
    assert "unknown attribution method 'magic'; there are attnlrp" in result.stderr

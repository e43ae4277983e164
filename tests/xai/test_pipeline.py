"""Explaining end to end with the shipped model: totals, tables, repeatability, failures, resume."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import xai
from xai.attribution.methods import get_method
from xai.models import VisionLanguageModel
from xai.pipeline import explain_answer, explain_dataset, predict
from xai.planted.truth import write_planted
from xai.schema import MODES, Explanation, Mode
from xai.store import Run


@pytest.mark.parametrize("mode", MODES)
def test_an_explanation_adds_up(model: VisionLanguageModel, new_memes: list[xai.Meme], mode: Mode) -> None:
    e = xai.explain(model, new_memes[1], mode=mode)
    total = e.tokens["relevance"].sum()
    assert sum(e.shares.values()) == pytest.approx(total, abs=1e-9)
    segments = e.segments.set_index("segment")
    assert segments["relevance"].to_dict() == pytest.approx({name: e.shares[name] for name in segments.index})
    assert segments["absolute"].sum() == pytest.approx(e.tokens["relevance"].abs().sum())
    assert segments["n_tokens"].sum() == len(e.tokens)
    assert ("image" in segments.index) == ("image" in mode)
    in_text = e.tokens.loc[e.tokens["segment"] == "text", "relevance"].sum()
    assert e.words["relevance"].sum() + e.word_table.gap == pytest.approx(in_text, abs=1e-9)
    if e.image is None:
        assert mode == "text"
    else:
        assert e.image.sum() == pytest.approx(e.shares["image"], abs=1e-9)
        assert e.image_levels is not None
        assert e.image_levels.shape[0] == 3
    assert (len(e.words) > 0) == (mode != "image")


def test_tokens_show_what_the_model_read_and_wrote(model: VisionLanguageModel, new_memes: list[xai.Meme]) -> None:
    e = xai.explain(model, new_memes[1])
    tokens = e.tokens
    for segment, text in (("text", e.meme.text), ("answer", e.prediction.text)):
        rows = tokens[(tokens["segment"] == segment) & (tokens["start"] >= 0)]
        assert "".join(text[start:end] for start, end in zip(rows["start"], rows["end"], strict=True)) == text
    assert tokens["token"].iloc[0] == "<|im_start|>"
    assert tokens["token"].iloc[-1] == "<|im_end|>"


def test_all_labels_together_is_the_sum_of_each(model: VisionLanguageModel, new_memes: list[xai.Meme]) -> None:
    meme = next(m for m in new_memes if len(m.labels or ()) == 3)
    (prediction,) = predict(model, [meme])
    together, *each = explain_answer(model, meme, prediction)
    assert [e.target for e in each] == list(prediction.labels)
    assert together.target_value == pytest.approx(sum(e.target_value for e in each), rel=1e-5)
    added = np.sum([e.tokens["relevance"] for e in each], axis=0)
    np.testing.assert_allclose(together.tokens["relevance"], added, atol=1e-4 * abs(together.target_value))


@pytest.mark.parametrize("mode", MODES)
def test_cplrp_conserves_on_the_shipped_model(
    model: VisionLanguageModel, new_memes: list[xai.Meme], mode: Mode
) -> None:
    for meme in new_memes[:10]:
        e = xai.explain(model, meme, mode=mode, method="cplrp")
        assert e.quality.conservation == pytest.approx(1, abs=1e-4)


def test_the_same_meme_twice_with_another_between_gives_the_same_bytes(
    model: VisionLanguageModel, new_memes: list[xai.Meme]
) -> None:
    first = _dump(xai.explain(model, new_memes[0]))
    other = _dump(xai.explain(model, new_memes[1], mode="text", method="gradient_x_input"))
    assert _dump(xai.explain(model, new_memes[0])) == first != other


@pytest.mark.parametrize("method", ["attnlrp", "cplrp", "gradient_x_input", "random"])
@pytest.mark.parametrize("raises", [False, True])
def test_the_model_and_a_second_one_are_as_before(
    model: VisionLanguageModel, new_memes: list[xai.Meme], method: str, raises: bool
) -> None:
    second = xai.load_model("planted", device="cpu")
    before, before_second = _signature(model, new_memes[0]), _signature(second, new_memes[0])
    if raises:
        layer = model.model.get_submodule("model.language_model.layers.2")
        (prediction,) = predict(second, new_memes[:1])
        with layer.register_forward_hook(_fail), pytest.raises(ZeroDivisionError):
            explain_answer(model, new_memes[0], prediction, method=method)
    else:
        xai.explain(model, new_memes[0], method=method)
    assert _same(_signature(model, new_memes[0]), before)
    assert _same(_signature(second, new_memes[0]), before_second)
    assert model.model.config._attn_implementation == "sdpa"
    assert not any("forward" in vars(module) for module in model.model.modules())


def test_an_explanation_shows_itself_in_one_line_without_paths(
    model: VisionLanguageModel, new_memes: list[xai.Meme]
) -> None:
    shown = repr(xai.explain(model, new_memes[0]))
    assert shown.startswith(f"Explanation({new_memes[0].id!r}, image+text, attnlrp, target: all labels")
    assert len(shown) < 300


def test_a_target_that_was_not_answered_is_named(model: VisionLanguageModel, new_memes: list[xai.Meme]) -> None:
    with pytest.raises(ValueError, match="did not answer 'Repetition'"):
        xai.explain(model, new_memes[0], target="Repetition")


def test_an_unparsed_answer_is_stored_and_is_a_failure(model: VisionLanguageModel, tmp_path: Path) -> None:
    dataset = write_planted(tmp_path / "data", 3, 5)
    result = explain_dataset(model, dataset, tmp_path / "run", max_new_tokens=4)
    run = xai.open_run(tmp_path / "run")
    assert (result.explained, result.failed) == (0, 3)
    assert len(run.predictions().df()) == 3
    failures = run.failures().df()
    assert set(failures["stage"]) == {"predict"}
    assert failures["reason"].str.contains("could not be read").all()


def test_a_broken_picture_is_one_failure_and_the_modes_without_it_go_on(
    model: VisionLanguageModel, tmp_path: Path
) -> None:
    dataset = write_planted(tmp_path / "data", 5, 5)
    (tmp_path / "data" / "images" / "planted-5-2.png").write_bytes(b"no picture")
    result = explain_dataset(model, dataset, tmp_path / "run", modes=["text", "image+text"], batch_size=3)
    assert (result.explained, result.failed) == (9, 1)
    (failure,) = xai.open_run(tmp_path / "run").failures().fetchall()
    assert failure[:3] == ("planted-5-2", "image+text", "read")
    assert "cannot be decoded" in failure[3]


def test_a_run_stopped_and_started_again_has_the_rows_of_one_that_was_not(
    model: VisionLanguageModel, tmp_path: Path
) -> None:
    dataset = write_planted(tmp_path / "data", 9, 6)
    options = {"modes": ["text", "image"], "batch_size": 2, "part_size": 4}
    explain_dataset(model, dataset, tmp_path / "whole", **options)

    made = []

    def stop(new: int) -> None:
        made.append(new)
        if sum(made) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain_dataset(model, dataset, tmp_path / "stopped", **options, on_progress=stop)
    stopped = xai.open_run(tmp_path / "stopped")
    assert len(stopped.predictions().df()) == 8  # readers see whole parts, and the row behind them is kept
    assert list((tmp_path / "stopped" / "unfinished").iterdir())
    result = explain_dataset(model, dataset, tmp_path / "stopped", **options)
    assert (result.explained, result.resumed) == (9, 9)
    assert not list((tmp_path / "stopped" / "unfinished").iterdir())
    assert _rows(xai.open_run(tmp_path / "stopped")) == _rows(xai.open_run(tmp_path / "whole"))


@pytest.mark.parametrize("method", ["attnlrp", "occlusion"])
@pytest.mark.parametrize(
    ("dtype", "bits"), [(torch.int8, 8), (torch.uint8, 4), (None, 4)], ids=["8 bits", "4 bits packed", "configuration"]
)
def test_quantised_weights_are_refused_before_the_run(
    dtype: torch.dtype | None, bits: int, method: str, tmp_path: Path
) -> None:
    model = xai.load_model("planted", device="cpu")
    layer = model.model.get_submodule("model.language_model.layers.1.mlp.up_proj")
    if dtype is None:
        model.model.config.quantization_config = {"quant_method": "gptq", "bits": bits}
    else:
        layer.weight = torch.nn.Parameter(torch.zeros(8, 8, dtype=dtype), requires_grad=False)
    dataset = write_planted(tmp_path / "data", 2, 6)
    with pytest.raises(ValueError, match="is quantised: load the model in bfloat16 or float32"):
        explain_dataset(model, dataset, tmp_path / "run", method=method)
    assert not (tmp_path / "run").exists()


def test_a_module_without_a_rule_is_refused_before_the_run_and_stops_only_lrp(
    model: VisionLanguageModel, new_memes: list[xai.Meme], tmp_path: Path
) -> None:
    second = xai.load_model("planted", device="cpu")
    layers = second.model.get_submodule("model.language_model")
    layers.norm = torch.nn.Sequential(layers.norm, torch.nn.Hardtanh(-1e9, 1e9))
    dataset = write_planted(tmp_path / "data", 2, 6)
    with pytest.raises(ValueError, match=r"norm\.1 \(Hardtanh, needs a rule for activation\)"):
        explain_dataset(second, dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    found, expected = (xai.explain(one, new_memes[0], mode="text", method="occlusion") for one in (second, model))
    assert found.words["relevance"].tolist() == expected.words["relevance"].tolist()


def test_a_run_with_other_options_is_not_mixed_in(model: VisionLanguageModel, tmp_path: Path) -> None:
    dataset = write_planted(tmp_path / "data", 1, 6)
    options = {"n_samples": 1, "batch_size": 4}
    explain_dataset(model, dataset, tmp_path / "run", method="shapley", modes=["text"], options=options)
    run = xai.open_run(tmp_path / "run")
    assert run.config["options"] == get_method("shapley").complete(options)
    (row,) = run.explanations().filter("target = '*'").fetchall()
    e = run.explanation(row[0])
    assert e.config["options"]["n_samples"] == 1
    assert e.settings == {"units": "words", "baseline": "mean", "n_samples": 1, "seed": 0}
    with pytest.raises(ValueError, match=r"options\.seed"):
        explain_dataset(
            model, dataset, tmp_path / "run", method="shapley", modes=["text"], options=options | {"seed": 1}
        )
    with pytest.raises(ValueError, match="shapley has no option 'steps'"):
        explain_dataset(model, dataset, tmp_path / "other", method="shapley", options={"steps": 1})
    assert not (tmp_path / "other").exists()


def test_a_run_of_another_configuration_is_not_mixed_in(model: VisionLanguageModel, tmp_path: Path) -> None:
    dataset = write_planted(tmp_path / "data", 2, 6)
    explain_dataset(model, dataset, tmp_path / "run")
    with pytest.raises(ValueError, match="method"):
        explain_dataset(model, dataset, tmp_path / "run", method="cplrp")


def _dump(explanation: Explanation) -> str:
    return explanation.model_dump_json(exclude={"meme"})


def _fail(*_: object) -> None:
    raise ZeroDivisionError


def _signature(model: VisionLanguageModel, meme: xai.Meme) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logits of one prompt and the gradients of every parameter."""
    ids = model.processor.tokenizer(meme.text, return_tensors="pt")["input_ids"]
    images = model.processor(
        text=["<|vision_start|><|image_pad|><|vision_end|>"], images=[meme.image], return_tensors="pt"
    )
    images["input_ids"] = torch.cat([images["input_ids"], ids], dim=1)
    images["attention_mask"] = torch.ones_like(images["input_ids"])
    images["mm_token_type_ids"] = torch.nn.functional.pad(images["mm_token_type_ids"], (0, ids.shape[1]))
    logits = model.model(**images).logits
    model.model.zero_grad()
    logits.square().mean().backward()
    gradients = {name: p.grad.clone() for name, p in model.model.named_parameters() if p.grad is not None}
    model.model.zero_grad()
    return logits.detach(), gradients


def _same(a: tuple[torch.Tensor, dict], b: tuple[torch.Tensor, dict]) -> bool:
    return torch.equal(a[0], b[0]) and a[1].keys() == b[1].keys() and all(torch.equal(a[1][k], b[1][k]) for k in a[1])


def _rows(run: Run) -> str:
    frames = [relation.df().to_json(orient="records") for relation in (run.predictions(), run.explanations())]
    return json.dumps(frames)

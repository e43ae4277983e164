"""Every family is patched whole, keeps its outputs to the bit, and what its table does not know is refused by name."""

from __future__ import annotations

import dataclasses
import inspect
import re
from copy import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from xai.attribution import families
from xai.attribution.families import FAMILIES, UnsupportedModelError, family_of
from xai.attribution.patching import attnlrp, audit_model, cplrp
from xai.attribution.rules import RuleKind, kind_by_structure

from .random_models import FAMILY_NAMES, GRID, IMAGE, VISION_FAMILIES, build_inputs, build_model

CONTEXTS = {"attnlrp": attnlrp, "cplrp": cplrp}
BY_NAME = {family.name: family for family in FAMILIES}
# Named in a table because a configuration may choose them, not because every model has them.
CHOICES = {"SiLUActivation", "SiLU", "GELUTanh", "GELUActivation", "GELU", "QuickGELUActivation"}


def test_every_family_has_a_random_model_of_its_own() -> None:
    assert sorted(BY_NAME) == sorted(FAMILY_NAMES)
    for name in FAMILY_NAMES:
        assert family_of(build_model(name)) is BY_NAME[name]


@pytest.mark.parametrize("name", FAMILY_NAMES)
@pytest.mark.parametrize("method", CONTEXTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_outputs_do_not_change_by_a_bit_while_patched(name: str, method: str, dtype: torch.dtype) -> None:
    model, inputs = build_model(name, dtype=dtype), build_inputs(name)
    with torch.no_grad():
        plain = model(**inputs).logits
        with CONTEXTS[method](model):
            assert torch.equal(model(**inputs).logits, plain)


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm", "batched_mm"])
@pytest.mark.parametrize("method", CONTEXTS)
def test_experts_keep_the_implementation_that_the_model_runs(implementation: str, method: str) -> None:
    model, inputs = build_model("Qwen3-VL-MoE"), build_inputs("Qwen3-VL-MoE")
    model.set_experts_implementation(implementation)
    with torch.no_grad():
        plain = model(**inputs).logits
        with CONTEXTS[method](model):
            assert torch.equal(model(**inputs).logits, plain)


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_every_module_that_looks_to_need_a_rule_is_patched(name: str) -> None:
    model = build_model(name)
    needed = {path for path, module in model.named_modules() if kind_by_structure(module) is not None}
    with attnlrp(model) as audit:
        replaced = {path for path, module in model.named_modules() if "forward" in module.__dict__}
        attention = {path for path, kind in audit.rules.items() if kind is RuleKind.ATTENTION}
        assert replaced | attention == needed == audit.rules.keys()
        for path in attention:
            assert model.get_submodule(path).config._attn_implementation == "xai_attnlrp"


@pytest.mark.parametrize("name", FAMILY_NAMES)
@pytest.mark.parametrize("method", CONTEXTS)
def test_leaving_takes_everything_back(name: str, method: str) -> None:
    model = build_model(name)

    def state() -> list[Any]:
        return [
            (sorted(m.__dict__), getattr(getattr(m, "config", None), "_attn_implementation", 0))
            for m in model.modules()
        ]

    before = state()
    with CONTEXTS[method](model):
        assert state() != before
    assert state() == before


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_a_table_names_nothing_that_the_family_does_not_have(name: str) -> None:
    present = {type(module).__name__ for module in build_model(name).modules()}
    named = BY_NAME[name].passive.union(*BY_NAME[name].rules.values())
    assert named - CHOICES <= present


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_a_table_emptied_for_any_kind_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, family = build_model(name), BY_NAME[name]
    for kind in family.rules:
        emptied = dataclasses.replace(family, rules={**family.rules, kind: frozenset()})
        monkeypatch.setattr(families, "FAMILIES", (emptied,))
        with pytest.raises(UnsupportedModelError, match=re.escape(f"needs a rule for {kind}")):
            audit_model(model)


def test_a_family_that_is_not_there_is_refused_with_those_that_are() -> None:
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=10)
    with pytest.raises(UnsupportedModelError, match=r"'gpt2' \(GPT2LMHeadModel\); .*Qwen2-VL.*Gemma 3 text"):
        family_of(transformers.GPT2LMHeadModel(config))


@pytest.mark.parametrize(("name", "loader"), [("Llama", "AutoModelForCausalLM"), ("Gemma 3", "AutoModelForImageText")])
def test_a_model_without_language_head_is_told_how_to_load_it(name: str, loader: str) -> None:
    with pytest.raises(UnsupportedModelError, match=loader):
        family_of(build_model(name).model if name == "Llama" else headless(build_model(name)))


def headless(model: Any) -> Any:
    model.set_output_embeddings(None)
    return model


@pytest.mark.parametrize("part", ["decoder layers", "vision tower", "vision blocks", "merger", "deepstack mergers"])
def test_a_part_that_moved_is_named(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = BY_NAME["Qwen3-VL"]
    fields = {"vision tower": "tower", "vision blocks": "blocks", "deepstack mergers": "deepstack_mergers"}
    if part == "decoder layers":
        moved = dataclasses.replace(family, decoder_layers="model.elsewhere")
    else:
        vision = dataclasses.replace(family.vision, **{fields.get(part, part): "model.elsewhere"})  # type: ignore[type-var]
        moved = dataclasses.replace(family, vision=vision)
    monkeypatch.setattr(families, "FAMILIES", (moved,))
    with pytest.raises(UnsupportedModelError, match=f"has no {part} at 'model.elsewhere', where Qwen3-VL keeps it"):
        family_of(build_model("Qwen3-VL"))


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [("Gemma 3 text", "final_logit_softcapping", 30.0), ("Qwen3-VL-MoE", "_experts_implementation", "deepgemm")],
)
def test_a_setting_without_a_rule_is_refused_by_name(name: str, field: str, value: object) -> None:
    model = build_model(name)
    setattr(model.config.get_text_config(), field, value)
    with pytest.raises(UnsupportedModelError, match=f"{field}={value!r}"), cplrp(model):
        pytest.fail("entered")


def test_a_pooling_head_with_attention_of_torchs_own_is_refused() -> None:
    model = build_model("Gemma 3")
    model.model.vision_tower.head = nn.MultiheadAttention(16, 2)
    with pytest.raises(
        UnsupportedModelError, match=r"vision_tower\.head \(MultiheadAttention, needs a rule for attent"
    ):
        audit_model(model)


@pytest.mark.parametrize("name", VISION_FAMILIES)
def test_the_family_knows_grid_merge_size_and_where_features_come_out(name: str) -> None:
    model, inputs, vision = build_model(name), build_inputs(name), BY_NAME[name].vision
    assert vision is not None
    grids = vision.grids(model.config, inputs)
    n_tokens = sum(t * h * w for t, h, w in grids) // vision.merge_size(model.config) ** 2
    assert grids == (((1, 6, 6),) if name == "Gemma 3" else (GRID,))
    assert n_tokens == int((inputs["input_ids"] == IMAGE).sum())
    assert vision.token_types in inputs
    found: list[Any] = []
    # Read inside the hook: the model goes on to split its output by picture, in place.
    model.get_submodule(vision.source).register_forward_hook(
        lambda _m, _a, output: found.extend([vision.features(output), copy(output)])
    )
    model(**inputs)
    levels, output = found
    assert all(level.reshape(-1, level.shape[-1]).shape == (n_tokens, 32) for level in levels)
    assert len(levels) == (3 if name.startswith("Qwen3") else 1)
    changed = vision.with_features(output, [level + 1 for level in levels])
    assert all(torch.equal(new, old + 1) for new, old in zip(vision.features(changed), levels, strict=True))


@pytest.mark.parametrize("name", VISION_FAMILIES)
def test_features_put_back_changed_change_the_answer(name: str) -> None:
    model, inputs, vision = build_model(name), build_inputs(name), BY_NAME[name].vision
    assert vision is not None
    plain = model(**inputs).logits
    for index in range(3 if name.startswith("Qwen3") else 1):

        def change(_m: nn.Module, _a: object, output: Any, index: int = index) -> Any:
            features = [level + (rank == index) for rank, level in enumerate(vision.features(output))]
            return vision.with_features(output, features)

        handle = model.get_submodule(vision.source).register_forward_hook(change)
        assert not torch.allclose(model(**inputs).logits[:, -1], plain[:, -1])
        handle.remove()


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_blocks_are_all_that_relevance_passes_in_turn(name: str) -> None:
    model = build_model(name)
    classes = [type(block).__name__ for block in BY_NAME[name].blocks(model).values()]
    n_decoder = model.config.get_text_config().num_hidden_layers
    assert sum("DecoderLayer" in class_name for class_name in classes) == n_decoder
    n_mergers = {"Qwen3-VL": 3, "Qwen3-VL-MoE": 3}.get(name, 1 if name in VISION_FAMILIES else 0)
    assert sum("Merger" in c or "Projector" in c for c in classes) == n_mergers
    assert len(classes) == n_decoder + n_mergers + (2 if name in VISION_FAMILIES else 0)


def test_state_names_what_a_forward_leaves_behind() -> None:
    for name in FAMILY_NAMES:
        model, inputs = build_model(name), build_inputs(name)
        before = plain_attributes(model)
        model(**inputs)
        changed = {path for path, value in plain_attributes(model).items() if before.get(path) is not value}
        assert changed == set(BY_NAME[name].state), name


def plain_attributes(model: nn.Module) -> dict[str, object]:
    return {
        f"{path}.{key}": value
        for path, module in model.named_modules()
        for key, value in module.__dict__.items()
        if not key.startswith("_")
        and not isinstance(value, (SimpleNamespace, int, float))
        and not inspect.isroutine(value)
    }

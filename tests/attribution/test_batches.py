"""A padded batch of records, pictures of any size among them, gives each row the relevance that it has alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from xai.attribution.batches import relevance_of_batch
from xai.attribution.patching import attnlrp
from xai.attribution.relevance import MissingGradientError, Relevance, relevance
from xai.attribution.targets import Target

from .faults import raising
from .random_models import FAMILY_NAMES, answer_target, build_inputs, build_model

Side = Literal["left", "right"]
GRIDS = [(1, 4, 4), (1, 8, 12), (1, 2, 10)]
PAD = {"input_ids": 7}  # a word, so that padding that is read would be seen; masks and token types get 0


def record(family: str, index: int) -> dict[str, Tensor]:
    """Records of different lengths and picture sizes, every third without a picture."""
    return build_inputs(family, index, index % 3 != 2, grid=GRIDS[index % 3], n_words=12 + 3 * (index % 4))


def padded(records: Sequence[dict[str, Tensor]], side: Side) -> tuple[dict[str, Tensor], list[int]]:
    """The batch, and how many tokens of padding precede each record."""
    length = max(one["input_ids"].shape[1] for one in records)
    batch: dict[str, list[Tensor]] = {}
    before = []
    for one in records:
        missing = length - one["input_ids"].shape[1]
        before.append(missing if side == "left" else 0)
        types = {name for other in records for name in other if name.endswith("type_ids")}
        for name, tensor in ({name: torch.zeros_like(one["input_ids"]) for name in types} | one).items():
            if tensor.shape == one["input_ids"].shape and name != "image_grid_thw":
                sides = (missing, 0) if side == "left" else (0, missing)
                tensor = torch.nn.functional.pad(tensor, sides, value=PAD.get(name, 0))
            batch.setdefault(name, []).append(tensor)
    return {name: torch.cat(parts) for name, parts in batch.items()}, before


def moved(target: Target, by: int) -> Target:
    return Target(target.name, tuple(position + by for position in target.positions), target.token_ids)


def agree(found: Relevance, alone: Relevance, before: int, tolerance: float) -> None:
    length = len(alone.text)
    limit = tolerance * np.abs(alone.tokens).max()
    np.testing.assert_allclose(found.text[before : before + length], alone.text, rtol=0, atol=limit)
    assert not found.tokens[:before].any()
    assert not found.tokens[before + length :].any()
    assert found.value == pytest.approx(alone.value, abs=limit)
    assert (found.image is None) == (alone.image is None)
    if alone.image is not None:
        assert found.grid_thw == alone.grid_thw
        assert found.image_positions.tolist() == [place + before for place in alone.image_positions]
        np.testing.assert_allclose(found.image, alone.image, rtol=0, atol=limit)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("family", ["Qwen3-VL", "Qwen2.5-VL"])
def test_every_row_has_the_relevance_that_it_has_alone(family: str, size: int, side: Side) -> None:
    model, records = build_model(family), [record(family, index) for index in range(size)]
    batch, before = padded(records, side)
    targets = [answer_target(one) for one in records]
    found = relevance_of_batch(
        model, batch, [moved(target, by) for target, by in zip(targets, before, strict=True)], method="attnlrp"
    )
    for one, target, result, by in zip(records, targets, found, before, strict=True):
        (alone,) = relevance(model, one, [target], method="attnlrp")
        agree(result, alone, by, 1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_so_it_is_for_all_families_in_double_precision(family: str, side: Side) -> None:
    model, records = build_model(family, dtype=torch.float64), [record(family, index) for index in (1, 2, 0)]
    for one in records:
        one |= {"pixel_values": one["pixel_values"].double()} if "pixel_values" in one else {}
    batch, before = padded(records, side)
    targets = [answer_target(one) for one in records]
    shifted = [moved(target, by) for target, by in zip(targets, before, strict=True)]
    for result, one, target, by in zip(
        relevance_of_batch(model, batch, shifted, method="cplrp"), records, targets, before, strict=True
    ):
        (alone,) = relevance(model, one, [target], method="cplrp")
        agree(result, alone, by, 1e-6)


@pytest.mark.parametrize("method", ["gradient", "gradient_x_input", "cplrp"])
def test_so_it_is_for_the_other_methods_and_for_leads(method: Any) -> None:
    model, records = build_model("Qwen3-VL"), [record("Qwen3-VL", index) for index in range(3)]
    batch, before = padded(records, "left")
    last = [one["input_ids"].shape[1] - 1 for one in records]
    leads = [Target("a", (p, p - 1), (5, 6), "contrastive", (9, 3), ("b", "c")) for p in last]
    shifted = [
        Target("a", (p + by, p - 1 + by), (5, 6), "contrastive", (9, 3), ("b", "c"))
        for p, by in zip(last, before, strict=True)
    ]
    for result, one, lead, by in zip(
        relevance_of_batch(model, batch, shifted, method=method), records, leads, before, strict=True
    ):
        (alone,) = relevance(model, one, [lead], method=method)
        assert result.target.contrast == alone.target.contrast
        agree(result, alone, by, 1e-4)


def test_rows_in_another_order_have_the_same_relevance() -> None:
    model, records = build_model("Qwen3-VL"), [record("Qwen3-VL", index) for index in range(4)]
    batch, before = padded(records, "left")
    back, back_before = padded(records[::-1], "left")
    targets = [answer_target(one) for one in records]
    forth = relevance_of_batch(model, batch, list(map(moved, targets, before)), method="attnlrp")
    reverse = relevance_of_batch(model, back, list(map(moved, targets[::-1], back_before)), method="attnlrp")
    for one, other in zip(forth, reversed(reverse), strict=True):
        np.testing.assert_allclose(one.tokens, other.tokens, rtol=0, atol=1e-5 * np.abs(one.tokens).max())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("one target", "2 rows needs as many targets"),
        ("on padding", "row 1 of the batch: target 'label' lies on padding"),
        ("out of range", "row 0 of the batch: target 'label' asks for positions"),
        ("picture too many", "1 pictures are left over"),
        ("picture too few", "row 1 of the batch: the prompt has 24 image placeholders"),
        ("no grid", "need image_grid_thw beside them"),
        ("other pictures", "row 0 of the batch: image_grid_thw speaks of"),
        ("no rows", "shape \\(batch, seq\\)"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_row(change: str, message: str) -> None:
    model, records = build_model("Qwen3-VL"), [record("Qwen3-VL", 0), record("Qwen3-VL", 1)]
    batch, before = padded(records, "left")
    targets = [moved(answer_target(one), by) for one, by in zip(records, before, strict=True)]
    grids, pixels = batch["image_grid_thw"], batch["pixel_values"]
    match change:
        case "one target":
            targets = targets[:1]
        case "on padding":
            batch["attention_mask"][1, targets[1].positions[0]] = 0
        case "out of range":
            targets[0] = moved(targets[0], 99)
        case "picture too many":
            batch |= {"image_grid_thw": torch.cat([grids, grids[:1]]), "pixel_values": torch.cat([pixels, pixels[:16]])}
        case "picture too few":
            batch |= {"image_grid_thw": grids[:1], "pixel_values": pixels[:16]}
        case "no grid":
            del batch["image_grid_thw"]
        case "other pictures":
            batch |= {"image_grid_thw": grids.flip(0), "pixel_values": pixels}
        case "no rows":
            batch["input_ids"] = batch["input_ids"][0]
    with pytest.raises(ValueError, match=message):
        relevance_of_batch(model, batch, targets, method="attnlrp")


def test_a_row_that_gets_no_gradient_is_named() -> None:
    model, records = build_model("Qwen3"), [build_inputs("Qwen3", index) for index in range(2)]
    batch, _ = padded(records, "left")
    first, second = (answer_target(one) for one in records)
    with torch.no_grad():
        model.lm_head.weight[0] = 0
    unmoved = Target("second", second.positions, (0, 0))
    with pytest.raises(MissingGradientError, match="gradient of zeros only for target 'second'"):
        relevance_of_batch(model, batch, [first, unmoved], method="attnlrp")


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_as_before(
    fails: bool, build_model: Any, build_inputs: Any, answer_target: Any, state_of: Any
) -> None:
    model, inputs = build_model().train(), build_inputs()
    batch, _ = padded([inputs, build_inputs(1)], "left")
    before = state_of(model, inputs)
    targets = [answer_target(inputs)] * 2
    if fails:
        with raising(model.model.language_model.layers[1], "forward"):
            relevance_of_batch(model, batch, targets, method="attnlrp")
    else:
        relevance_of_batch(model, batch, targets, method="attnlrp")
    assert state_of(model, inputs) == before


def test_the_callers_mode_changes_nothing_and_an_lrp_block_is_refused() -> None:
    model, records = build_model("Qwen3-VL"), [record("Qwen3-VL", index) for index in range(2)]
    batch, before = padded(records, "left")
    targets = [moved(answer_target(one), by) for one, by in zip(records, before, strict=True)]
    expected = relevance_of_batch(model, batch, targets, method="attnlrp")
    with torch.inference_mode():
        inside = {name: tensor.clone() for name, tensor in batch.items()}
        found = relevance_of_batch(model, inside, targets, method="attnlrp")
    assert [one.tokens.tobytes() for one in found] == [one.tokens.tobytes() for one in expected]
    with attnlrp(model), pytest.raises(RuntimeError, match="already inside"):
        relevance_of_batch(model, batch, targets, method="attnlrp")

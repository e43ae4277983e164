"""Changed inputs score as whole forwards score them, whatever is cached, batched or changed together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from xai.attribution.perturb import Variant, score_variants
from xai.attribution.relevance import target_values
from xai.attribution.targets import Target, target_score

LATE = [Variant(frozenset({32})), Variant(frozenset({33, 35})), Variant(frozenset({38})), Variant()]
CELLS = [Variant(cells=frozenset({0})), Variant(cells=frozenset({3, 23}))]
EARLY = [Variant(frozenset({0})), Variant(frozenset({2, 33}))]
BOTH = [Variant(frozenset({34}), frozenset({5, 6})), Variant(frozenset({4, 29}), frozenset(range(24)))]
VARIANTS = [*LATE, *CELLS, *EARLY, *BOTH]


@pytest.fixture
def targets(build_inputs: Any, answer_target: Any) -> list[Target]:
    return [answer_target(build_inputs()), Target("log", (39, 41), (5, 6), kind="log_probability")]


def replaced(inputs: dict[str, Tensor], variant: Variant, token_id: int) -> dict[str, Tensor]:
    ids = inputs["input_ids"].clone()
    ids[0, sorted(variant.tokens)] = token_id
    return {**inputs, "input_ids": ids}


@pytest.mark.parametrize("variants", [LATE, EARLY, LATE + EARLY], ids=["late", "early", "mixed"])
def test_a_token_as_baseline_scores_as_the_model_scores_those_ids(
    variants: list[Variant], build_model: Any, build_inputs: Any, targets: list[Target]
) -> None:
    model, inputs = build_model(), build_inputs()
    found = score_variants(model, inputs, variants, targets, baseline=7, batch_size=3)
    expected = [target_values(model, replaced(inputs, variant, 7), targets) for variant in variants]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_replaced_cell_is_the_mean_of_its_picture_at_every_level(
    build_model: Any, build_inputs: Any, targets: list[Target]
) -> None:
    model, inputs = build_model(), build_inputs()
    found = score_variants(model, inputs, CELLS, targets)

    def score(cells: frozenset[int]) -> list[float]:
        def replace(_module: Any, _args: Any, output: Any) -> Any:
            for level in (output.pooler_output, *output.deepstack_features):
                level[sorted(cells)] = level.mean(dim=0).expand(len(cells), -1)
            return output

        hook = model.model.visual.register_forward_hook(replace)
        values = target_values(model, inputs, targets)
        hook.remove()
        return values

    np.testing.assert_allclose(found, [score(variant.cells) for variant in CELLS], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("baseline", ["mean", "zero", 7])
@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_neither_the_cached_prefix_nor_the_batch_changes_a_score(
    baseline: Any, batch_size: int, build_model: Any, build_inputs: Any, targets: list[Target]
) -> None:
    model, inputs = build_model(), build_inputs()
    found = score_variants(model, inputs, VARIANTS, targets, baseline=baseline, batch_size=batch_size)
    whole = score_variants(model, inputs, VARIANTS, targets, baseline=baseline, batch_size=4, reuse_prefix=False)
    np.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[3], target_values(model, inputs, targets), rtol=1e-5)
    assert (np.abs(whole - whole[3])[[0, 1, 2, *range(4, len(VARIANTS))]] > 1e-4).all()


def test_padding_on_the_left_changes_no_score(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    model, inputs = build_model(), build_inputs()
    target = answer_target(inputs)
    padded = dict(inputs)
    for name, filler in (("input_ids", 7), ("attention_mask", 0), ("mm_token_type_ids", 0)):
        padded[name] = torch.cat([torch.full((1, 3), filler).to(inputs[name].dtype), inputs[name]], dim=1)
    shifted = Target("label", tuple(position + 3 for position in target.positions), target.token_ids)
    moved = [Variant(frozenset(index + 3 for index in variant.tokens), variant.cells) for variant in VARIANTS]
    found = score_variants(model, padded, moved, [shifted])
    np.testing.assert_allclose(found, score_variants(model, inputs, VARIANTS, [target]), rtol=1e-5, atol=1e-5)


def test_a_second_picture_is_kept_whole_with_the_first(build_model: Any, build_inputs: Any) -> None:
    model, inputs = build_model(), build_inputs()
    first, second = build_inputs(1), build_inputs(2)
    both = {
        name: torch.cat([first[name], second[name]], dim=0 if "pixel" in name or "grid" in name else 1)
        for name in inputs
    }
    length = both["input_ids"].shape[1]
    target = Target("label", (length - 2,), (3,))
    between = Variant(frozenset({33}))
    variants = [between, Variant(cells=frozenset({30})), Variant(frozenset({length - 5})), Variant(frozenset({1}))]
    found = score_variants(model, both, variants, [target])
    np.testing.assert_allclose(found, score_variants(model, both, variants, [target], reuse_prefix=False), atol=1e-5)


def test_what_precedes_the_change_runs_once_and_so_does_the_picture(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    lengths: list[tuple[int, ...]] = []
    towers: list[int] = []
    layer, tower = model.model.language_model.layers[0], model.model.visual.blocks[0]
    layer.register_forward_pre_hook(lambda _, args, kwargs: lengths.append(tuple(args[0].shape[:2])), with_kwargs=True)
    tower.register_forward_pre_hook(lambda *_: towers.append(1))
    score_variants(model, inputs, LATE, [answer_target(inputs)], batch_size=2)
    assert lengths == [(1, 40), (2, 8), (2, 8)]
    assert towers == [1]


def test_a_sliding_window_is_not_cut(build_inputs: Any) -> None:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
    )
    model, inputs = Gemma3ForCausalLM(config).eval(), build_inputs(image=False)
    target, variants = Target("label", (14,), (3,)), [Variant(frozenset({index})) for index in (2, 9, 12)]
    found = score_variants(model, inputs, variants, [target], baseline=7)
    expected = [target_values(model, replaced(inputs, variant, 7), [target]) for variant in variants]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="cannot be deleted exactly where attention has a window"):
        score_variants(model, inputs, variants, [target], words="delete")


@pytest.mark.parametrize(
    ("variant", "options", "message"),
    [
        (Variant(frozenset({10})), {}, r"tokens \[10\] are image placeholders"),
        (Variant(frozenset({41})), {}, r"tokens \[41\] cannot be replaced"),
        (Variant(cells=frozenset({24})), {}, "24 cells of the picture"),
        (Variant(), {"baseline": 64}, "token id below 64"),
        (Variant(), {"baseline": "pad"}, "'mean', 'zero' or a token id"),
        (Variant(), {"batch_size": 0}, "batch_size must be 1 or more"),
    ],
)
def test_changes_that_are_not_in_the_input_are_refused(
    variant: Variant, options: Any, message: str, build_model: Any, build_inputs: Any, targets: list[Target]
) -> None:
    with pytest.raises(ValueError, match=message):
        score_variants(build_model(), build_inputs(), [variant], targets, **options)


def test_scoring_leaves_the_model_as_it_was(
    build_model: Any, build_inputs: Any, targets: list[Target], state_of: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    before = state_of(model, inputs)
    score_variants(model, inputs, VARIANTS, targets)
    assert state_of(model, inputs) == before


WORDS = [Variant(frozenset({33})), Variant(frozenset({34, 35, 37})), Variant(frozenset({2, 36}))]


@pytest.mark.parametrize("image", [True, False])
@pytest.mark.parametrize("reuse_prefix", [True, False])
def test_a_deleted_word_scores_as_the_shorter_input_with_the_target_moved_up(
    reuse_prefix: bool, image: bool, build_model: Any, build_inputs: Any
) -> None:
    model, inputs = build_model(), build_inputs(image=image)
    length = inputs["input_ids"].shape[1]
    target = Target("label", (length - 3, length - 1), (5, 6), kind="log_probability")
    variants = [Variant(frozenset({length - 9})), Variant(frozenset({2, length - 8, length - 6}))]
    found = score_variants(model, inputs, variants, [target], words="delete", reuse_prefix=reuse_prefix)
    for variant, scores in zip(variants, found, strict=True):
        kept = [index for index in range(length) if index not in variant.tokens]
        shorter = {name: tensor[:, kept] if tensor.shape[-1] == length else tensor for name, tensor in inputs.items()}
        moved = tuple(position - len(variant.tokens) for position in target.positions)
        expected = target_values(model, shorter, [Target("label", moved, target.token_ids, kind=target.kind)])
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_a_masked_word_keeps_its_place_and_is_attended_by_nothing(
    build_model: Any, build_inputs: Any, targets: list[Target]
) -> None:
    model, inputs = build_model(), build_inputs()
    three, _ = model.model.get_rope_index(
        inputs["input_ids"], **{name: inputs[name] for name in ("mm_token_type_ids", "image_grid_thw")}
    )
    places = torch.cat([torch.arange(42)[None, None], three])
    found = score_variants(model, inputs, WORDS, targets, words="mask")
    whole = score_variants(model, inputs, WORDS, targets, words="mask", reuse_prefix=False)
    np.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-5)
    for variant, scores in zip(WORDS, found, strict=True):
        mask = inputs["attention_mask"].clone()
        mask[0, sorted(variant.tokens)] = 0
        with torch.no_grad():
            logits = model(**(inputs | {"attention_mask": mask}), position_ids=places).logits[0, :-1]
        expected = [target_score(target, logits, range(1, 42)) for target in targets]
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_a_painted_cell_scores_as_the_picture_with_those_pixels(
    build_model: Any, build_inputs: Any, targets: list[Target]
) -> None:
    model, inputs = build_model(), build_inputs()
    pixels = torch.zeros_like(inputs["pixel_values"])
    variants = [*CELLS, Variant(frozenset({34}), frozenset({5})), Variant(frozenset({34}))]
    found = score_variants(model, inputs, variants, targets, baseline=7, pixels=pixels)
    for variant, scores in zip(variants, found, strict=True):
        # The four patches of a merged cell follow each other in the processor's rows.
        rows = [4 * cell + patch for cell in variant.cells for patch in range(4)]
        painted = inputs["pixel_values"].clone()
        painted[rows] = 0
        changed = replaced(inputs, variant, 7) | {"pixel_values": painted}
        np.testing.assert_allclose(scores, target_values(model, changed, targets), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("variant", "options", "message"),
    [
        (Variant(frozenset({0})), {"words": "mask"}, "token 0 is the first of all"),
        (Variant(), {"words": "drop"}, "words must be one of replace, delete, mask"),
        (Variant(), {"pixels": torch.zeros(3)}, "encode a picture of the same size"),
    ],
)
def test_ways_that_cannot_be_gone_are_refused(
    variant: Variant, options: Any, message: str, build_model: Any, build_inputs: Any, targets: list[Target]
) -> None:
    with pytest.raises(ValueError, match=message):
        score_variants(build_model(), build_inputs(), [variant], targets, **options)

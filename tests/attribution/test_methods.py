"""Methods are found by name, say what they are, and all return the same kind of explanation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from xai.attribution.methods import get_method, method, methods, registry
from xai.attribution.patching import AlreadyPatchedError, attnlrp
from xai.attribution.perturb import Variant, score_variants
from xai.attribution.relevance import Relevance, relevance, target_values
from xai.attribution.targets import Target

from .faults import raising

NAMES = [
    "attnlrp",
    "cplrp",
    "gradient",
    "gradient_x_input",
    "smooth_gradients",
    "integrated_gradients",
    "occlusion",
    "shapley",
    "attention_rollout",
    "attention_x_gradient",
    "random",
]
UNSIGNED = {"gradient", "attention_rollout", "attention_x_gradient"}
# Words of the tiny prompt, and quarters of its picture, so that few forwards do.
UNITS = {"groups": [[0, 1], [2, 3], [30, 31], [33]], "cells": [range(12), range(12, 24)]}
WORDS = {"groups": [[0, 1], [2], [5, 4]]}
QUICK: dict[str, dict[str, Any]] = {
    "smooth_gradients": {"n_samples": 3, "batch_size": 2},
    "integrated_gradients": {"n_steps": 4},
    "occlusion": UNITS,
    "shapley": {"n_samples": 2, **UNITS},
}


def quick(name: str, *, image: bool = True) -> dict[str, Any]:
    options = QUICK.get(name, {})
    return {**options, **WORDS, "cells": None} if "cells" in options and not image else options


def test_the_registry_lists_what_exists_and_its_docstrings_say_the_same() -> None:
    assert [entry.name for entry in methods()] == NAMES
    for entry in methods():
        text = " ".join((entry.function.__doc__ or "").split())
        assert entry.description.endswith(".")
        assert entry.needs
        assert all(need.removesuffix("s") in text for need in entry.needs)
        assert "Needs: " in text
        assert "Baseline: " in text
        assert "Sign: " in text
        assert f"Source: {entry.source}" in text
        assert (entry.sign == "unsigned") == (entry.name in UNSIGNED)
        assert (entry.baseline == "none") == ("Baseline: none" in text)


def test_an_unknown_name_is_answered_with_the_names_that_exist() -> None:
    with pytest.raises(
        ValueError, match="'attlrp'; there are attnlrp, cplrp, gradient, gradient_x_input, smooth_gradients"
    ):
        get_method("attlrp")


def test_one_function_and_a_decorator_add_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_METHODS", copy(registry._METHODS))

    @method(name="nothing", needs=["nothing"], source="here")
    def nothing(model: Any, inputs: Any, targets: Any) -> list[Relevance]:
        """Returns no explanation.

        Not even one.
        """
        return []

    assert get_method("nothing").description == "Returns no explanation."
    assert get_method("nothing")(None, {}, []) == []  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="registered already"):
        method(name="nothing")(nothing)


@pytest.mark.parametrize("image", [True, False], ids=["image+text", "text"])
@pytest.mark.parametrize("name", NAMES)
def test_every_method_gives_one_explanation_a_target_in_the_same_shape(
    name: str, image: bool, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs(image=image)
    targets = [answer_target(inputs), Target("other", (35,), (3,))] if image else [answer_target(inputs)]
    results = get_method(name)(model, inputs, targets, **quick(name, image=image))
    reference = relevance(model, inputs, targets, method="gradient_x_input")
    assert [result.target for result in results] == targets
    for result, expected in zip(results, reference, strict=True):
        assert result.value == pytest.approx(expected.value, rel=1e-4)
        assert result.text.shape == expected.text.shape
        assert not result.text[expected.text == 0].any()
        assert result.text.any()
        assert np.shape(result.image) == np.shape(expected.image)
        assert result.image_positions.tolist() == expected.image_positions.tolist()
        assert (result.grid_thw, result.merge_size) == (expected.grid_thw, expected.merge_size)
        assert result.non_finite == 0
        assert name not in UNSIGNED or result.tokens.min() >= 0


@pytest.mark.parametrize("name", ["attnlrp", "cplrp", "gradient_x_input"])
def test_the_registered_gradient_methods_are_those_of_relevance(
    name: Any, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    (found,) = get_method(name)(model, inputs, [answer_target(inputs)])
    (expected,) = relevance(model, inputs, [answer_target(inputs)], method=name)
    assert found.tokens.tobytes() == expected.tokens.tobytes()


def test_random_depends_on_seed_and_target_and_on_nothing_that_ran_before(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs, random = build_model(), build_inputs(), get_method("random")
    target, other = answer_target(inputs), Target("other", (35,), (3,))
    (first,) = random(model, inputs, [target], seed=3)
    _, again = random(model, inputs, [other, target], seed=3)
    (reseeded,) = random(model, inputs, [target], seed=4)
    assert first.tokens.tobytes() == again.tokens.tobytes()
    assert first.tokens.tobytes() != reseeded.tokens.tobytes()
    assert first.value == pytest.approx(target_values(model, inputs, [target])[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_target_explained_beside_another_gets_what_it_gets_alone(
    name: str, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs()
    targets = [answer_target(inputs), Target("log", (41,), (3,), "log_probability")]
    _, beside = get_method(name)(model, inputs, targets, **quick(name))
    (alone,) = get_method(name)(model, inputs, targets[1:], **quick(name))
    # Noise is shaped like the sequence, which is cut at the last target: the same for both.
    np.testing.assert_allclose(beside.tokens, alone.tokens, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ["attnlrp", "cplrp", "gradient_x_input", "integrated_gradients", "occlusion"])
def test_a_lead_and_its_reverse_have_negated_maps(name: str, build_model: Any, build_inputs: Any) -> None:
    model, inputs = build_model(), build_inputs()
    lead = Target("a", (38,), (5,), "contrastive", (9,), ("b",))
    reverse = Target("b", (38,), (9,), "contrastive", (5,), ("a",))
    (forth,) = get_method(name)(model, inputs, [lead], **quick(name))
    (back,) = get_method(name)(model, inputs, [reverse], **quick(name))
    assert forth.value == -back.value
    assert (forth.tokens == -back.tokens).all()
    assert forth.tokens.any()


@pytest.mark.parametrize("name", NAMES)
def test_a_lead_over_several_is_explained_and_stored_as_that_over_the_strongest(
    name: str, build_model: Any, build_inputs: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    every = Target("a", (38, 39, 39), (5, 6, 6), "contrastive", (9, 10, 11), ("b", "c", "d"))
    single = [
        Target("a", (position,), (own,), "contrastive", (other,), (label,))
        for position, own, other, label in zip(every.positions, every.token_ids, every.contrast_ids, "bcd", strict=True)
    ]
    values = target_values(model, inputs, single)
    (found,) = get_method(name)(model, inputs, [every], **quick(name))
    assert found.target == single[int(np.argmin(values))]
    assert found.value == pytest.approx(min(values), rel=1e-4)
    assert target_values(model, inputs, [every]) == pytest.approx([min(values)])


def test_gradient_is_the_length_of_what_autograd_gives(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs(image=False)
    target = answer_target(inputs)
    embeds = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=embeds, attention_mask=inputs["attention_mask"]).logits[0]
    value = sum(logits[p - 1, t] for p, t in zip(target.positions, target.token_ids, strict=True))
    (gradient,) = torch.autograd.grad(value, embeds)
    (result,) = get_method("gradient")(model, inputs, [target])
    np.testing.assert_allclose(result.text, gradient.norm(dim=-1)[0].numpy(), rtol=1e-8, atol=1e-12)


def test_smooth_gradients_without_noise_are_gradient_x_input(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    targets = [answer_target(inputs)]
    (smooth,) = get_method("smooth_gradients")(model, inputs, targets, n_samples=3, noise=0.0, batch_size=2)
    (plain,) = relevance(model, inputs, targets, method="gradient_x_input")
    np.testing.assert_allclose(smooth.tokens, plain.tokens, rtol=1e-4, atol=1e-5)


def test_smooth_gradients_depend_on_the_seed_and_not_on_the_batch(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs, smooth = build_model(), build_inputs(), get_method("smooth_gradients")
    targets = [answer_target(inputs)]
    one, many, other = (
        smooth(model, inputs, targets, n_samples=5, seed=seed, batch_size=size)[0]
        for seed, size in ((1, 1), (1, 4), (2, 4))
    )
    np.testing.assert_allclose(one.tokens, many.tokens, rtol=1e-4, atol=1e-5)
    assert np.abs(one.tokens - other.tokens).max() > 1e-2
    assert one.settings == {"n_samples": 5, "noise": 0.1, "seed": 1}


def test_a_smooth_gradient_of_one_sample_is_the_gradient_at_that_noisy_input(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs(image=False)
    target = answer_target(inputs)
    cut = target.positions[-1]
    embeds = model.get_input_embeddings()(inputs["input_ids"]).detach()[:, :cut]
    draw = torch.randn(embeds.shape, generator=torch.Generator().manual_seed(4)).double()
    noisy = (embeds + 0.2 * embeds.std() * draw).requires_grad_()
    logits = model(inputs_embeds=noisy).logits[0]
    value = sum(logits[p - 1, t] for p, t in zip(target.positions, target.token_ids, strict=True))
    (gradient,) = torch.autograd.grad(value, noisy)
    (found,) = get_method("smooth_gradients")(model, inputs, [target], n_samples=1, noise=0.2, seed=4)
    np.testing.assert_allclose(found.text[:cut], (noisy * gradient).sum(-1)[0].detach().numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("baseline", ["mean", 7])
def test_integrated_gradients_add_up_to_what_the_target_gained(
    baseline: Any, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs()
    targets = [answer_target(inputs), Target("log", (39,), (3,), "log_probability")]
    everything = Variant(frozenset([*range(5), *range(29, 40)]), frozenset(range(24)))
    origin = score_variants(model, inputs, [everything], targets, baseline=baseline)[0]
    results = get_method("integrated_gradients")(model, inputs, targets, n_steps=200, baseline=baseline, batch_size=50)
    for result, value in zip(results, origin, strict=True):
        assert result.baseline_value == pytest.approx(value, rel=1e-6)
        assert result.total == pytest.approx(result.value - value, rel=0.02, abs=0.02)


def test_one_piece_of_integrated_gradients_is_the_gauss_legendre_rule(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs(image=False)
    target = answer_target(inputs)
    cut = target.positions[-1]
    embeds = model.get_input_embeddings()(inputs["input_ids"]).detach()[:, :cut]
    steps = embeds - model.get_input_embeddings().weight.mean(dim=0).detach()
    expected = torch.zeros(cut, dtype=torch.float64)
    for node, weight in zip(*np.polynomial.legendre.leggauss(8), strict=True):
        at = (embeds - (1 - node) / 2 * steps).requires_grad_()
        logits = model(inputs_embeds=at).logits[0]
        value = sum(logits[p - 1, t] for p, t in zip(target.positions, target.token_ids, strict=True))
        expected += weight / 2 * (steps * torch.autograd.grad(value, at)[0]).sum(-1)[0]
    (found,) = get_method("integrated_gradients")(model, inputs, [target], n_steps=8, max_steps=8)
    np.testing.assert_allclose(found.text[:cut], expected.numpy(), rtol=1e-5)  # captum's weights are float32
    assert found.settings["n_steps"] == 8


def test_integrated_gradients_halve_the_path_until_it_adds_up(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs()
    targets = [answer_target(inputs)]
    own = get_method("integrated_gradients")
    (coarse,) = own(model, inputs, targets, n_steps=8, max_steps=8, baseline=7)
    (fine,) = own(model, inputs, targets, n_steps=8, baseline=7)
    gained = fine.value - fine.baseline_value
    assert abs(coarse.total - gained) > own.max_residual * abs(gained) >= abs(fine.total - gained)
    assert 8 < fine.settings["n_steps"] <= 256


def test_a_path_that_does_not_add_up_ends_at_the_most_steps_and_the_gap_is_there_to_be_seen(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs()
    (result,) = get_method("integrated_gradients")(
        model, inputs, [answer_target(inputs)], n_steps=32, max_steps=40, baseline="zero"
    )
    assert result.settings["n_steps"] == 32  # two halves of a piece would be 48
    assert result.baseline_value == pytest.approx(0)  # no bias reaches the logits of zeros
    assert abs(result.total - (result.value - result.baseline_value)) > 0.1


def test_occlusion_is_the_difference_of_two_forwards(build_model: Any, build_inputs: Any, answer_target: Any) -> None:
    model, inputs = build_model(), build_inputs()
    target = answer_target(inputs)
    (found,) = get_method("occlusion")(model, inputs, [target], baseline=7, groups=[[2, 3], [33]], cells=[])
    for group in ([2, 3], [33]):
        ids = inputs["input_ids"].clone()
        ids[0, group] = 7
        lost = found.value - target_values(model, {**inputs, "input_ids": ids}, [target])[0]
        assert found.text[group] == pytest.approx([lost / len(group)] * len(group), abs=1e-4)
    assert np.flatnonzero(found.tokens).tolist() == [2, 3, 33]


def test_units_are_every_cell_and_every_plain_token_before_the_target_unless_told(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    (found,) = get_method("occlusion")(model, inputs, [answer_target(inputs)])
    special = [4, 29]  # the marks before and after the picture
    assert found.text[:38][~np.isin(np.arange(38), [*special, *found.image_positions])].all()
    assert not found.text[special].any()
    assert not found.text[38:].any()
    assert found.image is not None
    assert found.image[0].all()
    assert not found.image[1:].any()


def test_shapley_values_are_the_mean_over_the_orders_that_the_seed_draws(
    build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    target, groups, cells = answer_target(inputs), [[2, 3], [33]], [list(range(12))]
    units = [Variant(frozenset(group)) for group in groups] + [Variant(cells=frozenset(cell)) for cell in cells]

    def value(on: set[int]) -> float:
        off = [unit for index, unit in enumerate(units) if index not in on]
        variant = Variant(frozenset().union(*(u.tokens for u in off)), frozenset().union(*(u.cells for u in off)))
        return float(score_variants(model, inputs, [variant], [target], reuse_prefix=False)[0, 0])

    torch.manual_seed(5)
    orders = [torch.randperm(3).tolist() for _ in range(4)]
    expected = np.zeros(3)
    for order in orders:
        for place, unit in enumerate(order):
            expected[unit] += (value(set(order[: place + 1])) - value(set(order[:place]))) / len(orders)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    (found,) = get_method("shapley")(model, inputs, [target], groups=groups, cells=cells, n_samples=4, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    assert found.image is not None
    sums = [found.text[[2, 3]].sum(), found.text[33], found.image[0, :12].sum()]
    np.testing.assert_allclose(sums, expected, rtol=1e-3, atol=1e-4)
    assert found.total == pytest.approx(found.value - found.baseline_value, rel=1e-4, abs=1e-5)
    assert len(set(map(tuple, orders))) < len(list(permutations(range(3))))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": [[1, 2], [2]]}, r"overlap in \[2\]"),
        ({"cells": [[1], [0, 1]]}, r"overlap in \[1\]"),
        ({"groups": [[]]}, "a group is empty"),
        ({"groups": [[10]]}, "image placeholders"),
    ],
)
def test_units_that_are_no_units_are_refused(
    options: Any, message: str, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    with pytest.raises(ValueError, match=message):
        get_method("occlusion")(model, inputs, [answer_target(inputs)], **options)


def eager_weights(model: Any, inputs: dict[str, Tensor], cut: int) -> tuple[Tensor, list[Tensor]]:
    model.set_attn_implementation("eager")
    names = ("input_ids", "attention_mask", "mm_token_type_ids")
    output = model(**{n: t[:, :cut] if n in names else t for n, t in inputs.items()}, output_attentions=True)
    return output.logits[0], list(output.attentions)


def test_rollout_is_the_product_of_mean_weights_and_residuals(build_model: Any, build_inputs: Any) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs()
    (found,) = get_method("attention_rollout")(model, inputs, [Target("label", (36, 38), (3, 4))])
    _, weights = eager_weights(model, inputs, 38)
    product = torch.eye(38).double()
    for layer in weights:
        product = (0.5 * layer[0].mean(dim=0) + 0.5 * torch.eye(38)) @ product
    expected = (product[35] + product[37]).detach().numpy() / 2
    np.testing.assert_allclose(found.tokens[:38], expected, rtol=1e-6, atol=1e-9)
    assert found.total == pytest.approx(1)
    assert found.image is not None
    assert not found.image[1:].any()


def test_attention_x_gradient_is_the_published_recursion_without_its_identity(
    build_model: Any, build_inputs: Any
) -> None:
    model, inputs = build_model(dtype=torch.float64), build_inputs()
    target = Target("label", (36, 38), (3, 4))
    (found,) = get_method("attention_x_gradient")(model, inputs, [target])
    logits, weights = eager_weights(model, inputs, 38)
    gradients = torch.autograd.grad(logits[35, 3] + logits[37, 4], weights)
    relevancy = torch.eye(38).double()
    for layer, gradient in zip(weights, gradients, strict=True):
        relevancy = relevancy + (layer * gradient)[0].clamp(min=0).mean(dim=0) @ relevancy
    expected = (relevancy - torch.eye(38))[[35, 37]].sum(dim=0)
    np.testing.assert_allclose(found.tokens[:38], expected.detach().numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_inside_an_lrp_block_no_method_passes_for_another(
    name: str, build_model: Any, build_inputs: Any, answer_target: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    # The draw reads no gradients and no weights.
    expectation = nullcontext() if name == "random" else pytest.raises(AlreadyPatchedError)
    with attnlrp(model), expectation:
        get_method(name)(model, inputs, [answer_target(inputs)], **quick(name))


@contextmanager
def attention_set_half_way(model: Any) -> Iterator[None]:
    def fail(name: str) -> None:
        type(model).set_attn_implementation(model, name)
        raise ZeroDivisionError("on purpose")

    model.__dict__["set_attn_implementation"] = fail
    try:
        with pytest.raises(ZeroDivisionError):
            yield
    finally:
        del model.__dict__["set_attn_implementation"]


CASES: dict[str, Any] = {
    "works": lambda model: nullcontext(),
    "wrong target": lambda model: pytest.raises(ValueError, match="positions"),
    "module raises": lambda model: raising(model.model.language_model.layers[1], "forward"),
    "hooking raises half-way": lambda model: raising(model.model.visual, "register_forward_hook"),
    "switching attention raises half-way": attention_set_half_way,
}
SWITCH_ATTENTION = {"attnlrp", "cplrp", "attention_rollout", "attention_x_gradient"}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_every_method_leaves_the_model_as_it_was(
    name: str, case: str, build_model: Any, build_inputs: Any, answer_target: Any, state_of: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    model.train().set_attn_implementation({"text_config": "eager", "vision_config": "sdpa"})
    model.lm_head.weight.requires_grad_(False)
    before = state_of(model, inputs)
    target = Target("label", (len(inputs["input_ids"][0]),), (1,)) if case == "wrong target" else answer_target(inputs)
    if case == "switching attention raises half-way" and name not in SWITCH_ATTENTION:
        case = "works"
    with CASES[case](model):
        get_method(name)(model, inputs, [target], **quick(name))
    assert state_of(model, inputs) == before

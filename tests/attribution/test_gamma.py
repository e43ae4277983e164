"""The Gamma rule is that of the paper and of zennit, and nobody else's zennit, weights or threads notice it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import zennit.core
import zennit.rules
from torch import Tensor, nn
from zennit.composites import EpsilonPlus, LayerMapComposite

from xai.attribution.families import UnsupportedModelError
from xai.attribution.gamma import gamma_by_layer, gamma_rule

SEEDS = [0, 1, 2]
STABILIZER = 1e-6  # zennit's own


def patch_embedding(bias: bool) -> nn.Module:
    return nn.Conv3d(3, 5, kernel_size=(2, 4, 4), stride=(2, 4, 4), bias=bias)


LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda bias: nn.Linear(7, 5, bias=bias), (4, 7)),
    "linear in tokens": (lambda bias: nn.Linear(7, 5, bias=bias), (2, 3, 7)),
    "conv3d": (patch_embedding, (4, 3, 2, 4, 4)),
    "conv2d": (lambda bias: nn.Conv2d(3, 5, kernel_size=4, stride=4, bias=bias), (2, 3, 4, 4)),
}


def layer_and_input(kind: str, bias: bool, seed: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(seed)
    build, shape = LAYERS[kind]
    return nn.Sequential(build(bias)).double().requires_grad_(False), torch.randn(shape).double().requires_grad_()


def gradient_times_input(layer: nn.Module, given: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Relevance of the input by autograd, and that of the output."""
    output = layer(given)
    at_output = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed)).double()
    (gradient,) = torch.autograd.grad(output, given, at_output)
    return given.detach() * gradient, output.detach() * at_output


def gamma_in_matrix_form(weight: Tensor, bias: Tensor | None, given: Tensor, relevance: Tensor, gamma: float) -> Tensor:
    """``(n, in)`` from ``(n, out)``: each output shares out its relevance by contributions of which those of its own
    sign count ``1 + gamma`` times; what a bias contributes is lost."""
    shared = torch.zeros_like(given)
    for row in range(len(given)):
        for out in range(len(weight)):
            parts = weight[out] * given[row]
            own_bias = 0.0 if bias is None else float(bias[out])
            sign = 1.0 if float(parts.sum()) + own_bias > 0 else -1.0
            favoured = parts + gamma * (sign * parts).clamp(min=0) * sign
            whole = favoured.sum() + own_bias + gamma * max(sign * own_bias, 0.0) * sign
            shared[row] += favoured / (whole + sign * STABILIZER) * relevance[row, out]
    return shared


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("gamma", [0.25, 3.0])
@pytest.mark.parametrize("kind", LAYERS)
def test_gradient_times_input_is_the_rule_in_matrix_form(kind: str, gamma: float, bias: bool, seed: int) -> None:
    layer, given = layer_and_input(kind, bias, seed)
    with gamma_rule(layer, {"linear": gamma, "conv": gamma}):
        found, relevance = gradient_times_input(layer, given, seed)
    own = layer[0]  # type: ignore[index]
    n_in = own.weight[0].numel()
    expected = gamma_in_matrix_form(
        own.weight.reshape(5, n_in), own.bias, given.detach().reshape(-1, n_in), relevance.reshape(-1, 5), gamma
    )
    torch.testing.assert_close(found.reshape(-1, n_in), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_single_layer_agrees_with_zennit_itself(kind: str) -> None:
    layer, given = layer_and_input(kind, True, 0)
    with gamma_rule(layer, {"linear": 0.5, "conv": 0.5}):
        found, relevance = gradient_times_input(layer, given, 0)
    with LayerMapComposite([((nn.Linear, nn.Conv2d, nn.Conv3d), zennit.rules.Gamma(0.5))]).context(layer):
        (expected,) = torch.autograd.grad(layer(given), given, relevance)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_an_input_of_zero_has_no_relevance_and_divides_nothing() -> None:
    layer, given = layer_and_input("linear", True, 0)
    with torch.no_grad():
        given[:, :3] = 0
    with gamma_rule(layer, {"linear": 0.25}):
        found, _ = gradient_times_input(layer, given, 0)
    assert not found[:, :3].any()
    assert found[:, 3:].all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_the_rule_itself_is_computed_in_single(dtype: torch.dtype) -> None:
    layer, given = layer_and_input("linear", True, 0)
    # The reference starts from the rounded values.
    layer, given = layer.to(dtype), given.detach().to(dtype).requires_grad_()
    exact, exact_given = nn.Sequential(nn.Linear(7, 5)).double().requires_grad_(False), given.detach().double()
    exact.load_state_dict(layer.state_dict())
    found = {}
    for name, one, leaf in (("half", layer, given), ("double", exact, exact_given.requires_grad_())):
        with gamma_rule(one, {"linear": 0.25}):
            (found[name],) = torch.autograd.grad(one(leaf).sum(), leaf)
    torch.testing.assert_close(found["half"].double(), found["double"], rtol=torch.finfo(dtype).eps, atol=1e-3)


def test_outputs_weights_and_hooks_are_the_same_before_during_and_after() -> None:
    layer, given = layer_and_input("conv3d", True, 0)
    parameters, plain = dict(layer.named_parameters()), layer(given)
    (plain_gradient,) = torch.autograd.grad(plain.sum(), given)
    with gamma_rule(layer, {"conv": 0.25}):
        output = layer(given)
        torch.autograd.grad(output.sum(), given)
        assert all(layer.get_parameter(name) is parameter for name, parameter in parameters.items())
    assert torch.equal(output, plain)
    assert not layer[0]._forward_hooks  # type: ignore[index]
    assert not layer[0]._forward_pre_hooks  # type: ignore[index]
    (gradient,) = torch.autograd.grad(layer(given).sum(), given)
    assert torch.equal(gradient, plain_gradient)


def test_hooking_that_fails_half_way_leaves_no_hook_behind() -> None:
    layer = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    layer[1].__dict__["register_forward_hook"] = lambda _hook: 1 / 0
    with pytest.raises(ZeroDivisionError), gamma_rule(layer, {"linear": 0.25}):
        pytest.fail("entered")
    assert not layer[0]._forward_hooks
    assert not layer[0]._forward_pre_hooks


def test_zennit_stays_as_it_is_and_another_users_composite_gives_the_same_meanwhile() -> None:
    torch.manual_seed(0)
    theirs, their_input = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.randn(2, 4)

    def their_relevance() -> Tensor:
        leaf = their_input.clone().requires_grad_()
        with EpsilonPlus().context(theirs) as model:
            (found,) = torch.autograd.grad(model(leaf), leaf, torch.eye(3)[[0, 2]])
        return found

    def methods_of_zennit() -> list[object]:
        classes = (zennit.core.Hook, zennit.core.BasicHook, zennit.rules.Gamma)
        return [value for cls in classes for value in vars(cls).values()]

    before, alone = methods_of_zennit(), their_relevance()
    layer, given = layer_and_input("linear", True, 0)
    with gamma_rule(layer, {"linear": 0.25}):
        output = layer(given)
        assert torch.equal(their_relevance(), alone)
        torch.autograd.grad(output.sum(), given)
        assert all(now is then for now, then in zip(methods_of_zennit(), before, strict=True))
    assert all(now is then for now, then in zip(methods_of_zennit(), before, strict=True))
    assert torch.equal(their_relevance(), alone)


def test_another_thread_that_uses_the_tower_meanwhile_changes_nothing_and_gets_its_plain_gradient() -> None:
    layer, given = layer_and_input("linear", True, 0)
    other = torch.ones(4, 7).double().requires_grad_()
    (plain,) = torch.autograd.grad(layer(other).sum(), other)
    with gamma_rule(layer, {"linear": 0.25}):
        alone, _ = gradient_times_input(layer, given, 0)
    theirs: list[Tensor] = []
    with gamma_rule(layer, {"linear": 0.25}):
        output = layer(given)
        thread = threading.Thread(target=lambda: theirs.extend(torch.autograd.grad(layer(other).sum(), other)))
        thread.start()
        thread.join()
        at_output = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).double()
        (gradient,) = torch.autograd.grad(output, given, at_output)
    assert torch.equal(theirs[0], plain)
    assert torch.equal(given.detach() * gradient, alone)


def test_a_layer_that_is_never_called_is_named() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, given: Tensor) -> Tensor:
            output: Tensor = self.used(given)
            return output

    tower = Idle()
    with pytest.raises(UnsupportedModelError, match="never called unused,"), gamma_rule(tower, {"linear": 0.25}):
        tower(torch.ones(1, 2))


def test_gamma_is_one_number_or_one_by_layer_type() -> None:
    assert gamma_by_layer(0.5) == {"linear": 0.5, "conv": 0.5}
    assert gamma_by_layer({"conv": 1}) == {"linear": 0.0, "conv": 1.0}
    for wrong, message in (
        (-1.0, "0 or more"),
        (float("nan"), "finite"),
        ({"dense": 1.0}, "'dense'; there are linear"),
    ):
        with pytest.raises(ValueError, match=message):
            gamma_by_layer(wrong)  # type: ignore[arg-type]


def test_a_layer_type_with_gamma_0_gets_no_hook() -> None:
    layer = nn.Sequential(nn.Linear(2, 2))
    with gamma_rule(layer, {"linear": 0.0, "conv": 0.25}):
        assert not layer[0]._forward_hooks

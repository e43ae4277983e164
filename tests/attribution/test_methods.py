"""Methods are found by name, say what they are, and all return the same kind of explanation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xai.attribution import methods as registry
from xai.attribution.methods import get_method, method, methods
from xai.attribution.relevance import Relevance, relevance, target_values
from xai.attribution.targets import Target

NAMES = ["attnlrp", "cplrp", "gradient_x_input", "random"]


def test_the_registry_lists_what_exists_with_its_source() -> None:
    assert [entry.name for entry in methods()] == NAMES
    for entry in methods():
        assert entry.source
        assert entry.description.endswith(".") or ";" in entry.description
        assert entry.needs
        assert entry.sign == "signed"


def test_an_unknown_name_is_answered_with_the_names_that_exist() -> None:
    with pytest.raises(ValueError, match="'attlrp'; there are attnlrp, cplrp, gradient_x_input, random"):
        get_method("attlrp")


def test_one_function_and_a_decorator_add_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))

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
    results = get_method(name)(model, inputs, targets)
    reference = relevance(model, inputs, targets, method="gradient_x_input")
    assert [result.target for result in results] == targets
    for result, expected in zip(results, reference, strict=True):
        assert result.value == pytest.approx(expected.value, rel=1e-4)
        assert result.text.shape == expected.text.shape
        assert ((result.text != 0) == (expected.text != 0)).all()
        assert np.shape(result.image) == np.shape(expected.image)
        assert result.image_positions.tolist() == expected.image_positions.tolist()
        assert (result.grid_thw, result.merge_size) == (expected.grid_thw, result.merge_size)


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


def test_every_method_leaves_the_model_as_it_was(
    build_model: Any, build_inputs: Any, answer_target: Any, state_of: Any
) -> None:
    model, inputs = build_model(), build_inputs()
    before = state_of(model, inputs)
    for entry in methods():
        entry(model, inputs, [answer_target(inputs)])
        assert state_of(model, inputs) == before, entry.name

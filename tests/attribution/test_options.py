"""Options are read off a method's signature, checked before anything runs, and parsed from text by their type."""

from __future__ import annotations

import inspect
import json
from copy import copy
from typing import Any

import numpy as np
import pytest

from xai.attribution.methods import get_method, method, methods, registry
from xai.attribution.relevance import LrpOptions, relevance


@pytest.mark.parametrize("name", ["attnlrp", "cplrp"])
def test_what_lrp_passes_on_has_the_defaults_of_relevance(name: str) -> None:
    own = inspect.signature(relevance).parameters
    found = {option.name: option.default for option in get_method(name).options}
    assert found == {option: own[option].default for option in LrpOptions.__annotations__}


@pytest.mark.parametrize("entry", methods(), ids=lambda entry: entry.name)
def test_every_default_is_a_value_that_its_option_takes(entry: Any) -> None:
    entry.check_options({option.name: option.default for option in entry.options})
    complete = entry.complete({})
    assert json.loads(json.dumps(complete)) == complete
    assert complete.keys() == {option.name for option in entry.options}


def test_an_option_says_what_it_takes() -> None:
    words = {option.name: option.values for option in get_method("shapley").options}
    assert words["n_samples"] == "int, 1 or more"
    assert words["baseline"] == "mean or zero or int"
    assert words["groups"] == "[[int, …], …] or null"
    lrp = {option.name: option.values for option in get_method("attnlrp").options}
    assert lrp["gamma"] == "float or {linear or conv: float}"
    assert lrp["without_sinks"] == "true or false"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("shapley", "n_samples=50", 50),
        ("shapley", "baseline=zero", "zero"),
        ("shapley", "baseline=7", 7),
        ("shapley", "groups=[[1, 2], [5]]", [[1, 2], [5]]),
        ("shapley", "groups=null", None),
        ("smooth_gradients", "noise=1e-2", 0.01),
        ("smooth_gradients", "noise=0", 0.0),
        ("attnlrp", "depth = pixels", "pixels"),
        ("attnlrp", "without_sinks=true", True),
        ("attnlrp", "without_sinks=False", False),
        ("attnlrp", 'gamma={"linear": 0.5}', {"linear": 0.5}),
        ("cplrp", "gamma=1", 1.0),
    ],
)
def test_texts_become_values_of_the_options_type(name: str, text: str, value: object) -> None:
    (found,) = get_method(name).parse_options([text]).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "texts", "messages"),
    [
        ("shapley", ["samples=50"], ["shapley has no option 'samples'", "n_samples (int, 1 or more)", "seed"]),
        ("shapley", ["n_samples=many"], ["n_samples takes int, 1 or more, not 'many'", "shapley takes n_samples"]),
        ("shapley", ["n_samples=0"], ["takes int, 1 or more, not '0'"]),
        ("shapley", ["n_samples=true"], ["takes int, 1 or more, not 'true'"]),
        ("shapley", ["n_samples=2.5"], ["takes int, 1 or more, not '2.5'"]),
        ("shapley", ["n_samples"], ["NAME=VALUE, not 'n_samples'"]),
        ("shapley", ["=1"], ["NAME=VALUE, not '=1'"]),
        ("shapley", ["seed=1", "seed=2"], ["seed is given twice"]),
        ("attnlrp", ["depth=deep"], ["depth takes tokens or pixels, not 'deep'"]),
        ("attnlrp", ["gamma=nan"], ["finite"]),
        ("attnlrp", ['gamma={"norm": 1}'], ["float or {linear or conv: float}"]),
        ("attnlrp", ["vision_rule=gamma"], ["use it with depth='pixels'"]),
        ("cplrp", ["sink_positions=[1]"], ["for without_sinks=True"]),
        ("gradient", ["depth=pixels"], ["gradient takes no options"]),
    ],
)
def test_texts_that_are_no_options_are_refused_with_what_there_is(
    name: str, texts: list[str], messages: list[str]
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        get_method(name).parse_options(texts)
    assert all(message in str(caught.value) for message in messages), str(caught.value)


def test_values_from_python_may_be_numpys_and_ranges_but_not_texts() -> None:
    shapley = get_method("shapley")
    given = {"n_samples": np.int64(3), "groups": [range(2), np.array([4, 5])], "cells": ((0, 1),)}
    shapley.check_options(given)
    assert shapley.complete(given) == {
        "n_samples": 3,
        "seed": 0,
        "groups": [[0, 1], [4, 5]],
        "cells": [[0, 1]],
        "baseline": "mean",
        "batch_size": 16,
    }
    with pytest.raises(ValueError, match="takes int, 1 or more, not '3'"):
        shapley.check_options({"n_samples": "3"})


def test_options_without_annotations_are_typed_by_their_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_METHODS", copy(registry._METHODS))

    @method(name="loose")
    def loose(model, inputs, targets, *, steps=3, units=()):  # type: ignore[no-untyped-def]
        """Takes anything."""

    entry = get_method("loose")
    assert [(option.name, option.values) for option in entry.options] == [("steps", "int"), ("units", "anything")]
    assert entry.parse_options(["steps=4", "units=[1]"]) == {"steps": 4, "units": [1]}
    with pytest.raises(ValueError, match="steps takes int, not 'x'"):
        entry.parse_options(["steps=x"])

"""Curves and measures have the values that a linear model gives them in closed form, and rank orders as they should."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from xai.analysis.faithfulness.curves import MEASURES, PERCENTS, curve, curves, measures, points, top_count
from xai.analysis.faithfulness.units import ranked

from .linear_world import LinearModel

WEIGHTS = (1.0, 4.0, -1.0, 2.0, 0.0)
BEST_FIRST = (1, 3, 0, 4, 2)


def measured(model: LinearModel, order: tuple[int, ...], scale: str = "logit") -> dict[str, float]:
    found = curves(model, model.units(2), order)
    return measures(found[0, scale], found[0, "margin"])


def test_the_curves_of_a_linear_model_are_sums_of_its_weights() -> None:
    model = LinearModel(WEIGHTS)
    found = curve(model, model.units(), BEST_FIRST, 0, scale="logit")
    assert found.counts == (0, 1, 2, 3, 4, 5)
    assert found.morf.tolist() == [6, 2, 0, -1, -1, 0]
    assert found.lerf.tolist() == [6, 7, 7, 6, 4, 0]
    assert found.reversed.morf.tolist() == found.lerf.tolist()


def test_the_start_point_is_the_input_as_it_is_and_the_end_is_without_all_units() -> None:
    model = LinearModel(WEIGHTS, bias=0.25)
    found = curve(model, model.units(), BEST_FIRST, 0, scale="logit")
    assert found.morf[0] == found.lerf[0] == 6.25
    assert found.morf[-1] == found.lerf[-1] == 0.25


def test_measures_of_a_linear_model_in_closed_form() -> None:
    found = measured(LinearModel(WEIGHTS), BEST_FIRST)
    # Trapezoids over fifths: (4 + 1 - 0.5 - 1 - 0.5) / 5 and (6.5 + 7 + 6.5 + 5 + 2) / 5.
    assert found["deletion_auc"] == pytest.approx(0.6)
    assert found["insertion_auc"] == pytest.approx(5.4)
    assert found["area_between"] == pytest.approx(4.8)
    assert [found[f"comprehensiveness@{percent}"] for percent in PERCENTS] == [4, 4, 4, 4, 7]
    assert [found[f"sufficiency@{percent}"] for percent in PERCENTS] == [2, 2, 2, 2, -1]
    assert [found[f"flip@{percent}"] for percent in PERCENTS] == [0, 0, 0, 0, 1]
    assert (found["flip_top_1"], found["flip_top_3"]) == (0, 1)


def test_probability_and_log_probability_are_those_of_the_logit() -> None:
    model = LinearModel(WEIGHTS)
    found = curves(model, model.units(), BEST_FIRST)
    probability = 1 / (1 + np.exp(-found[0, "logit"].morf))
    np.testing.assert_allclose(found[0, "probability"].morf, probability)
    np.testing.assert_allclose(found[0, "log_probability"].morf, np.log(probability))


@pytest.mark.parametrize("scale", ["logit", "log_probability", "probability"])
def test_the_oracle_beats_the_mean_of_all_orders_which_beats_its_reverse_on_every_measure(scale: str) -> None:
    model = LinearModel((3.0, 2.0, 1.0, -0.5, -1.5), bias=-2.5)
    oracle = measured(model, (0, 1, 2, 3, 4), scale)
    reverse = measured(model, (4, 3, 2, 1, 0), scale)
    every = [measured(model, order, scale) for order in permutations(range(5))]
    for name, measure in MEASURES.items():
        sign = 1 if measure.better == "higher" else -1
        chance = np.mean([one[name] for one in every])
        assert sign * oracle[name] > sign * chance > sign * reverse[name], name


def test_an_all_negative_map_is_ranked_and_scored() -> None:
    model = LinearModel((-3.0, -1.0, -2.0))
    order = ranked(model.weights)
    assert order == (1, 2, 0)
    assert curve(model, model.units(), order, 0, scale="logit").morf.tolist() == [-6, -5, -3, 0]


def test_sign_decides_the_order_unless_the_absolute_value_is_asked_for() -> None:
    assert ranked([0.1, -5.0, 2.0]) == (2, 0, 1)
    assert ranked([0.1, -5.0, 2.0], "absolute") == (1, 2, 0)


def test_a_map_of_zeros_is_an_order_at_random() -> None:
    orders = {ranked(np.zeros(4), seed=seed) for seed in range(400)}
    assert orders == set(permutations(range(4)))
    assert ranked(np.zeros(4), seed=3) == ranked(np.zeros(4), seed=3)


def test_relevance_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be ranked"):
        ranked([1.0, float("nan")])


@pytest.mark.parametrize(("percent", "n", "count"), [(1, 5, 1), (50, 5, 3), (20, 12, 2), (20, 13, 3), (10, 25, 3)])
def test_a_percentage_is_rounded_half_up_and_is_one_unit_at_least(percent: int, n: int, count: int) -> None:
    assert top_count(percent, n) == count


def test_a_long_curve_has_every_point_that_a_measure_needs() -> None:
    at = points(300)
    assert at[0] == 0
    assert at[-1] == 300
    assert {3, 15, 30, 60, 150, 297, 285, 270, 240, 1} <= set(at)
    assert len(at) < 25
    assert points(20) == tuple(range(21))


def test_a_long_curve_agrees_with_the_whole_one() -> None:
    model = LinearModel(np.linspace(3, -1, 60))
    short = curve(model, model.units(), range(60), 0, scale="logit")
    whole = curve(model, model.units(), range(60), 0, scale="logit", max_points=60)
    assert len(short.counts) < len(whole.counts) == 61
    found, expected = measures(short, short), measures(whole, whole)
    exact = [name for name in MEASURES if "@" in name or "flip" in name]
    assert {name: found[name] for name in exact} == {name: expected[name] for name in exact}
    assert found["area_between"] == pytest.approx(expected["area_between"], rel=0.01)


@pytest.mark.parametrize("order", [(0, 1), (0, 0, 1), ()])
def test_an_order_that_is_not_of_all_units_is_refused(order: tuple[int, ...]) -> None:
    model = LinearModel((1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match="needs each of them once"):
        curves(model, model.units(), order)

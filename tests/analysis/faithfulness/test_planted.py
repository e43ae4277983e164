"""On the planted world, where the truth is known: orders rank as they should, rationales that lie are found out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from xai.analysis.faithfulness.curves import MEASURES, curves, measures
from xai.analysis.faithfulness.one_input import Settings, measure_input, random_order, true_units
from xai.analysis.faithfulness.rescoring import Perturbation, rescoring
from xai.analysis.faithfulness.summaries import LESS, SAME, headline
from xai.analysis.faithfulness.units import UnitKind, ranked, units_of
from xai.models import VisionLanguageModel
from xai.pipeline import explain_answer, predict
from xai.planted.lexicon import load_lexicon
from xai.planted.truth import truth_of
from xai.schema import Explanation, Meme, Mode

N_DRAWS = 6


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def caused(model: VisionLanguageModel, memes: Sequence[Meme], mode: Mode, kind: str) -> list[Explanation]:
    """Explanations of the labels that one kind of evidence causes and the model gives, most of all."""
    found = []
    for meme, answer in zip(memes, predict(model, memes, mode=mode), strict=True):
        causes = {cause.label for cause in truth_of(meme).causes if cause.kind == kind}
        if causes & set(answer.labels):
            found += [one for one in explain_answer(model, meme, answer) if one.target in causes]
    return found


def means(
    model: VisionLanguageModel, explanations: Sequence[Explanation], units_kind: UnitKind, way: Perturbation
) -> dict[str, dict[str, float]]:
    """Mean measures over explanations of the oracle's order, of random orders, and of the oracle's reversed."""
    rows: dict[str, list[dict[str, float]]] = {"oracle": [], "random": [], "reversed": []}
    for explanation in explanations:
        units = units_of(explanation, units_kind)
        truth = true_units(units, explanation)
        oracle = ranked([float(index in truth) for index in range(len(units))])
        orders = [("oracle", oracle), ("reversed", oracle[::-1])]
        orders += [("random", random_order(len(units), 1, draw)) for draw in range(N_DRAWS)]
        with rescoring(model, [explanation], way) as scorer:
            for name, order in orders:
                found = curves(scorer, units, order)
                rows[name].append(measures(found[0, "probability"], found[0, "margin"]))
    return {name: pd.DataFrame(values).mean().to_dict() for name, values in rows.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "kind", "way"),
    [
        ("text", "word", Perturbation("replace")),
        ("image+text", "word", Perturbation("delete")),
        ("image", "icon", Perturbation(cells="mean_token")),
        ("image", "icon", Perturbation(cells="mean_colour")),
        ("image+text", "both", Perturbation()),
    ],
)
def test_the_oracle_beats_random_beats_reversed_on_every_measure(
    mode: Mode, kind: str, way: Perturbation, model: VisionLanguageModel, new_memes: list[Meme]
) -> None:
    units: dict[str, UnitKind] = {"word": "words", "icon": "cells", "both": "both"}
    explanations = caused(model, new_memes[:40], mode, kind)
    assert len(explanations) > 10
    found = means(model, explanations, units[kind], way)
    for name, measure in MEASURES.items():
        sign = 1 if measure.better == "higher" else -1
        values = [sign * found[who][name] for who in ("oracle", "random", "reversed")]
        assert values[0] > values[1] >= values[2], (name, values)


@pytest.mark.slow
def test_the_headline_finds_the_two_labels_whose_rationales_lie_and_no_other(
    model: VisionLanguageModel, new_memes: list[Meme]
) -> None:
    rows = []
    settings = replace(Settings(), units="words", n_draws=2)
    for meme, answer in zip(new_memes, predict(model, new_memes, mode="text"), strict=True):
        if answer.labels == ("NO_PROPAGANDA",):
            continue
        explanations = [one for one in explain_answer(model, meme, answer) if one.target in answer.labels]
        with rescoring(model, explanations) as scorer:
            rows += measure_input(scorer, explanations, settings)[1]
    table = headline(pd.DataFrame(rows).assign(source="planted"), "probability").set_index("target")
    liars = {name for name, label in load_lexicon().labels.items() if not label.faithful}
    assert set(table.index[table["verdict"] == LESS]) == liars
    assert (table.loc[sorted(liars), "p"] < 0.01).all()
    assert set(table.loc[~table.index.isin(liars), "verdict"]) == {SAME}
    assert (np.abs(table.loc[~table.index.isin(liars), "difference"]) < 0.1).all()

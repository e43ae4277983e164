"""The agreement of the two annotators of UkrMeme, to every printed digit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from xai.analysis.annotators.annotations import Annotations, read_annotations
from xai.analysis.annotators.multilabel import set_agreement
from xai.analysis.annotators.report import annotator_report
from xai.analysis.report import Report

COHEN = {
    "No Propaganda": 0.777,
    "Smears": 0.512,
    "Appeal to fear/prejudice": 0.506,
    "Exaggeration/Minimisation": 0.416,
    "Causal Oversimplification": 0.410,
    "Glittering generalities (Virtue)": 0.394,
    "Flag-waving": 0.359,
    "Name calling/Labeling": 0.338,
    "Appeal to (Strong) Emotions": 0.305,
    "Transfer": 0.280,
    "Loaded Language": 0.149,
}
SIMULATED = {"match": 0.294, "precision": 0.173, "recall": 0.197, "F1": 0.161}
SIMULATED_ADJUSTED = {"match": 0.674, "precision": 0.558, "recall": 0.597, "F1": 0.572}


@pytest.fixture(scope="module")
def annotations(shared_data: Path) -> Annotations:
    return read_annotations([shared_data / "ukrmeme" / "annotators.csv"])


@pytest.fixture(scope="module")
def report(annotations: Annotations) -> Report:
    return annotator_report(annotations, n_draws=0)


@pytest.fixture(scope="module")
def measures(report: Report) -> pd.DataFrame:
    return report.table("measures").frame.set_index("measure").astype(float)


@pytest.fixture(scope="module")
def simulated(annotations: Annotations) -> np.ndarray:
    """Match, precision, recall and F1 of 200 simulations of 200 memes, as the figures were made, ``(200, 4)``."""
    first, second = annotations.given
    rng = np.random.default_rng(42)
    n_labels = len(annotations.labels)
    sizes, shares = zip(*((given.sum(1), given.sum(0) / given.sum()) for given in (first, second)), strict=True)
    values = np.zeros((200, 4))
    for simulation in range(200):
        drawn = np.zeros((2, len(first), n_labels), dtype=bool)
        for item in range(len(first)):
            wanted = [rng.choice(size) for size in sizes]
            for annotator, n in enumerate(wanted):
                labels = rng.choice(n_labels, size=n, replace=False, p=shares[annotator])
                drawn[annotator, item, labels] = True
        values[simulation] = set_agreement(*drawn)[:, :4].mean(axis=0)
    return values


@pytest.mark.parametrize(
    ("measure", "column", "printed"),
    [
        ("match", "observed", 0.770),
        ("precision", "observed", 0.634),
        ("recall", "observed", 0.676),
        ("F1", "observed", 0.641),
        ("augmented kappa", "observed", 0.517),
        ("augmented kappa", "expected", 0.228),
        ("augmented kappa", "adjusted", 0.374),
        ("mean Cohen's kappa", "adjusted", 0.404),
        ("Krippendorff's alpha, MASI", "adjusted", 0.398),
    ],
)
def test_a_figure_without_chance_is_the_printed_one(
    measures: pd.DataFrame, measure: str, column: str, printed: float
) -> None:
    assert round(measures.loc[measure, column], 3) == printed


def test_91_of_the_200_memes_have_the_same_labels(measures: pd.DataFrame) -> None:
    assert measures.loc["exact match", "observed"] == 91 / 200


def test_the_classes_of_the_printed_kappas_are_those_that_both_annotators_used_five_times(report: Report) -> None:
    classes = report.table("classes").frame
    in_mean = classes[classes["in_mean"]]
    assert dict(zip(in_mean["class"], in_mean["cohen"].round(3), strict=True)) == pytest.approx(COHEN, abs=1e-3)


def test_those_that_either_used_five_times_are_more_and_have_another_mean(annotations: Annotations) -> None:
    either = annotator_report(annotations, occurrence="either", n_draws=0)
    assert either.table("classes").frame["in_mean"].sum() == 16
    mean = either.table("measures").frame.set_index("measure").loc["mean Cohen's kappa", "adjusted"]
    assert round(mean, 3) == 0.390


def test_the_printed_expected_values_are_those_of_200_simulations(
    measures: pd.DataFrame, simulated: np.ndarray
) -> None:
    for place, (measure, printed) in enumerate(SIMULATED.items()):
        mean, observed = simulated[:, place].mean(), measures.loc[measure, "observed"]
        assert round(mean, 3) == printed
        assert round((observed - mean) / (1 - mean), 3) == SIMULATED_ADJUSTED[measure]


def test_the_computed_expected_values_are_what_simulations_scatter_around(
    measures: pd.DataFrame, simulated: np.ndarray
) -> None:
    computed = measures.loc[list(SIMULATED), "expected"].to_numpy()
    error = simulated.std(axis=0, ddof=1) / np.sqrt(len(simulated))
    assert np.all(np.abs(simulated.mean(axis=0) - computed) <= 3 * error)
    assert np.all(error < 0.0025)
    assert list(computed.round(3)) == [0.293, 0.173, 0.195, 0.160]

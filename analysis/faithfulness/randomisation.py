"""Explains again where a map must change: on a model that is shuffled layer by layer, and another label; compares."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from xai.analysis.faithfulness.rescoring import prompt_of
from xai.analysis.faithfulness.similarity import rank_correlation, structural_similarity
from xai.analysis.faithfulness.units import unit_values, units_of
from xai.attribution.families import family_of, input_embeddings, output_embeddings
from xai.attribution.methods import get_method
from xai.attribution.relevance import Relevance
from xai.attribution.targets import Target, contrastive_target
from xai.choice import target_of
from xai.jobs import inputs_of_answer
from xai.models import VisionLanguageModel
from xai.schema import Explanation
from xai.tasks import Task, load_task

Check = Literal["layers", "label"]
Units = Literal["words", "cells"]
UNITS: tuple[Units, ...] = ("words", "cells")
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Change:
    """How alike a map and its counterpart are, on words or on cells.

    ``step`` counts what was shuffled so far, and ``stage`` names the last of it; for the check of labels there is one
    step, named after the label that was explained instead. The two similarities are those of
    :mod:`xai.analysis.faithfulness.similarity`, the structural one of cells only.
    """

    check: Check
    meme_id: str
    mode: str
    method: str
    target: str
    step: int
    stage: str
    units: Units
    n_units: int
    rank_correlation: float
    structural_similarity: float


def check_layers(
    model: VisionLanguageModel,
    explanations: Sequence[Explanation],
    *,
    task: Task | None = None,
    seed: int = 0,
    on_progress: Progress = lambda done: None,
) -> list[Change]:
    """Explain again on a copy of the model whose layers are shuffled one after another, and compare with each map.

    The order is output head (where it is not the embeddings), decoder layers from the last to the first, mergers,
    vision blocks from the last to the first; the latter two for explanations of a picture only. Shuffling permutes the
    values inside each tensor, so that their spread stays as it was and only what was learnt is gone. ``model`` is not
    touched.

    Args:
        explanations: of this model; method, options and target are theirs.
        on_progress: called with the number of maps made since the last call.

    Raises:
        ValueError: the model reads another prompt than the one that was explained.
    """
    cases = [_case(model, explanation, task) for explanation in explanations]
    rows = []
    for step, stage, shuffled in shuffled_models(model, seed, with_picture=any(case.has_cells for case in cases)):
        for case in cases:
            if case.has_cells or not stage.startswith(("merger", "vision")):
                (found,) = case.maps(shuffled.model, [target_of(case.explanation)])
                rows += case.changes("layers", step, stage, case.stored, found)
            on_progress(1)
    return rows


def check_label(
    model: VisionLanguageModel,
    explanations: Sequence[Explanation],
    *,
    task: Task | None = None,
    seed: int = 0,
    on_progress: Progress = lambda done: None,
) -> list[Change]:
    """Explain each label's token where it parts from another label, and that of the other one; compare the two maps.

    The other label is drawn by ``seed`` from those that could stand in its place and were not answered. Up to where
    they part both are the same sequence, so all that differs is what is explained. Explanations of no single label are
    left out.
    """
    rows = []
    for index, explanation in enumerate(explanations):
        chosen = task or load_task(explanation.config["task"])
        pair = _own_and_other(model, explanation, chosen, np.random.default_rng([seed, index]))
        if pair is not None:
            case = _case(model, explanation, chosen)
            with model.lock:
                own, other = case.maps(model.model, pair)
            rows += case.changes("label", 1, pair[1].name, own, other)
        on_progress(1)
    return rows


def shuffled_models(
    model: VisionLanguageModel, seed: int, *, with_picture: bool
) -> Iterator[tuple[int, str, VisionLanguageModel]]:
    """(step, what was shuffled last, the model so far): one copy, more of it shuffled at each step."""
    # Whoever else explains the model has it patched meanwhile, which the copy must not inherit.
    with model.lock:
        shuffled = replace(model, name=f"{model.name}, shuffled", model=copy.deepcopy(model.model))
    generator = torch.Generator().manual_seed(seed)
    for step, (stage, modules) in enumerate(stages(shuffled.model, with_picture=with_picture), start=1):
        for module in modules:
            _shuffle(module, generator)
        yield step, stage, shuffled


def stages(model: nn.Module, *, with_picture: bool) -> list[tuple[str, list[nn.Module]]]:
    """What is shuffled together, from the top down, by name."""
    family = family_of(model)
    head = output_embeddings(model)
    embeddings = input_embeddings(model)
    found: list[tuple[str, list[nn.Module]]] = []
    if head.weight is not embeddings.weight:
        found.append(("output head", [head]))
    found += _from_the_last("decoder layer", model.get_submodule(family.decoder_layers))
    if with_picture and family.vision is not None:
        vision = family.vision
        deepstack = [model.get_submodule(vision.deepstack_mergers)] if vision.deepstack_mergers else []
        found.append(("mergers", [model.get_submodule(vision.merger), *deepstack]))
        found += _from_the_last("vision block", model.get_submodule(vision.blocks))
    return found


def sanity_frame(rows: Iterable[Change]) -> pd.DataFrame:
    """One row a comparison, with the fields of :class:`Change` as columns."""
    return pd.DataFrame([asdict(row) for row in rows], columns=[field.name for field in fields(Change)])


@dataclass(frozen=True, eq=False)
class _Case:
    """An explanation with what it takes to make it again."""

    explanation: Explanation
    inputs: Mapping[str, Tensor]
    words: list[list[int]]
    cells: list[int]
    grid: tuple[int, int] | None
    stored: tuple[np.ndarray, np.ndarray]

    @property
    def has_cells(self) -> bool:
        return self.grid is not None

    def maps(self, model: nn.Module, targets: Sequence[Target]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Relevance of words and of cells for each target, ``(n_words,)`` and ``(n_cells,)``."""
        method = get_method(self.explanation.method)
        options = dict(self.explanation.config.get("options", {}))
        if "groups" in inspect.signature(method.function).parameters and options.get("groups") is None:
            options["groups"] = self.words
        return [self._values(one) for one in method(model, self.inputs, targets, **options)]

    def changes(
        self, check: Check, step: int, stage: str, first: tuple[np.ndarray, ...], second: tuple[np.ndarray, ...]
    ) -> list[Change]:
        """One row for words and one for cells, where there are any."""
        e, rows = self.explanation, []
        for units, a, b in zip(UNITS, first, second, strict=True):
            if a.size:
                structure = float("nan")
                if units == "cells" and self.grid is not None:
                    structure = structural_similarity(a.reshape(self.grid), b.reshape(self.grid))
                alike = rank_correlation(a, b)
                rows.append(
                    Change(check, e.meme.id, e.mode, e.method, e.target, step, stage, units, a.size, alike, structure)
                )
        return rows

    def _values(self, relevance: Relevance) -> tuple[np.ndarray, np.ndarray]:
        words = np.array([relevance.text[tokens].sum() for tokens in self.words])
        image = relevance.image
        return words, np.zeros(0) if image is None else image.sum(axis=0)[self.cells]


def _case(model: VisionLanguageModel, explanation: Explanation, task: Task | None) -> _Case:
    inputs = inputs_of_answer(prompt_of(model, explanation, task), explanation.prediction.generated_ids)
    words, cells = units_of(explanation, "words"), units_of(explanation, "cells")
    return _Case(
        explanation=explanation,
        inputs=inputs,
        words=[sorted(unit.part.tokens) for unit in words],
        cells=[min(unit.part.cells) for unit in cells],
        grid=None if explanation.image is None else (explanation.image.shape[0], explanation.image.shape[1]),
        stored=(unit_values(words, explanation), unit_values(cells, explanation)),
    )


def _own_and_other(
    model: VisionLanguageModel, explanation: Explanation, task: Task, rng: np.random.Generator
) -> tuple[Target, Target] | None:
    """The label's token where it parts from another label's, and that of the other label at the same place."""
    answer = explanation.prediction
    spans = {span.label: span for span in answer.label_spans}
    if explanation.target not in spans:
        return None
    others = [name for name in task.alternatives(explanation.target) if name not in answer.labels]
    if not others:
        return None
    other = others[int(rng.integers(len(others)))]
    lead = contrastive_target(
        model.processor.tokenizer,
        answer.generated_ids,
        answer.text,
        spans[explanation.target],
        [task.label(other).spelling],
        prompt_length=len(explanation.token_table.token) - len(answer.generated_ids),
    )
    return Target(lead.name, lead.positions, lead.token_ids), Target(other, lead.positions, lead.contrast_ids)


def _from_the_last(name: str, layers: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    children = list(layers.children())
    return [(f"{name} {index + 1}", [children[index]]) for index in reversed(range(len(children)))]


@torch.no_grad()
def _shuffle(module: nn.Module, generator: torch.Generator) -> None:
    """Permute the values inside every tensor of the module."""
    for parameter in module.parameters():
        order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
        parameter.copy_(parameter.flatten()[order].view_as(parameter))

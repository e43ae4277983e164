"""Methods that replace words and picture cells and watch the target, by captum over units that are on or off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from captum.attr import FeatureAblation, ShapleyValueSampling
from torch import Tensor, nn

from xai.attribution.methods.options import Count, Seed
from xai.attribution.methods.registry import method
from xai.attribution.perturb import Baseline, OpenModel, Variant, VariantScorer, open_model
from xai.attribution.relevance import Floats, Relevance, placed
from xai.attribution.targets import Target

Inputs = Mapping[str, Tensor]
Groups = Sequence[Sequence[int]]


@method(
    name="occlusion",
    needs=["forwards"],
    baseline="mean embedding, mean image cell",
    source="Zeiler and Fergus 2014, arXiv:1311.2901",
)
def occlusion(
    model: nn.Module,
    inputs: Inputs,
    targets: Sequence[Target],
    *,
    groups: Groups | None = None,
    cells: Groups | None = None,
    baseline: Baseline = "mean",
    batch_size: Count = 16,
) -> list[Relevance]:
    """What the target loses when one word or one cell of the picture is replaced.

    Needs: one forward a unit and one for the whole, shared by all targets; captum's feature ablation. Baseline:
    mean of the embedding matrix, mean of the picture's cells, or what ``baseline`` says. Sign: positive where the
    target is lower without the unit. Source: Zeiler and Fergus 2014, arXiv:1311.2901. A unit's value is spread
    evenly over its tokens or cells; a cell with its deepstack levels is one thing and counts as image features.

    Args:
        groups: the text units, as token indices in the sequence, e.g. the tokens of each word. By default every
            text token before the first target position that the configuration does not list as special.
        cells: the picture's units, as indices of merged image tokens; every cell by default.

    Raises:
        ValueError: units that overlap, are empty, or are not in the input.
    """
    settings: dict[str, object] = {"baseline": baseline}
    with open_model(model, inputs, targets, gradients=False) as opened:
        units = _Units(opened, groups, cells, baseline, batch_size)
        ablation: Any = FeatureAblation(units.scores)
        return units.results(
            lambda index: ablation.attribute(units.all_on, target=index, perturbations_per_eval=batch_size), settings
        )


@method(
    name="shapley",
    needs=["forwards"],
    baseline="mean embedding, mean image cell",
    source="Castro et al. 2009, doi:10.1016/j.cor.2008.04.004",
    max_residual=1e-3,
)
def shapley(
    model: nn.Module,
    inputs: Inputs,
    targets: Sequence[Target],
    *,
    n_samples: Count = 25,
    seed: Seed = 0,
    groups: Groups | None = None,
    cells: Groups | None = None,
    baseline: Baseline = "mean",
    batch_size: Count = 16,
) -> list[Relevance]:
    """What a word or cell adds to the target, averaged over random orders in which the input is put together.

    Needs: ``n_samples`` forwards a unit, shared by all targets; captum's Shapley value sampling. Baseline: all
    units replaced, as for ``occlusion``. Sign: positive where the unit raises the target; for every number of
    samples the total is the target's value less that at the baseline. Source: Castro et al. 2009,
    doi:10.1016/j.cor.2008.04.004.

    Args:
        groups, cells: as for ``occlusion``.
        seed: of the orders; the caller's random state is left alone.

    Raises:
        ValueError: units that overlap, are empty, or are not in the input.
    """
    settings: dict[str, object] = {"baseline": baseline, "n_samples": n_samples, "seed": seed}
    with open_model(model, inputs, targets, gradients=False) as opened:
        units = _Units(opened, groups, cells, baseline, batch_size)
        sampling: Any = ShapleyValueSampling(units.scores)

        def attribute(index: int) -> Tensor:
            # captum draws from torch's own generator.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                values: Tensor = sampling.attribute(
                    units.all_on, target=index, n_samples=n_samples, perturbations_per_eval=batch_size
                )
                return values

        return units.results(attribute, settings)


class _Units:
    """Words and cells as features that are on (1) or off (0), as captum wants them."""

    def __init__(
        self, opened: OpenModel, groups: Groups | None, cells: Groups | None, baseline: Baseline, batch_size: int
    ) -> None:
        self.opened = opened
        self.units = _checked(
            [
                *(
                    Variant(tokens=frozenset(group))
                    for group in (_default_groups(opened) if groups is None else groups)
                ),
                *(Variant(cells=frozenset(group)) for group in (_default_cells(opened) if cells is None else cells)),
            ]
        )
        self._scorer = VariantScorer(opened, self.units, batch_size=batch_size, baseline=baseline)
        self._known: dict[bytes, Floats] = {}

    @property
    def all_on(self) -> Tensor:
        """The unchanged input, ``(1, n_units)``."""
        return torch.ones(1, len(self.units), dtype=torch.float64)

    def scores(self, switches: Tensor) -> Tensor:
        """Values of the targets, ``(batch, n_units) -> (batch, n_targets)``; each input is run once only."""
        rows = switches.bool().numpy()
        new = {row.tobytes(): row for row in rows if row.tobytes() not in self._known}
        variants = [self._variant(row) for row in new.values()]
        self._known |= dict(zip(new, self._scorer(variants), strict=True))
        return torch.from_numpy(np.stack([self._known[row.tobytes()] for row in rows]))

    def results(self, attribute: Any, settings: Mapping[str, object]) -> list[Relevance]:
        """One result a target from ``attribute(target index) -> (1, n_units)``."""
        all_off = self.scores(torch.zeros_like(self.all_on))[0].tolist() if self.units else self.opened.values
        results = []
        for index, target in enumerate(self.opened.targets):
            values = attribute(index)[0].numpy() if self.units else np.zeros(0)
            rows = self._spread(values)
            results.append(
                placed(
                    self.opened.batch,
                    target,
                    self.opened.values[index],
                    rows,
                    baseline_value=all_off[index],
                    settings=settings,
                )
            )
        return results

    def _variant(self, on: np.ndarray) -> Variant:
        off = [unit for unit, is_on in zip(self.units, on, strict=True) if not is_on]
        return Variant(
            frozenset[int]().union(*(unit.tokens for unit in off)),
            frozenset[int]().union(*(unit.cells for unit in off)),
        )

    def _spread(self, values: Floats) -> list[Floats]:
        rows = [np.zeros(tensor.shape[1]) for tensor in self.opened.tensors]
        for unit, value in zip(self.units, values.tolist(), strict=True):
            places, row = (unit.tokens, rows[0]) if unit.tokens else (unit.cells, rows[1])
            row[sorted(places)] = value / len(places)
        return rows


def _default_groups(opened: OpenModel) -> list[list[int]]:
    """Every text token before the first target, but padding and those that the configuration names as special."""
    config: Any = opened.model.config
    named = [*config.to_dict().items(), *config.get_text_config().to_dict().items()]
    special: set[int] = set()
    for name, value in named:
        if name.endswith(("_token_id", "_token_index")):
            special.update(value if isinstance(value, list) else [value])
    given = opened.batch.inputs
    ids, mask = given["input_ids"][0].tolist(), given["attention_mask"][0].tolist()
    first = min(position for target in opened.targets for position in target.positions)
    return [[index] for index in range(min(first, len(ids))) if mask[index] and ids[index] not in special]


def _default_cells(opened: OpenModel) -> list[list[int]]:
    return [[cell] for cell in range(len(opened.batch.image_positions))]


def _checked(units: list[Variant]) -> list[Variant]:
    seen = Variant()
    for unit in units:
        if not unit.tokens and not unit.cells:
            raise ValueError("a group is empty; leave out words without tokens")
        if unit.tokens & seen.tokens or unit.cells & seen.cells:
            shared = sorted(unit.tokens & seen.tokens) or sorted(unit.cells & seen.cells)
            raise ValueError(f"groups overlap in {shared}; give each token and each cell to one group")
        seen = seen | unit
    return units

"""Carries relevance on through the vision tower, from the merged image tokens to the pixels."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xai.attribution.families import Vision
from xai.attribution.gamma import Gammas, gamma_rule
from xai.attribution.grids import patches_to_grid, pixels_to_grid
from xai.attribution.inputs import Batch

VisionRule = Literal["epsilon", "gamma"]


class PixelFields(TypedDict, total=False):
    """What is known of the pixels of one target; see :class:`xai.attribution.relevance.Relevance`."""

    pixel_grids: tuple[NDArray[np.float64], ...]
    positions: float


@dataclass
class Tower:
    """A vision tower that a forward goes through with gradients down to the pixels.

    Attributes:
        batch: the batch with pixel values that are a leaf of the graph.
        patch_size: pixels per side of a patch.
        settings: the options that the numbers depend on, by name.
        positions: name → learned position embeddings, leaves too, once the forward has run.
    """

    vision: Vision
    batch: Batch
    patch_size: int
    settings: Mapping[str, object]
    positions: dict[str, Tensor] = field(default_factory=dict)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Name → leaf: the pixel values, then the position embeddings."""
        return {"pixel values": self.batch.inputs["pixel_values"], **self.positions}

    def fields(self, gradients: Sequence[Tensor]) -> PixelFields:
        """Gradient × input of :attr:`tensors`: that of the pixels on grids, that of the positions in one sum."""
        pixels, *positions = map(_product, self.tensors.values(), gradients)
        return {"pixel_grids": self._grids(pixels), "positions": float(sum(array.sum() for array in positions))}

    def _grids(self, pixels: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        if not self.vision.merge_blocks:
            return tuple(pixels_to_grid(picture, self.patch_size) for picture in pixels)
        ends = np.cumsum([t * h * w for t, h, w in self.batch.grid_thw])[:-1]
        pairs = zip(np.split(pixels, ends), self.batch.grid_thw, strict=True)
        return tuple(patches_to_grid(rows, grid, self.batch.merge_size) for rows, grid in pairs)


@contextmanager
def through_tower(model: nn.Module, vision: Vision, batch: Batch, rule: VisionRule, gamma: Gammas) -> Iterator[Tower]:
    """Within the block, the forward of ``tower.batch`` builds its graph from the pixels on.

    Raises:
        UnsupportedModelError, ValueError: as :func:`xai.attribution.gamma.gamma_rule`.
    """
    module = model.get_submodule(vision.tower)
    config: Any = model.config
    leaf = batch.inputs["pixel_values"].detach().requires_grad_()
    settings: dict[str, object] = {"depth": "pixels", "vision_rule": rule}
    tower = Tower(
        vision=vision,
        batch=replace(batch, inputs={**batch.inputs, "pixel_values": leaf}),
        patch_size=int(config.vision_config.patch_size),
        settings=settings | ({"gamma": dict(gamma)} if rule == "gamma" else {}),
    )
    with ExitStack() as stack:
        stack.enter_context(_position_leaves(module, tower.positions))
        if rule == "gamma":
            stack.enter_context(gamma_rule(module, gamma))
        yield tower


@contextmanager
def _position_leaves(tower: nn.Module, found: dict[str, Tensor]) -> Iterator[None]:
    """Within the block the tower's embeddings, which are looked up by position only, come out as leaves."""
    owner = threading.get_ident()

    def take(module: nn.Module, _args: object, output: Tensor) -> Tensor:
        if threading.get_ident() == owner:
            found[names[module]] = output = output.detach().requires_grad_()
        return output

    names: dict[nn.Module, str] = {
        module: f"vision embeddings {name}"
        for name, module in tower.named_modules()
        if isinstance(module, nn.Embedding)
    }
    with ExitStack() as stack:
        for module in names:
            stack.callback(module.register_forward_hook(take).remove)
        yield


def _product(leaf: Tensor, gradient: Tensor) -> NDArray[np.float64]:
    """Gradient × input, element by element, in float64."""
    product: NDArray[np.float64] = (leaf.detach().cpu().to(torch.float64) * gradient.cpu()).numpy()
    return product

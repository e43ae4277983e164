"""The relevance that passes each decoder layer and each vision block, as tables of layer by token, block by patch."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.vision_utils import get_vision_window_index

from xai.attribution.families import Vision
from xai.attribution.gamma import Gammas, gamma_by_layer
from xai.attribution.grids import patches_to_grid
from xai.attribution.inputs import Batch, borrow
from xai.attribution.pixels import VisionRule, through_tower
from xai.attribution.relevance import (
    DEEPSTACK,
    SCOPES,
    Floats,
    GradientMethod,
    check_method,
    check_options,
    differentiate,
    forward_logits,
    gradient_x_input,
    leaves_of,
    resolved_score,
)
from xai.attribution.targets import Target


def layer_relevance(
    model: nn.Module, inputs: Mapping[str, Tensor], target: Target, *, method: GradientMethod
) -> Floats:
    """The relevance that passes each decoder layer, ``(n_layers + 1, seq)``.

    Row ``i`` is the relevance of the hidden states that enter layer ``i``, the last row that of what leaves
    the last layer. What a deepstack level adds only after layer ``i`` is in row ``i`` already, at its image
    tokens: so the first row is :attr:`Relevance.tokens`, and where a method conserves, every row has the same
    sum. ``gradient`` has no sum and is refused.

    Raises:
        UnsupportedModelError, AlreadyPatchedError, MissingGradientError, ValueError: as :func:`relevance`.
    """
    check_method(method)
    if method == "gradient":
        raise ValueError("gradients of different layers have no common sum; use gradient_x_input or an LRP method")
    with borrow(model, inputs, [target], gradients=True) as (family, batch), SCOPES[method](model):
        with leaves_of(model, family) as leaves, _layer_inputs(model.get_submodule(family.decoder_layers)) as hidden:
            logits = forward_logits(model, batch)
        inputs_of = leaves.checked(has_image=batch.has_image)
        levels = {name: tensor for name, tensor in inputs_of.items() if name.startswith(DEEPSTACK)}
        found, value = resolved_score(target, logits, batch)
        tensors = {f"input of layer {index}": tensor for index, tensor in hidden.items()} | levels
        rows = map(gradient_x_input, tensors.values(), differentiate(found, value, tensors, last=True))
        return _layer_table(batch, len(hidden), list(rows))


def block_relevance(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    target: Target,
    *,
    method: GradientMethod,
    vision_rule: VisionRule = "epsilon",
    gamma: float | Gammas = 0.25,
) -> Floats:
    """The relevance that passes each block of the vision tower, ``(n_blocks + 1, n_patches)``.

    Row ``i`` is the relevance of the hidden states that enter block ``i``, the last row that of what leaves the
    last block; the patches of each picture are in reading order, one picture after the other. What a deepstack
    level has taken before block ``i`` is in row ``i`` too, at the patches that it was taken from: so where a method
    conserves, every row has the sum of all image levels. Options as for
    :func:`xai.attribution.relevance.relevance` at depth ``pixels``.

    Raises:
        UnsupportedModelError, AlreadyPatchedError, MissingGradientError: as ``relevance``.
        ValueError: as ``relevance``, or there is no picture.
    """
    check_options(method, depth="pixels", vision_rule=vision_rule)
    gammas = gamma_by_layer(gamma)
    with borrow(model, inputs, [target], gradients=True) as (family, batch), SCOPES[method](model):
        vision = family.vision
        if vision is None or not batch.has_image:
            raise ValueError("there is no picture, so no relevance passes the vision tower; use layer_relevance")
        blocks = model.get_submodule(vision.blocks)
        with through_tower(model, vision, batch, vision_rule, gammas) as tower:
            with _layer_inputs(blocks) as hidden, _deepstack_inputs(model, vision, hidden) as taken:
                logits = forward_logits(model, tower.batch)
            found, value = resolved_score(target, logits, batch)
            named = {f"input of vision block {index}": tensor for index, tensor in hidden.items()}
            named |= {f"what {DEEPSTACK} {index} is made of": tensor for index, (tensor, _) in taken.items()}
            rows = map(gradient_x_input, named.values(), differentiate(found, value, named, last=True))
            table, levels = np.split(np.stack([row.reshape(-1) for row in rows]), [len(hidden)])
    for level, (_, n_entered) in zip(levels, taken.values(), strict=True):
        # What leaves the block before holds it anyway.
        table[n_entered + 1 :] += level
    return _in_reading_order(table, batch, vision, model)


@contextmanager
def _layer_inputs(stack_of_layers: nn.Module) -> Iterator[dict[int, Tensor]]:
    """Within the block, the hidden states ``(..., hidden)`` that enter each of some layers and leave the last."""
    hidden: dict[int, Tensor] = {}
    owner = threading.get_ident()

    def take_input(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, index: int) -> None:
        if threading.get_ident() == owner:
            hidden[index] = args[0] if args else kwargs["hidden_states"]

    def take_output(_module: nn.Module, _args: object, output: Any) -> None:
        if threading.get_ident() == owner:
            hidden[len(hidden)] = output[0] if isinstance(output, tuple) else output

    layers = list(stack_of_layers.children())
    with ExitStack() as stack:
        for index, layer in enumerate(layers):
            hook = layer.register_forward_pre_hook(partial(take_input, index=index), with_kwargs=True)
            stack.callback(hook.remove)
        stack.callback(layers[-1].register_forward_hook(take_output).remove)
        yield hidden


def _layer_table(batch: Batch, n_rows: int, rows: list[Floats]) -> Floats:
    """Hidden states' relevance ``(1, seq)`` a layer, with that of the deepstack levels that are still to come."""
    table = np.zeros((n_rows, batch.sequence_length))
    for index, row in enumerate(rows[:n_rows]):
        table[index, : row.size] = row.reshape(-1)
    for index, level in enumerate(rows[n_rows:]):
        # Level i is added to what leaves layer i.
        table[: index + 1, batch.image_positions] += level.reshape(-1)
    return table


@contextmanager
def _deepstack_inputs(
    model: nn.Module, vision: Vision, entered: Mapping[int, Tensor]
) -> Iterator[dict[int, tuple[Tensor, int]]]:
    """Within the block, deepstack level → what it alone is made of, and how many blocks had been entered by then."""
    taken: dict[int, tuple[Tensor, int]] = {}
    owner = threading.get_ident()

    def take(_module: nn.Module, args: tuple[Any, ...], *, index: int) -> tuple[Any, ...] | None:
        if threading.get_ident() != owner:
            return None
        # The blocks read the same tensor; a view of it has the gradient of this level only.
        taken[index] = args[0].view_as(args[0]), len(entered)
        return (taken[index][0], *args[1:])

    with ExitStack() as stack:
        if vision.deepstack_mergers is not None:
            for index, merger in enumerate(model.get_submodule(vision.deepstack_mergers).children(), start=1):
                stack.callback(merger.register_forward_pre_hook(partial(take, index=index)).remove)
        yield taken


def _in_reading_order(table: Floats, batch: Batch, vision: Vision, model: nn.Module) -> Floats:
    """Columns in the order in which the blocks have the patches, brought into reading order, picture by picture."""
    if vision.windows:
        config: Any = model.config
        sizes = config.vision_config
        order, _ = get_vision_window_index(
            torch.tensor(batch.grid_thw), batch.merge_size, sizes.window_size, sizes.patch_size
        )
        cells = np.empty((len(table), len(order), batch.merge_size**2))
        cells[:, order.numpy()] = table.reshape(cells.shape)
        table = cells.reshape(table.shape)
    if not vision.merge_blocks:
        return table
    ends = np.cumsum([t * h * w for t, h, w in batch.grid_thw])[:-1]
    pictures = zip(np.split(table, ends, axis=1), batch.grid_thw, strict=True)
    return np.concatenate(
        [
            np.stack([patches_to_grid(row, grid, batch.merge_size).reshape(-1) for row in rows])
            for rows, grid in pictures
        ],
        axis=1,
    )

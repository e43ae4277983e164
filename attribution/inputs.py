"""Checks that inputs, targets and model fit each other, prepares the one batch, and borrows the model for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from xai.attribution.families import (
    Family,
    Grid,
    Vision,
    family_of,
    input_embeddings,
    output_embeddings,
    refuse_unusable_weights,
)
from xai.attribution.patching import exclusive
from xai.attribution.targets import Target

SEQUENCE_INPUTS = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")
IMAGE_INPUTS = ("pixel_values", "image_grid_thw")


@dataclass(frozen=True)
class Batch:
    """Checked inputs of one record, cut after the last target position, and what is needed to place results.

    Attributes:
        inputs: what the model is called with.
        kept: indices of the logits to keep, each one before a target position, ascending.
        sequence_length: number of tokens of the whole sequence, before it was cut.
        image_positions: ``(n_image_tokens,)`` index of each image placeholder in the sequence.
        grid_thw: ``(t, h, w)`` of each picture in patches; empty without one.
        merge_size: patches per side of a merged token.
    """

    inputs: Mapping[str, Tensor]
    kept: Tensor
    sequence_length: int
    image_positions: NDArray[np.int64]
    grid_thw: tuple[Grid, ...]
    merge_size: int

    @property
    def predicted(self) -> list[int]:
        """The position that each kept logit predicts, ascending."""
        return [int(index) + 1 for index in self.kept.tolist()]

    @property
    def has_image(self) -> bool:
        """Whether the prompt holds a picture."""
        return bool(self.grid_thw)


@contextmanager
def borrow(
    model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target], *, gradients: bool
) -> Iterator[tuple[Family, Batch]]:
    """Check everything, then have the model to oneself: eval mode, frozen parameters, no autocast.

    Layers for which gradient checkpointing is on keep it, though transformers checkpoints in training mode only.

    On exit the model's training mode, ``requires_grad`` and what a forward leaves behind are as they were.

    Args:
        gradients: whether the block builds graphs; the caller's own grad or inference mode does not matter.

    Raises:
        UnsupportedModelError: unknown family or unusable weights.
        ValueError: inputs or targets that do not fit each other or the model.
    """
    with torch.inference_mode(False), torch.set_grad_enabled(gradients):
        family = family_of(model)
        refuse_unusable_weights(model)
        batch = prepare(model, inputs, targets)
        # A caller's autocast would change the values and their gradients.
        with exclusive(model), _frozen(model, family), torch.autocast(batch.kept.device.type, enabled=False):
            yield family, batch


@contextmanager
def _frozen(model: nn.Module, family: Family) -> Iterator[None]:
    with ExitStack() as stack:
        for path in family.state:
            owner_path, _, name = path.rpartition(".")
            owner = model.get_submodule(owner_path)
            stack.callback(setattr, owner, name, getattr(owner, name))
        for module in model.modules():
            wanted = _checkpoints(module)
            if module.training is not wanted:
                # The module's own flag: its children, dropout among them, stay in eval mode.
                stack.callback(setattr, module, "training", module.training)
                module.training = wanted
        for parameter in [parameter for parameter in model.parameters() if parameter.requires_grad]:
            stack.callback(parameter.requires_grad_, True)
            parameter.requires_grad_(False)
        yield


def _checkpoints(module: nn.Module) -> bool:
    """Whether a layer is to be run again in the backward; the older, reentrant way cannot give chosen gradients."""
    if not (isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing):
        return False
    function = getattr(module, "_gradient_checkpointing_func", None)
    return getattr(function, "keywords", {}).get("use_reentrant") is False


def prepare(model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target]) -> Batch:
    """Inputs that fit each other, the targets and the model, on its device and cut after the last target position.

    Raises:
        ValueError: they do not fit; the message says what to change.
    """
    ids = checked_sequence(inputs)
    length = ids.shape[1]
    check_targets(model, targets, length)
    positions = sorted({position for target in targets for position in target.positions})
    config: Any = model.config
    vision = family_of(model).vision
    is_image = ids[0].cpu() == getattr(config, "image_token_id", -1)
    grids = checked_grids(inputs, int(is_image.sum()), vision, config)
    if bool(is_image[positions[-1] :].any()):
        raise ValueError("the last target position lies before the end of the picture; explain tokens after it")
    cut = cut_inputs(model, inputs, positions[-1])
    device = cut["input_ids"].device
    return Batch(
        inputs=cut,
        kept=torch.tensor([position - 1 for position in positions], device=device),
        sequence_length=length,
        image_positions=np.flatnonzero(is_image.numpy()),
        grid_thw=grids,
        merge_size=1 if vision is None else vision.merge_size(config),
    )


def cut_inputs(model: nn.Module, inputs: Mapping[str, Tensor], length: int) -> dict[str, Tensor]:
    """The inputs of one record or of a batch, whole ones, cut after ``length`` tokens on the model's device."""
    config: Any = model.config
    vision, ids = family_of(model).vision, inputs["input_ids"]
    given = dict(inputs)
    given.setdefault("attention_mask", torch.ones_like(ids))
    if vision is not None and "pixel_values" in inputs:
        # The processor may have been asked not to return it; the model needs it to place the picture.
        given.setdefault(vision.token_types, (ids == config.image_token_id).long())
    device = input_embeddings(model).weight.device
    return {
        # Cloned: tensors made in a caller's inference mode cannot enter a graph.
        name: (tensor[:, :length] if name in SEQUENCE_INPUTS else tensor).to(device).clone()
        for name, tensor in given.items()
    }


def checked_sequence(inputs: Mapping[str, Tensor]) -> Tensor:
    """The ``input_ids``, ``(1, seq)``.

    Raises:
        ValueError: an unknown input, no ids, more than one record, or sequence inputs of different shapes.
    """
    known = (*SEQUENCE_INPUTS, *IMAGE_INPUTS)
    unknown = [name for name in inputs if name not in known]
    if unknown or "input_ids" not in inputs:
        raise ValueError(f"inputs must be among {', '.join(known)}, with input_ids; got {', '.join(inputs)}")
    ids = inputs["input_ids"]
    if ids.ndim != 2 or ids.shape[0] != 1:
        raise ValueError(
            f"input_ids must have shape (1, seq), got {tuple(ids.shape)}; explain one record at a time, "
            "or a batch with xai.attribution.batches.relevance_of_batch"
        )
    for name in SEQUENCE_INPUTS:
        if name in inputs and inputs[name].shape != ids.shape:
            raise ValueError(
                f"{name} has shape {tuple(inputs[name].shape)} and input_ids {tuple(ids.shape)}; "
                "extend every sequence input by the generated ids"
            )
    return ids


def checked_grids(
    inputs: Mapping[str, Tensor], n_placeholders: int, vision: Vision | None, config: Any
) -> tuple[Grid, ...]:
    """``(t, h, w)`` of each picture in patches; empty without one.

    Raises:
        ValueError: part of a picture is missing, or the numbers of patches and placeholders are not those of the grids.
    """
    given = [name for name in IMAGE_INPUTS if inputs.get(name) is not None]
    if not given and not n_placeholders:
        return ()
    if vision is None:
        raise ValueError("the model reads text only; leave the picture out")
    wanted = ["pixel_values", *([vision.grid_input] if vision.grid_input else [])]
    if given != wanted:
        raise ValueError(
            f"the prompt has {n_placeholders} image placeholders but of {' and '.join(wanted)} only "
            f"{' and '.join(given) or 'neither'} is given; give a picture whole or not at all"
        )
    grids = vision.grids(config, inputs)
    n_patches = sum(t * h * w for t, h, w in grids)
    n_tokens = n_patches // vision.merge_size(config) ** 2
    n_rows = inputs["pixel_values"].shape[0] if vision.grid_input else n_patches
    if n_rows != n_patches or n_placeholders != n_tokens:
        raise ValueError(
            f"{vision.grid_input or 'pixel_values'} speaks of {n_patches} patches and {n_tokens} image tokens, but "
            f"pixel_values has {n_rows} rows and the prompt {n_placeholders} placeholders"
        )
    return grids


def check_targets(model: nn.Module, targets: Sequence[Target], length: int) -> None:
    """Refuse targets that are not in a sequence of ``length`` tokens or that the model has no logit for.

    Raises:
        ValueError: no target, one that was not located, or positions or tokens out of range.
    """
    if not targets:
        raise ValueError("no targets: name at least one")
    n_tokens = output_embeddings(model).weight.shape[0]
    for target in targets:
        if not target.located:
            raise ValueError(f"target {target.name!r} was not located in the answer; leave it out and report it")
        outside = [position for position in target.positions if not 0 < position < length]
        if outside:
            raise ValueError(f"target {target.name!r} asks for positions {outside} of a sequence of {length} tokens")
        unknown = [token_id for token_id in (*target.token_ids, *target.contrast_ids) if not 0 <= token_id < n_tokens]
        if unknown:
            raise ValueError(f"target {target.name!r} asks for tokens {unknown}; the model has {n_tokens}")

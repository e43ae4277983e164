"""The relevance of several records at once: a padded batch, one forward, one backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from xai.attribution.families import Vision, family_of
from xai.attribution.inputs import IMAGE_INPUTS, Batch, borrow, cut_inputs, prepare
from xai.attribution.relevance import (
    SCOPES,
    Floats,
    GradientMethod,
    Leaves,
    Relevance,
    check_method,
    differentiate,
    gradient_norm,
    gradient_x_input,
    leaves_of,
    placed,
    refuse_zeros,
)
from xai.attribution.targets import Target, resolve, target_score

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class _Picture:
    """One picture of a batch: its number of image tokens, and its part of the image inputs."""

    n_tokens: int
    inputs: dict[str, Tensor]


def relevance_of_batch(
    model: nn.Module, inputs: Inputs, targets: Sequence[Target], *, method: GradientMethod
) -> list[Relevance]:
    """What :func:`xai.attribution.relevance.relevance` gives for each row by itself, up to rounding.

    Rows do not read each other, so that one backward of the sum of their targets holds the relevance of all. Tokens
    that the attention mask leaves out carry none.

    Args:
        inputs: a batch of prompts with their answers, ``(batch, seq)``, padded on either side and masked there;
            ``pixel_values`` and ``image_grid_thw`` of all pictures, row after row, of any sizes; rows without a
            picture may be among them.
        targets: one for each row, its positions those of the padded row.

    Returns:
        One result a row, over the padded sequence.

    Raises:
        UnsupportedModelError, AlreadyPatchedError, MissingGradientError: as ``relevance``.
        ValueError: the number of targets is not that of the rows, a target lies on padding, or a row's inputs or
            target do not fit each other or the model (the message names the row).
    """
    check_method(method)
    reduce = gradient_norm if method == "gradient" else gradient_x_input
    rows = _rows(model, inputs)
    if len(targets) != len(rows):
        raise ValueError(f"a batch of {len(rows)} rows needs as many targets, one for each, not {len(targets)}")
    batches = [_prepared(model, index, *pair) for index, pair in enumerate(zip(rows, targets, strict=True))]
    with borrow(model, rows[0], targets[:1], gradients=True) as (family, _), SCOPES[method](model):
        kept = torch.tensor(sorted({index for batch in batches for index in batch.kept.tolist()}))
        with leaves_of(model, family) as leaves:
            called = cut_inputs(model, inputs, int(kept[-1]) + 1)
            logits = model(**called, use_cache=False, logits_to_keep=kept.to(called["input_ids"].device)).logits
        predicted = [int(index) + 1 for index in kept.tolist()]
        found = [resolve(target, row, predicted) for target, row in zip(targets, logits, strict=True)]
        values = [target_score(target, row, predicted) for target, row in zip(found, logits, strict=True)]
        maps = _maps(leaves, batches, found, torch.stack(values).sum(), reduce)
        return [
            placed(batch, target, float(value.detach()), of_row)
            for batch, target, value, of_row in zip(batches, found, values, maps, strict=True)
        ]


def _rows(model: nn.Module, inputs: Inputs) -> list[dict[str, Tensor]]:
    """Each row as inputs of its own, ``(1, seq)``, with its pictures.

    Raises:
        ValueError: there are no ids in rows, or more pictures than placeholders.
    """
    ids = inputs.get("input_ids")
    if ids is None or ids.ndim != 2 or not len(ids):
        raise ValueError("a batch needs input_ids of shape (batch, seq)")
    config: Any = model.config
    vision = family_of(model).vision
    pictures = _pictures(vision, config, inputs)
    rows = []
    for index, row_ids in enumerate(ids):
        row = {name: tensor[index : index + 1] for name, tensor in inputs.items() if name not in IMAGE_INPUTS}
        n_tokens, own = int((row_ids == getattr(config, "image_token_id", -1)).sum()), list[_Picture]()
        while pictures and sum(picture.n_tokens for picture in own) < n_tokens:
            own.append(pictures.pop(0))
        names = own[0].inputs if own else {}
        rows.append(row | {name: torch.cat([picture.inputs[name] for picture in own]) for name in names})
    if pictures:
        raise ValueError(f"{len(pictures)} pictures are left over when every placeholder of the batch has its own")
    return rows


def _pictures(vision: Vision | None, config: Any, inputs: Inputs) -> list[_Picture]:
    given = {name: inputs[name] for name in IMAGE_INPUTS if name in inputs}
    if vision is None or "pixel_values" not in given:
        return []
    if vision.grid_input is not None and vision.grid_input not in given:
        raise ValueError(f"pixel_values need {vision.grid_input} beside them, so that each row finds its pictures")
    sizes = [t * h * w for t, h, w in vision.grids(config, inputs)]
    n_rows = sizes if vision.grid_input is not None else [1] * len(sizes)
    parts = {
        name: torch.split(tensor, n_rows if name == "pixel_values" else [1] * len(sizes))
        for name, tensor in given.items()
    }
    merged = vision.merge_size(config) ** 2
    return [
        _Picture(size // merged, {name: part[index] for name, part in parts.items()})
        for index, size in enumerate(sizes)
    ]


def _prepared(model: nn.Module, index: int, row: Inputs, target: Target) -> Batch:
    try:
        batch = prepare(model, row, [target])
        mask = row.get("attention_mask")
        if mask is not None and not mask[0, list(target.positions)].all():
            raise ValueError(f"target {target.name!r} lies on padding; its positions are those of the padded row")
    except ValueError as error:
        raise ValueError(f"row {index} of the batch: {error}") from error
    return replace(batch, inputs={})  # the rows are run together


def _maps(
    leaves: Leaves, batches: Sequence[Batch], targets: Sequence[Target], total: Tensor, reduce: Any
) -> Iterator[list[Floats]]:
    """For each row, the relevance of its embeddings ``(seq,)`` and of each level of its image tokens."""
    tensors = leaves.checked(has_image=any(batch.has_image for batch in batches))
    gradients = differentiate(Target("the sum over the rows", (), ()), total, tensors, last=True)
    sizes = [len(batch.image_positions) for batch in batches]
    by_row = [
        (name, _by_row(leaf, sizes, index), _by_row(gradient, sizes, index))
        for index, (name, leaf, gradient) in enumerate(zip(tensors, tensors.values(), gradients, strict=True))
    ]
    for row, (batch, target) in enumerate(zip(batches, targets, strict=True)):
        maps = []
        for name, leaves_of_rows, gradients_of_rows in by_row if batch.has_image else by_row[:1]:
            refuse_zeros(name, gradients_of_rows[row], target)
            maps.append(reduce(leaves_of_rows[row], gradients_of_rows[row]))
        yield maps


def _by_row(tensor: Tensor, n_image_tokens: Sequence[int], level: int) -> Sequence[Tensor]:
    """Embeddings (level 0) or image features of each row; models lay the latter out over all pictures."""
    if level == 0:
        return tensor.unbind()
    return torch.split(tensor.reshape(-1, tensor.shape[-1]), list(n_image_tokens))

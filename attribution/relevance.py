"""The relevance of every text token, merged image token and deepstack level: one forward, one backward a target."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xai.attribution.families import Family, family_of, refuse_unusable_weights
from xai.attribution.inputs import Batch, Grid, prepare
from xai.attribution.patching import attnlrp, cplrp, exclusive
from xai.attribution.targets import Target

GradientMethod = Literal["attnlrp", "cplrp", "gradient_x_input"]
Floats = NDArray[np.float64]

SCOPES: Mapping[str, Callable[[nn.Module], AbstractContextManager[object]]] = {
    "attnlrp": attnlrp,
    "cplrp": cplrp,
    "gradient_x_input": nullcontext,
}


class MissingGradientError(RuntimeError):
    """An input that was asked for received no gradient, or one of zeros: not the same as no influence."""


@dataclass(frozen=True, eq=False)
class Relevance:
    """Signed relevance of one target; positive speaks for it. Arrays are read-only float64.

    Attributes:
        target: what was differentiated.
        value: the target's value, a sum of logits.
        text: ``(seq,)`` relevance of the token embeddings of prompt and answer; 0 at image placeholders, whose
            embeddings the model throws away, and from the last target position on.
        image: ``(1 + n_deepstack, n_image_tokens)`` relevance of the merged image tokens, then of every
            deepstack level, in the order of the model's image tokens; ``None`` without a picture.
        image_positions: ``(n_image_tokens,)`` index of each image token in the sequence; empty without one.
        grid_thw: ``(t, h, w)`` of each picture in patches; empty without one.
        merge_size: patches per side of a merged token.
    """

    target: Target
    value: float
    text: Floats
    image: Floats | None = None
    image_positions: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    grid_thw: tuple[Grid, ...] = ()
    merge_size: int = 1

    def __post_init__(self) -> None:
        for array in (self.text, self.image, self.image_positions):
            if array is not None:
                array.setflags(write=False)

    @property
    def tokens(self) -> Floats:
        """``(seq,)`` with each image token carrying the relevance of all its levels."""
        tokens = self.text.copy()
        if self.image is not None:
            tokens[self.image_positions] += self.image.sum(axis=0)
        return tokens

    @property
    def total(self) -> float:
        """Relevance of text, image and deepstack together; equals ``value`` where a method conserves."""
        return float(self.text.sum() + (0.0 if self.image is None else self.image.sum()))

    @property
    def non_finite(self) -> int:
        """Number of NaN and infinite values; none are changed."""
        arrays = [self.text] if self.image is None else [self.text, self.image]
        return int(sum((~np.isfinite(array)).sum() for array in arrays))

    @property
    def image_grid(self) -> Floats | None:
        """``(1 + n_deepstack, grid_h, grid_w)`` in reading order, for one picture; ``None`` without one.

        Raises:
            ValueError: the prompt holds several pictures, which have no common grid.
        """
        if self.image is None:
            return None
        if len(self.grid_thw) != 1:
            raise ValueError(f"{len(self.grid_thw)} pictures have no common grid; cut `image` by `grid_thw` first")
        return reading_order(self.image, self.grid_thw[0], self.merge_size)


def relevance(
    model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target], *, method: GradientMethod
) -> list[Relevance]:
    """Relevance of everything the model read, for every target, by a gradient × input method.

    One forward over the sequence up to the last target position, logits at the target positions only,
    parameters frozen; then one backward a target. Afterwards the model is as it was: hooks, patches,
    attention implementation, training mode, gradients and ``requires_grad`` of its parameters.

    Args:
        inputs: what the processor returned, batch of one, with the generated ids appended to ``input_ids``
            (and ones to ``attention_mask``, zeros to ``mm_token_type_ids``, where given).
        method: ``attnlrp`` (Achtibat et al. 2024), ``cplrp`` (Ali et al. 2022), or ``gradient_x_input``.

    Raises:
        UnsupportedModelError: unknown family, quantised weights, or a module without a rule.
        AlreadyPatchedError: the model is inside an LRP block already.
        MissingGradientError: the embeddings, image features or a deepstack level got no gradient.
        ValueError: inputs or targets that do not fit each other or the model.
    """
    if method not in SCOPES:
        raise ValueError(f"unknown gradient method {method!r}; there are {', '.join(SCOPES)}")
    with torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
        family, batch = _enter(model, inputs, targets, stack)
        stack.enter_context(SCOPES[method](model))
        leaves = stack.enter_context(_leaves(model, family))
        values = _target_values(model, batch, targets)
        tensors = leaves.checked(has_image="pixel_values" in batch.inputs)
        return [
            _backward(batch, target, value, tensors, last=index == len(targets) - 1)
            for index, (target, value) in enumerate(zip(targets, values, strict=True))
        ]


def target_values(model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target]) -> list[float]:
    """The values that :func:`relevance` differentiates, by one plain forward without gradients.

    Raises:
        UnsupportedModelError, ValueError: as :func:`relevance`.
    """
    with torch.inference_mode(False), torch.no_grad(), ExitStack() as stack:
        _, batch = _enter(model, inputs, targets, stack)
        return [float(value) for value in _target_values(model, batch, targets)]


def reading_order(values: NDArray[Any], grid_thw: Grid, merge_size: int) -> NDArray[Any]:
    """Lay the values of merged image tokens out on their grid, ``(..., n_tokens) -> (..., grid_h, grid_w)``.

    The processor orders patch rows by merge blocks and the blocks by rows, so that merging leaves one token
    a block, in reading order. Several frames are added.

    Raises:
        ValueError: the number of values is not that of the grid.
    """
    t, h, w = (int(size) for size in grid_thw)
    shape = (t, h // merge_size, w // merge_size)
    if values.shape[-1] != int(np.prod(shape)):
        raise ValueError(f"{values.shape[-1]} image tokens do not fill a grid of {shape} merged cells")
    grid: NDArray[Any] = values.reshape(*values.shape[:-1], *shape).sum(axis=-3)
    return grid


def patches_to_grid(patch_relevance: NDArray[Any], grid_thw: Grid, merge_size: int) -> NDArray[Any]:
    """Lay the processor's patch rows out in reading order, ``(n_patches,)`` or ``(n_patches, pixels) -> (h, w)``.

    Undoes the grouping by merge blocks; adds the pixels of a row, which hold both copies of a still frame,
    and the frames. The total does not change.

    Raises:
        ValueError: the number of rows is not that of the grid.
    """
    t, h, w = (int(size) for size in grid_thw)
    if patch_relevance.shape[0] != t * h * w:
        raise ValueError(f"{patch_relevance.shape[0]} patch rows do not fill a grid of {(t, h, w)} patches")
    rows = patch_relevance.reshape(t * h * w, -1).sum(axis=1)
    blocks = rows.reshape(t, h // merge_size, w // merge_size, merge_size, merge_size)
    grid: NDArray[Any] = blocks.transpose(0, 1, 3, 2, 4).reshape(t, h, w).sum(axis=0)
    return grid


@dataclass
class _Leaves:
    """The tensors that the forward hooks turned into leaves."""

    embeddings: Tensor | None = None
    image: tuple[Tensor, ...] = ()

    def checked(self, *, has_image: bool) -> tuple[Tensor, ...]:
        """Embeddings, then image levels.

        Raises:
            MissingGradientError: the forward went past the embeddings or the vision tower.
        """
        if self.embeddings is None or (has_image and not self.image):
            missed = "input embeddings" if self.embeddings is None else "vision tower"
            raise MissingGradientError(
                f"the forward never called the model's {missed}; call the model itself, not a wrapped or compiled copy"
            )
        return (self.embeddings, *self.image)


def _enter(
    model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target], stack: ExitStack
) -> tuple[Family, Batch]:
    """Check everything, then borrow the model for as long as ``stack`` lasts."""
    family = family_of(model)
    refuse_unusable_weights(model)
    batch = prepare(model, inputs, targets)
    stack.enter_context(exclusive(model))
    stack.enter_context(_borrowed(model, family))
    # A caller's autocast would change the values and their gradients.
    stack.enter_context(torch.autocast(batch.kept.device.type, enabled=False))
    return family, batch


@contextmanager
def _borrowed(model: nn.Module, family: Family) -> Iterator[None]:
    """Eval mode, frozen parameters and the state that a forward leaves behind, all put back on exit."""
    with ExitStack() as stack:
        for path in family.state:
            owner_path, _, name = path.rpartition(".")
            owner = model.get_submodule(owner_path)
            stack.callback(setattr, owner, name, getattr(owner, name))
        for module in [module for module in model.modules() if module.training]:
            stack.callback(setattr, module, "training", True)
            module.training = False
        for parameter in [parameter for parameter in model.parameters() if parameter.requires_grad]:
            stack.callback(parameter.requires_grad_, True)
            parameter.requires_grad_(False)
        yield


@contextmanager
def _leaves(model: nn.Module, family: Family) -> Iterator[_Leaves]:
    """Within the block, embeddings and image features come out of their modules as leaves of the graph."""
    leaves = _Leaves()
    # Another thread may generate with the same model meanwhile; its tensors are not ours.
    owner = threading.get_ident()

    def take_embeddings(_module: nn.Module, _args: object, output: Tensor) -> Tensor:
        if threading.get_ident() != owner:
            return output
        leaves.embeddings = _leaf(output)
        return leaves.embeddings

    def take_image(_module: nn.Module, _args: object, output: Any) -> Any:
        if threading.get_ident() != owner:
            return output
        features = _leaf(getattr(output, family.image_features))
        setattr(output, family.image_features, features)
        levels: list[Tensor] = []
        if family.deepstack_features is not None:
            levels = [_leaf(level) for level in getattr(output, family.deepstack_features)]
            setattr(output, family.deepstack_features, levels)
        leaves.image = (features, *levels)
        return output

    with ExitStack() as stack:
        embeddings: nn.Module = model.get_input_embeddings()  # type: ignore[operator]
        stack.callback(embeddings.register_forward_hook(take_embeddings).remove)
        visual = family.visual_of(model)
        if visual is not None:
            stack.callback(visual.register_forward_hook(take_image).remove)
        yield leaves


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()


def _target_values(model: nn.Module, batch: Batch, targets: Sequence[Target]) -> list[Tensor]:
    """The targets' values, scalars in float32 at least."""
    output = model(**batch.inputs, use_cache=False, logits_to_keep=batch.kept)
    logits: Tensor = output.logits[0]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    row_of = {int(index) + 1: row for row, index in enumerate(batch.kept.tolist())}
    values = []
    for target in targets:
        rows = torch.tensor([row_of[position] for position in target.positions], device=logits.device)
        columns = torch.tensor(target.token_ids, device=logits.device)
        values.append(logits[rows, columns].sum())
    return values


def _backward(batch: Batch, target: Target, value: Tensor, leaves: tuple[Tensor, ...], *, last: bool) -> Relevance:
    if not value.requires_grad:
        raise MissingGradientError("the model ran without gradients; some module of it must switch them off")
    gradients = torch.autograd.grad(value, leaves, retain_graph=not last, allow_unused=True)
    rows = [_gradient_x_input(target, index, *pair) for index, pair in enumerate(zip(leaves, gradients, strict=True))]
    text = np.zeros(batch.sequence_length)
    text[: rows[0].shape[-1]] = rows[0][0]
    make = partial(Relevance, target=target, value=float(value.detach()), text=text)
    if len(rows) == 1:
        return make()
    return make(
        image=np.stack(rows[1:]),
        image_positions=batch.image_positions,
        grid_thw=batch.grid_thw,
        merge_size=batch.merge_size,
    )


def _gradient_x_input(target: Target, index: int, leaf: Tensor, gradient: Tensor | None) -> Floats:
    """Sum over hidden, ``(..., hidden) -> (...)``, in float32 at least."""
    if gradient is None or not bool(gradient.any()):
        name = ("input embeddings", "image features")[index] if index < 2 else f"deepstack level {index - 1}"
        raise MissingGradientError(
            f"the {name} got {'no gradient' if gradient is None else 'a gradient of zeros only'} for target "
            f"{target.name!r}, so nothing can be said of their influence; check that no layer runs without "
            "gradients and that the dtype is wide enough"
        )
    dtype = torch.promote_types(leaf.dtype, torch.float32)
    product = (leaf.detach().to(dtype) * gradient.to(dtype)).sum(-1)
    return product.cpu().numpy().astype(np.float64)

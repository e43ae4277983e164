"""The relevance of every text token, merged image token and deepstack level: one forward, one backward a target."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xai.attribution.families import Family, Grid
from xai.attribution.inputs import Batch, borrow
from xai.attribution.patching import ATTENTION_NAMES, AlreadyPatchedError, attnlrp, cplrp
from xai.attribution.targets import Target, resolve, target_score

GradientMethod = Literal["attnlrp", "cplrp", "gradient_x_input", "gradient"]
Floats = NDArray[np.float64]
DEEPSTACK = "deepstack level"


class MissingGradientError(RuntimeError):
    """An input that was asked for received no gradient, or one of zeros: not the same as no influence."""


@dataclass(frozen=True, eq=False)
class Relevance:
    """Relevance of one target; where it is signed, positive speaks for the target. Arrays are read-only float64.

    Attributes:
        target: what was explained; a contrastive target with the one alternative that was strongest.
        value: the target's value.
        text: ``(seq,)`` relevance of the token embeddings of prompt and answer; 0 at image placeholders, whose
            embeddings the model throws away, and from the last target position on.
        image: ``(1 + n_deepstack, n_image_tokens)`` relevance of the merged image tokens, then of every
            deepstack level, in the order of the model's image tokens; ``None`` without a picture.
        image_positions: ``(n_image_tokens,)`` index of each image token in the sequence; empty without one.
        grid_thw: ``(t, h, w)`` of each picture in patches; empty without one.
        merge_size: patches per side of a merged token.
        baseline_value: the target's value at the method's baseline; a method that is complete gives a
            ``total`` of ``value - baseline_value``. 0 for methods without a baseline.
        settings: the options that the numbers depend on, by name.
    """

    target: Target
    value: float
    text: Floats
    image: Floats | None = None
    image_positions: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    grid_thw: tuple[Grid, ...] = ()
    merge_size: int = 1
    baseline_value: float = 0.0
    settings: Mapping[str, object] = field(default_factory=dict)

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
        """Relevance of text, image and deepstack together; see ``baseline_value`` for what it should be."""
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
    """Relevance of everything the model read, for every target, by a method of one backward.

    One forward over the sequence up to the last target position, logits at the target positions only,
    parameters frozen; then one backward a target. Afterwards the model is as it was: hooks, patches,
    attention implementation, training mode, gradients and ``requires_grad`` of its parameters.

    Args:
        inputs: what the processor returned, batch of one, with the generated ids appended to ``input_ids``
            (and ones to ``attention_mask``, zeros to ``mm_token_type_ids``, where given).
        method: ``attnlrp`` (Achtibat et al. 2024), ``cplrp`` (Ali et al. 2022), ``gradient_x_input``, or
            ``gradient``, the L2 norm of the gradient, which has no sign.

    Raises:
        UnsupportedModelError: unknown family, quantised weights, or a module without a rule.
        AlreadyPatchedError: the model is inside an LRP block already.
        MissingGradientError: the embeddings, image features or a deepstack level got no gradient.
        ValueError: inputs or targets that do not fit each other or the model.
    """
    check_method(method)
    reduce = gradient_norm if method == "gradient" else gradient_x_input
    with borrow(model, inputs, targets, gradients=True) as (family, batch), SCOPES[method](model):
        with leaves_of(model, family) as leaves:
            logits = forward_logits(model, batch)
        tensors = leaves.checked(has_image=batch.has_image)
        results = []
        for index, target in enumerate(targets):
            found, value = resolved_score(target, logits, batch)
            gradients = differentiate(found, value, tensors, last=index == len(targets) - 1)
            rows = [reduce(*pair) for pair in zip(tensors.values(), gradients, strict=True)]
            results.append(placed(batch, found, float(value.detach()), rows))
        return results


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
        with leaves_of(model, family) as leaves, _layer_inputs(model, family) as hidden:
            logits = forward_logits(model, batch)
        inputs_of = leaves.checked(has_image=batch.has_image)
        levels = {name: tensor for name, tensor in inputs_of.items() if name.startswith(DEEPSTACK)}
        found, value = resolved_score(target, logits, batch)
        tensors = {f"input of layer {index}": tensor for index, tensor in hidden.items()} | levels
        rows = map(gradient_x_input, tensors.values(), differentiate(found, value, tensors, last=True))
        return _layer_table(batch, len(hidden), list(rows))


def refuse_patched(model: nn.Module) -> None:
    """Refuse a model inside an LRP block: gradients and attention are not the model's own there.

    Raises:
        AlreadyPatchedError: the model is inside such a block.
    """
    if getattr(model.config, "_attn_implementation", None) in ATTENTION_NAMES.values():
        raise AlreadyPatchedError("the model is already inside an attnlrp or cplrp block; leave that block first")


@contextmanager
def _plain(model: nn.Module) -> Iterator[None]:
    refuse_patched(model)
    yield


SCOPES: Mapping[str, Callable[[nn.Module], AbstractContextManager[object]]] = {
    "attnlrp": attnlrp,
    "cplrp": cplrp,
    "gradient_x_input": _plain,
    "gradient": _plain,
}


def check_method(method: str) -> None:
    """Refuse a name that is not a :data:`GradientMethod`.

    Raises:
        ValueError: the message lists those that exist.
    """
    if method not in SCOPES:
        raise ValueError(f"unknown gradient method {method!r}; there are {', '.join(SCOPES)}")


def target_values(model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target]) -> list[float]:
    """The values that :func:`relevance` differentiates, by one plain forward without gradients.

    Raises:
        UnsupportedModelError, ValueError: as :func:`relevance`.
    """
    with borrow(model, inputs, targets, gradients=False) as (_, batch):
        logits = forward_logits(model, batch)
        return [float(target_score(target, logits, batch.predicted)) for target in targets]


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
class Leaves:
    """The tensors that the forward hooks turned into leaves.

    ``image`` holds the merged image features and every deepstack level, as the model's module gave them in
    ``image_output``.
    """

    embeddings: Tensor | None = None
    image: tuple[Tensor, ...] = ()
    image_output: Any = None

    def checked(self, *, has_image: bool) -> dict[str, Tensor]:
        """Name → tensor: embeddings, then image features, then deepstack levels.

        Raises:
            MissingGradientError: the forward went past the embeddings or the vision tower.
        """
        if self.embeddings is None or (has_image and not self.image):
            missed = "input embeddings" if self.embeddings is None else "vision tower"
            raise MissingGradientError(
                f"the forward never called the model's {missed}; call the model itself, not a wrapped or compiled copy"
            )
        tensors = (self.embeddings, *self.image)
        return dict(zip(leaf_names(len(tensors)), tensors, strict=True))


def leaf_names(n: int) -> list[str]:
    """What the first ``n`` of embeddings, image features and deepstack levels are called in messages."""
    return ["input embeddings", "image features", *(f"{DEEPSTACK} {index}" for index in range(1, n - 1))][:n]


@contextmanager
def leaves_of(model: nn.Module, family: Family) -> Iterator[Leaves]:
    """Within the block, embeddings and image features come out of their modules as leaves of the graph."""
    leaves = Leaves()
    vision = family.vision
    # Another thread may generate with the same model meanwhile; its tensors are not ours.
    owner = threading.get_ident()

    def take_embeddings(_module: nn.Module, _args: object, output: Tensor) -> Tensor:
        if threading.get_ident() == owner:
            leaves.embeddings = output = _leaf(output)
        return output

    def take_image(_module: nn.Module, _args: object, output: Any) -> Any:
        if threading.get_ident() != owner or vision is None:
            return output
        leaves.image = tuple(map(_leaf, vision.features(output)))
        # The model goes on to rearrange the output in place.
        leaves.image_output = copy.copy(output)
        return vision.with_features(output, leaves.image)

    with ExitStack() as stack:
        embeddings: nn.Module = model.get_input_embeddings()  # type: ignore[operator]
        stack.callback(embeddings.register_forward_hook(take_embeddings).remove)
        if vision is not None:
            stack.callback(model.get_submodule(vision.source).register_forward_hook(take_image).remove)
        yield leaves


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(torch.is_grad_enabled())


@contextmanager
def _layer_inputs(model: nn.Module, family: Family) -> Iterator[dict[int, Tensor]]:
    """Within the block, the hidden states ``(1, seq, hidden)`` that enter each decoder layer and leave the last."""
    hidden: dict[int, Tensor] = {}
    owner = threading.get_ident()

    def take_input(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, index: int) -> None:
        if threading.get_ident() == owner:
            hidden[index] = args[0] if args else kwargs["hidden_states"]

    def take_output(_module: nn.Module, _args: object, output: Any) -> None:
        if threading.get_ident() == owner:
            hidden[len(hidden)] = output[0] if isinstance(output, tuple) else output

    layers = list(model.get_submodule(family.decoder_layers).children())
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


def forward_logits(model: nn.Module, batch: Batch) -> Tensor:
    """Logits at the kept positions by one plain forward, ``(n_kept, vocab)``."""
    logits: Tensor = model(**batch.inputs, use_cache=False, logits_to_keep=batch.kept).logits[0]
    return logits


def resolved_score(target: Target, logits: Tensor, batch: Batch) -> tuple[Target, Tensor]:
    """The quantity to explain, with the strongest alternative chosen, and its value, a scalar."""
    found = resolve(target, logits, batch.predicted)
    return found, target_score(found, logits, batch.predicted)


def differentiate(target: Target, value: Tensor, tensors: Mapping[str, Tensor], *, last: bool) -> tuple[Tensor, ...]:
    """Gradients of ``value`` with respect to named tensors, in their order.

    Raises:
        MissingGradientError: one of them got none, or one of zeros.
    """
    if not value.requires_grad:
        raise MissingGradientError("the model ran without gradients; some module of it must switch them off")
    gradients = torch.autograd.grad(value, tuple(tensors.values()), retain_graph=not last, allow_unused=True)
    for name, gradient in zip(tensors, gradients, strict=True):
        if gradient is None or not bool(gradient.any()):
            raise MissingGradientError(
                f"the {name} got {'no gradient' if gradient is None else 'a gradient of zeros only'} for target "
                f"{target.name!r}, so nothing can be said of their influence; check that no layer runs without "
                "gradients and that the dtype is wide enough"
            )
    return gradients


def placed(
    batch: Batch,
    target: Target,
    value: float,
    rows: Sequence[NDArray[Any]],
    *,
    baseline_value: float = 0.0,
    settings: Mapping[str, object] | None = None,
) -> Relevance:
    """A result from the relevance of the embeddings ``(seq,)`` and of each image level ``(n_image_tokens,)``.

    ``rows`` may carry leading axes of size 1, and end with the batch's cut sequence.
    """
    text = np.zeros(batch.sequence_length)
    text[: rows[0].size] = rows[0].reshape(-1)
    make = partial(Relevance, target=target, value=value, text=text, baseline_value=baseline_value)
    if not batch.has_image:
        return make(settings=settings or {})
    # The model overwrites the embeddings of image placeholders.
    text[batch.image_positions] = 0.0
    return make(
        image=np.stack([row.reshape(-1) for row in rows[1:]]).astype(np.float64),
        image_positions=batch.image_positions,
        grid_thw=batch.grid_thw,
        merge_size=batch.merge_size,
        settings=settings or {},
    )


def gradient_x_input(leaf: Tensor, gradient: Tensor) -> Floats:
    """Gradient times input, summed over hidden, ``(..., hidden) -> (...)``, in float32 at least."""
    dtype = torch.promote_types(leaf.dtype, torch.float32)
    product = (leaf.detach().to(dtype) * gradient.to(dtype)).sum(-1)
    return product.cpu().numpy().astype(np.float64)


def gradient_norm(leaf: Tensor, gradient: Tensor) -> Floats:
    """L2 norm of the gradient over hidden, ``(..., hidden) -> (...)``, in float32 at least."""
    dtype = torch.promote_types(leaf.dtype, torch.float32)
    norm: Tensor = gradient.to(dtype).norm(dim=-1)
    return norm.cpu().numpy().astype(np.float64)

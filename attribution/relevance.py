"""The relevance of every text token, merged image token and deepstack level: one forward, one backward a target."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypedDict, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xai.attribution.families import Family, Grid, input_embeddings
from xai.attribution.gamma import Gammas, gamma_by_layer
from xai.attribution.grids import reading_order
from xai.attribution.inputs import Batch, borrow
from xai.attribution.patching import ATTENTION_NAMES, attnlrp, cplrp, refuse_patched
from xai.attribution.pixels import PixelFields, VisionRule, through_tower
from xai.attribution.sinks import sinks_dropped
from xai.attribution.targets import Target, resolve, target_score

GradientMethod = Literal["attnlrp", "cplrp", "gradient_x_input", "gradient"]
Depth = Literal["tokens", "pixels"]
Floats = NDArray[np.float64]
DEEPSTACK = "deepstack level"


class LrpOptions(TypedDict, total=False):
    """The options of :func:`relevance` that the LRP methods pass on to it."""

    depth: Depth
    vision_rule: VisionRule
    gamma: float | Gammas
    without_sinks: bool
    sink_positions: Sequence[int]


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
        pixel_grids: with depth ``pixels``, ``(patch_rows, patch_columns)`` of each picture in reading order: the
            relevance of the pixels, added over each patch, both copies of a still frame and all frames. It is what
            the vision tower hands on of ``image``, not more on top of it.
        positions: with depth ``pixels``, the relevance of the position embeddings that the vision tower learned:
            what it hands on of ``image`` to no pixel.
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
    pixel_grids: tuple[Floats, ...] = ()
    positions: float = 0.0

    def __post_init__(self) -> None:
        for array in (self.text, self.image, self.image_positions, *self.pixel_grids):
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
        arrays = [self.text, np.array(self.positions), *([] if self.image is None else [self.image]), *self.pixel_grids]
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
            raise ValueError(f"{len(self.grid_thw)} pictures have no common grid; take the `picture_grid` of one")
        return self.picture_grid(0)

    def picture_grid(self, index: int) -> Floats | None:
        """``(1 + n_deepstack, grid_h, grid_w)`` of one of the pictures, in the prompt's order; ``None`` without any.

        Raises:
            IndexError: there are not so many.
        """
        if self.image is None:
            return None
        ends = np.cumsum([t * h * w // self.merge_size**2 for t, h, w in self.grid_thw])
        picture = np.split(self.image, ends[:-1], axis=1)[index]
        return reading_order(picture, self.grid_thw[index], self.merge_size)

    @property
    def pixels(self) -> Floats | None:
        """``(patch_rows, patch_columns)`` in reading order, for one picture; ``None`` without one, or at depth tokens.

        :func:`xai.attribution.grids.merged_cells` adds the patches of each merged image token.

        Raises:
            ValueError: the prompt holds several pictures, which have no common grid.
        """
        if len(self.pixel_grids) > 1:
            raise ValueError(f"{len(self.pixel_grids)} pictures have no common grid; use `pixel_grids`")
        return self.pixel_grids[0] if self.pixel_grids else None

    @property
    def position_share(self) -> float | None:
        """``positions`` over all relevance of the image tokens; ``None`` at depth tokens, or if that is 0."""
        total = 0.0 if self.image is None else float(self.image.sum())
        return self.positions / total if self.pixel_grids and total else None


def relevance(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    targets: Sequence[Target],
    *,
    method: GradientMethod,
    depth: Depth = "tokens",
    vision_rule: VisionRule = "epsilon",
    gamma: float | Gammas = 0.25,
    without_sinks: bool = False,
    sink_positions: Sequence[int] = (),
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
        depth: ``tokens`` stops at the merged image tokens and deepstack levels; ``pixels`` goes on through the
            vision tower, see :attr:`Relevance.pixel_grids`. All else is the same. Not for ``gradient``.
        vision_rule: of the linear layers of the vision tower, for LRP to the pixels: ``epsilon`` is that of the
            decoder, gradient × input; ``gamma`` prefers what agrees with the sign of a layer's output.
        gamma: by how much more that counts, one number for all layers, or by layer type, ``linear`` and ``conv``.
        without_sinks: drop the relevance that would flow to the first token through the decoder's attention
            (LRP only). What is left to it is its own way past attention: none, unless the target is the very
            next token. ``settings`` tell what was dropped: ``sinks_dropped``, in the target's units, and
            ``sinks_dropped_share``, as a share of its value (CP-LRP without biases falls short by just that); and
            ``sink_positions``.
        sink_positions: more positions to treat so, as indices in the sequence.

    Raises:
        UnsupportedModelError: unknown family, quantised weights, or a module without a rule.
        AlreadyPatchedError: the model is inside an LRP block already.
        MissingGradientError: the embeddings, image features, a deepstack level or the pixels got no gradient.
        ValueError: inputs or targets that do not fit each other or the model, or options that do not fit the method.
    """
    check_options(
        method,
        depth=depth,
        vision_rule=vision_rule,
        gamma=gamma,
        without_sinks=without_sinks,
        sink_positions=sink_positions,
    )
    gammas = gamma_by_layer(gamma)
    reduce = gradient_norm if method == "gradient" else gradient_x_input
    with borrow(model, inputs, targets, gradients=True) as (family, batch), SCOPES[method](model), ExitStack() as stack:
        sinks = tower = None
        if without_sinks:
            places = _sink_positions(batch, sink_positions)
            sinks = stack.enter_context(sinks_dropped(family.attentions(model), places))
        if depth == "pixels" and batch.has_image and family.vision is not None:
            tower = stack.enter_context(through_tower(model, family.vision, batch, vision_rule, gammas))
        with leaves_of(model, family, cut_image=tower is None) as leaves:
            logits = forward_logits(model, batch if tower is None else tower.batch)
        tensors = leaves.checked(has_image=batch.has_image)
        deeper = {} if tower is None else tower.tensors
        results = []
        for index, target in enumerate(targets):
            found, value = resolved_score(target, logits, batch)
            gradients = differentiate(found, value, tensors | deeper, last=index == len(targets) - 1)
            rows = [reduce(*pair) for pair in zip(tensors.values(), gradients, strict=False)]
            settings = {} if tower is None else dict(tower.settings)
            settings |= {} if sinks is None else sinks.settings(float(value.detach()))
            pixels: PixelFields = {} if tower is None else tower.fields(gradients[len(rows) :])
            results.append(placed(batch, found, float(value.detach()), rows, settings=settings, **pixels))
        return results


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


def check_options(
    method: GradientMethod,
    *,
    depth: Depth = "tokens",
    vision_rule: VisionRule = "epsilon",
    gamma: float | Gammas = 0.25,
    without_sinks: bool = False,
    sink_positions: Sequence[int] = (),
) -> None:
    """Refuse a method or options of :func:`relevance` that are unknown, or that do not fit each other.

    Raises:
        ValueError: the message says what fits.
    """
    check_method(method)
    gamma_by_layer(gamma)
    for name, value, known in (("depth", depth, Depth), ("vision_rule", vision_rule, VisionRule)):
        if value not in get_args(known):
            raise ValueError(f"{name} must be one of {', '.join(get_args(known))}, not {value!r}")
    if depth == "pixels" and method == "gradient":
        raise ValueError("the length of a gradient cannot be added over pixels; use gradient_x_input or an LRP method")
    if vision_rule == "gamma" and (depth != "pixels" or method not in ATTENTION_NAMES):
        raise ValueError(
            "vision_rule='gamma' is a rule of LRP to the pixels; use it with depth='pixels' and an LRP method"
        )
    if without_sinks and method not in ATTENTION_NAMES:
        raise ValueError(f"without_sinks is for LRP methods, not {method}")
    if sink_positions and not without_sinks:
        raise ValueError("sink_positions are for without_sinks=True")


def _sink_positions(batch: Batch, more: Sequence[int]) -> tuple[int, ...]:
    """The first token that is not padding, and ``more``, ascending; ValueError for one that no target can read."""
    mask = batch.inputs["attention_mask"][0]
    outside = [position for position in more if not 0 <= position < len(mask)]
    if outside:
        raise ValueError(f"sink_positions {outside} are not among the {len(mask)} tokens before the last target")
    return tuple(sorted({int(mask.long().argmax()), *more}))


def target_values(model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target]) -> list[float]:
    """The values that :func:`relevance` differentiates, by one plain forward without gradients.

    Raises:
        UnsupportedModelError, ValueError: as :func:`relevance`.
    """
    with borrow(model, inputs, targets, gradients=False) as (_, batch):
        logits = forward_logits(model, batch)
        return [float(target_score(target, logits, batch.predicted)) for target in targets]


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
def leaves_of(model: nn.Module, family: Family, *, cut_image: bool = True) -> Iterator[Leaves]:
    """Within the block, embeddings and image features come out of their modules as leaves of the graph.

    Args:
        cut_image: ``False`` leaves the image features in the graph that made them.
    """
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
        if not cut_image:
            leaves.image = vision.features(output)
            return output
        leaves.image = tuple(map(_leaf, vision.features(output)))
        # The model goes on to rearrange the output in place.
        leaves.image_output = copy.copy(output)
        return vision.with_features(output, leaves.image)

    with ExitStack() as stack:
        embeddings: nn.Module = input_embeddings(model)
        stack.callback(embeddings.register_forward_hook(take_embeddings).remove)
        if vision is not None:
            stack.callback(model.get_submodule(vision.source).register_forward_hook(take_image).remove)
        yield leaves


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(torch.is_grad_enabled())


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
        refuse_zeros(name, gradient, target)
    return gradients


def refuse_zeros(name: str, gradient: Tensor | None, target: Target) -> None:
    """Refuse a gradient that is missing or zero everywhere, which is not the same as no influence.

    Raises:
        MissingGradientError: names the tensor and the target.
    """
    if gradient is None or not bool(gradient.any()):
        raise MissingGradientError(
            f"the {name} got {'no gradient' if gradient is None else 'a gradient of zeros only'} for target "
            f"{target.name!r}, so nothing can be said of their influence; check that no layer runs without "
            "gradients and that the dtype is wide enough"
        )


def placed(
    batch: Batch,
    target: Target,
    value: float,
    rows: Sequence[NDArray[Any]],
    *,
    baseline_value: float = 0.0,
    settings: Mapping[str, object] | None = None,
    pixel_grids: tuple[Floats, ...] = (),
    positions: float = 0.0,
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
        pixel_grids=pixel_grids,
        positions=positions,
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

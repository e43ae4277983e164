"""Scores inputs with words and picture cells replaced: in batches, behind the cached prefix that they share."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer

from xai.attribution.families import Family, input_embeddings
from xai.attribution.inputs import SEQUENCE_INPUTS, Batch, borrow
from xai.attribution.patching import refuse_patched, replace_forward
from xai.attribution.relevance import Floats, Leaves, forward_logits, leaves_of, resolved_score
from xai.attribution.targets import Target, target_score

Baseline = Literal["mean", "zero"] | int
"""What stands in for a token: the mean of the embedding matrix, zeros, or the token with this id.

A cell of the picture, with all its deepstack levels, is replaced by the mean over the cells of its picture, and by
zeros where the baseline is ``"zero"``.
"""
WordChange = Literal["replace", "delete", "mask"]
"""What is done to the tokens of a variant: the baseline replaces them; they are deleted, so that what follows moves up,
the target's positions too; or they keep their place and nothing attends to them.
"""
Reading = Callable[[Tensor], Tensor]
"""What is read off logits at the kept positions, ``(batch, n_kept, vocab) -> (batch, n_values)``."""


@dataclass(frozen=True)
class Variant:
    """An input with a part changed, by default replaced by the baseline.

    Attributes:
        tokens: indices in the sequence; not of image placeholders.
        cells: indices among the merged image tokens, in the model's order.
    """

    tokens: frozenset[int] = frozenset()
    cells: frozenset[int] = frozenset()

    def __or__(self, other: Variant) -> Variant:
        return Variant(self.tokens | other.tokens, self.cells | other.cells)


def score_variants(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    variants: Sequence[Variant],
    targets: Sequence[Target],
    *,
    batch_size: int = 16,
    baseline: Baseline = "mean",
    reuse_prefix: bool = True,
    words: WordChange = "replace",
    pixels: Tensor | None = None,
) -> Floats:
    """The value of every target on every variant, ``(n_variants, n_targets)``.

    The vision tower runs once. What precedes the first change runs once too and stays in a key-value cache;
    variants that change the picture and variants that change only what follows it have a prefix each. Models
    for which that is not exact (sliding windows, or attention both ways inside a picture) run whole forwards.

    Args:
        targets: a contrastive target is scored against the alternative that is strongest on the unchanged input.
        reuse_prefix: ``False`` runs whole forwards; the values are the same up to rounding.
        words: what is done to the tokens of a variant.
        pixels: another picture in the shape of ``pixel_values``. The cells of a variant show its pixels, and the
            vision tower runs anew. By default it does not, and the cells' features are replaced by the baseline.

    Raises:
        UnsupportedModelError: unknown family or unusable weights.
        ValueError: inputs, targets or variants that do not fit each other or the model.
    """
    with open_model(model, inputs, targets, gradients=False) as opened:
        scorer = VariantScorer(
            opened,
            variants,
            batch_size=batch_size,
            baseline=baseline,
            reuse_prefix=reuse_prefix,
            words=words,
            pixels=pixels,
        )
        return scorer(variants)


@contextmanager
def open_model(
    model: nn.Module, inputs: Mapping[str, Tensor], targets: Sequence[Target], *, gradients: bool
) -> Iterator[OpenModel]:
    """Within the block the model runs from embeddings and image features that are put in from outside.

    Raises:
        AlreadyPatchedError: the model is inside an LRP block, or its vision tower has a forward of its own.
        UnsupportedModelError, MissingGradientError, ValueError: as :func:`xai.attribution.relevance.relevance`.
    """
    with ExitStack() as stack:
        family, batch = stack.enter_context(borrow(model, inputs, targets, gradients=gradients))
        refuse_patched(model)
        with torch.no_grad(), leaves_of(model, family) as leaves:
            logits, cache = _first_forward(model, batch, with_cache=not gradients)
        leaves.checked(has_image=batch.has_image)
        opened = OpenModel(model, family, batch, leaves, logits, targets, cache)
        stack.enter_context(opened.installed())
        yield opened


def _first_forward(model: nn.Module, batch: Batch, *, with_cache: bool) -> tuple[Tensor, Any | None]:
    """Logits at the kept positions, ``(n_kept, vocab)``, and the key-value cache that the forward leaves behind."""
    if not with_cache:
        return forward_logits(model, batch), None
    output = model(**batch.inputs, use_cache=True, logits_to_keep=batch.kept)
    return output.logits[0], output[_cache_name(model)]


def _cache_name(model: nn.Module) -> str:
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class OpenModel:
    """A borrowed model that runs from given embeddings and image features; see :func:`open_model`.

    Attributes:
        targets: the targets, contrastive ones with the one alternative that is strongest on the input as it is.
        values: the value of each target on the input as it is.
        embeddings: ``(1, seq, hidden)`` embeddings that the model reads.
        levels: ``(1, n_image_tokens, hidden)`` merged image features and every deepstack level.
    """

    def __init__(
        self,
        model: nn.Module,
        family: Family,
        batch: Batch,
        leaves: Leaves,
        logits: Tensor,
        targets: Sequence[Target],
        cache: Any | None = None,
    ) -> None:
        self.model, self.family, self.batch = model, family, batch
        self._cache = cache
        scored = [resolved_score(target, logits, batch) for target in targets]
        self.targets = [target for target, _ in scored]
        self.values = [float(value) for _, value in scored]
        assert leaves.embeddings is not None
        self.embeddings = leaves.embeddings.detach()
        self.levels = tuple(level.detach().reshape(1, -1, level.shape[-1]) for level in leaves.image)
        self._image_output = leaves.image_output
        self._image_shape = leaves.image[0].shape[1:] if leaves.image else torch.Size()
        self._given: tuple[Tensor, Sequence[Tensor]] | None = None
        self._owner = threading.get_ident()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Embeddings, then image levels, each with a leading axis of 1."""
        return (self.embeddings, *self.levels)

    def scores(self, embeddings: Tensor, *levels: Tensor) -> Tensor:
        """Values of the targets, ``(batch, n_targets)``, from ``(batch, seq, hidden)`` and image levels alike."""
        return self.values_of(self.run(embeddings, levels))

    def cached(self, start: int) -> Any | None:
        """The key-value cache of the first ``start`` tokens, or ``None`` where going on from one is not exact.

        It is cut from that of the forward that opened the model; opened for gradients, there is none.
        """
        if self.positions is None or self._cache is None:
            return None
        if not all(type(layer) is DynamicLayer for layer in self._cache.layers):
            return None
        cache = copy.deepcopy(self._cache)
        cache.crop(start - self.embeddings.shape[1])
        return cache

    def run(
        self,
        embeddings: Tensor,
        levels: Sequence[Tensor],
        *,
        start: int = 0,
        cache: Any = None,
        hidden: Tensor | None = None,
        moved_up: bool = False,
    ) -> Tensor:
        """Logits at the kept positions, ``(batch, n_kept, vocab)``.

        Args:
            embeddings: of the tokens from ``start`` on.
            cache: of the tokens before; it stays as it is.
            hidden: ``(batch, start + seq)``, true at tokens that nothing is to attend to.
            moved_up: what follows hidden tokens gets the positions that it would have without them.
        """
        more: dict[str, Any] = {}
        if cache is not None:
            own = copy.deepcopy(cache)
            own.batch_repeat_interleave(len(embeddings))
            more = {_cache_name(self.model): own, "use_cache": True}
        logits: Tensor = self._call(embeddings, levels, start, hidden, moved_up, **more).logits
        return logits

    def levels_of(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        """:attr:`levels` of other pictures of the same grids, ``(batch, rows, …) -> (batch, n_tokens, hidden)``."""
        n = len(pixel_values)
        grids = {name: self.batch.inputs[name].repeat(n, 1) for name in self._grid_inputs}
        model: Any = self.model
        with torch.no_grad(), leaves_of(model, self.family) as leaves:
            model.get_image_features(pixel_values.flatten(0, 1), **grids)
        return tuple(level.detach().reshape(n, -1, level.shape[-1]) for level in leaves.image)

    def values_of(self, logits: Tensor) -> Tensor:
        """Values of the targets, ``(batch, n_targets)``, from logits at the kept positions."""
        return torch.stack([target_score(one, logits, self.batch.predicted) for one in self.targets], dim=-1)

    @property
    def moves_exactly(self) -> bool:
        """Whether a token that nothing attends to, with what follows it moved up, is as good as deleted."""
        config: Any = self.model.config
        kinds = getattr(config.get_text_config(), "layer_types", None) or ()
        return self.positions is not None and "sliding_attention" not in kinds

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Within the block embeddings and image features are those that were put in."""
        vision = self.family.vision
        with ExitStack() as stack:
            embeddings: nn.Module = input_embeddings(self.model)
            stack.callback(embeddings.register_forward_hook(self._put_embeddings).remove)
            if vision is not None and self.levels:
                source = self.model.get_submodule(vision.source)
                replace_forward(vision.source, source, self._image_forward(source), stack)
            yield

    def _put_embeddings(self, _module: nn.Module, _args: object, output: Tensor) -> Tensor:
        if self._given is None or threading.get_ident() != self._owner:
            return output
        return self._given[0]

    def _image_forward(self, source: nn.Module) -> Any:
        """Stands in for the forward of the module that makes image features, which need not run again."""
        vision = self.family.vision
        assert vision is not None

        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._given is None or threading.get_ident() != self._owner:
                return type(source).forward(source, *args, **kwargs)
            features = [level.reshape(-1, *self._image_shape) for level in self._given[1]]
            return vision.with_features(copy.copy(self._image_output), features)

        return forward

    def _call(
        self,
        embeddings: Tensor,
        levels: Sequence[Tensor],
        start: int,
        hidden: Tensor | None,
        moved_up: bool,
        **options: Any,
    ) -> Any:
        given, n = self.batch.inputs, len(embeddings)
        stop = start + embeddings.shape[1]
        arguments: dict[str, Any] = {name: given[name][:, start:stop].expand(n, -1) for name in given if _is_long(name)}
        mask = given["attention_mask"][:, :stop].expand(n, -1)
        arguments["attention_mask"] = mask if hidden is None else mask.masked_fill(hidden, 0)
        if levels:
            # One picture for all: nothing reads the pixels, but their grid has to be there once a row.
            arguments["pixel_values"] = given["pixel_values"]
            arguments |= {name: given[name].repeat(n, 1) for name in self._grid_inputs}
        if self.positions is not None and (options or hidden is not None):
            rows = self.positions[..., start:stop]
            rows = rows.expand(*rows.shape[:-2], n, -1)
            if hidden is not None and moved_up:
                rows = rows - hidden.cumsum(dim=1)[:, start:]
            arguments["position_ids"] = rows
        kept = self.batch.kept - start
        arguments["logits_to_keep"] = kept if stop > int(self.batch.kept[-1]) else 1
        self._given = (embeddings, levels)
        try:
            return self.model(**arguments, **({"use_cache": False} | options))
        finally:
            self._given = None

    @property
    def _grid_inputs(self) -> list[str]:
        return [name for name in ("image_grid_thw",) if name in self.batch.inputs]

    @cached_property
    def positions(self) -> Tensor | None:
        """Position ids of the whole sequence, ``(..., 1, seq)``, or ``None`` where they cannot be told from outside.

        Without a picture they are plain; with one, the plain ones (for the mask) go before the 3-D ones.
        """
        given = self.batch.inputs
        ids = given["input_ids"]
        plain = torch.arange(ids.shape[1], device=ids.device)[None]
        if not self.batch.has_image:
            return plain
        rope_index = getattr(self.model.model, "get_rope_index", None)
        if rope_index is None:
            return None
        names = ("mm_token_type_ids", "image_grid_thw", "attention_mask")
        three, _ = rope_index(ids, **{name: given[name] for name in names})
        return torch.cat([plain[None], three])


def _is_long(name: str) -> bool:
    return name in SEQUENCE_INPUTS and name != "attention_mask"


class VariantScorer:
    """Scores variants on an open model; prefixes are kept from one call to the next.

    Args:
        changes: variants that together change all that any variant will change.
        words, pixels: as for :func:`score_variants`.
        read: what to read off the logits; the values of the model's targets by default.

    Attributes:
        n_forwards: how many sequences were run so far.

    Raises:
        ValueError: a variant names tokens or cells that are not there, or cannot be changed in this way.
    """

    def __init__(
        self,
        opened: OpenModel,
        changes: Sequence[Variant],
        *,
        batch_size: int = 16,
        baseline: Baseline = "mean",
        reuse_prefix: bool = True,
        words: WordChange = "replace",
        pixels: Tensor | None = None,
        read: Reading | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
        self.opened, self.batch_size, self.n_forwards = opened, batch_size, 0
        self._words, self._read = words, read or opened.values_of
        self._check_ways(words, pixels)
        self._pixels = None if pixels is None else pixels.to(opened.batch.inputs["pixel_values"])
        self._baselines = baselines(opened, baseline)
        self._check(changes)
        first = [self._first_change(variant) for variant in changes] if reuse_prefix else []
        after_image = max([-1, *opened.batch.image_positions.tolist()])
        parts = [[place for place in first if (place > after_image) is late] for late in (False, True)]
        self._caches = {start: opened.cached(start) for start in {min(part) for part in parts if part} if start > 0}

    def __call__(self, variants: Sequence[Variant]) -> Floats:
        """What is read off each variant, ``(n_variants, n_values)``; by default the values of the targets."""
        self._check(variants)
        found: dict[int, Floats] = {}
        by_start: dict[int, list[int]] = {}
        for index, variant in enumerate(variants):
            by_start.setdefault(self._start(variant), []).append(index)
        for start, indices in by_start.items():
            for low in range(0, len(indices), self.batch_size):
                chunk = indices[low : low + self.batch_size]
                found |= dict(zip(chunk, self._score(start, [variants[index] for index in chunk]), strict=True))
        self.n_forwards += len(variants)
        if not variants:
            return np.zeros((0, len(self.opened.targets)))
        return np.stack([found[index] for index in range(len(variants))])

    def _score(self, start: int, variants: Sequence[Variant]) -> Floats:
        opened = self.opened
        tokens = _mask([variant.tokens for variant in variants], opened.embeddings)
        embeddings = opened.embeddings.expand(len(variants), -1, -1)
        if self._words == "replace":
            embeddings = torch.where(tokens[..., None], self._baselines[0], embeddings)
        inside = start <= min(opened.batch.image_positions, default=-1)
        logits = opened.run(
            embeddings[:, start:],
            self._levels(variants) if inside else (),
            start=start,
            cache=self._caches[start] if start else None,
            hidden=None if self._words == "replace" else tokens,
            moved_up=self._words == "delete",
        )
        values: Floats = self._read(logits).double().cpu().numpy()
        return values

    def _levels(self, variants: Sequence[Variant]) -> tuple[Tensor, ...]:
        """The image levels of each variant, ``(n_variants, n_image_tokens, hidden)``."""
        cells = _mask([variant.cells for variant in variants], self.opened.levels[0])
        if self._pixels is None:
            pairs = zip(self._baselines[1:], self.opened.levels, strict=True)
            return tuple(torch.where(cells[..., None], stand_in, level) for stand_in, level in pairs)
        if not cells.any():
            return tuple(level.expand(len(variants), -1, -1) for level in self.opened.levels)
        return self.opened.levels_of(self._pictures(cells))

    def _pictures(self, cells: Tensor) -> Tensor:
        """``pixel_values`` with other pixels in ``cells`` ``(batch, n_image_tokens)``; ``(batch, rows, …)``."""
        assert self._pixels is not None
        given, batch, vision = self.opened.batch.inputs["pixel_values"], self.opened.batch, self.opened.family.vision
        if vision is not None and vision.merge_blocks:
            chosen = cells.repeat_interleave(batch.merge_size**2, dim=1)[..., None]
        else:
            chosen = _pixels_of_cells(cells, batch, given)
        return torch.where(chosen, self._pixels, given)

    def _check_ways(self, words: WordChange, pixels: Tensor | None) -> None:
        if words not in get_args(WordChange):
            raise ValueError(f"words must be one of {', '.join(get_args(WordChange))}, not {words!r}")
        if words == "delete" and not self.opened.moves_exactly:
            raise ValueError(
                "words cannot be deleted exactly where attention has a window or positions are the model's own; "
                "use words='replace' or words='mask'"
            )
        own = self.opened.batch.inputs.get("pixel_values")
        if pixels is not None and (own is None or own.shape != pixels.shape):
            raise ValueError(
                f"pixels have shape {tuple(pixels.shape)} and the input's pixel_values "
                f"{None if own is None else tuple(own.shape)}; encode a picture of the same size"
            )

    def _start(self, variant: Variant) -> int:
        """Length of the longest usable prefix that the variant leaves unchanged."""
        usable = [start for start, cache in self._caches.items() if cache is not None]
        return max((start for start in usable if start <= self._first_change(variant)), default=0)

    def _first_change(self, variant: Variant) -> int:
        """Where the part to run anew begins: at the first change, but never inside the picture or past a target."""
        batch = self.opened.batch
        positions = batch.image_positions
        place = min([int(batch.kept[0]), *variant.tokens, *(int(positions[cell]) for cell in variant.cells)])
        if len(positions) and positions[0] <= place <= positions[-1]:
            return int(positions[0])
        return place

    def _check(self, variants: Sequence[Variant]) -> None:
        tokens = frozenset[int]().union(*(variant.tokens for variant in variants))
        cells = frozenset[int]().union(*(variant.cells for variant in variants))
        length = self.opened.embeddings.shape[1]
        outside = sorted(index for index in tokens if not 0 <= index < length)
        if outside:
            raise ValueError(f"tokens {outside} cannot be replaced: only {length} tokens precede the last target")
        pictured = sorted(tokens & set(self.opened.batch.image_positions.tolist()))
        if pictured:
            raise ValueError(f"tokens {pictured} are image placeholders; replace cells of the picture instead")
        first = int(self.opened.batch.inputs["attention_mask"][0].long().argmax())
        if self._words != "replace" and first in tokens:
            raise ValueError(f"token {first} is the first of all and cannot be taken away; replace it instead")
        n_cells = len(self.opened.batch.image_positions)
        if any(not 0 <= cell < n_cells for cell in cells):
            raise ValueError(f"cells {sorted(cells)} are not all among the {n_cells} cells of the picture")


def baselines(opened: OpenModel, baseline: Baseline) -> tuple[Tensor, ...]:
    """What stands in for :attr:`OpenModel.tensors`, each of the same shape.

    Raises:
        ValueError: a baseline that is unknown, or a token that the model does not have.
    """
    module = input_embeddings(opened.model)
    weight: Tensor = module.weight
    if baseline not in ("mean", "zero") and not (isinstance(baseline, int) and 0 <= baseline < len(weight)):
        raise ValueError(f"baseline must be 'mean', 'zero' or a token id below {len(weight)}, not {baseline!r}")
    if baseline == "zero":
        return tuple(map(torch.zeros_like, opened.tensors))
    if baseline == "mean":
        # Some embedding modules scale what they look up.
        token = weight.mean(dim=0) * getattr(module, "embed_scale", 1.0)
    else:
        token = module(torch.tensor(baseline, device=weight.device))
    tokens = token.detach().to(opened.embeddings.dtype).expand_as(opened.embeddings)
    return (tokens, *(_picture_mean(opened.batch, level) for level in opened.levels))


def _picture_mean(batch: Batch, level: Tensor) -> Tensor:
    """Every cell as the mean over its picture, ``(1, n_image_tokens, hidden)``."""
    sizes = [t * h * w // batch.merge_size**2 for t, h, w in batch.grid_thw]
    return torch.cat(
        [part.mean(dim=1, keepdim=True).expand_as(part) for part in torch.split(level, sizes, dim=1)], dim=1
    )


def _mask(chosen: Sequence[frozenset[int]], like: Tensor) -> Tensor:
    """``(len(chosen), like.shape[1])``, true at the chosen places of each row."""
    mask = torch.zeros(len(chosen), like.shape[1], dtype=torch.bool)
    for row, places in enumerate(chosen):
        mask[row, sorted(places)] = True
    return mask.to(like.device)


def _pixels_of_cells(cells: Tensor, batch: Batch, pixel_values: Tensor) -> Tensor:
    """``cells`` ``(batch, n_image_tokens)`` as a mask over ``pixel_values`` ``(n_images, channels, height, width)``."""
    _, rows, columns = batch.grid_thw[0]
    height, width = pixel_values.shape[-2:]
    grid = cells.reshape(len(cells), -1, 1, rows // batch.merge_size, columns // batch.merge_size)
    side_h, side_w = height // grid.shape[-2], width // grid.shape[-1]
    return grid.repeat_interleave(side_h, dim=-2).repeat_interleave(side_w, dim=-1)

"""Scores inputs with words and picture cells replaced: in batches, behind the cached prefix that they share."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer

from xai.attribution.families import Family
from xai.attribution.inputs import SEQUENCE_INPUTS, Batch, borrow
from xai.attribution.patching import refuse_patched, replace_forward
from xai.attribution.relevance import Floats, Leaves, forward_logits, leaves_of, resolved_score
from xai.attribution.targets import Target, target_score

Baseline = Literal["mean", "zero"] | int
"""What stands in for a token: the mean of the embedding matrix, zeros, or the token with this id.

A cell of the picture, with all its deepstack levels, is replaced by the mean over the cells of its picture, and by
zeros where the baseline is ``"zero"``.
"""


@dataclass(frozen=True)
class Variant:
    """An input with a part replaced by the baseline.

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
) -> Floats:
    """The value of every target on every variant, ``(n_variants, n_targets)``.

    The vision tower runs once. What precedes the first change runs once too and stays in a key-value cache;
    variants that change the picture and variants that change only what follows it have a prefix each. Models
    for which that is not exact (sliding windows, or attention both ways inside a picture) run whole forwards.

    Args:
        targets: a contrastive target is scored against the alternative that is strongest on the unchanged input.
        reuse_prefix: ``False`` runs whole forwards; the values are the same up to rounding.

    Raises:
        UnsupportedModelError: unknown family or unusable weights.
        ValueError: inputs, targets or variants that do not fit each other or the model.
    """
    with open_model(model, inputs, targets, gradients=False) as opened:
        scorer = VariantScorer(opened, variants, batch_size=batch_size, baseline=baseline, reuse_prefix=reuse_prefix)
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
            logits = forward_logits(model, batch)
        leaves.checked(has_image=batch.has_image)
        opened = OpenModel(model, family, batch, leaves, logits, targets)
        stack.enter_context(opened.installed())
        yield opened


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
    ) -> None:
        self.model, self.family, self.batch = model, family, batch
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
        return self._scored(self.run(embeddings, levels))

    def scores_behind(self, start: int, cache: Any, embeddings: Tensor, *levels: Tensor) -> Tensor:
        """As :meth:`scores`, of a sequence whose first ``start`` tokens are in ``cache``, which stays as it is."""
        own = copy.deepcopy(cache)
        own.batch_repeat_interleave(len(embeddings))
        return self._scored(self.run(embeddings, levels, start=start, cache=own))

    def cached(self, start: int) -> Any | None:
        """The key-value cache of the first ``start`` tokens, or ``None`` where going on from one is not exact."""
        positions = self._positions()
        if positions is None:
            return None
        inside = bool(self.levels) and start > self.batch.image_positions[-1]
        output = self._call(self.embeddings[:, :start], self.levels if inside else (), 0, use_cache=True)
        cache = output[self._cache_name]
        return cache if all(type(layer) is DynamicLayer for layer in cache.layers) else None

    def run(self, embeddings: Tensor, levels: Sequence[Tensor], *, start: int = 0, cache: Any = None) -> Tensor:
        """Logits at the kept positions, ``(batch, n_kept, vocab)``."""
        more = {} if cache is None else {self._cache_name: cache, "use_cache": True}
        logits: Tensor = self._call(embeddings, levels, start, **more).logits
        return logits

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Within the block embeddings and image features are those that were put in."""
        vision = self.family.vision
        with ExitStack() as stack:
            embeddings: nn.Module = self.model.get_input_embeddings()  # type: ignore[operator]
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

    def _call(self, embeddings: Tensor, levels: Sequence[Tensor], start: int, **options: Any) -> Any:
        given, n = self.batch.inputs, len(embeddings)
        stop = start + embeddings.shape[1]
        arguments: dict[str, Any] = {name: given[name][:, start:stop].expand(n, -1) for name in given if _is_long(name)}
        arguments["attention_mask"] = given["attention_mask"][:, :stop].expand(n, -1)
        if levels:
            # One picture for all: nothing reads the pixels, but their grid has to be there once a row.
            arguments["pixel_values"] = given["pixel_values"]
            arguments |= {name: given[name].repeat(n, 1) for name in ("image_grid_thw",) if name in given}
        positions = self._positions() if options else None
        if positions is not None:
            rows = positions[..., start:stop]
            arguments["position_ids"] = rows.expand(*rows.shape[:-2], n, -1)
        kept = self.batch.kept - start
        arguments["logits_to_keep"] = kept if stop > int(self.batch.kept[-1]) else 1
        self._given = (embeddings, levels)
        try:
            return self.model(**arguments, **({"use_cache": False} | options))
        finally:
            self._given = None

    def _positions(self) -> Tensor | None:
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

    def _scored(self, logits: Tensor) -> Tensor:
        return torch.stack([target_score(one, logits, self.batch.predicted) for one in self.targets], dim=-1)

    @property
    def _cache_name(self) -> str:
        return "cache" if "cache" in inspect.signature(self.model.forward).parameters else "past_key_values"


def _is_long(name: str) -> bool:
    return name in SEQUENCE_INPUTS and name != "attention_mask"


class VariantScorer:
    """Scores variants on an open model; prefixes are kept from one call to the next.

    Args:
        changes: variants that together change all that any variant will change.

    Raises:
        ValueError: a variant names tokens or cells that are not there.
    """

    def __init__(
        self,
        opened: OpenModel,
        changes: Sequence[Variant],
        *,
        batch_size: int = 16,
        baseline: Baseline = "mean",
        reuse_prefix: bool = True,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
        self.opened, self.batch_size = opened, batch_size
        self._baselines = baselines(opened, baseline)
        self._check(changes)
        first = [self._first_change(variant) for variant in changes] if reuse_prefix else []
        after_image = max([-1, *opened.batch.image_positions.tolist()])
        parts = [[place for place in first if (place > after_image) is late] for late in (False, True)]
        self._caches = {start: opened.cached(start) for start in {min(part) for part in parts if part} if start > 0}

    def __call__(self, variants: Sequence[Variant]) -> Floats:
        """Values of the targets, ``(n_variants, n_targets)``."""
        self._check(variants)
        values = np.zeros((len(variants), len(self.opened.targets)))
        by_start: dict[int, list[int]] = {}
        for index, variant in enumerate(variants):
            by_start.setdefault(self._start(variant), []).append(index)
        for start, indices in by_start.items():
            for low in range(0, len(indices), self.batch_size):
                chunk = indices[low : low + self.batch_size]
                values[chunk] = self._score(start, [variants[index] for index in chunk])
        return values

    def _score(self, start: int, variants: Sequence[Variant]) -> Floats:
        embeddings, *levels = self.opened.tensors
        tokens = _mask([variant.tokens for variant in variants], embeddings)
        cells = _mask([variant.cells for variant in variants], levels[0]) if levels else tokens
        changed = [
            torch.where(mask[..., None], stand_in, tensor)
            for mask, stand_in, tensor in zip(
                [tokens, *[cells] * len(levels)], self._baselines, self.opened.tensors, strict=True
            )
        ]
        if start == 0:
            scores = self.opened.scores(*changed)
        else:
            inside = changed[1:] if start <= min(self.opened.batch.image_positions, default=-1) else []
            scores = self.opened.scores_behind(start, self._caches[start], changed[0][:, start:], *inside)
        values: Floats = scores.double().cpu().numpy()
        return values

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
        n_cells = len(self.opened.batch.image_positions)
        if any(not 0 <= cell < n_cells for cell in cells):
            raise ValueError(f"cells {sorted(cells)} are not all among the {n_cells} cells of the picture")


def baselines(opened: OpenModel, baseline: Baseline) -> tuple[Tensor, ...]:
    """What stands in for :attr:`OpenModel.tensors`, each of the same shape.

    Raises:
        ValueError: a baseline that is unknown, or a token that the model does not have.
    """
    module: Any = opened.model.get_input_embeddings()  # type: ignore[operator]
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

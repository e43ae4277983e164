"""Lays what the processor flattened out on grids in reading order: merged image tokens, patch rows, whole pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xai.attribution.families import Grid


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


def pixels_to_grid(pixel_relevance: NDArray[Any], patch_size: int) -> NDArray[Any]:
    """Add the pixels of each patch, ``(channels, height, width) -> (height // patch_size, width // patch_size)``.

    Rows and columns past the last whole patch, which no patch reads, are cut off.
    """
    h, w = (size // patch_size for size in pixel_relevance.shape[-2:])
    whole = pixel_relevance[:, : h * patch_size, : w * patch_size]
    grid: NDArray[Any] = whole.reshape(-1, h, patch_size, w, patch_size).sum(axis=(0, 2, 4))
    return grid


def merged_cells(patch_grid: NDArray[Any], merge_size: int) -> NDArray[Any]:
    """Add the patches of each merged image token, ``(..., h, w) -> (..., h // merge_size, w // merge_size)``.

    Raises:
        ValueError: the grid does not consist of whole merged tokens.
    """
    *leading, h, w = patch_grid.shape
    if h % merge_size or w % merge_size:
        raise ValueError(f"a grid of {h} x {w} patches does not consist of cells of {merge_size} x {merge_size}")
    blocks = patch_grid.reshape(*leading, h // merge_size, merge_size, w // merge_size, merge_size)
    cells: NDArray[Any] = blocks.sum(axis=(-3, -1))
    return cells

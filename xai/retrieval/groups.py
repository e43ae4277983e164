"""Pictures in groups of near copies, by the bits in which their difference hashes differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from xai.retrieval.embedders import require_imagehash

DISTANCE = 6
"""Bits in which two pictures of a group may differ."""
_ROWS = 512
"""Hashes that are compared with all others at once."""
_MOST = 20_000
"""Hashes of one component whose distances are held in memory: 1.6 GB."""


def difference_hashes(pictures: Sequence[Image.Image]) -> np.ndarray:
    """The 64-bit difference hashes of pictures (ImageHash's ``dhash``), ``(n,)`` uint64.

    A bit says whether grey rises to the right between two neighbours of 9 × 8 areas.

    Raises:
        RetrievalUnavailableError: ImageHash is not installed.
    """
    require_imagehash()
    from imagehash import dhash

    bits = np.array([dhash(picture).hash.reshape(-1) for picture in pictures], dtype=bool).reshape(-1, 64)
    return np.packbits(bits, axis=1).view(np.uint64).reshape(-1)


def groups_of(hashes: np.ndarray, distance: int = DISTANCE) -> np.ndarray:
    """The group of every hash, ``(n,)``, numbered from 0 in the order of their first members.

    Agglomerative clustering with complete linkage: two groups become one while no two of their members differ in more
    than ``distance`` bits, the closest first. So any two pictures of a group are near copies of each other; single
    linkage would string together pictures of which the outer ones have little in common.

    Hashes that are further apart than ``distance`` never share a group, so that each connected component of the others
    is clustered on its own, and distances between components are not kept.

    Raises:
        ValueError: so many hashes hang together that their distances do not fit into memory.
    """
    unique, member = np.unique(hashes, return_inverse=True)
    _, component = connected_components(_near(unique, distance), directed=False)
    found = np.zeros(len(unique), dtype=np.int64)
    n_groups = 0
    for rows in np.split(np.argsort(component, kind="stable"), np.flatnonzero(np.diff(np.sort(component))) + 1):
        if len(rows):
            found[rows] = n_groups + _clustered(unique[rows], distance)
            n_groups = int(found[rows].max()) + 1
    return _in_order(found[member])


def _near(hashes: np.ndarray, distance: int) -> coo_array:
    """Which hashes differ in at most ``distance`` bits, ``(n, n)``."""
    rows, columns = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(hashes), _ROWS):
        differing = np.bitwise_count(hashes[start : start + _ROWS, None] ^ hashes[None, :])
        row, column = np.nonzero(differing <= distance)
        rows.append(row + start)
        columns.append(column)
    places = (np.concatenate(rows), np.concatenate(columns))
    return coo_array((np.ones(len(places[0]), dtype=bool), places), shape=(len(hashes), len(hashes)))


def _clustered(hashes: np.ndarray, distance: int) -> np.ndarray:
    """Groups of one component, numbered from 0."""
    if len(hashes) == 1:
        return np.zeros(1, dtype=np.int64)
    if len(hashes) > _MOST:
        raise ValueError(f"{len(hashes):,} pictures hang together at a distance of {distance} bits; lower it")
    first, second = np.triu_indices(len(hashes), 1)
    differing = np.bitwise_count(hashes[first] ^ hashes[second]).astype(np.float64)
    groups: np.ndarray = fcluster(linkage(differing, "complete"), distance, criterion="distance")
    return groups.astype(np.int64) - 1


def _in_order(groups: np.ndarray) -> np.ndarray:
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[np.argsort(first)] = np.arange(len(first))
    numbered: np.ndarray = ranks[member]
    return numbered

"""Near copies share a group: worked by hand at the edge, and against scikit-learn."""

from __future__ import annotations

import imagehash
import numpy as np
import pytest
from PIL import Image
from sklearn.cluster import AgglomerativeClustering

from xai.planted.truth import planted_memes
from xai.retrieval.groups import difference_hashes, groups_of


def bits(*places: int) -> int:
    return sum(1 << place for place in places)


def groups(*hashes: int, distance: int = 6) -> list[int]:
    return groups_of(np.array(hashes, dtype=np.uint64), distance).tolist()


def test_six_bits_are_near_and_seven_are_not() -> None:
    assert groups(0, bits(*range(6))) == [0, 0]
    assert groups(0, bits(*range(7))) == [0, 1]


def test_all_of_a_group_are_near_each_other_and_not_only_their_neighbours() -> None:
    """On a line at 0, 3, 7 and 12 bits the steps are 3, 4 and 5: 0 and 3 join, 7 is too far from 0 and joins 12."""
    line = [bits(*range(n)) for n in (0, 3, 7, 12)]
    assert groups(*line) == [0, 0, 1, 1]


def test_a_third_joins_only_if_it_is_near_both() -> None:
    """0 and 1 bits join first; one at 6 bits is 6 and 5 away and joins, one at 7 is 7 away from the first."""
    assert groups(bits(), bits(0), bits(*range(6))) == [0, 0, 0]
    assert groups(bits(), bits(0), bits(*range(7))) == [0, 0, 1]


def test_groups_are_numbered_by_their_first_members_and_equal_hashes_share_one() -> None:
    far = bits(*range(40, 60))
    assert groups(far, 0, far, bits(63), 0) == [0, 1, 0, 1, 1]


def test_no_hash_makes_no_group_and_one_makes_one() -> None:
    assert groups() == []
    assert groups(5) == [0]


def test_a_distance_of_zero_joins_equal_hashes_only() -> None:
    assert groups(0, 1, 0, distance=0) == [0, 1, 0]


@pytest.mark.parametrize("seed", range(5))
def test_the_groups_are_those_of_scikit_learn(seed: int) -> None:
    """Of copies with 2, 5 and 12 bits changed: the first joins, the second if it is near both, the third does not."""
    draw = np.random.default_rng(seed)
    originals = draw.integers(0, 2**64, 30, dtype=np.uint64)
    hashes = []
    for original in originals:
        for n_bits in (0, 2, 5, 12):
            flipped = draw.choice(64, n_bits, replace=False)
            hashes.append(int(original) ^ bits(*flipped.tolist()))
    array = np.array(hashes, dtype=np.uint64)
    differing = np.bitwise_count(array[:, None] ^ array[None, :])
    # A cluster is not merged there at the threshold itself, so that it lies between 6 and 7.
    clustering = AgglomerativeClustering(None, metric="precomputed", linkage="complete", distance_threshold=6.5)
    expected = clustering.fit_predict(differing)
    found = groups_of(array)
    np.testing.assert_array_equal(found[:, None] == found[None, :], expected[:, None] == expected[None, :])
    assert 60 < len(set(found.tolist())) < 90


def test_the_hash_is_the_one_of_imagehash() -> None:
    pictures = [meme.open_image() for meme in planted_memes(5, 7)]
    hashes = difference_hashes(pictures)
    expected = [[imagehash.dhash(one) - imagehash.dhash(other) for one in pictures] for other in pictures]
    np.testing.assert_array_equal(np.bitwise_count(hashes[:, None] ^ hashes[None, :]), expected)


def test_a_bit_is_set_where_grey_rises_to_the_right() -> None:
    """A ramp to the right sets all 64 bits, one to the left none."""
    ramp = Image.fromarray(np.tile(np.arange(0, 252, 28, dtype=np.uint8), (8, 1)))
    rising, falling = difference_hashes([ramp, ramp.transpose(Image.Transpose.FLIP_LEFT_RIGHT)])
    assert (int(rising), int(falling)) == (2**64 - 1, 0)

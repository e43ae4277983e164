"""The index ranks as brute force does, and two rankings become one as by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xai.retrieval import VectorIndex, reciprocal_rank_fusion
from xai.retrieval.embedders import unit_rows


def test_the_ranking_is_that_of_all_inner_products() -> None:
    draw = np.random.default_rng(0)
    vectors, queries = unit_rows(draw.normal(size=(300, 40))), unit_rows(draw.normal(size=(7, 40)))
    products = queries.astype(np.float64) @ vectors.astype(np.float64).T
    for ranking, row in zip(VectorIndex(vectors).rankings(queries), products, strict=True):
        np.testing.assert_array_equal(ranking.rows, np.argsort(-row.round(6), kind="stable"))
        np.testing.assert_allclose(ranking.similarity, -np.sort(-row), atol=2e-6)


def test_a_query_has_its_ranking_whatever_is_asked_with_it() -> None:
    draw = np.random.default_rng(1)
    vectors, queries = unit_rows(draw.normal(size=(200, 64))), unit_rows(draw.normal(size=(33, 64)))
    index = VectorIndex(vectors)
    together = index.rankings(queries)
    for place, ranking in enumerate(together):
        (alone,) = index.rankings(queries[place : place + 1])
        np.testing.assert_array_equal(ranking.rows, alone.rows)


def test_equal_vectors_come_in_their_order() -> None:
    vectors = unit_rows(np.array([[0, 1], [1, 1], [0, 1], [1, 0], [0, 1], [1, 1]]))
    (ranking,) = VectorIndex(vectors).rankings(unit_rows(np.array([[0, 2]])))
    assert ranking.rows.tolist() == [0, 2, 4, 1, 5, 3]
    assert ranking.similarity == pytest.approx([1, 1, 1, 0.5**0.5, 0.5**0.5, 0], abs=1e-6)


def test_a_vector_of_length_zero_is_in_no_ranking() -> None:
    vectors = unit_rows(np.array([[0.0, 0.0], [-1, 0], [1, 0]]))
    index = VectorIndex(vectors)
    (ranking,) = index.rankings(vectors[2:])
    assert len(index) == 2
    assert ranking.rows.tolist() == [2, 1]


def test_rows_are_scaled_to_length_one_and_none_is_divided_by_zero() -> None:
    rows = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0, 0]], rtol=1e-7)


def test_fusion_by_hand() -> None:
    """Ranks by text a1 b2 c3 d4, by picture c1 d2 b3 a4; with constant 60:

    a: 1/61 + 1/64 = 0.032018; b: 1/62 + 1/63 = 0.032002; c: 1/63 + 1/61 = 0.032266; d: 1/64 + 1/62 = 0.031754.
    """
    a, b, c, d = range(4)
    assert reciprocal_rank_fusion([[a, b, c, d], [c, d, b, a]], 4).tolist() == [c, a, b, d]


def test_the_constant_decides_between_high_ranks_and_middling_ones() -> None:
    """0 is first and fifth, 1 second twice, 3 fourth and first.

    With 60: 1/61 + 1/65 = 0.03178, 2/62 = 0.03226, 1/64 + 1/61 = 0.03202. With 0: 1.2, 1 and 1.25.
    """
    rankings = [[0, 1, 2, 3, 4], [3, 1, 2, 4, 0]]
    assert reciprocal_rank_fusion(rankings, 5).tolist()[:3] == [1, 3, 0]
    assert reciprocal_rank_fusion(rankings, 5, constant=0).tolist()[:3] == [3, 0, 1]


def test_mirrored_ranks_tie_and_keep_the_order_of_the_pool() -> None:
    """0 and 3 are fourth and first, 1 second twice, 2 third twice: 2/62 > 1/61 + 1/64 > 2/63."""
    assert reciprocal_rank_fusion([[3, 1, 2, 0], [0, 1, 2, 3]], 4).tolist() == [1, 0, 3, 2]


def test_an_item_of_one_ranking_gets_nothing_from_the_other_and_one_of_none_is_left_out() -> None:
    """1: 1/61; 0: 1/61 + 1/62; 2: 1/62; 3: nothing."""
    assert reciprocal_rank_fusion([[1, 0], [0, 2]], 4).tolist() == [0, 1, 2]


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(8)))
def test_fusing_one_ranking_leaves_it(ranking: list[int]) -> None:
    assert reciprocal_rank_fusion([ranking], 8).tolist() == ranking

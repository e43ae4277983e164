"""What embeds without a model: by hand, against scikit-learn and ImageHash, and of unit length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import imagehash
import numpy as np
import pytest
from PIL import Image
from sklearn.feature_extraction.text import TfidfVectorizer

from xai.planted.truth import planted_memes
from xai.retrieval import Embedder, embedder, embedder_names, make_embedder
from xai.retrieval.embedders import _EMBEDDERS, Kind


def fitted(texts: Sequence[str]) -> Embedder:
    tfidf = make_embedder("tfidf")
    tfidf.fit(texts)
    return tfidf


def pictures() -> list[Image.Image]:
    return [meme.open_image() for meme in planted_memes(6, 3)]


def test_a_text_is_weighed_as_by_hand() -> None:
    """Padded with spaces, "ab" has the n-grams ␣a, ab, b␣, ␣ab, ab␣, ␣ab␣ and "ac" those with c; only ␣a is shared.

    It has the idf 1 + ln(3 / 3) = 1, every other 1 + ln(3 / 2) = r; the cosine of the two is 1 / (1 + 5 r²).
    """
    one, other = fitted(["ab", "ac"]).texts(["ab", "ac"])
    rare = 1 + math.log(3 / 2)
    assert one @ other == pytest.approx(1 / (1 + 5 * rare**2), abs=1e-6)


def test_weights_are_those_of_scikit_learn() -> None:
    texts = [f"{meme.text.lower()} {number} cats".replace("…", "") for number, meme in enumerate(planted_memes(30, 4))]
    plain = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), max_features=4096, sublinear_tf=True)
    np.testing.assert_allclose(fitted(texts).texts(texts), plain.fit_transform(texts).toarray(), atol=1e-6)


def test_case_and_compatibility_forms_do_not_count() -> None:
    one, other, third = fitted(["straße nr. 5", "boku"]).texts(["STRASSE Nr. ５", "strasse nr. 5", "boku"])
    np.testing.assert_array_equal(one, other)
    assert one @ third == 0


def test_a_text_without_an_n_gram_of_the_pool_has_a_zero_row() -> None:
    assert not fitted(["abc", "abd"]).texts(["zzz", "☺"]).any()


def test_a_pool_of_single_characters_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match="no text of the pool has two characters in a row; choose examples by picture"):
        make_embedder("tfidf").fit([" ", ""])


def test_the_cosine_of_hashes_is_one_less_a_32nd_for_every_bit() -> None:
    shown = pictures()
    rows = make_embedder("phash").pictures(shown)
    differing = np.array([[imagehash.phash(one) - imagehash.phash(other) for one in shown] for other in shown])
    np.testing.assert_allclose(rows @ rows.T, 1 - differing / 32, atol=1e-7)
    assert len(set(differing.ravel().tolist())) > 2


def test_a_thumbnail_is_the_mean_colour_of_each_area_less_the_mean_of_all() -> None:
    """Left half white and right half black: ±127.5 everywhere, so ±1/√768 at length one."""
    half = Image.new("RGB", (64, 32), "white")
    half.paste((0, 0, 0), (32, 0, 64, 32))
    (row,) = make_embedder("thumbnail").pictures([half])
    grid = row.reshape(16, 16, 3)
    np.testing.assert_allclose(grid[:, :8], 768**-0.5, rtol=1e-6)
    np.testing.assert_allclose(grid[:, 8:], -(768**-0.5), rtol=1e-6)


def test_a_picture_of_one_colour_has_no_thumbnail() -> None:
    assert not make_embedder("thumbnail").pictures([Image.new("RGB", (40, 40), "teal")]).any()


@pytest.mark.parametrize("name", ["phash", "thumbnail"])
def test_rows_of_pictures_have_length_one_and_do_not_depend_on_their_company(name: str) -> None:
    shown = pictures()
    rows = make_embedder(name).pictures(shown)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(rows[4:5], make_embedder(name).pictures(shown[4:5]))


def test_what_an_embedder_does_not_read_it_refuses() -> None:
    with pytest.raises(ValueError, match="embedder 'phash' embeds no texts"):
        make_embedder("phash").texts(["a"])
    with pytest.raises(ValueError, match="embedder 'tfidf' embeds no pictures"):
        make_embedder("tfidf").pictures([])


def test_a_registered_class_is_found_by_its_name_and_a_name_is_given_once() -> None:
    class Lengths(Embedder):
        reads: ClassVar[tuple[Kind, ...]] = ("text",)

        def texts(self, texts: Sequence[str]) -> np.ndarray:
            return np.array([[len(text) > 3, len(text) <= 3] for text in texts], dtype=np.float32)

    try:
        embedder("lengths")(Lengths)
        assert make_embedder("lengths").describe() == {"name": "lengths"}
        assert embedder_names()[-1] == "lengths"
        with pytest.raises(ValueError, match="'lengths' is registered already"):
            embedder("lengths")(Lengths)
    finally:
        _EMBEDDERS.pop("lengths", None)

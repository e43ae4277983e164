"""What turns texts and pictures into vectors whose inner product is their similarity, and the registry of such."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from PIL import Image

from xai.registry import Registry

Kind = Literal["text", "picture"]
TEXT_DEFAULT, PICTURE_DEFAULT = "tfidf", "phash"
"""What embeds when nothing else is named: neither needs a model."""
N_GRAMS = 4096
_SIDE = 16


class RetrievalUnavailableError(ValueError):
    """A package that retrieval takes is not installed; the message says which to install."""


class Embedder:
    """Turns texts, pictures, or both into vectors; a subclass has at least one of :meth:`texts`, :meth:`pictures`.

    Rows are float32 and of length 1, so that the inner product of two is the cosine of their angle; a row is zero where
    there is nothing to go by, and has no similarity then. What is embedded must not depend on what else is embedded
    with it.

    Attributes:
        name: under which it is asked for.
        reads: what it embeds.
    """

    name: str
    reads: tuple[Kind, ...]

    def describe(self) -> dict[str, Any]:
        """What a run records of it, in JSON values."""
        return {"name": self.name}

    def fit(self, texts: Sequence[str]) -> None:
        """Learn from the texts of the pool; nothing by default. Called once, before anything is embedded."""

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of texts, ``(n, dim)``.

        Raises:
            ValueError: it embeds no texts.
        """
        raise ValueError(f"embedder {self.name!r} embeds no texts")

    def pictures(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Vectors of upright RGB pictures, ``(n, dim)``.

        Raises:
            ValueError: it embeds no pictures.
        """
        raise ValueError(f"embedder {self.name!r} embeds no pictures")


_EMBEDDERS: Registry[Callable[[], Embedder]] = Registry("an embedder")


def embedder(name: str) -> Callable[[type[Embedder]], type[Embedder]]:
    """Register a class as an embedder; one is made without arguments for every pool.

    Raises:
        ValueError: the name is taken.
    """

    def register(made: type[Embedder]) -> type[Embedder]:
        made.name = name
        _EMBEDDERS.add(name, made)
        return made

    return register


def embedder_names() -> tuple[str, ...]:
    """The registered embedders, in order of registration."""
    return tuple(_EMBEDDERS)


def make_embedder(name: str, *, device: str | None = None, dtype: str | None = None) -> Embedder:
    """The embedder of that name, or else the dual encoder in that folder or of that id of the Hugging Face hub.

    Args:
        device, dtype: of a dual encoder; see :class:`~xai.retrieval.encoders.DualEncoder`.

    Raises:
        ValueError: it is neither, or the model cannot be used.
    """
    if name in _EMBEDDERS:
        return _EMBEDDERS[name]()
    from xai.retrieval.encoders import DualEncoder

    try:
        return DualEncoder(name, device=device, dtype=dtype)
    except ValueError as error:
        raise ValueError(f"{error}; without a model there are the embedders {', '.join(_EMBEDDERS)}") from None


def require_imagehash() -> None:
    """Refuse to go on without ImageHash.

    Raises:
        RetrievalUnavailableError: it is not installed.
    """
    if find_spec("imagehash") is None:
        raise RetrievalUnavailableError("hashes of pictures take a package: pip install 'meme-xai[retrieval]'")


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Rows scaled to length 1 as float32; those of length 0 stay."""
    rows = np.asarray(rows, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: np.ndarray = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return np.ascontiguousarray(scaled, dtype=np.float32)


@embedder(TEXT_DEFAULT)
class TfIdf(Embedder):
    """Texts by their n-grams of 2 to 4 characters within words, weighted by TF-IDF.

    The n-grams are the 4096 most frequent ones of the pool. A count weighs ``1 + ln(count)``, and a rare n-gram more:
    ``1 + ln((1 + n) / (1 + df))`` for one that is in ``df`` of ``n`` texts (scikit-learn's smoothed form). Case and
    compatibility forms do not count. A text without any n-gram of the pool has a zero row.
    """

    reads = ("text",)

    def __init__(self) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectorizer = TfidfVectorizer(
            analyzer="char_wb",
            ngram_range=(2, 4),
            max_features=N_GRAMS,
            sublinear_tf=True,
            preprocessor=_normal_form,
            dtype=np.float32,
        )

    def describe(self) -> dict[str, Any]:
        """With the n-grams and the version of what counts them."""
        return {"name": self.name, "n_grams": [2, 4], "features": N_GRAMS, "scikit-learn": version("scikit-learn")}

    def fit(self, texts: Sequence[str]) -> None:
        """Choose and weight the n-grams.

        Raises:
            ValueError: the texts have none.
        """
        try:
            self._vectorizer.fit(texts)
        except ValueError:
            raise ValueError("no text of the pool has two characters in a row; choose examples by picture") from None

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """``(n, up to 4096)``."""
        return unit_rows(self._vectorizer.transform(texts).toarray())


@embedder(PICTURE_DEFAULT)
class PerceptualHash(Embedder):
    """Pictures by the 64 bits of the DCT hash of ImageHash, as ±1/8: the cosine is ``1 - differing bits / 32``."""

    reads = ("picture",)

    def __init__(self) -> None:
        require_imagehash()

    def describe(self) -> dict[str, Any]:
        """With the version of what hashes."""
        return {"name": self.name, "bits": 64, "ImageHash": version("ImageHash")}

    def pictures(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """``(n, 64)``."""
        from imagehash import phash

        bits = np.array([phash(picture).hash.reshape(-1) for picture in pictures], dtype=bool).reshape(-1, 64)
        return np.where(bits, np.float32(0.125), np.float32(-0.125))


@embedder("thumbnail")
class Thumbnail(Embedder):
    """Pictures by the colours of 16 × 16 areas, less the picture's mean colour ("tiny images", Torralba et al. 2008).

    What is written on a picture changes few of the areas, so that captions disturb it less than a hash. A picture of
    one colour has a zero row.
    """

    reads = ("picture",)

    def describe(self) -> dict[str, Any]:
        """With its size."""
        return {"name": self.name, "side": _SIDE}

    def pictures(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """``(n, 768)``."""
        small = [picture.resize((_SIDE, _SIDE), Image.Resampling.BOX) for picture in pictures]
        colours = np.array([np.asarray(one, dtype=np.float64) for one in small]).reshape(-1, _SIDE * _SIDE, 3)
        return unit_rows((colours - colours.mean(axis=1, keepdims=True)).reshape(-1, _SIDE * _SIDE * 3))


def _normal_form(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()

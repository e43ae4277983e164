"""EasyOCR, the engine of the published studies: used where the user has it and its weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from xai.attribution.ocr.engine import Piece, as_confidence, ocr_engine, package_version, require_languages
from xai.attribution.ocr.geometry import checked

# Our languages, its own codes, and the weights that read them.
_CODES = {"en": "en", "uk": "uk", "ar": "ar", "zh-Hans": "ch_sim"}
_WEIGHTS = {"en": "english_g2.pth", "uk": "cyrillic_g2.pth", "ar": "arabic.pth", "zh-Hans": "zh_sim_g2.pth"}
_DETECTOR = "craft_mlt_25k.pth"


@ocr_engine("easyocr")
class EasyOcr:
    """Lines or parts of them; never downloads weights."""

    name = "easyocr"

    def __init__(self) -> None:
        self._readers: dict[tuple[str, ...], Any] = {}

    @property
    def version(self) -> str:
        """Of the package."""
        return package_version("easyocr")

    def languages(self) -> tuple[str, ...]:
        """Those whose weights lie in EasyOCR's folder, together with the detector's."""
        folder = self._folder()
        if find_spec("easyocr") is None or not (folder / _DETECTOR).is_file():
            return ()
        return tuple(one for one, name in _WEIGHTS.items() if (folder / name).is_file())

    def read(self, picture: Image.Image, languages: Sequence[str]) -> list[Piece]:
        """Pieces are EasyOCR's boxes, from the letters' top left on; their text is in logical order."""
        remedy = "pip install easyocr and put its weights into ~/.EasyOCR/model, or take tesseract"
        require_languages(self, languages, remedy)
        try:
            found = self._reader(languages).readtext(np.asarray(picture.convert("RGB")))
        except (RuntimeError, FileNotFoundError) as error:
            raise ValueError(f"easyocr failed: {error}") from None
        return [Piece(text, checked(box), as_confidence(score)) for box, text, score in found]

    def _reader(self, languages: Sequence[str]) -> Any:
        codes = tuple(_CODES[one] for one in languages)
        if codes not in self._readers:
            import easyocr

            self._readers[codes] = easyocr.Reader(list(codes), gpu=False, download_enabled=False, verbose=False)
        return self._readers[codes]

    @staticmethod
    def _folder() -> Path:
        """Where EasyOCR looks for weights."""
        top = os.environ.get("EASYOCR_MODULE_PATH") or os.environ.get("MODULE_PATH") or Path.home() / ".EasyOCR"
        return Path(top) / "model"

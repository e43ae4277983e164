"""Tesseract, by its command: many scripts, words with confidence; white lettering is taken out of the photo first."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np
from PIL import Image, ImageOps

from xai.attribution.ocr.engine import Piece, Polygon, apt_line, as_confidence, ocr_engine, require_languages
from xai.attribution.ocr.geometry import bounding_box, covered

_CODES = {
    "en": "eng",
    "uk": "ukr",
    "ar": "ara",
    "zh-Hans": "chi_sim",
    "zh-Hant": "chi_tra",
    "ja": "jpn",
    "ko": "kor",
    "he": "heb",
    "fa": "fas",
    "hi": "hin",
    "ru": "rus",
    "be": "bel",
    "bg": "bul",
    "pl": "pol",
    "de": "deu",
    "fr": "fra",
    "es": "spa",
    "it": "ita",
    "pt": "por",
    "nl": "nld",
    "tr": "tur",
}
PAGE_MODE = 11
"""Sparse text: lines anywhere on the picture, as memes have them."""
SMALL, SMALL_FOR_GREYS = 1000, 600
"""Pictures whose longer side has fewer pixels are doubled; greys less, where doubling makes letters of the grain."""
LARGEST = 2400
"""Longer sides than this are scaled down for reading."""
DARKEST_WHITE, LIGHTEST_GREY = 150, 240
"""Of the darkest of the three colours: from the first on a pixel begins to be lettering, from the second on it is."""
TRUSTED = 0.7
"""Mean confidence of a page's letters from which on no other direction of the writing is tried."""
FLAT = 0.4
"""Of a line's height: words with letters that are lower get the line's; in Chinese, such boxes are wrong."""
ADDED, ADDED_LETTERS = 0.6, 3
"""Mean confidence and letters from which on a line is taken that only the other view of the picture shows; what is
seen in the grain of a photo is shorter, and mostly digits, which may be as confident."""
TURNS = (0, 90, 270, 180, 15, -15)
"""Degrees by which a picture is turned to read it, in this order, until a page is trusted."""


@ocr_engine("tesseract")
class Tesseract:
    """Words with boxes, read from two views of the picture: its white lettering alone, and its greys.

    Outlined white capitals on a photo are what Tesseract reads badly and memes are made of; alone on a white ground
    it reads them well. What only one of the views shows is added to what the better one shows. A page that neither
    view makes readable is turned, by right angles first.
    """

    name = "tesseract"

    @cached_property
    def version(self) -> str:
        """What ``tesseract --version`` says."""
        if shutil.which("tesseract") is None:
            return "not installed"
        return self._run(["--version"]).decode().split("\n")[0].removeprefix("tesseract").strip()

    def languages(self) -> tuple[str, ...]:
        """Those with a data file, by our codes where we have one, and by Tesseract's otherwise."""
        return self._installed if shutil.which("tesseract") is not None else ()

    def read(self, picture: Image.Image, languages: Sequence[str]) -> list[Piece]:
        """Pieces are Tesseract's words; a turned page gives turned polygons."""
        require_languages(self, languages, apt_line(languages))
        codes = "+".join(_CODES.get(one, one) for one in languages)
        best: list[Piece] = []
        for turn in TURNS:
            upright = self._upright(_turned(picture, turn), codes)
            found = [Piece(one.text, _back(one.polygon, turn, picture.size), one.confidence) for one in upright]
            best = max(best, found, key=_weight)
            if _trust(best) >= TRUSTED:
                break
        return best

    def _upright(self, picture: Image.Image, codes: str) -> list[Piece]:
        with ThreadPoolExecutor(2) as pool:
            views = list(pool.map(lambda view: self._view(picture, view, codes), (_lettering, _greys)))
        better, other = sorted(views, key=lambda lines: _weight(chain(*lines)), reverse=True)
        kept = list(chain(*better))
        for line in other:
            letters = sum(character.isalpha() for piece in line for character in piece.text)
            if letters >= ADDED_LETTERS and _trust(line) >= ADDED and not _overlap(line, kept):
                kept += line
        return kept

    def _view(self, picture: Image.Image, view: Callable[[Image.Image], Image.Image], codes: str) -> list[list[Piece]]:
        scaled, scale = _scaled(picture, SMALL_FOR_GREYS if view is _greys else SMALL)
        data = io.BytesIO()
        view(scaled).save(data, "PPM")
        options = ["stdin", "stdout", "-l", codes, "--psm", str(PAGE_MODE), "--dpi", "150", "tsv"]
        return _lines(self._run(options, data.getvalue()).decode("utf-8"), scale)

    @cached_property
    def _installed(self) -> tuple[str, ...]:
        listed = self._run(["--list-langs"]).decode().splitlines()[1:]
        ours = {code: one for one, code in _CODES.items()}
        return tuple(sorted(ours.get(code, code) for code in listed if code != "osd"))

    @staticmethod
    def _run(options: Sequence[str], data: bytes = b"") -> bytes:
        # One thread: several contend for the cores and make short pages slower.
        environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
        # A group of its own: Ctrl-C would stop it before us, and look like a picture that it cannot read.
        done = subprocess.run(
            ["tesseract", *options], input=data, capture_output=True, check=False, env=environment, process_group=0
        )
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
            raise ValueError(f"tesseract failed: {lines[-1]}")
        return done.stdout


def _lines(table: str, scale: float) -> list[list[Piece]]:
    """The words of Tesseract's table, by its lines."""
    lines: dict[tuple[str, ...], list[Piece]] = {}
    for row in csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE):
        if row["level"] == "5" and row["text"] and row["text"].strip():
            left, top, width, height = (float(row[name]) / scale for name in ("left", "top", "width", "height"))
            corners = ((left, top), (left + width, top), (left + width, top + height), (left, top + height))
            piece = Piece(row["text"], corners, as_confidence(float(row["conf"]) / 100))
            lines.setdefault(tuple(row[name] for name in ("block_num", "par_num", "line_num")), []).append(piece)
    return [_levelled(line) for line in lines.values()]


def _levelled(line: Sequence[Piece]) -> list[Piece]:
    boxes = [bounding_box(piece.polygon) for piece in line]
    top, foot = min(box[1] for box in boxes), max(box[3] for box in boxes)
    return [
        replace(piece, polygon=((x0, top), (x1, top), (x1, foot), (x0, foot)))
        if y1 - y0 < FLAT * (foot - top) and any(map(str.isalpha, piece.text))
        else piece
        for piece, (x0, y0, x1, y1) in zip(line, boxes, strict=True)
    ]


def _lettering(picture: Image.Image) -> Image.Image:
    """Black where the picture is white, white where it has any colour or is dark."""
    darkest = np.asarray(picture, dtype=np.float32).min(axis=2)
    share = (darkest - DARKEST_WHITE) / (LIGHTEST_GREY - DARKEST_WHITE)
    return Image.fromarray((255 * (1 - np.clip(share, 0, 1))).astype(np.uint8))


def _greys(picture: Image.Image) -> Image.Image:
    return ImageOps.autocontrast(picture.convert("L"))


def _scaled(picture: Image.Image, small: int) -> tuple[Image.Image, float]:
    longer = max(picture.size)
    scale = 2.0 if longer < small else min(1.0, LARGEST / longer)
    if scale == 1.0:
        return picture, scale
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.LANCZOS), scale


def _turned(picture: Image.Image, degrees: int) -> Image.Image:
    """The picture turned counter-clockwise about its middle, whole."""
    if not degrees:
        return picture
    corner = picture.getpixel((0, 0))
    return picture.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=corner)


def _back(polygon: Polygon, degrees: int, size: tuple[int, int]) -> Polygon:
    """Corners in the turned picture as corners in the picture itself of (width, height)."""
    if not degrees:
        return polygon
    turned = Image.new("1", size).rotate(degrees, expand=True).size
    angle = np.deg2rad(degrees)
    cosine, sine = float(np.cos(angle)), float(np.sin(angle))
    middle, origin = (turned[0] / 2, turned[1] / 2), (size[0] / 2, size[1] / 2)
    corners = []
    for x, y in polygon:
        right, down = x - middle[0], y - middle[1]
        corners.append((origin[0] + right * cosine - down * sine, origin[1] + right * sine + down * cosine))
    return tuple(corners)


def _weight(pieces: Iterable[Piece]) -> float:
    """How much was read with confidence: letters, each by how far its confidence is above an even guess."""
    return sum(len(piece.text) * (piece.confidence - 0.5) for piece in pieces if piece.confidence > 0.5)


def _trust(pieces: Sequence[Piece]) -> float:
    letters = sum(len(piece.text) for piece in pieces)
    return sum(len(piece.text) * piece.confidence for piece in pieces) / letters if letters else 0.0


def _overlap(line: Sequence[Piece], kept: Sequence[Piece]) -> bool:
    boxes = [bounding_box(piece.polygon) for piece in kept]
    return any(covered(bounding_box(piece.polygon), box) > 0.2 for piece in line for box in boxes)

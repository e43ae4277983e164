"""What an OCR engine is, and the registry of those that there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol, runtime_checkable

from PIL import Image

from xai.registry import Registry

Point = tuple[float, float]
Polygon = tuple[Point, ...]

LATIN = ("en", "de", "es", "fr", "it", "nl", "pl", "pt")
HAN = ("zh-Hans",)
_APT = {"en": "eng", "uk": "ukr", "ar": "ara", "zh-Hans": "chi-sim"}


class OcrUnavailableError(ValueError):
    """An engine or a language of it is not installed; the message says what to install."""


@dataclass(frozen=True)
class Piece:
    """What an engine returns: a line, a word or a letter, as it comes.

    Attributes:
        text: in logical order (as it is typed), also where it is written from right to left.
        polygon: four corners in pixels of the picture, clockwise as the letters stand: the first is at their top left
            and the second at their top right, so that text turned by 90 degrees has a polygon turned by 90 degrees.
        confidence: between 0 and 1.
    """

    text: str
    polygon: Polygon
    confidence: float


@runtime_checkable
class OcrEngine(Protocol):
    """Reads pictures; what it returns may be lines, words or letters in any order.

    Languages are codes as ``en``, ``uk``, ``ar`` and ``zh-Hans``.
    """

    name: str

    @property
    def version(self) -> str:
        """Of the engine; with a run's results it is recorded."""

    def languages(self) -> tuple[str, ...]:
        """The languages that it can read here and now; empty where it is not installed."""

    def read(self, picture: Image.Image, languages: Sequence[str]) -> list[Piece]:
        """Everything that it reads in an upright RGB picture.

        Raises:
            OcrUnavailableError: the engine or a language is not installed.
            ValueError: the engine failed on this picture.
        """


_ENGINES: Registry[Callable[[], OcrEngine]] = Registry("an OCR engine")
_READY: dict[str, OcrEngine] = {}


def ocr_engine(name: str) -> Callable[[type], type]:
    """Register a class as an engine: made without arguments when it is first asked for, once a process.

    Raises:
        ValueError: the name is taken.
    """

    def register(made: type) -> type:
        _ENGINES.add(name, made)
        return made

    return register


def engine_names() -> tuple[str, ...]:
    """The registered engines, installed or not, in order of registration."""
    return tuple(_ENGINES)


def get_engine(name: str) -> OcrEngine:
    """The engine called ``name``; that it exists does not mean that it is installed.

    Raises:
        ValueError: there is none; the message lists those that exist.
    """
    make = _ENGINES.named(name)
    if name not in _READY:
        _READY[name] = make()
    return _READY[name]


@dataclass(frozen=True)
class Choice:
    """The engine that was picked for some languages, and why, in one sentence."""

    engine: OcrEngine
    reason: str


def choose_engine(languages: Sequence[str]) -> Choice:
    """The first engine that has all the languages: RapidOCR first for Latin and Chinese only, Tesseract otherwise.

    Raises:
        OcrUnavailableError: none has them all; the message says what to install.
        ValueError: no language is given.
    """
    _require_any(languages)
    listed = ", ".join(languages)
    by_shape = set(languages) <= {*LATIN, *HAN}
    first = ("rapidocr", "tesseract") if by_shape else ("tesseract", "rapidocr")
    names = [*(name for name in first if name in _ENGINES), *(name for name in _ENGINES if name not in first)]
    for name in names:
        if set(languages) <= set(get_engine(name).languages()):
            why = f"it comes first for {'Latin and Chinese' if by_shape else 'other scripts'}"
            return Choice(get_engine(name), f"{name} reads {listed}, and {why if name == first[0] else 'it is there'}")
    hint = "pip install 'meme-xai[ocr]', or " if by_shape else ""
    raise OcrUnavailableError(f"no OCR engine here reads {listed}; {hint}{apt_line(languages)}")


def apt_line(languages: Sequence[str]) -> str:
    """The line that installs Tesseract with these languages on Debian and its kin."""
    packages = [f"tesseract-ocr-{_APT[one]}" for one in languages if one in _APT and one != "en"]
    return " ".join(["apt-get install tesseract-ocr", *packages])


def package_version(package: str) -> str:
    """The version of an engine that is a Python package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def as_confidence(value: float) -> float:
    """A confidence as a plain number between 0 and 1; engines round beyond."""
    return min(max(float(value), 0.0), 1.0)


def require_languages(engine: OcrEngine, languages: Sequence[str], remedy: str) -> None:
    """Refuse languages that an engine does not have.

    Raises:
        OcrUnavailableError: the message names them, what there is, and ``remedy``.
        ValueError: no language is given.
    """
    _require_any(languages)
    have = engine.languages()
    missing = [one for one in languages if one not in have]
    if missing:
        there = f"it has {', '.join(have)}" if have else "it is not installed"
        raise OcrUnavailableError(f"{engine.name} cannot read {', '.join(missing)} here ({there}); {remedy}")


def _require_any(languages: Sequence[str]) -> None:
    if not languages:
        raise ValueError("say which languages are to be read, as in --language uk")

"""Word recall and precision of the engines on drawn memes; run it to print the table of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from xai.attribution.align import normal_form, split_words
from xai.attribution.ocr import OcrEngine, get_engine, read_pieces

from .pages import TEXTS, Page, memes


@dataclass(frozen=True)
class Score:
    """Words of the pages, words read, words in both, by normal form and with multiplicity; and flagged ones."""

    drawn: int
    read: int
    right: int
    flagged: int

    @property
    def recall(self) -> float:
        return self.right / self.drawn

    @property
    def precision(self) -> float:
        return self.right / self.read if self.read else 0.0


def measure(engine: OcrEngine, language: str, pages: Sequence[Page]) -> Score:
    """Read pages and count."""
    drawn = read = right = flagged = 0
    for page in pages:
        reading = read_pieces(engine.read(page.picture, [language]), page.picture.size)
        wanted = Counter(normal_form(page.text[start:end]) for start, end in split_words(page.text))
        found = Counter(normal_form(word.text) for word in reading.words)
        drawn, read = drawn + wanted.total(), read + found.total()
        right += (wanted & found).total()
        flagged += sum(bool(word.flags) for word in reading.words)
    return Score(drawn, read, right, flagged)


def table() -> list[str]:
    """One row an engine and language, of every page."""
    rows = ["| engine | language | words | recall | precision | flagged |", "| --- | --- | --- | --- | --- | --- |"]
    for name in ("tesseract", "rapidocr"):
        engine = get_engine(name)
        for language in TEXTS:
            if language in engine.languages():
                one = measure(engine, language, memes(language))
                counts = f"{one.recall:.3f} | {one.precision:.3f} | {one.flagged}"
                rows.append(f"| {name} {engine.version} | {language} | {one.drawn} | {counts} |")
    return rows

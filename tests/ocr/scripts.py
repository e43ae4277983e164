"""One meme page a script, read by a real engine: the pictures and tables of docs/scripts.md; run it to make them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

import xai
from xai.attribution.heatmap import outline_words
from xai.attribution.ocr import choose_engine
from xai.ocr import OcrPlan, read_meme
from xai.schema import Explanation, Meme

from .pages import FONTS, meme

IMAGES = Path(__file__).parents[2] / "docs" / "images"
CAPTIONS = {
    "en": ("My plan for today", "find the other sock"),
    "uk": ("Мій план на вихідні", "знайти п’ять шкарпеток"),
    "ar": ("خطتي لهذا اليوم", "كوب شاي وكتاب جيد"),
    "zh-Hans": ("今天的计划", "先喝茶再睡8小时"),
}
ANSWER = '{"labels": ["Slogans"], "referred_words": [], "referred_image_concepts": []}'
_COLOURS = 48


@dataclass(frozen=True)
class Script:
    """A page that was read: its meme, how it is explained with text and picture, and the picture with the words."""

    engine: str
    meme: Meme
    explanation: Explanation
    outlined: Image.Image

    def rows(self) -> list[str]:
        """The table of its words, a row each: number, word, characters, tokens, cells."""
        picture = self.explanation.picture_words
        assert picture is not None
        table = self.explanation.word_table
        header = ["| | word | characters | tokens | cells |", "| --- | --- | --- | --- | --- |"]
        columns = zip(table.word, table.start, table.end, table.n_tokens, picture.n_cells, strict=True)
        return header + [
            f"| {number} | {word} | {start}–{end} | {n_tokens} | {n_cells:.1f} |"
            for number, (word, start, end, n_tokens, n_cells) in enumerate(columns, start=1)
        ]

    def sums(self) -> str:
        """A row: words, and what fell on them and beside them, of the text's tokens and of the picture's cells."""
        e, picture = self.explanation, self.explanation.picture_words
        assert picture is not None
        assert e.image is not None
        read = sum(value for value in picture.relevance if value is not None)
        of_text = f"{sum(e.word_table.relevance):+.4f} | {e.word_table.gap:+.4f} | {e.shares['text']:+.4f}"
        of_picture = f"{read:+.4f} | {picture.elsewhere:+.4f} | {e.image.sum():+.4f}"
        return f"| {self.meme.language} | {of_text} | {of_picture} |"


def script(language: str) -> Script:
    """Draw the page of a language, read it with the engine that ``auto`` takes for it, and explain a label."""
    top, bottom = CAPTIONS[language]
    page = meme(top, bottom, font_name=FONTS[language][0], width=480, height=270, size=32, seed=8)
    choice = choose_engine([language])
    plan = OcrPlan(choice.engine, (language,), choice.reason)
    read = read_meme(Meme(id=language, image=page.picture, language=language), plan)
    explanation = xai.explain(xai.load_model("planted", device="cpu"), read, answer=ANSWER, target="Slogans")
    return Script(choice.engine.name, read, explanation, outline_words(page.picture, read.words or ()))


def main() -> None:
    """Write the pictures and print the tables."""
    read = [script(language) for language in CAPTIONS]
    for language, one in zip(CAPTIONS, read, strict=True):
        # The grain of a photo makes large files, and few colours are enough to see the outlines.
        one.outlined.quantize(_COLOURS, dither=Image.Dither.NONE).save(IMAGES / f"script-{language}.png", optimize=True)
        print(f"\n{language}, {one.engine}: {one.meme.text!r}", *one.rows(), sep="\n")
    print("", *(one.sums() for one in read), sep="\n")


if __name__ == "__main__":
    main()

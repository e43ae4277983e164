"""Draws meme pages whose words are known: white capitals with a black outline on a photo-like background."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from xai.planted.render import photo_like

_FOLDER = Path("/usr/share/fonts")
FONTS = {
    "en": ("DejaVuSans-Bold.ttf", "NotoSans-Bold.ttf"),
    "uk": ("DejaVuSans-Bold.ttf", "NotoSans-Bold.ttf"),
    "ar": ("NotoNaskhArabic-Bold.ttf", "NotoSansArabic-Bold.ttf"),
    "zh-Hans": ("NotoSansCJK-Bold.ttc",),
}
TEXTS: dict[str, tuple[tuple[str, str], ...]] = {
    "en": (
        ("When you finally open the window", "and the neighbour starts to drill"),
        ("Nobody needs another meeting", "said everyone in every meeting"),
        ("Total revenue this quarter", "12 dollars and a sandwich"),
        ("My cat pays no rent", "yet she owns the whole house"),
    ),
    "uk": (
        ("Коли нарешті відкрив вікно", "а сусід почав свердлити стіну"),
        ("Нікому не потрібна ще одна нарада", "сказали всі на кожній нараді"),
        ("Загальний дохід за цей квартал", "12 гривень і один бутерброд"),
        ("Мій кіт не платить за житло", "але їжак знає ґанок краще"),
    ),
    "ar": (
        ("عندما تفتح النافذة أخيرا", "ويبدأ الجار في الحفر"),
        ("لا أحد يحتاج إلى اجتماع آخر", "قال الجميع في كل اجتماع"),
        ("مجموع الدخل هذا الشهر", "وجبة واحدة وكوب شاي"),
        ("قطتي لا تدفع الإيجار", "لكنها تملك البيت كله"),
    ),
    "zh-Hans": (
        ("今天终于打开窗户", "邻居开始装修了"),
        ("没有人需要再开会", "大家在会上都这么说"),
        ("这个月的全部收入", "只够买一个面包"),
        ("我的猫不交房租", "整个房子都是它的"),
    ),
}


@dataclass(frozen=True)
class Page:
    """A picture and the lines that are on it."""

    picture: Image.Image
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@cache
def _path(name: str) -> Path | None:
    return next(iter(sorted(_FOLDER.rglob(name))), None)


def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font by file name; where it is not installed, the test that draws with it is skipped."""
    path = _path(name)
    if path is None:
        pytest.skip(f"the font {name} is not installed; `make test` as root installs it")
    return ImageFont.truetype(path, size)


def meme(
    top: str, bottom: str, *, font_name: str, size: int = 34, width: int = 640, height: int = 480, seed: int = 1
) -> Page:
    """One line above, one below, centred, in outlined capitals; the font shrinks until a line fits."""
    picture = photo_like((width, height), seed, blotches=6, spread=45)
    draw = ImageDraw.Draw(picture)
    lines = (top.upper(), bottom.upper())
    for line, y, anchor in ((lines[0], 10, "ma"), (lines[1], height - 12, "md")):
        chosen = size
        while font(font_name, chosen).getlength(line) > width - 24:
            chosen -= 1
        draw.text(
            (width / 2, y),
            line,
            font=font(font_name, chosen),
            anchor=anchor,
            fill="white",
            stroke_width=max(1, chosen // 12),
            stroke_fill="black",
        )
    return Page(picture, lines)


def memes(language: str) -> list[Page]:
    """The pages on which the floor is measured: every text in every font of the language."""
    return [
        meme(top, bottom, font_name=name, seed=10 * number + index)
        for index, name in enumerate(FONTS[language])
        for number, (top, bottom) in enumerate(TEXTS[language])
    ]


def plain(
    lines: Sequence[tuple[tuple[float, float], str]],
    *,
    font_name: str = "DejaVuSans.ttf",
    size: int = 32,
    width: int = 640,
    height: int = 200,
) -> Image.Image:
    """Black on white, each line with the place of its top left corner."""
    picture = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(picture)
    for place, line in lines:
        draw.text(place, line, font=font(font_name, size), fill="black")
    return picture

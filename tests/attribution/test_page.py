"""Pages show every text as text, whatever it holds, and say what is missing and what the model was not shown."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from xai.attribution.page import explanation_html, page_html, save_html
from xai.schema import Explanation, TokenTable, Word

Explain = Callable[..., Explanation]
HOSTILE = "<img src=x onerror=alert(1)>"


class Reader(HTMLParser):
    """What a browser would see: tags, attributes, text, and the text of the caption."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.sources: list[str] = []
        self.text = self.caption = ""
        self.depth = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.sources += [value or "" for name, value in attrs if name == "src"]
        if ("class", "caption") in attrs or (self.depth and tag == "span"):
            self.depth += 1

    def handle_endtag(self, tag: str) -> None:
        self.depth -= self.depth > 0 and tag in ("div", "span")

    def handle_data(self, data: str) -> None:
        self.text += data
        self.caption += data if self.depth else ""


@pytest.mark.parametrize("render", [explanation_html, page_html])
def test_markup_from_outside_stays_text(render: object, tmp_path: Path, explained: Explain) -> None:
    assert callable(render)
    missing = tmp_path / (HOSTILE.replace("/", "") + ".png")
    html = render(explained(HOSTILE, hostile=HOSTILE, image=missing))
    seen = Reader(html)
    assert HOSTILE not in html
    assert not seen.tags & {"img", "script"}
    assert not any(name.startswith("on") for name in seen.attributes)
    assert seen.caption == HOSTILE
    # Id, labels, unknown label, note, method, target, two rationales, missing label, token, answer, file name.
    assert seen.text.count(HOSTILE) >= 11


def test_pages_may_run_and_load_nothing(explained: Explain) -> None:
    html = page_html(explained())
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in html
    assert "script" not in Reader(html).tags


@pytest.mark.parametrize(
    "text",
    [
        "a <|im_start|> b",
        "هذا ليس كراهية، لا",
        "这不是。Hello32",
        "обʼєднання\nй и\u0306",
        "👨‍👩‍👧 👍🏽 &amp; \"q\" 'x'",
        "  ",
    ],
)
def test_every_character_of_the_caption_is_shown(text: str, explained: Explain) -> None:
    html = explanation_html(explained(text))
    assert Reader(html).caption == text
    assert '<div class="caption" dir="auto">' in html


def test_characters_that_do_not_show_are_named(explained: Explain) -> None:
    assert Reader(explanation_html(explained("a\u202eb \x00"))).caption == "a⟨U+202E⟩b ⟨U+0000⟩"


def test_special_tokens_and_line_breaks_are_listed(explained: Explain) -> None:
    text = Reader(explanation_html(explained())).text
    assert "<|im_start|>" in text
    assert "↵" in text


def test_words_carry_the_colour_of_their_sign(explained: Explain) -> None:
    html = explanation_html(explained("bad fine good", [-1.0, 0.0, 1.0]))
    assert 'background:#053061;color:#ffffff" title="relevance -1, mean of absolute values 1, 1 token">bad<' in html
    assert 'background:#67001f;color:#ffffff" title="relevance +1, mean of absolute values 1, 1 token">good<' in html
    assert ">fine<" in html


def test_picture_and_heatmap_stand_beside_each_other(explained: Explain) -> None:
    html = explanation_html(explained(image=Image.new("RGB", (80, 40), "green"), grid=np.ones((2, 4))))
    sources = Reader(html).sources
    assert len(sources) == 2
    plain = Image.open(io.BytesIO(base64.b64decode(sources[0].removeprefix("data:image/png;base64,"))))
    assert plain.size == (80, 40)
    assert plain.getpixel((0, 0)) == (0, 128, 0)


def test_pixels_have_a_heatmap_of_their_own_and_say_their_scale(explained: Explain) -> None:
    picture, pixels = Image.new("RGB", (80, 40), "green"), np.full((4, 8), 0.5)
    html = explanation_html(explained(image=picture, grid=np.ones((2, 4)), pixels=pixels))
    assert len(Reader(html).sources) == 3
    assert "Relevance of the pixels, 4 × 8 patches; a scale of its own, to ±0.5" in html


def test_what_was_explained_is_said_before_the_colours(explained: Explain) -> None:
    e = explained()
    given = e.prediction.model_copy(update={"answer_source": "given_text"})
    e = e.model_copy(update={"prediction": given, "target_kind": "log_probability", "settings": {"depth": "pixels"}})
    seen = Reader(explanation_html(e)).text
    for words in ("log-probability of the label 'word'", "re-tokenised: positions may differ", "(depth pixels)"):
        assert words in seen[: seen.index("Caption")]


def test_a_heatmap_is_shown_without_its_picture_and_says_why(tmp_path: Path, explained: Explain) -> None:
    seen = Reader(explanation_html(explained(image=tmp_path / "gone.png", grid=np.ones((2, 4)))))
    assert len(seen.sources) == 1
    assert "'gone.png'" in seen.text
    assert "does not exist" in seen.text
    assert str(tmp_path) not in seen.text


def test_what_the_model_was_not_shown_is_said(explained: Explain) -> None:
    picture = Image.new("RGB", (8, 8))
    assert "Caption (not shown to the model)" in explanation_html(explained(mode="image", grid=np.ones((1, 1))))
    assert "Picture (not shown to the model)" in explanation_html(explained(mode="text", image=picture))


def test_large_pictures_are_scaled_for_view(explained: Explain) -> None:
    html = explanation_html(explained(image=Image.new("RGB", (6000, 8000)), grid=np.ones((3, 2))))
    assert len(html) < 100_000


def test_saved_pages_are_the_page(tmp_path: Path, explained: Explain) -> None:
    e = explained("нове")
    save_html(e, tmp_path / "e.html")
    assert (tmp_path / "e.html").read_text(encoding="utf-8") == page_html(e)


def test_relevance_by_segment_is_signed_and_absolute(explained: Explain) -> None:
    # Tokens of 9 in the template, 1 and -1 in the text.
    table = explanation_html(explained()).split("Relevance by segment</h3>")[1].split("</table>")[0]
    cells = re.findall(r"<t[dh][^>]*>([^<]*)<", table)
    assert cells == ["", "signed", "absolute", "tokens", "text", "+0", "2", "2", "template", "+9", "9", "1"]


@pytest.mark.parametrize(
    ("language", "text", "referred", "remarks"),
    [
        ("en", "crooked senators lied", ("Crooked", "senator", "honest"), ("", "in another form", "not in the text")),
        ("en", "crooked senators lied", ("crooked senator", "lied honest"), ("in another form", "not in the text")),
        ("zh", "这不是仇恨\n言论", ("仇恨", "恨言论", "仇人"), ("", "", "not in the text")),
        ("ar", "هذا كتابٌ", ("كتاب", "الكتاب"), ("", "not in the text")),
    ],
)
def test_a_word_of_the_rationale_is_in_the_text_as_it_is_in_another_form_or_not_at_all(
    language: str, text: str, referred: tuple[str, ...], remarks: tuple[str, ...], explained: Explain
) -> None:
    seen = Reader(explanation_html(says(explained(text), referred, language))).text
    for word, remark in zip(referred, remarks, strict=True):
        assert (f"{word} ({remark})" if remark else f"{word}\n") in seen


def test_ukrainian_forms_are_those_of_the_dictionary_and_the_page_names_it(explained: Explain) -> None:
    pytest.importorskip("pymorphy3")
    seen = Reader(explanation_html(says(explained("народ програв війну"), ("війна", "мир"), "uk"))).text
    assert "війна (in another form)" in seen
    assert "мир (not in the text)" in seen
    assert "Other forms of a word are known by pymorphy3 2." in seen


def test_where_other_forms_are_not_known_the_page_says_so(explained: Explain) -> None:
    seen = Reader(explanation_html(says(explained("الكتب"), ("كتاب",), "ar"))).text
    assert "كتاب (not in the text)" in seen
    assert "Other forms of a word are not known in this language." in seen


def test_words_that_came_with_the_meme_are_its_text_and_without_any_nothing_is_said(explained: Explain) -> None:
    e = says(explained(mode="image", grid=np.ones((1, 1))), ("lie",), "en")
    brought = e.meme.model_copy(update={"text": "no\nlies", "words": (Word(text="lies", start=3, end=7),)})
    assert "lie (in another form)" in Reader(explanation_html(e.model_copy(update={"meme": brought}))).text
    unread = e.meme.model_copy(update={"text": "", "words": None})
    assert "lie (" not in Reader(explanation_html(e.model_copy(update={"meme": unread}))).text


def says(e: Explanation, referred: tuple[str, ...], language: str) -> Explanation:
    """The explanation, of a meme in a language and with the words that the model says it used."""
    meme = e.meme.model_copy(update={"language": language})
    return e.model_copy(
        update={"meme": meme, "prediction": e.prediction.model_copy(update={"referred_words": referred})}
    )


def test_an_explanation_shows_itself_in_a_notebook(explained: Explain) -> None:
    e = explained()
    assert e._repr_html_() == explanation_html(e)


def test_a_post_is_shown_as_the_caption_is_and_what_the_model_was_told_is_said(explained: Explain) -> None:
    plain = explained()
    told = plain.meme.model_copy(update={"post": f"see {HOSTILE}", "context": {"people": ("A", HOSTILE)}})
    tokens = TokenTable(
        token=("see", f" {HOSTILE}"), start=(0, 3), end=(3, 4 + len(HOSTILE)), segment=("post",) * 2,
        relevance=(0.5, -0.25),
    )  # fmt: skip
    reasons = plain.prediction.model_copy(update={"reasons": ("mocks a fan", HOSTILE), "referred_words": ("see",)})
    html = page_html(plain.model_copy(update={"meme": told, "token_table": tokens, "prediction": reasons}))
    seen = Reader(html)
    assert "Post, by relevance of its words" in seen.text
    assert "relevance +0.5, mean of absolute values 0.5, 1 token" in html
    assert f"people: A, {HOSTILE}" in seen.text
    assert f"mocks a fan; {HOSTILE}" in seen.text
    assert "see (in the post)" in seen.text
    assert HOSTILE not in html
    assert "Post, by relevance" not in page_html(plain)

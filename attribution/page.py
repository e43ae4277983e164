"""Shows an explanation as HTML that stands alone: a fragment for notebooks, a page for files; every text is escaped."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from PIL import Image

from xai.attribution.align import words_of
from xai.attribution.heatmap import (
    MAX_TOKENS,
    SCALE_NOTE,
    blank_picture,
    caption_pieces,
    content_limit,
    display_limit,
    opened_picture,
    overlay,
    post_pieces,
    token_pieces,
    visible,
)
from xai.attribution.lemmas import lemmatizer
from xai.attribution.occurrences import Presence, presence
from xai.attribution.wording import facts
from xai.schema import Explanation

_PIXELS = 520
_REMARKS: dict[Presence, str] = {"exact": "", "inflected": "in another form", "invented": "not in the text"}
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    # Not select_autoescape, which goes by a name's ending and does not know .jinja.
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def explanation_html(e: Explanation) -> str:
    """One explanation as an HTML fragment that stands alone, for notebooks and pages; every text is escaped."""
    return _TEMPLATES.get_template("explanation.html.jinja").render(_context(e))


def page_html(e: Explanation) -> str:
    """One explanation as a document that stands alone, runs no script and loads nothing."""
    return _TEMPLATES.get_template("page.html.jinja").render(_context(e))


def save_html(e: Explanation, path: str | Path) -> None:
    """Writes :func:`page_html` to a file."""
    Path(path).write_text(page_html(e), encoding="utf-8")


def _context(e: Explanation) -> dict[str, object]:
    """What both templates show."""
    pictures, picture_note = _pictures(e)
    prediction = e.prediction
    return {
        "e": e,
        "facts": [(name, visible(text)) for name, text in facts(e)],
        "caption": caption_pieces(e),
        "post": post_pieces(e),
        "unread": bool(e.meme.text) and not e.word_table.word,
        "limit": content_limit(e),
        "pictures": pictures,
        "picture_note": picture_note,
        "note": SCALE_NOTE,
        "referred": _referred(e),
        "forms_note": _forms_note(e.meme.language),
        "segments": list(e.segments.itertuples(index=False)),
        "tokens": token_pieces(e),
        "n_hidden": max(0, len(e.token_table.token) - MAX_TOKENS),
        "answer": visible(prediction.text),
    }


def _referred(e: Explanation) -> list[tuple[str, str]]:
    """The words of the rationale, and what is to be said of each that the text does not have as it is."""
    words, language = [word.text for word in words_of(e.meme.text, e.meme.words)], e.meme.language
    post = e.post_words.word if e.post_words else ()
    found = []
    for entry in e.prediction.referred_words:
        state = presence(entry, words, language)
        of_post = state == "invented" and presence(entry, post, language) != "invented"
        # Of a meme whose text nobody has read, nothing is known.
        found.append((entry, "in the post" if of_post else _REMARKS[state] if words else ""))
    return found


def _forms_note(language: str | None) -> str:
    name = lemmatizer(language).name
    if name.startswith("none"):
        remedy = name.removeprefix("none").removeprefix(": ")
        return "Other forms of a word are not known in this language" + (f" ({remedy})." if remedy else ".")
    return f"Other forms of a word are known by {name}."


def _pictures(e: Explanation) -> tuple[list[tuple[str, str, str]], str]:
    """(alternative text, caption, PNG as base64) of every picture to show, and why one is not shown."""
    meme, reason = opened_picture(e, _PIXELS)
    grid = e.image
    shown = []
    if meme is not None:
        note = "" if grid is not None else " (not shown to the model)"
        shown.append(("the meme", f"Picture{note}", _png(meme)))
    if grid is not None:
        under = meme or blank_picture(e, grid, _PIXELS)
        heat = overlay(under, grid, limit=content_limit(e))
        size = f"{grid.shape[0]} × {grid.shape[1]} cells"
        shown.append(("the meme under its heatmap", f"Relevance of the picture, {size}", _png(heat)))
    if e.pixels is not None:
        under, limit = meme or blank_picture(e, e.pixels, _PIXELS), display_limit(e.pixels)
        size = f"{e.pixels.shape[0]} × {e.pixels.shape[1]} patches"
        heat = overlay(under, e.pixels, limit=limit)
        shown.append(("the meme under the heatmap of its pixels", _of_pixels(size, limit), _png(heat)))
    return shown, reason


def _of_pixels(size: str, limit: float) -> str:
    return f"Relevance of the pixels, {size}; a scale of its own, to ±{limit:.2g}"


def _png(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")

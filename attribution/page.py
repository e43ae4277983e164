"""Shows an explanation as HTML that stands alone: a fragment for notebooks, a page for files; every text is escaped."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from PIL import Image

from xai.attribution.align import normal_form, split_words
from xai.attribution.heatmap import (
    MAX_TOKENS,
    SCALE_NOTE,
    blank_picture,
    caption_pieces,
    content_limit,
    display_limit,
    opened_picture,
    overlay,
    token_pieces,
    visible,
)
from xai.attribution.wording import facts
from xai.schema import SEGMENTS, Explanation

_PIXELS = 520
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
    in_text = {normal_form(word) for word in _words_in(e.meme.text)}
    prediction = e.prediction
    return {
        "e": e,
        "facts": [(name, visible(text)) for name, text in facts(e)],
        "caption": caption_pieces(e),
        "unread": bool(e.meme.text) and not e.word_table.word,
        "limit": content_limit(e),
        "pictures": pictures,
        "picture_note": picture_note,
        "note": SCALE_NOTE,
        "referred": [(word, _all_in(word, in_text)) for word in prediction.referred_words],
        "shares": [(segment, e.shares[segment]) for segment in SEGMENTS if segment in e.shares],
        "tokens": token_pieces(e),
        "n_hidden": max(0, len(e.token_table.token) - MAX_TOKENS),
        "answer": visible(prediction.text),
    }


def _words_in(text: str) -> Iterator[str]:
    return (text[start:end] for start, end in split_words(text))


def _all_in(phrase: str, forms: set[str]) -> bool:
    return all(normal_form(word) in forms for word in _words_in(phrase))


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

"""Fragments of HTML and Markdown that the pages are made of; every text from runs and visitors is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from xai.attribution.heatmap import ink_on, relevance_rgb, token_pieces, visible
from xai.schema import Explanation

UNSIGNED = frozenset({"attention_rollout", "attention_x_gradient", "gradient"})
"""Methods whose relevance has no sign, by the registry of methods, which would load torch."""
SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~:$&^=\"'])")
STYLE = """<style>
.xai-caption {font-size: 1.15rem; line-height: 2.1; overflow-wrap: anywhere; white-space: pre-wrap;}
.xai-caption span {border-radius: 4px; padding: 2px 4px; cursor: help;}
.xai-tokens {font-family: monospace; font-size: .82rem; line-height: 1.9; overflow-wrap: anywhere;}
.xai-tokens span {border-radius: 3px; padding: 1px 2px; margin: 0 1px; cursor: help;}
.xai-legend {display: flex; align-items: center; gap: .4rem; font-size: .8rem; opacity: .85; margin-top: .3rem;
    flex-wrap: wrap;}
.xai-legend i {display: inline-block; width: 130px; height: 12px; border-radius: 3px; border: 1px solid #8886;}
.xai-chip {display: inline-block; border-radius: 12px; padding: 1px 9px; margin: 2px 4px 2px 0; font-size: .85rem;
    border: 1px solid #8888; overflow-wrap: anywhere; max-width: 100%;}
.xai-chip.both {border: 2px solid #009E73;} .xai-chip.model {border-style: dashed;}
.xai-chip.caution {border-color: #E69F00; border-width: 2px;}
.xai-cards {display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 1rem;}
.xai-kind {font-size: .7rem; opacity: .75; margin-inline-start: .45rem; padding-inline-start: .4rem;
    border-inline-start: 1px solid #8888;}
.xai-card {min-height: 240px; border: 1px solid #8885; border-radius: 8px; padding: .8rem .8rem 2.9rem;}
/* The links of a row of cards lie on the feet of the cards. */
[class*=st-key-memes-links] {margin-top: -3.6rem; gap: 1rem;}
[class*=st-key-memes-links] > div {flex: 0 0 calc(25% - .75rem) !important; min-width: 0; padding: 0 .3rem;}
.xai-card .frame {height: 150px; display: flex; align-items: center; justify-content: center; overflow: hidden;
    border-radius: 6px; background: #8882; font-size: .8rem; text-align: center;}
.xai-card img {max-width: 100%; max-height: 150px; object-fit: contain;}
.xai-card .text {font-size: .85rem; line-height: 1.35; display: -webkit-box; -webkit-line-clamp: 2; min-height: 2.3rem;
    -webkit-box-orient: vertical; overflow: hidden; margin: .35rem 0 .2rem; overflow-wrap: anywhere;}
dl.xai-facts {margin: 0; padding: 0; display: grid; grid-template-columns: max-content 1fr; gap: .15rem .8rem;
    font-size: .9rem;}
.xai-facts dt {opacity: .75;} .xai-facts dd {margin: 0 !important; padding: 0; overflow-wrap: anywhere;}
.xai-answer {white-space: pre-wrap; overflow-wrap: anywhere; font-family: monospace; font-size: .85rem;
    border: 1px solid #8886; border-radius: 6px; padding: .6rem; margin: 0;}
.xai-small {font-size: .85rem; opacity: .8;}
.xai-title {font-size: 1.35rem; font-weight: 600; overflow-wrap: anywhere; line-height: 1.25;}
.xai-said {padding: .2rem 0; border-bottom: 1px solid #8883;}
.xai-panel-picture {border-radius: 6px; background: #8882; text-align: center; padding: .4rem; min-height: 120px;}
.xai-panel-picture img {max-width: 100%; max-height: 420px; object-fit: contain;}
.stMainBlockContainer {padding: 4.4rem 2rem 2rem;}
</style>"""
"""Of the fragments below; colours of text and page are the theme's."""


def plain(text: object) -> str:
    """Text that Streamlit's Markdown shows as it is."""
    return SPECIAL.sub(r"\\\1", " ".join(visible(str(text)).split()))


def text_html(text: str, css: str = "", tag: str = "div") -> str:
    """A text as an element, set from right to left where its script is."""
    return f'<{tag} dir="auto" class="{css}">{escape(visible(text))}</{tag}>'


def chips(
    texts: Iterable[str],
    css: str = "",
    titles: Mapping[str, str] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> str:
    """Short texts in frames; ``titles`` are under the pointer, and ``kinds`` stand small behind a text."""
    found, behind = titles or {}, kinds or {}
    return "".join(
        f'<span dir="auto" class="xai-chip {css}" title="{escape(found.get(text, ""))}">{escape(visible(text))}'
        f"{_kind(behind.get(text))}</span>"
        for text in texts
    )


def _kind(name: str | None) -> str:
    return "" if name is None else f'<span class="xai-kind">{escape(visible(name))}</span>'


def facts_html(facts: Iterable[tuple[str, str]]) -> str:
    """Names with what is to be said of each."""
    rows = (f'<dt>{escape(name)}</dt><dd dir="auto">{escape(visible(text))}</dd>' for name, text in facts)
    return f'<dl class="xai-facts">{"".join(rows)}</dl>'


def caption_html(
    text: str, spans: Sequence[tuple[int, int]], values: Sequence[float | None], limit: float, titles: Sequence[str]
) -> str:
    """A caption whose words have the colour of their relevance, with exact numbers under the pointer.

    Args:
        spans: of the words, in order of the text; what overlaps an earlier one is left uncoloured.
        values: relevance of each, signed; ``None`` where it is not known.
        limit: absolute relevance at the ends of the colour scale.
    """
    parts, at = [], 0
    for (start, end), value, title in zip(spans, values, titles, strict=True):
        if start < at:
            continue
        parts.append(escape(visible(text[at:start])))
        parts.append(_coloured(visible(text[start:end]), value, limit, title))
        at = end
    parts.append(escape(visible(text[at:])))
    return f'<div dir="auto" class="xai-caption">{"".join(parts)}</div>'


def tokens_html(e: Explanation) -> str:
    """The tokens of prompt and answer in the colours of their relevance."""
    spans = (
        f'<span style="background:{piece.background};color:{piece.ink}" title="{escape(piece.title)}">'
        f"{escape(piece.text)}</span>"
        for piece in token_pieces(e)
    )
    return f'<div dir="auto" class="xai-tokens">{"".join(spans)}</div>'


def is_signed(method: str) -> bool:
    """Whether negative relevance of a method speaks against the target; of others there is none, and no such colour."""
    return method not in UNSIGNED


def legend_html(limit: float, unit: str, *, signed: bool = True) -> str:
    """The colour scale, symmetric around 0; of a method without signs its upper half."""
    stops = ", ".join(to_hex(colormaps["RdBu_r"](position / 10)) for position in range(0 if signed else 5, 11))
    left, right = (f"against {number(-limit)}", f"{number(limit)} for") if signed else ("none 0", f"{limit:.3g} most")
    return (
        f'<div class="xai-legend">{escape(left)} '
        f'<i style="background:linear-gradient(to right, {stops})"></i> {escape(right)}'
        f"<span>({escape(unit)})</span></div>"
    )


def number(value: float) -> str:
    """A signed number as people read it, with a real minus."""
    return f"{value:+.3g}".replace("-", "−")


def _coloured(text: str, value: float | None, limit: float, title: str) -> str:
    if value is None:
        return f'<span title="{escape(title)}">{escape(text)}</span>'
    rgb = relevance_rgb(np.array(value), limit)
    style = f"background:{to_hex(tuple(rgb.tolist()))};color:{ink_on(rgb)}"
    return f'<span style="{style}" title="{escape(title)}">{escape(text)}</span>'

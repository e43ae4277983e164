"""One meme: what the model saw and said, where its relevance sits, and what the auditor makes of it."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import streamlit as st
from PIL import Image

from xai.app import session
from xai.app.cautions import CAUTIONS
from xai.app.curves_view import show_curves
from xai.app.figures import (
    CONFIG,
    Depth,
    Layer,
    Sign,
    cell_layer,
    one_sign,
    percentile_limit,
    picture_figure,
    shares_figure,
    unit,
)
from xai.app.filters import Filter
from xai.app.library import Key
from xai.app.paths import PictureError, open_picture
from xai.app.pieces import (
    caption_html,
    chips,
    facts_html,
    is_signed,
    legend_html,
    number,
    plain,
    text_html,
    tokens_html,
)
from xai.app.thumbnails import VIEW
from xai.app.urls import Params, UrlState
from xai.app.verdict_form import verdict_form
from xai.app.views.memes import link
from xai.app.words import (
    WordValues,
    compared_words,
    relevance_titles,
    top_words,
    values_of_table,
    word_marks,
    word_values,
)
from xai.attribution.heatmap import PERCENTILE, overlay
from xai.attribution.wording import facts
from xai.schema import ALL_LABELS, Explanation

FULL = 6000
"""Longest side of the picture that is saved."""
TOP = 5
_HEADS = {
    "shared": ("Relevance and rationale", "both", "among the words with most relevance, and named by the model"),
    "relevance": ("Only relevance", "", "among the words with most relevance; the model does not name them"),
    "rationale": ("Only rationale", "model", "named by the model and in the caption; others have more relevance"),
    "inflected": ("Named in another form", "model", "the caption has another form of the word"),
    "invented": ("Invented", "caution", "named by the model; the caption does not have them"),
    "doubtful": ("Left out", "model", "only doubtful words of the caption match"),
}


class View(UrlState):
    """What of a meme is shown and how; a link has all of it."""

    run: str = ""
    meme: str = ""
    mode: str = ""
    method: str = ""
    target: str = ALL_LABELS
    opacity: int = 75
    percentile: float = PERCENTILE
    sign: Sign = "both"
    depth: Depth = "tokens"
    boxes: bool = True


_WIDGETS = ("opacity", "percentile", "sign", "depth", "boxes")


def show() -> None:
    """The page."""
    # Without parameters somebody comes back by the menu, to the meme that was there.
    params = session.read_params() or session.written("meme")
    view = View.from_params(params)
    if not view.meme:
        _empty()
        return
    if session.arrived("meme", params) or "meme.opacity" not in st.session_state:
        _set_widgets(view, params)
    key = _key(view)
    row = session.services().library.row(key)
    _steps(key, view)
    _title(key, row)
    if key.method:
        _explained(key, row, view)
    else:
        _unexplained(key, row)
        session.wrote("meme", params)


def _empty() -> None:
    st.info("No meme is chosen. Open one from the list.")
    st.page_link(session.page("memes"), label="To the list of memes", icon=":material/grid_view:")


def _set_widgets(view: View, params: Params) -> None:
    for name in _WIDGETS:
        st.session_state[f"meme.{name}"] = getattr(view, name)
    st.session_state["meme.opacity"] = min(max(view.opacity, 0), 100)
    st.session_state["meme.percentile"] = min(max(view.percentile, 50.0), 100.0)
    st.session_state[session.FILTER] = Filter.from_params(params)


def _key(view: View) -> Key:
    """The row that the URL names; what it leaves out is filled in where there is only one choice, or the first."""
    library = session.services().library
    runs = [view.run] if view.run else list(library.runs)
    rows = [key for run in runs for key in library.rows_of(run, view.meme)]
    fitting = [key for key in rows if view.mode in ("", key.mode) and view.method in ("", key.method)]
    if not fitting:
        raise KeyError("no run that is open here has such a meme; go back to the list of memes")
    return fitting[0]


def _steps(key: Key, view: View) -> None:
    place = session.services().library.place(key, session.current_filter(), session.auditor())
    back, where, before, after = st.columns([2, 4, 1.4, 1.4], vertical_alignment="center")
    back.page_link(
        session.page("memes"), label="Back to the list", icon=":material/arrow_back:",
        query_params=dict(_list_params()),
    )  # fmt: skip
    at = "not in the current filter" if place.at is None else f"{place.at:,} of {place.total:,} in the current filter"
    where.caption(at)
    steps = ((before, "Previous", "P", place.previous), (after, "Next", "N", place.following))
    for column, label, shortcut, other in steps:
        if column.button(label, shortcut=shortcut, disabled=other is None, width="stretch") and other:
            session.go_to("meme", {**_lists(link(other)), **_look(view)})


def _list_params() -> Params:
    """The list as it was left, if it was with this filter."""
    left = session.written("memes")
    return left if Filter.from_params(left) == session.current_filter() else session.current_filter().to_params()


def _lists(params: dict[str, Any]) -> Params:
    return {name: value if isinstance(value, list) else [value] for name, value in params.items()}


def _look(view: View) -> Params:
    """The parameters of how it is shown, which stay when another meme is opened."""
    shown = View(**{name: st.session_state.get(f"meme.{name}", getattr(view, name)) for name in _WIDGETS})
    return shown.to_params()


def _title(key: Key, row: dict[str, Any]) -> None:
    st.html(text_html(key.meme_id, "xai-title"))
    for flag in row["flags"]:
        st.warning(CAUTIONS[flag].sentence, icon=":material/warning:")


def _unexplained(key: Key, row: dict[str, Any]) -> None:
    left, right = st.columns([11, 9])
    with left:
        picture, reason = shown_picture(key, row)
        if picture is not None:
            size = picture.size
            st.plotly_chart(picture_figure(picture, size, None, 0, [], "Picture"), config=CONFIG)
        elif reason:
            st.caption(plain(reason))
    with right:
        st.html(text_html(row["text"], "xai-caption"))
        _answer(key)
        verdict_form(key)


def _explained(key: Key, row: dict[str, Any], view: View) -> None:
    library = session.services().library
    targets = library.targets(key)
    target = view.target if view.target in targets else targets[0]
    key, target = _choices(key, targets, target)
    e = library.explanation(key, target)
    found = word_values(e)
    left, right = st.columns([11, 9], gap="medium")
    with right:
        limit = _scale(e, found)
        _caption(e, found, limit)
        _labels(row)
        verdict_form(key)
    with left:
        _picture_panel(key, row, e, found, limit)
    _details(key, e, found)
    now = View(
        run=key.run, meme=key.meme_id, mode=key.mode, method=key.method, target=target,
        **{name: st.session_state[f"meme.{name}"] for name in _WIDGETS},
    )  # fmt: skip
    session.wrote("meme", {**now.to_params(), **session.current_filter().to_params()})


def _choices(key: Key, targets: list[str], target: str) -> tuple[Key, str]:
    """Mode, method and target; another mode or method is another row."""
    rows = [other for other in session.services().library.rows_of(key.run, key.meme_id) if other.method]
    modes = list(dict.fromkeys(other.mode for other in rows))
    methods = list(dict.fromkeys(other.method for other in rows if other.mode == key.mode))
    first, second, third = st.columns([2, 2, 3])
    # The key of each holds what it offers, so that another meme does not inherit a choice that it lacks.
    mode = first.selectbox("Mode", modes, index=modes.index(key.mode), key=f"meme.mode.{key}")
    method = second.selectbox("Method", methods, index=methods.index(key.method), key=f"meme.method.{key}")
    chosen = third.selectbox(
        "What is explained", targets, index=targets.index(target), key=f"meme.target.{key}",
        format_func=lambda name: "all labels together" if name == ALL_LABELS else name,
    )  # fmt: skip
    if (mode, method) != (key.mode, key.method):
        method = method if any(o.mode == mode and o.method == method for o in rows) else ""
        other = next(o for o in rows if o.mode == mode and method in ("", o.method))
        session.go_to("meme", {**_lists(link(other)), **_look(View())})
    return key, chosen


def _scale(e: Explanation, found: WordValues) -> float:
    """Where the colours end: one scale for the words and the cells."""
    cells = np.array([]) if e.image is None else e.image.ravel()
    if e.post_words is not None:
        cells = np.concatenate([cells, e.post_words.relevance])
    words = np.array([value for value in found.values if value is not None])
    return percentile_limit(np.concatenate([cells, words]), float(st.session_state["meme.percentile"]))


def _caption(e: Explanation, found: WordValues, limit: float) -> None:
    if e.post_words is not None:
        post = values_of_table(e.post_words, "")
        st.markdown("**Post**")
        st.html(caption_html(e.meme.post or "", post.spans, post.values, limit, post.titles))
        st.markdown("**Caption**")
    if not e.meme.text:
        st.caption("This meme has no caption.")
        return
    st.html(caption_html(e.meme.text, found.spans, found.values, limit, found.titles))
    st.html(legend_html(limit, unit(e), signed=is_signed(e.method)))
    st.caption(f"Relevance {found.source}; exact numbers under the pointer.")


def _labels(row: dict[str, Any]) -> None:
    html = f"<b>Labels</b> {chips(row['labels'] or ['none'])}"
    if row["gold"] is not None:
        verdict = "the same" if row["correct"] else "not the same"
        html += f"<br><b>Gold</b> {chips(row['gold'] or ['none'])} <span class='xai-small'>{verdict}</span>"
    st.html(html)


def _picture_panel(key: Key, row: dict[str, Any], e: Explanation, found: WordValues, limit: float) -> None:
    picture, reason = shown_picture(key, row)
    if reason:
        st.caption(plain(reason))
    if picture is None and e.image is None:
        st.caption("There is no picture, and no relevance of one.")
        _controls(e)
        return
    grid = (1, 1) if e.image is None else (e.image.shape[1], e.image.shape[0])
    size = e.image_size or (picture.size if picture else grid)
    under = picture or Image.new("RGB", (VIEW, max(1, round(VIEW * size[1] / size[0]))), "white")
    layer = _layer(e, limit)
    marks = word_marks(e, found) if st.session_state["meme.boxes"] else []
    title = "Relevance of the picture" if layer is not None else "Picture (not shown to the model)"
    figure = picture_figure(under, size, layer, st.session_state["meme.opacity"] / 100, marks, title)
    st.plotly_chart(figure, config=CONFIG, key="meme.picture", alt=title)
    _controls(e)
    if layer is not None and session.pictures_shown() and picture is not None:
        st.download_button(
            "Save the picture under its heatmap", lambda: _full_size(key, row, layer), "heatmap.png", "image/png",
            icon=":material/download:", on_click="ignore",
        )  # fmt: skip


def _layer(e: Explanation, limit: float) -> Layer | None:
    signed = is_signed(e.method)
    sign: Sign = (st.session_state["meme.sign"] or "both") if signed else "both"
    if st.session_state["meme.depth"] == "pixels" and e.pixels is not None:
        own = percentile_limit(e.pixels, float(st.session_state["meme.percentile"]))
        return Layer(one_sign(e.pixels, sign), own, f"relevance of patches ({unit(e)})", signed)
    return cell_layer(e, limit, sign)


def _controls(e: Explanation) -> None:
    first, second = st.columns(2)
    first.slider("Opacity of the strongest cell, %", 0, 100, key="meme.opacity", step=5)
    second.slider(
        "Colours end at", 50.0, 100.0, key="meme.percentile", step=1.0, format="%dth percentile",
        help="Of absolute relevance of words and cells. What is beyond has the colour of the end; numbers stay as "
        "they are.",
    )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        if is_signed(e.method):
            st.segmented_control("What speaks", ["both", "for", "against"], key="meme.sign", required=True)
        if e.pixels is not None:
            st.segmented_control("Depth", ["tokens", "pixels"], key="meme.depth", required=True)
        st.toggle("Word boxes", key="meme.boxes")


def shown_picture(key: Key, row: dict[str, Any]) -> tuple[Image.Image | None, str]:
    """The picture for the screen, blurred unless it was asked for; or the reason why it is not shown."""
    found = session.services()
    try:
        path = found.library.runs[key.run].picture(row["image"])
        content = found.thumbnails.get(path, longest=VIEW, blurred=not session.pictures_shown())
    except PictureError as error:
        return None, str(error)
    note = "" if session.pictures_shown() else "The picture is blurred; “Show pictures” in the sidebar shows it."
    return Image.open(io.BytesIO(content)).convert("RGB"), note


def _full_size(key: Key, row: dict[str, Any], layer: Layer) -> bytes:
    picture = open_picture(session.services().library.runs[key.run].picture(row["image"]), longest=FULL)
    buffer = io.BytesIO()
    overlay(picture, layer.grid, st.session_state["meme.opacity"] / 100, limit=layer.limit).save(buffer, format="PNG")
    return buffer.getvalue()


def _details(key: Key, e: Explanation, found: WordValues) -> None:
    words, answer, shares, curves, quality, tokens = st.tabs(
        ["Words and rationale", "Answer", "Where relevance sits", "Faithfulness", "Method and quality", "All tokens"]
    )
    with words:
        _words(key, e, found)
    with answer:
        _answer(key)
    with shares:
        st.plotly_chart(shares_figure(e), config=CONFIG, key="meme.shares", alt="Relevance by segment")
    with curves:
        show_curves(key, e.target)
    with quality:
        st.html(facts_html([*facts(e), *_quality(e)]))
    with tokens:
        st.caption("Every token of prompt and answer, on the colour scale of words and cells.")
        st.html(tokens_html(e))


def _words(key: Key, e: Explanation, found: WordValues) -> None:
    compared = session.services().library.agreement(key)
    if compared is None:
        st.info("Relevance words and rationale words are compared by `xai analyze RUN`, which was not run yet.")
        left, right = st.columns(2)
        with left:
            st.markdown("**Words with most relevance**")
            st.html(chips([f"{word} {number(value)}" for word, value in top_words(found, TOP)] or ["none"]))
        with right:
            st.markdown("**Words that the model names**")
            st.html(chips(e.prediction.referred_words or ["none"], "model"))
    else:
        _compared(key, compared, relevance_titles(found))
    if e.prediction.referred_image_concepts:
        st.html("<b>Seen in the picture, the model says</b> " + chips(e.prediction.referred_image_concepts, "model"))


def _compared(key: Key, row: dict[str, Any], titles: dict[str, str]) -> None:
    sorted_words = session.services().library.categories(key)
    kinds = {} if sorted_words is None else sorted_words.category
    groups = {name: words for name, words in compared_words(row).items() if words or name == "shared"}
    for column, (name, words) in zip(st.columns(len(groups)), groups.items(), strict=True):
        title, css, explained = _HEADS[name]
        with column:
            st.markdown(f"**{title}**", help=explained)
            st.html(chips(words, css, titles, kinds) if words else '<span class="xai-small">none</span>')
    jaccard, chance = (_known(row.get(name)) for name in ("jaccard", "jaccard_chance"))
    value = "not defined: one side has no words" if jaccard is None else f"{jaccard:.3f}"
    by_chance = "" if chance is None else f"; by chance it would be {chance:.3f}"
    st.caption(f"Agreement (Jaccard of both sides, 0 to 1): {value}{by_chance}")
    if sorted_words is not None:
        st.caption(f"Small, behind a word: its category, by {plain(sorted_words.version)}.")
    elif session.services().library.has_categories(key.run):
        st.caption("Without categories. Of a large run, `xai analyze RUN --category-memes N` sorts those of N memes.")
    else:
        st.caption("Without categories of words. This command sorts them: `xai analyze RUN`")


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _answer(key: Key) -> None:
    answer = session.services().library.answer(key)
    read = {"strict": "as it stands", "repaired": "after repair", "unparsed": "not at all"}[answer["parse"]]
    about = [("Read as JSON", read + (f": {answer['parse_note']}" if answer["parse_note"] else ""))]
    about += [("Labels", ", ".join(answer["labels"]) or "none")]
    if answer["unknown_labels"]:
        about.append(("Not labels of the task", ", ".join(answer["unknown_labels"])))
    about += [("Words it names", ", ".join(answer["referred_words"]) or "none")]
    about += [("Picture concepts it names", ", ".join(answer["referred_image_concepts"]) or "none")]
    if answer["post"]:
        about.append(("Text of the post", answer["post"]))
    st.html(text_html(answer["answer"] or "(empty)", "xai-answer", "pre") + "<br>" + facts_html(about))


def _quality(e: Explanation) -> list[tuple[str, str]]:
    q = e.quality
    conserved = "cannot be said" if q.conservation is None else f"{q.conservation:.3f} (1 is exact)"
    rows = [
        ("Total over target", conserved),
        ("Share of the first token", f"{q.sink_share:.1%} of absolute relevance"),
        ("Share of the template", f"{q.template_share:.1%} of absolute relevance"),
        ("Between the words", f"{number(e.word_table.gap)} of the caption's relevance"),
        ("Values not finite", str(q.non_finite)),
    ]
    if q.labels_missing:
        rows.append(("Labels not located", ", ".join(q.labels_missing)))
    if q.position_share is not None:
        rows.append(("To no pixel", f"{q.position_share:.1%} goes to position embeddings"))
    return rows

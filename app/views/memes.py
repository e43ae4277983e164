"""The list of memes: filters, order, a gallery with blurred pictures, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
import streamlit as st

from xai.app import session
from xai.app.cautions import CAUTIONS
from xai.app.filters import CATEGORY_NAMES, CORRECT, SEGMENT_NAMES, SIDES, SORTS, VERDICTS, Filter
from xai.app.library import Key, Library
from xai.app.paths import PictureError
from xai.app.pieces import chips, plain, text_html
from xai.app.thumbnails import data_uri
from xai.app.urls import UrlState

CARDS, ROWS, COLUMNS = 8, 100, 4
"""Memes a page in the gallery, which are those that a window shows, and in the table; cards side by side."""
_NO_LANGUAGE = "not given"


class ListState(UrlState):
    """How the list is shown; what is in it is the :class:`Filter`."""

    page: int = 1
    table: bool = False


def show() -> None:
    """The page."""
    params = session.read_params()
    if session.arrived("memes", params):
        # Without parameters somebody comes back by the menu: the filter of the visit still holds.
        wanted = Filter.from_params(params) if params else session.current_filter()
        _set_widgets(wanted, ListState.from_params(params))
    elif "memes.sort" not in st.session_state:
        _set_widgets(session.current_filter(), ListState.from_params(params))
    _notice()
    wanted, state = _head()
    if wanted != session.current_filter():
        st.session_state[session.FILTER] = wanted
        state = state.model_copy(update={"page": 1})
    _list(wanted, state)


def _list(wanted: Filter, state: ListState) -> None:
    library, auditor = session.services().library, session.auditor()
    total, size = library.count(wanted, auditor), ROWS if state.table else CARDS
    pages = max(1, -(-total // size))
    state = state.model_copy(update={"page": min(max(1, state.page), pages)})
    session.wrote("memes", {**wanted.to_params(), **state.to_params()})
    st.session_state["memes.page"] = state.page
    _count_line(total, state.page, pages, wanted)
    if not total:
        _empty(wanted)
        return
    rows = library.page(wanted, start=(state.page - 1) * size, size=size, auditor=auditor)
    if state.table:
        _table(rows)
    else:
        _gallery(rows)


def _notice() -> None:
    if session.pictures_shown():
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.markdown("**Pictures are blurred:** memes may hurt. Your choice holds for this visit.", width="content")
        st.button(
            "Show pictures",
            on_click=_set,
            args=(session.PICTURES, True),
            icon=":material/visibility:",
            key="notice.show",
        )


def _head() -> tuple[Filter, ListState]:
    """Search, order, filters and view, above the list; what is filtered by is built by the browser when it is opened.

    Few kinds of elements, since a browser loads the code of each kind when a page has the first of it.
    """
    library = session.services().library
    search, order, turn, more, look = st.columns([4, 3.4, 0.6, 1.7, 1.7], vertical_alignment="bottom")
    search.text_input("Search captions, answers and names", key="memes.text", icon=":material/search:")
    order.selectbox("Order", list(SORTS), key="memes.sort", format_func=lambda name: SORTS[name][0])
    reverse, table = bool(st.session_state["memes.reverse"]), st.session_state["memes.view"] == "table"
    turn.button(
        "", icon=":material/swap_vert:", type="primary" if reverse else "secondary", key="memes.turn", width="stretch",
        on_click=_set, args=("memes.reverse", not reverse), help="The other way round",
    )  # fmt: skip
    with more.popover("Filter", icon=":material/filter_list:", width="stretch", key="memes.filter"):
        values = _filters(library)
    view, icon = ("Gallery", ":material/grid_view:") if table else ("Table", ":material/table_rows:")
    look.button(view, icon=icon, key="memes.look", width="stretch", on_click=_set, args=("memes.view", view.lower()))
    wanted = Filter(
        **values, text=st.session_state["memes.text"] or "", sort=st.session_state["memes.sort"], reverse=reverse
    )
    return wanted, ListState(page=st.session_state.get("memes.page", 1), table=table)


def _set(name: str, value: object) -> None:
    st.session_state[name] = value


def _filters(library: Library) -> dict[str, Any]:
    left, right = st.columns(2, width=620)
    with left:
        values = _filters_of_answers(library)
    with right:
        values |= _filters_of_explanations(library)
    return values


def _filters_of_answers(library: Library) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if len(library.runs) > 1:
        values["run"] = _several("run", "Run", library.choices("run"))
    values["label"] = _several("label", "Label of the answer", library.choices("labels"))
    values["mode"] = _several("mode", "Mode", library.choices("mode"))
    if gold := library.choices("gold"):
        values["gold"] = _several("gold", "Gold label", gold)
    values["correct"] = _one("correct", "Labels are", CORRECT)
    if len(languages := library.choices("language")) > 1:
        values["language"] = _several("language", "Language", languages, {"": _NO_LANGUAGE})
    return values | {"verdict": _one("verdict", "Verdicts", VERDICTS)}


def _filters_of_explanations(library: Library) -> dict[str, Any]:
    bounds: Any = st.slider(
        "Agreement of relevance and rationale", 0.0, 1.0, key="memes.agreement", step=0.01,
        help="Jaccard of the words with most relevance and the words that the model says it used. With a narrower "
        "range, memes without an agreement are left out.",
    )  # fmt: skip
    if not any(library.has_agreement(name) for name in library.runs):
        st.caption("No agreement yet. Run: `xai analyze RUN`")
    values: dict[str, Any] = {"low": bounds[0], "high": bounds[1]}
    if len(library.choices("method")) > 1:
        values["method"] = _several("method", "Method", library.choices("method"), {"": "not explained"})
    shorts = {name: caution.short for name, caution in CAUTIONS.items()}
    values["flag"] = _several("flag", "Warnings", library.choices("flags"), shorts)
    values |= _category_filter(library)
    values["share"] = _one("share", "Relevance sits on", SEGMENT_NAMES)
    values["least"] = st.slider(
        "with a share of at least", 0.0, 1.0, key="memes.least", step=0.01, disabled=not values["share"],
        help="Of the absolute sums of the segments of the prompt.",
    )  # fmt: skip
    return values


def _category_filter(library: Library) -> dict[str, Any]:
    found = library.choices("word_categories")
    if not found:
        st.caption("No categories of words yet. Run: `xai analyze RUN`")
        return {}
    names = {value.partition(": ")[2] for value, _ in found}
    known = [name for name in CATEGORY_NAMES if name in names]
    st.session_state["memes.category"] = [name for name in st.session_state.get("memes.category", []) if name in known]
    chosen = st.multiselect("Words of a category", known, key="memes.category", placeholder="all")
    side = _one("side", "which stand", SIDES, disabled=not chosen)
    return {"category": tuple(chosen), "side": side}


def _one(name: str, title: str, options: Mapping[Any, str], **more: Any) -> Any:
    """A choice of one value."""
    return st.selectbox(title, list(options), key=f"memes.{name}", format_func=options.__getitem__, **more)


def _several(
    name: str, title: str, options: Sequence[tuple[str, int]], names: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """A choice of several values, of which any may hold; each with the number of its rows."""
    texts = {value: f"{(names or {}).get(value, value)} ({n:,})" for value, n in options}
    key = f"memes.{name}"
    st.session_state[key] = [value for value in st.session_state.get(key, []) if value in texts]
    chosen = st.multiselect(title, list(texts), key=key, format_func=lambda value: texts[value], placeholder="all")
    return tuple(chosen)


def _set_widgets(wanted: Filter, state: ListState) -> None:
    for name in Filter.model_fields:
        value = getattr(wanted, name)
        st.session_state[f"memes.{name}"] = list(value) if isinstance(value, tuple) else value
    st.session_state["memes.least"] = min(max(wanted.least, 0.0), 1.0)
    st.session_state["memes.agreement"] = (min(max(wanted.low, 0.0), 1.0), min(max(wanted.high, 0.0), 1.0))
    st.session_state["memes.view"] = "table" if state.table else "gallery"
    st.session_state["memes.page"] = state.page
    st.session_state[session.FILTER] = wanted


def _clear() -> None:
    state = ListState(table=st.session_state.get("memes.view") == "table")
    _set_widgets(Filter(sort=st.session_state["memes.sort"], reverse=st.session_state["memes.reverse"]), state)


def _count_line(total: int, page: int, pages: int, wanted: Filter) -> None:
    line, clear, back, forth = st.columns([5, 1.5, 1.2, 1.2], vertical_alignment="center")
    what = "meme, by mode and method" if total == 1 else "memes, by mode and method"
    filtered = "".join(f" · {plain(phrase)}" for phrase in wanted.described())
    line.markdown(f"**{total:,}** {what} · page {page:,} of {pages:,}{filtered}")
    if not wanted.is_open:
        clear.button("Clear filters", on_click=_clear, width="stretch")
    back.button("Back", on_click=_turn, args=(page - 1,), disabled=page <= 1, width="stretch", shortcut="P")
    forth.button("Next", on_click=_turn, args=(page + 1,), disabled=page >= pages, width="stretch", shortcut="N")


def _turn(page: int) -> None:
    st.session_state["memes.page"] = page


def _empty(wanted: Filter) -> None:
    if wanted.is_open:
        st.info(
            "The runs hold no answers yet. `xai explain DATASET --out RUN` makes them; what failed is in the overview."
        )
    else:
        st.info("No meme passes this filter. Take a part of it back, or clear it.")


def _gallery(rows: pd.DataFrame) -> None:
    records: list[dict[str, Any]] = [dict(zip(rows.columns, row, strict=True)) for row in rows.itertuples(index=False)]
    for start in range(0, len(records), COLUMNS):
        # One fragment a row and the links below: a column for each card would be twice the page for a browser to build.
        beside = records[start : start + COLUMNS]
        st.html(f'<div class="xai-cards">{"".join(map(_card, beside))}</div>')
        with st.container(horizontal=True, key=f"memes.links.{start}"):
            for row in beside:
                st.page_link(
                    session.page("meme"),
                    label=plain(row["meme_id"]),
                    query_params=link(Key(*(row[name] for name in Key._fields))),
                    icon=":material/open_in_full:",
                )


def link(key: Key) -> dict[str, Any]:
    """The parameters of the page of a meme, within the filter of the visit."""
    about = {"run": key.run, "meme": key.meme_id, "mode": key.mode, "method": key.method}
    return {**about, **session.current_filter().to_params()}


def _card(row: Mapping[str, Any]) -> str:
    cautions = [CAUTIONS[name].short for name in row["flags"]]
    several = len(session.services().library.choices("method")) > 1
    facts = " · ".join(filter(None, [_agreement(row["jaccard"]), row["mode"], row["method"] if several else ""]))
    return (
        f'<div class="xai-card"><div class="frame">{_thumbnail(row)}</div>'
        f"{text_html(row['text'] or '(no caption)', 'text')}"
        f"<div>{chips(list(row['labels'])[:2] or ['no label'])}{_more(len(row['labels']) - 2)}</div>"
        f'<div class="xai-small">{escape(facts)}</div><div>{chips(cautions[:1], "caution")}{_more(len(cautions) - 1)}'
        "</div></div>"
    )


def _more(n: int) -> str:
    return f'<span class="xai-small">+{n}</span>' if n > 0 else ""


def _agreement(value: float) -> str:
    return "" if pd.isna(value) else f"agreement {value:.2f}"


def _thumbnail(row: Mapping[str, Any]) -> str:
    found = session.services()
    try:
        path = found.library.runs[row["run"]].picture(row["image"])
        webp = found.thumbnails.get(path, blurred=not session.pictures_shown())
    except PictureError as error:
        return f'<span class="xai-small">{escape(str(error))}</span>'
    return f'<img src="{data_uri(webp)}" alt="">'


def _table(rows: pd.DataFrame) -> None:
    shown = pd.DataFrame(
        {
            "meme": rows["meme_id"],
            "run": rows["run"],
            "caption": rows["text"],
            "labels": rows["labels"].map(list),
            "gold": rows["gold"].map(lambda gold: list(gold) if gold is not None else None),
            "agreement": rows["jaccard"],
            "F1": rows["f1"],
            "invented": rows["n_invented"],
            "caption share": rows["part_text"],
            "picture share": rows["part_image"],
            "instruction share": rows["part_instruction"],
            "mode": rows["mode"],
            "method": rows["method"],
            "warnings": rows["flags"].map(lambda flags: [CAUTIONS[name].short for name in flags]),
        }
    )
    if len(session.services().library.runs) == 1:
        shown = shown.drop(columns="run")
    share = st.column_config.ProgressColumn(format="percent", min_value=0.0, max_value=1.0)
    columns: dict[str, Any] = dict.fromkeys(("agreement", "caption share", "picture share", "instruction share"), share)
    columns |= {"caption": st.column_config.TextColumn(width=300), "labels": st.column_config.ListColumn(width=200)}
    st.caption("Choose a row to open it. The menu of the table downloads it; this page of the list is in it.")
    event = st.dataframe(
        shown, hide_index=True, column_config=columns, on_select="rerun", selection_mode="single-row", height=560
    )
    chosen = event.selection.rows
    if chosen:
        session.go_to("meme", link(Key(*(rows.iloc[chosen[0]][name] for name in Key._fields))))

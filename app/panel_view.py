"""What the pages of a panel share: which record is shown, the meme itself, and what the models said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Literal, NamedTuple

import streamlit as st

from xai.annotation.folder import Item
from xai.app import session
from xai.app.panels import OpenedPanel
from xai.app.paths import PictureError
from xai.app.pieces import chips, facts_html, plain, text_html
from xai.app.thumbnails import VIEW, data_uri
from xai.app.urls import UrlState
from xai.attribution.heatmap import visible

PanelPage = Literal["arbiter", "validator"]
Lists = Mapping[str, tuple[str, Callable[[Item], bool]]]
"""By name in the URL: what a list is called, and which records are in it."""


class PanelState(UrlState):
    """Which record of which panel is shown, out of which list."""

    panel: str = ""
    record: str = ""
    show: str = ""


class Shown(NamedTuple):
    """A record, and the panel that it is of."""

    opened: OpenedPanel
    item: Item


def notice(about: str) -> None:
    """What the page is for, and that pictures are blurred."""
    st.caption(about)
    if session.pictures_shown():
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.markdown("**Pictures are blurred:** memes may hurt. Your choice holds for this visit.", width="content")
        st.button(
            "Show pictures", on_click=_set, args=(session.PICTURES, True), icon=":material/visibility:",
            key="notice.show",
        )  # fmt: skip


def chosen(page: PanelPage, lists_of: Callable[[OpenedPanel], Lists], nothing: str) -> Shown | None:
    """The record that the URL names, or the first of its list; ``None`` where the list has none.

    Args:
        lists_of: the lists of a panel; the first is shown by default.
        nothing: what is said of an empty list.
    """
    state = PanelState.from_params(session.read_params())
    if session.arrived(page, session.read_params()):
        _set_widgets(page, state)
    opened = _panel(page)
    items, lists = opened.items(), lists_of(opened)
    at, name = _list_line(page, lists, items)
    listed = [item for item in items if lists[name][1](item)]
    wanted = st.session_state.get(f"{page}.record", "")
    item = _nearest(items, listed, wanted)
    shown = PanelState(
        panel=opened.name, record=item.id if item else "", show=name if name != next(iter(lists)) else ""
    )
    session.wrote(page, shown.to_params())
    st.session_state[f"{page}.record"] = shown.record
    if item is None:
        st.info(nothing)
        return None
    _steps(page, at, listed, item)
    return Shown(opened, item)


def meme_view(shown: Shown) -> None:
    """Picture, the text in it, and the post with what was taken out."""
    item = shown.item
    st.html(text_html(item.id, "xai-title"))
    st.html(f'<div class="xai-panel-picture">{_picture(shown)}</div>')
    st.caption("Text in the picture")
    st.html(text_html(item.meme.text or "(none)", "xai-caption"))
    if item.meme.post:
        st.caption(f"Post, cleaned by the rules for: {plain(item.record.get('platform', 'other'))}")
        st.html(text_html(item.meme.post, "xai-caption"))
    removed = item.record.get("removed", [])
    if removed:
        with st.expander(f"Taken out of the post ({len(removed)})"):
            st.html(facts_html([(one["rule"], one["text"]) for one in removed]))


def answers_view(item: Item) -> None:
    """What every model answered: labels, how sure it says it is, and whether that could be read."""
    st.html("".join(_answer(number, one) for number, one in enumerate(item.answers, start=1) if one is not None))


def history(opened: OpenedPanel, item: Item, page: PanelPage) -> None:
    """Everything that people stored on this page about the record, the last first."""
    events = [entry for entry in opened.panel.history(item.id) if entry["page"] == page]
    if not events:
        return
    with st.expander(f"History ({len(events)})"):
        st.dataframe([_event(event) for event in reversed(events)], hide_index=True)


def may_decide() -> bool:
    """Whether this visitor's decisions can be stored; says what is missing if not."""
    settings = session.services().settings
    if settings.read_only:
        st.info("The explorer was started read-only: decisions are shown and not stored.")
        return False
    if not session.auditor():
        st.info("Type your name in the sidebar: decisions are stored under it.")
        return False
    return True


def go_on(page: PanelPage, message: str) -> None:
    """Say what was stored when the page is shown again."""
    st.session_state[f"{page}.message"] = message


def message(page: PanelPage) -> None:
    """What was stored last, once."""
    if text := st.session_state.pop(f"{page}.message", None):
        st.caption(text)


def _answer(number: int, answer: Mapping[str, Any]) -> str:
    labels = chips(answer["labels"] or ["no label"]) + chips(answer["unknown_labels"], "caution")
    remark = answer["failure"] or answer["parse_note"]
    below = f'<div dir="auto" class="xai-small">{escape(visible(remark))}</div>' if remark else ""
    return (
        f'<div class="xai-said"><b>{number}</b> {escape(visible(_short(answer["annotator"])))} '
        f'<span class="xai-small">{escape(_sure(answer))}</span> {labels}'
        f"{chips(answer['reasons'], 'model')}{below}</div>"
    )


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    said = event.get("verdict") or event.get("vote") or "taken back"
    return {
        "time (UTC)": event["time"][:19].replace("T", " "),
        "person": event["person"],
        "decision": said,
        "labels": ", ".join(event.get("labels", [])),
        "why": event["why"],
    }


def _set_widgets(page: PanelPage, state: PanelState) -> None:
    panels = list(session.services().panels)
    st.session_state[f"{page}.panel"] = state.panel if state.panel in panels else panels[0]
    st.session_state[f"{page}.show"] = state.show
    st.session_state[f"{page}.record"] = state.record


def _panel(page: PanelPage) -> OpenedPanel:
    panels = session.services().panels
    names = list(panels)
    name = st.selectbox("Panel", names, key=f"{page}.panel") if len(names) > 1 else names[0]
    return panels[name]


def _list_line(page: PanelPage, lists: Lists, items: Sequence[Item]) -> tuple[Any, str]:
    """The choice of the list with the number of its records; where the place in it is to be said, and its name."""
    counts = {name: sum(map(belongs, items)) for name, (_, belongs) in lists.items()}
    choice, at = st.columns([5, 6], vertical_alignment="center")
    if st.session_state.get(f"{page}.show") not in lists:
        st.session_state[f"{page}.show"] = next(iter(lists))
    with choice:
        st.segmented_control(
            "Records", list(lists), key=f"{page}.show", required=True, label_visibility="collapsed",
            format_func=lambda name: f"{lists[name][0]} ({counts[name]:,})",
        )  # fmt: skip
    return at, str(st.session_state[f"{page}.show"] or next(iter(lists)))


def _nearest(items: Sequence[Item], listed: Sequence[Item], wanted: str) -> Item | None:
    """The wanted record; where it has left the list, the one behind it in the dataset, or else the first."""
    if not listed:
        return None
    place = {item.id: number for number, item in enumerate(items)}
    start = place.get(wanted, 0)
    return next((item for item in listed if place[item.id] >= start), listed[0])


def _steps(page: PanelPage, where: Any, listed: Sequence[Item], item: Item) -> None:
    names = [one.id for one in listed]
    number = names.index(item.id)
    with where.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        st.markdown(f"{number + 1:,} of {len(names):,}", width="content")
        for label, key, step in (("Previous", "P", -1), ("Next", "N", 1)):
            there = 0 <= number + step < len(names)
            st.button(
                label, shortcut=key, disabled=not there, key=f"{page}.{label}", on_click=_set,
                args=(f"{page}.record", names[number + step] if there else ""),
            )  # fmt: skip


def _picture(shown: Shown) -> str:
    found = session.services()
    try:
        path = shown.opened.picture(shown.item)
        webp = found.thumbnails.get(path, longest=VIEW, blurred=not session.pictures_shown())
    except PictureError as error:
        return f'<span class="xai-small">{escape(str(error))}</span>'
    return f'<img src="{data_uri(webp)}" alt="">'


def _short(name: str) -> str:
    """An annotator's name without the way to it: the model behind an address, the last part of a folder."""
    return name.rpartition("#")[2] if "#" in name else name.rstrip("/").rpartition("/")[2]


def _sure(answer: Mapping[str, Any]) -> str:
    said = answer["confidence"]
    return "does not say how sure" if said is None else f"{said:.0%} sure"


def _set(name: str, value: object) -> None:
    st.session_state[name] = value

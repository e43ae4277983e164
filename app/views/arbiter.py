"""The records on which the models of a panel do not agree: a person looks, and decides with which labels, or not."""

from __future__ import annotations

from typing import Literal

import streamlit as st

from xai.annotation.folder import MAX_WHY, STATES, Item, PanelError
from xai.annotation.ledger import LedgerError
from xai.app import session
from xai.app.panel_view import (
    Lists,
    Shown,
    answers_view,
    chosen,
    go_on,
    history,
    may_decide,
    meme_view,
    message,
    notice,
)
from xai.app.pieces import chips, facts_html, plain

ABOUT = (
    "The models of the panel describe; you decide. A decision is about a record of a dataset: nothing is removed from "
    "anywhere, and the decision stays in the panel's folder with your name and the time."
)
LISTS: Lists = {
    "waiting": ("To decide", lambda item: item.state == "people"),
    "decided": ("Decided", lambda item: item.person is not None),
}


def show() -> None:
    """The page."""
    notice(ABOUT)
    message("arbiter")
    shown = chosen(
        "arbiter", lambda opened: LISTS, "No record is in this list. The arbiter leaves to people what is not aligned."
    )
    if shown is None:
        return
    left, right = st.columns([5, 6], gap="medium")
    with left:
        meme_view(shown)
    with right:
        st.markdown("**What the models say**")
        answers_view(shown.item)
        _why_here(shown.item)
        _form(shown)
        history(shown.opened, shown.item, "arbiter")


def _why_here(item: Item) -> None:
    decision = item.decision or {}
    st.caption(f"Left to people: {plain(decision.get('why', ''))}.")


def _form(shown: Shown) -> None:
    item = shown.item
    with st.container(border=True, gap="small"):
        st.markdown("**Decision**")
        if item.person:
            _standing(shown)
            return
        disabled = not may_decide()
        labels, why = f"arbiter.labels.{shown.opened.name}.{item.id}", f"arbiter.why.{shown.opened.name}.{item.id}"
        with st.container(horizontal=True):
            for number, answer in enumerate(item.answers, start=1):
                if answer and answer["labels"]:
                    st.button(
                        f"Labels of {number}", key=f"arbiter.take.{number}", disabled=disabled, on_click=_take,
                        args=(labels, answer["labels"]), help=plain(", ".join(answer["labels"])),
                    )  # fmt: skip
        st.session_state.setdefault(labels, [])
        st.multiselect(
            "Labels", shown.opened.panel.task.label_names, key=labels, disabled=disabled, placeholder="choose labels"
        )
        st.text_input(
            "Why", key=why, disabled=disabled, max_chars=MAX_WHY, placeholder="needed to exclude, welcome to accept"
        )
        accept, exclude = st.columns(2)
        accept.button(
            "Accept with these labels", type="primary", disabled=disabled, width="stretch", key="arbiter.accept",
            on_click=_decide, args=(shown, "accepted", labels, why),
        )  # fmt: skip
        exclude.button(
            "Exclude", disabled=disabled, width="stretch", key="arbiter.exclude", on_click=_decide,
            args=(shown, "excluded", labels, why),
        )  # fmt: skip


def _standing(shown: Shown) -> None:
    """The decision that stands, and how it is taken back."""
    person = shown.item.person or {}
    st.html(
        f"{chips(person['labels'])}"
        + facts_html(
            [
                ("Decision", person["verdict"]),
                ("By", person["person"]),
                ("Why", person["why"] or "(no reason given)"),
                ("Since", f"{person['time'][:19].replace('T', ' ')} UTC"),
                ("Now", STATES[shown.item.state]),
            ]
        )
    )
    st.button(
        "Take the decision back", icon=":material/undo:", disabled=not may_decide(), key="arbiter.undo",
        on_click=_store, args=(shown, None, [], ""),
    )  # fmt: skip


def _take(key: str, labels: list[str]) -> None:
    st.session_state[key] = list(labels)


def _decide(shown: Shown, verdict: Literal["accepted", "excluded"], labels: str, why: str) -> None:
    """Store what stands in the fields of these keys."""
    _store(shown, verdict, list(st.session_state[labels]), st.session_state[why])


def _store(shown: Shown, verdict: Literal["accepted", "excluded"] | None, labels: list[str], why: str) -> None:
    name = shown.item.id
    try:
        shown.opened.panel.decide(name, session.auditor(), verdict, labels, why)
    except (PanelError, LedgerError) as error:
        go_on("arbiter", f":material/error: Not stored: {plain(error)}")
        return
    said = {"accepted": f"accepted as {', '.join(labels)}", "excluded": "excluded", None: "taken back"}[verdict]
    icon = ":material/check:" if verdict else ":material/undo:"
    go_on("arbiter", f"{icon} Stored: {plain(name)} {plain(said)}.")

"""The form in which an auditor judges a meme: every click is stored at once, and the history is beside it."""

from __future__ import annotations

import streamlit as st

from xai.app import session
from xai.app.library import Key
from xai.app.pieces import plain
from xai.app.verdicts import ANSWERS, MAX_NOTE, Question, VerdictError

_TITLES: dict[Question, str] = {
    "relevance": "Is the relevance plausible?",
    "rationale": "Is the rationale plausible?",
    "label": "Are the labels right?",
}


def verdict_form(key: Key) -> None:
    """Questions with their answers as buttons, a note, and who judged before."""
    found, who = session.services(), session.auditor()
    subject = found.subject(key)
    with st.container(border=True, gap="xsmall"):
        st.markdown("**Verdict**")
        if not found.settings.read_only and not who:
            st.info("Type your name in the sidebar: verdicts are stored under it.")
        given = found.stores[key.run].of(subject, who)
        disabled = found.settings.read_only or not who
        shortcut = iter("123456789")
        for question, title in _TITLES.items():
            st.caption(title)
            for column, answer in zip(st.columns([4, 5, 4], gap="xsmall"), ANSWERS[question], strict=True):
                chosen = given[question] == answer
                column.button(
                    answer.capitalize(), key=f"verdict.{question}.{answer}", disabled=disabled, width="stretch",
                    type="primary" if chosen else "secondary", shortcut=next(shortcut),
                    on_click=_store, args=(key, question, None if chosen else answer),
                )  # fmt: skip
        _note(key, given["note"] or "", disabled)
        if message := st.session_state.pop("verdict.message", None):
            st.caption(message)
    _history(key)


def _note(key: Key, stored: str, disabled: bool) -> None:
    # A key of its own for each meme and auditor, so that no note is carried over to another one.
    name = f"verdict.note.{session.auditor()}.{key}"
    st.session_state.setdefault(name, stored)
    st.text_area(
        "Note", key=name, disabled=disabled, height=68, max_chars=MAX_NOTE, on_change=_store_note, args=(key, name),
        placeholder="stored when you leave the field",
    )  # fmt: skip


def _store_note(key: Key, name: str) -> None:
    _store(key, "note", st.session_state[name].strip() or None)


def _store(key: Key, question: Question, answer: str | None) -> None:
    found = session.services()
    try:
        found.stores[key.run].add(found.subject(key), session.auditor(), question, answer)
    except VerdictError as error:
        st.session_state["verdict.message"] = f":material/error: {plain(error)}"
        return
    st.session_state["verdict.message"] = ":material/check: Stored." if answer else ":material/undo: Taken back."


def _history(key: Key) -> None:
    found = session.services()
    events = [
        event
        for event in found.stores[key.run].history(key.meme_id)
        if (event["mode"], event["method"]) == (key.mode, key.method)
    ]
    if not events:
        return
    now = found.subject(key).of
    with st.expander(f"History of verdicts ({len(events)})"):
        st.dataframe(
            [
                {
                    "time (UTC)": event["time"][:19].replace("T", " "),
                    "auditor": event["auditor"],
                    "about": event["question"],
                    "answer": event["answer"] or "taken back",
                    "of": "this answer" if event["of"] == now else "an earlier answer",
                }
                for event in reversed(events)
            ],
            hide_index=True,
        )

"""The accepted records of a panel: people vote on labels and phrases, each without seeing the others' votes first."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import streamlit as st

from xai.annotation.folder import MAX_WHY, STATES, Item, PanelError, Vote
from xai.annotation.ledger import LedgerError
from xai.app import session
from xai.app.panel_view import Lists, Shown, chosen, go_on, history, may_decide, meme_view, message, notice
from xai.app.panels import OpenedPanel
from xai.app.pieces import chips, facts_html, plain

ABOUT = (
    "Do labels and phrases say what the meme says? You vote on a description of a record in a dataset: nothing is "
    "removed from anywhere, and every vote stays in the panel's folder with its name and the time."
)
VOTED_ON = ("votes", "kept", "voted out")
KINDS: tuple[tuple[Vote, str, str], ...] = (("for", "For", "1"), ("against", "Against", "2"))
MEASURES = {
    "exact match": ("equal votes, mean over pairs", "observed"),
    "augmented kappa": ("Cohen's kappa, mean over pairs", "adjusted"),
    "Krippendorff's alpha, Jaccard": ("Krippendorff's alpha", "adjusted"),
}
"""Of the report of `xai agreement`; with one label an item, the augmented kappa is Cohen's, and this alpha nominal."""


def show() -> None:
    """The page."""
    notice(ABOUT)
    message("validator")
    shown = chosen("validator", lambda opened: _lists(opened, session.auditor()), "No record is in this list.")
    if shown is not None:
        left, right = st.columns([5, 6], gap="medium")
        with left:
            meme_view(shown)
        with right:
            _description(shown.item)
            _form(shown)
            _origin(shown.item)
            if session.auditor() in shown.item.votes:
                history(shown.opened, shown.item, "validator")
        _agreement(shown.opened)


def _lists(opened: OpenedPanel, who: str) -> Lists:
    most = opened.panel.settings.votes.validators

    def is_open(item: Item) -> bool:
        return item.state in VOTED_ON and who not in item.votes and len(item.votes) < most

    return {
        "waiting": ("To vote", is_open),
        "voted": ("Voted", lambda item: item.state in VOTED_ON and who in item.votes),
        "all": ("All", lambda item: item.state in VOTED_ON),
    }


def _description(item: Item) -> None:
    """What is voted on."""
    st.html(f"<b>Labels</b> {chips(item.accepted.labels if item.accepted else ())}")
    _phrases(item)


def _origin(item: Item) -> None:
    """How the labels came about."""
    if item.accepted:
        st.html(facts_html([("Accepted by", item.accepted.who), ("Why", item.accepted.why)]))


def _phrases(item: Item) -> None:
    found = item.phrases
    if found is None:
        return
    said = chips(found["phrases"]) if found["phrases"] else '<span class="xai-small">none</span>'
    st.html(f"<b>What it does</b> {said}")
    if found["refused"]:
        st.caption(f"The explicator's answer was not taken: {plain(found['refused'])}.")
    if found["left_out"]:
        with st.expander(f"Left out ({len(found['left_out'])})"):
            st.html(facts_html([(why, phrase or "(empty)") for phrase, why in found["left_out"]]))


def _form(shown: Shown) -> None:
    item, who = shown.item, session.auditor()
    wanted = shown.opened.panel.settings.votes
    own = item.votes.get(who)
    with st.container(border=True, gap="small"):
        st.markdown("**Your vote**")
        disabled = not may_decide()
        if not own and len(item.votes) >= wanted.validators:
            st.info(f"{wanted.validators} people have voted on this record; it takes no more votes.")
            disabled = True
        why = f"validator.why.{who}.{shown.opened.name}.{item.id}"
        st.session_state.setdefault(why, own["why"] if own else "")
        st.text_input("Why", key=why, disabled=disabled, max_chars=MAX_WHY, placeholder="welcome, stored with the vote")
        for column, (vote, label, key) in zip(st.columns(2), KINDS, strict=True):
            is_own = own is not None and own["vote"] == vote
            column.button(
                label, key=f"validator.{vote}", disabled=disabled, width="stretch", shortcut=key,
                type="primary" if is_own else "secondary", on_click=_store, args=(shown, None if is_own else vote, why),
            )  # fmt: skip
        if own:
            _others(item, wanted.validators)
        else:
            st.caption(
                f"{len(item.votes)} of {wanted.validators} have voted; how is shown when you have. "
                f"{wanted.keep} votes in favour keep the record."
            )


def _others(item: Item, n: int) -> None:
    said = Counter(vote["vote"] for vote in item.votes.values())
    st.caption(
        f"{len(item.votes)} of {n} have voted: {said['for']} for, {said['against']} against. Now: {STATES[item.state]}."
    )
    st.html(
        facts_html([(who, f"{vote['vote']}: {vote['why']}".removesuffix(": ")) for who, vote in item.votes.items()])
    )


def _store(shown: Shown, vote: Vote | None, why_key: str) -> None:
    try:
        shown.opened.panel.vote(shown.item.id, session.auditor(), vote, st.session_state.get(why_key, ""))
    except (PanelError, LedgerError) as error:
        go_on("validator", f":material/error: Not stored: {plain(error)}")
        return
    icon, said = (":material/check:", f"voted {vote}") if vote else (":material/undo:", "taken back")
    go_on("validator", f"{icon} Stored: {plain(shown.item.id)}, {said}.")


def _agreement(opened: OpenedPanel) -> None:
    """How far the validators agree, over all records so far."""
    from xai.analysis.annotators.report import annotator_report
    from xai.annotation.report import has_pairs, vote_annotations

    given = vote_annotations(opened.items())
    with st.expander("Agreement of the validators"):
        if not has_pairs(given):
            st.caption("It takes two people who voted on the same record.")
            return
        table = annotator_report(given, min_count=1, n_draws=0).table("measures").frame
        found = {str(row["measure"]).partition(" (mean of")[0]: row for row in table.to_dict("records")}
        rows = [(name, found[key][column], found[key]["items"]) for key, (name, column) in MEASURES.items()]
        st.dataframe(
            pd.DataFrame(rows, columns=["measure", "value", "records"]), hide_index=True,
            column_config={"value": st.column_config.NumberColumn(format="%.3f")},
        )  # fmt: skip
        st.caption(
            "1 is perfect; 0 is agreement as by chance for kappa and alpha, which are empty where all votes are one. "
            "`xai annotate PANEL --status` has intervals and every pair."
        )

"""What auditors said: the current verdicts, how far the auditors agree, and all of it to hand in."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from xai.app import session
from xai.app.filters import Filter
from xai.app.library import Key
from xai.app.pieces import plain
from xai.app.verdicts import ANSWERS, COLUMNS, HISTORY, agreement, as_csv, as_jsonl
from xai.app.views.memes import link


def show() -> None:
    """The page."""
    found = session.services()
    st.header("Verdicts")
    name = _run(list(found.library.runs))
    rows = found.verdicts(name)
    if not rows:
        st.info("Nobody has judged a meme of this run yet. Open one and answer the questions beside its caption.")
        st.page_link(
            session.page("memes"), label="The memes with the least agreement", icon=":material/grid_view:",
            query_params=dict(Filter(sort="agreement").to_params()),
        )  # fmt: skip
        return
    _counts(rows)
    _export(name, rows)
    _table(name, rows)
    _agreement(rows)


def _run(names: list[str]) -> str:
    return st.selectbox("Run", names, key="verdicts.run") if len(names) > 1 else names[0]


def _counts(rows: list[dict[str, Any]]) -> None:
    frame = pd.DataFrame(rows)
    columns = st.columns(5)
    columns[0].metric("Memes judged", frame["meme_id"].nunique())
    columns[1].metric("Auditors", frame["auditor"].nunique())
    columns[2].metric("Relevance not plausible", int((frame["relevance"] == "not plausible").sum()))
    columns[3].metric("Rationale not plausible", int((frame["rationale"] == "not plausible").sum()))
    columns[4].metric("Labels wrong", int((frame["label"] == "wrong").sum()))


def _export(name: str, rows: list[dict[str, Any]]) -> None:
    base = name.replace("/", "-")
    history = session.services().stores[name].history()
    with st.container(horizontal=True):
        _save("Save as CSV", as_csv(rows), f"{base}-verdicts.csv", "text/csv")
        _save("Save as JSONL", as_jsonl(rows), f"{base}-verdicts.jsonl", "application/jsonl")
        _save("Save the whole history", as_jsonl(history, HISTORY), f"{base}-history.jsonl", "application/jsonl")
    st.caption(
        "One row an auditor, meme, mode and method: the last answer to each question. In CSV, what a spreadsheet would "
        "take for a formula is led by an apostrophe."
    )


def _save(label: str, content: bytes, name: str, kind: str) -> None:
    st.download_button(label, content, name, kind, icon=":material/download:", on_click="ignore")


def _table(run: str, rows: list[dict[str, Any]]) -> None:
    shown = pd.DataFrame(rows)[list(COLUMNS)].rename(
        columns={"meme_id": "meme", "label": "labels", "time": "time (UTC)"}
    )
    shown["time (UTC)"] = shown["time (UTC)"].str.slice(0, 19).str.replace("T", " ")
    st.caption("Choose a row to open its meme.")
    event = st.dataframe(shown, hide_index=True, on_select="rerun", selection_mode="single-row", key="verdicts.table")
    if event.selection.rows:
        row = rows[event.selection.rows[0]]
        session.go_to("meme", link(Key(run, row["meme_id"], row["mode"], row["method"])))


def _agreement(rows: list[dict[str, Any]]) -> None:
    st.subheader("Agreement between auditors")
    found = agreement(rows)
    if not found:
        st.caption("It takes two auditors who judged the same memes.")
        return
    names = {"relevance": "relevance plausible", "rationale": "rationale plausible", "label": "labels right"}
    st.dataframe(
        [
            {
                "question": names[pair.question],
                "auditors": f"{pair.first} and {pair.second}",
                "judged by both": pair.n,
                "equal answers": pair.equal,
                "Cohen's kappa": pair.kappa,
            }
            for pair in found
        ],
        hide_index=True,
        column_config={
            "equal answers": st.column_config.NumberColumn(format="percent"),
            "Cohen's kappa": st.column_config.NumberColumn(format="%.3f"),
        },
    )
    st.caption(
        "Kappa is 1 where all answers are equal and 0 where they are as equal as by chance; it is empty where nothing "
        f"was judged by both or all answers are one. Answers: {plain(', '.join(ANSWERS['relevance']))}."
    )

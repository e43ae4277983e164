"""Whether the explanations, and the model's own words, say what the model did: the report of `xai faithfulness`."""

from __future__ import annotations

import streamlit as st

from xai.app import session
from xai.app.pieces import plain
from xai.app.report_view import show_report


def show() -> None:
    """The page."""
    runs = session.services().library.runs
    st.header("Faithfulness")
    st.caption("Does taking away what has most relevance change the answer, more than taking away anything else?")
    name = st.selectbox("Run", list(runs), key="faithfulness.run") if len(runs) > 1 else next(iter(runs))
    report = runs[name].report("faithfulness")
    if report is None:
        st.info(f"It was not measured yet for {plain(name)}. This command does, and needs the model:")
        st.code(f"xai faithfulness {name}", language=None)
        return
    show_report(report, key="faithfulness")

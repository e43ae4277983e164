"""Shows on the page of a meme what `xai faithfulness` measured of it: what a label loses without parts of the meme."""

from __future__ import annotations

import streamlit as st

from xai.analysis.faithfulness.curves import SCALES, Scale
from xai.analysis.faithfulness.stored import NAMES, curve_chart, measure_table
from xai.app import session
from xai.app.library import Key, MeasuredCurves
from xai.app.pieces import plain
from xai.app.report_view import show_chart, show_table
from xai.schema import ALL_LABELS


def show_curves(key: Key, target: str) -> None:
    """The curves of a target, or of one that was measured; or the command that measures them."""
    found = session.services().library.curves(key)
    measured = [] if found is None else [name for name in found.targets if curve_chart(found.rows, key.method, name)]
    if found is None or not measured:
        _empty(key)
        return
    first, second = st.columns(2)
    index = measured.index(target) if target in measured else 0
    chosen = first.selectbox("Target", measured, index=index, key=f"meme.curves.{key}.{target}", format_func=_called)
    scale = second.segmented_control("Score", SCALES, default=SCALES[0], format_func=NAMES.__getitem__, required=True)
    if target not in measured:
        st.caption(f"{plain(_called(target))}: not measured. Shown is what was.")
    _draw(found, key, chosen, scale)


def _draw(found: MeasuredCurves, key: Key, target: str, scale: Scale) -> None:
    chart = curve_chart(found.rows, key.method, target, scale)
    table = measure_table(found.rows, key.method, target, scale)
    left, right = st.columns([5, 4], gap="medium")
    with left:
        if chart is not None:
            show_chart(chart, key="meme.curve", below=True)
        st.caption(plain(found.settings))
    with right:
        if table is not None:
            show_table(table)


def _empty(key: Key) -> None:
    st.info(
        "What this answer loses without parts of the meme was not measured. This command does, and needs the model:"
    )
    st.code(f"xai faithfulness {key.run}", language=None)


def _called(target: str) -> str:
    return "all labels together" if target == ALL_LABELS else target

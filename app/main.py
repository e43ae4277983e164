"""The script that Streamlit runs for every visitor: navigation, the sidebar that all pages share, and the page."""

from __future__ import annotations

from functools import cache

import numpy as np
import streamlit as st
from PIL import Image

from xai.app.pieces import STYLE, plain
from xai.app.session import AUDITOR, PICTURES, page, pictures_shown, services, shown_pages
from xai.attribution.heatmap import relevance_rgb

CONTENT_NOTICE = "Memes may hurt: slurs, hate, violence. Pictures stay blurred until you ask for them."


def main() -> None:
    """Show the page that is asked for; what goes wrong is said in words."""
    st.set_page_config(page_title="xai explorer", page_icon=_icon(), layout="wide")
    st.html(STYLE)
    asked = st.navigation([page(name) for name in shown_pages()])
    try:
        _sidebar()
        services().sync_verdicts()
        asked.run()
    except (ValueError, KeyError, OSError) as error:
        st.error(plain(_reason(error)), icon=":material/error:")


def _sidebar() -> None:
    found = services()
    with st.sidebar:
        shown = pictures_shown()
        label, icon = ("Blur pictures", "visibility_off") if shown else ("Show pictures", "visibility")
        st.button(
            label, icon=f":material/{icon}:", key="pictures.turn", width="stretch", help=CONTENT_NOTICE,
            on_click=_show_pictures, args=(not shown,),
        )  # fmt: skip
        if found.settings.read_only:
            st.caption("Read-only: verdicts are shown and not stored.")
        elif found.settings.auditor:
            st.caption(f"Auditor: {plain(found.settings.auditor)}")
        else:
            st.text_input("Your name", key=AUDITOR, placeholder="verdicts are stored under it", max_chars=100)
        if found.library.is_stale():
            st.caption("A run has grown or was analysed since.")
            if st.button("Load what is new", icon=":material/refresh:"):
                found.library.refresh()
                st.rerun()


def _show_pictures(shown: bool) -> None:
    st.session_state[PICTURES] = shown


@cache
def _icon() -> Image.Image:
    """A few cells of a heatmap; drawn, since Streamlit fetches its own icons from elsewhere."""
    cells = relevance_rgb(np.array([[-0.9, 0.2], [0.5, 1.0]]), 1.0)
    return Image.fromarray(np.round(cells * 255).astype(np.uint8)).resize((32, 32), Image.Resampling.NEAREST)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"a file cannot be read ({error.strerror or type(error).__name__})"  # its path is nobody's business
    return str(error.args[0]) if error.args else type(error).__name__


main()

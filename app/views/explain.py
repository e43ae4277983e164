"""An own picture or caption through the model that the explorer was started with; one visitor at a time."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st
from PIL import Image

from xai.app import session
from xai.app.figures import CONFIG, cell_layer, percentile_limit, picture_figure, shares_figure, unit
from xai.app.paths import PictureError, open_picture
from xai.app.pieces import caption_html, chips, facts_html, is_signed, legend_html, plain, text_html
from xai.app.settings import CAPTION_CHARACTERS, UPLOAD_MEGABYTES, UPLOAD_PIXELS
from xai.app.words import word_values
from xai.attribution.heatmap import PERCENTILE
from xai.attribution.wording import facts
from xai.schema import MODES, Explanation, Meme, Mode

if TYPE_CHECKING:
    from xai.models import VisionLanguageModel

MAX_WAITING = 5
"""So many visitors may wait for the model; further ones are asked to come back."""
RESULT = "explain.result"


class Queue:
    """Lets one visitor at a time to the model, and turns away those for whom it would take too long."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._turn, self._counting = threading.Lock(), threading.Lock()
        self._max_waiting, self._present = max_waiting, 0

    @property
    def present(self) -> int:
        """How many are served or wait."""
        return self._present

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for one's turn and hold it.

        Raises:
            ValueError: too many wait already.
        """
        with self._counting:
            if self._present > self._max_waiting:
                raise ValueError("too many visitors wait for the model; try again in a minute")
            self._present += 1
        try:
            with self._turn:
                yield
        finally:
            with self._counting:
                self._present -= 1


QUEUE = Queue()


@cache
def loaded(name: str) -> VisionLanguageModel:
    """The model of this process."""
    from xai.models import load_model

    return load_model(name)


def show() -> None:
    """The page."""
    settings = session.services().settings
    st.header("Explain a meme of your own")
    if settings.model is None:
        st.info("The explorer was started without a model. Start it with `--model` to explain memes here.")
        return
    st.caption(
        f"Model: {plain(settings.model)}. The picture stays in the memory of this visit and is not stored. At most "
        f"{UPLOAD_MEGABYTES} MB and {UPLOAD_PIXELS // 10**6} million pixels; captions of "
        f"{CAPTION_CHARACTERS:,} characters."
    )
    asked = _form()
    if asked is not None:
        _explain(settings.model, settings.task, *asked)
    result = st.session_state.get(RESULT)
    if result is not None:
        _show(*result)


def _form() -> tuple[bytes | None, str, Mode] | None:
    with st.form("explain.form", border=True):
        left, right = st.columns(2)
        upload = left.file_uploader(
            "Picture", type=["png", "jpg", "jpeg", "webp", "bmp", "gif"], max_upload_size=UPLOAD_MEGABYTES
        )
        caption = right.text_area("Caption", max_chars=CAPTION_CHARACTERS, height=110)
        mode: Mode = right.selectbox("What the model sees", list(reversed(MODES)), key="explain.mode")
        if not st.form_submit_button("Explain", type="primary", icon=":material/play_arrow:"):
            return None
    return (None if upload is None else upload.getvalue()), caption, mode


def _explain(model: str, task: str, content: bytes | None, caption: str, mode: Mode) -> None:
    from xai.pipeline import explain

    st.session_state[RESULT] = None
    try:
        picture = None if content is None else checked_upload(content)
        meme = Meme(id="own", image=picture, text=caption)
        ahead = QUEUE.present
        with st.spinner(f"{ahead} before you" if ahead else "the model reads the meme"), QUEUE.turn():
            result = explain(loaded(model), meme, task=task, mode=mode)
    except (ValueError, RuntimeError) as error:
        st.error(plain(error.args[0] if error.args else type(error).__name__), icon=":material/error:")
        return
    st.session_state[RESULT] = (result, picture)


def checked_upload(content: bytes) -> Image.Image:
    """An uploaded picture as RGB.

    Raises:
        PictureError: it is too large in bytes or pixels, or no picture.
    """
    if len(content) > UPLOAD_MEGABYTES * 2**20:
        raise PictureError(f"the picture has more than {UPLOAD_MEGABYTES} MB")
    return open_picture(io.BytesIO(content), max_pixels=UPLOAD_PIXELS)


def _show(e: Explanation, picture: Image.Image | None) -> None:
    words = word_values(e)
    known: list[Any] = [value for value in words.values if value is not None]
    limit = percentile_limit(np.array([*known, *([] if e.image is None else e.image.ravel())]), PERCENTILE)
    left, right = st.columns([11, 9], gap="medium")
    with right:
        st.html(f"<b>Labels</b> {chips(e.prediction.labels or ['none'])}")
        if e.meme.text:
            st.html(caption_html(e.meme.text, words.spans, words.values, limit, words.titles))
        st.html(legend_html(limit, unit(e), signed=is_signed(e.method)))
        st.html(text_html(e.prediction.text, "xai-answer", "pre") + "<br>" + facts_html(facts(e)))
    with left:
        if picture is not None:
            layer = cell_layer(e, limit)
            title = "Relevance of the picture" if layer else "Picture (not shown to the model)"
            small = picture.copy()
            small.thumbnail((1000, 1000))
            figure = picture_figure(small, picture.size, layer, 0.75, [], title)
            st.plotly_chart(figure, config=CONFIG, key="explain.picture", alt=title)
        st.plotly_chart(shares_figure(e), config=CONFIG, key="explain.shares", alt="Relevance by segment")

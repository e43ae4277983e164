"""What the pages share: the opened runs and stores of this process, and what a visitor has chosen during the visit."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, NoReturn

import streamlit as st

from xai.app.filters import Filter
from xai.app.library import Key, Library
from xai.app.panels import open_panels
from xai.app.settings import Settings, default_cache
from xai.app.thumbnails import Thumbnails
from xai.app.urls import Params
from xai.app.verdicts import Subject, VerdictStore, digest

PAGES: Mapping[str, tuple[str, str]] = {
    "memes": ("Memes", ":material/grid_view:"),
    "meme": ("Meme", ":material/image_search:"),
    "overview": ("Overview", ":material/bar_chart:"),
    "compare": ("Compare", ":material/compare:"),
    "faithfulness": ("Faithfulness", ":material/verified:"),
    "verdicts": ("Verdicts", ":material/fact_check:"),
    "explain": ("Explain", ":material/upload:"),
    "arbiter": ("Arbiter", ":material/gavel:"),
    "validator": ("Validator", ":material/how_to_vote:"),
}
"""Name in the URL: title and icon. The first one that is shown is where the explorer opens."""
OF_PANELS = ("arbiter", "validator")
"""The pages of panels; all others are of runs."""
AUDITOR, PICTURES, FILTER = "auditor", "pictures", "filter"
"""Keys of the session's state."""


class Services:
    """What is opened once for all visitors of this process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.library = Library(settings.runs, settings.images)
        self.panels = open_panels(settings.panels, settings.images)
        self.thumbnails = Thumbnails(settings.cache or default_cache())
        self.stores = {
            name: VerdictStore(opened.verdicts, read_only=settings.read_only)
            for name, opened in self.library.runs.items()
        }
        self._lock = threading.Lock()
        self._versions: dict[str, int] = {}

    def sync_verdicts(self) -> None:
        """Let the index know what was judged since, here or by another process."""
        with self._lock:
            for run, store in self.stores.items():
                version = store.version()
                if self._versions.get(run) != version:
                    self.library.set_verdicts(run, self.verdicts(run))
                    self._versions[run] = version

    def verdicts(self, run: str) -> list[dict[str, Any]]:
        """The current verdicts on the answers that a run has now."""
        rows = self.stores[run].current()
        names = sorted({row["meme_id"] for row in rows})
        sql = "SELECT DISTINCT meme_id, mode, answer FROM memes WHERE run = ? AND list_contains(?, meme_id)"
        answers = self.library.query(sql, [run, names])
        now = {(name, mode): digest(text) for name, mode, text in answers.itertuples(index=False, name=None)}
        return self.stores[run].current(now)

    def subject(self, key: Key) -> Subject:
        """What a verdict on a row is about."""
        return Subject(key.meme_id, key.mode, key.method, digest(self.library.row(key)["answer"]))


_OPENING = threading.Lock()


def services() -> Services:
    """The services of this process, opened at first use."""
    with _OPENING:
        return _opened(Settings.current())


@lru_cache(maxsize=4)
def _opened(settings: Settings) -> Services:
    return Services(settings)


def auditor() -> str:
    """Under which name this visitor's verdicts are stored; empty while there is none."""
    return services().settings.auditor or str(st.session_state.get(AUDITOR, "")).strip()


def pictures_shown() -> bool:
    """Whether this visitor asked for pictures that are not blurred."""
    return bool(st.session_state.get(PICTURES, False))


def current_filter() -> Filter:
    """The filter of this visit."""
    found = st.session_state.get(FILTER)
    return found if isinstance(found, Filter) else Filter()


def shown_pages() -> list[str]:
    """The pages that there is something for: runs, panels, a model."""
    settings = services().settings
    has = {name: bool(settings.panels if name in OF_PANELS else settings.runs) for name in PAGES}
    has["explain"] = settings.model is not None
    return [name for name in PAGES if has[name]]


def page(name: str) -> Any:
    """A page of the navigation."""
    title, icon = PAGES[name]
    show = import_module(f"xai.app.views.{name}").show
    return st.Page(show, title=title, icon=icon, url_path=name, default=name == shown_pages()[0])


def go_to(name: str, params: Params | None = None) -> NoReturn:
    """Leave for another page."""
    st.switch_page(page(name), query_params=dict(params or {}))


def read_params() -> Params:
    """The parameters of the URL."""
    return {name: st.query_params.get_all(name) for name in st.query_params}


def write_params(params: Params) -> None:
    """Make the URL say what is shown."""
    if read_params() != params:
        st.query_params.from_dict(dict(params))


def written(name: str) -> Params:
    """What the page ``name`` wrote into the URL last during this visit."""
    found: Params = st.session_state.get(f"{name}.written", {})
    return found


def arrived(name: str, params: Params) -> bool:
    """Whether the URL says something else than the page ``name`` wrote there: a link was followed."""
    return written(name) != params


def wrote(name: str, params: Params) -> None:
    """Write the URL and remember that the page did."""
    write_params(params)
    st.session_state[f"{name}.written"] = params

"""The explorer as an auditor meets it: `xai app` in a process of its own, and a real browser."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.browser import Browser, missing
from tests.app.conftest import HOSTILE, HOSTILE_ID
from xai.app.verdicts import VerdictStore

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
SLIDER = "[data-testid=stSlider] input[type=range]"
SHOTS = Path(__file__).parents[2] / "build" / "explorer"


class Explorer:
    """A running `xai app`."""

    def __init__(self, *arguments: str | Path, cache: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "xai.cli", "app", *map(str, arguments), "--port", str(self.port)]
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cache
        )
        self.address = f"http://127.0.0.1:{self.port}"
        deadline = time.monotonic() + 120
        while not self._answers():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, "the explorer does not start"
            time.sleep(0.2)

    def stop(self) -> tuple[int, str]:
        """End it as Ctrl-C does; its exit code and all that it said."""
        self.process.send_signal(signal.SIGINT)
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/_stcore/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False


@pytest.fixture(scope="module")
def opened(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run, beside which the verdicts of these tests are kept."""
    copy = tmp_path_factory.mktemp("browser") / "run"
    shutil.copytree(run, copy)
    return copy


@pytest.fixture(scope="module")
def explorer(opened: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    running = Explorer(opened, "--auditor", "ann", "--model", "planted", cache=tmp_path_factory.mktemp("cache"))
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture(scope="module")
def browser(explorer: Explorer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    window = Browser(explorer.address, tmp_path_factory.mktemp("profile"))
    yield window
    window.close()


@pytest.fixture(autouse=True)
def _no_errors(browser: Browser) -> Iterator[None]:
    """Whatever a test does, the console stays silent and nothing is fetched from elsewhere."""
    yield
    assert browser.errors() == []
    fetched = browser.script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in fetched if not name.startswith((browser.address, "data:", "blob:"))] == []


PAGES = {
    "memes": ("", "55 memes", {}),
    "meme": ("meme", "Is the relevance plausible?", {"run": "run", "meme": "sample-02", "mode": "image+text"}),
    "overview": ("overview", "Mean agreement", {}),
    "compare": ("compare", "Where they differ most", {}),
    "faithfulness": ("faithfulness", "xai faithfulness run", {}),
    "verdicts": ("verdicts", "Verdicts", {}),
    "explain": ("explain", "What the model sees", {}),
}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_in_light_and_dark_at_1280_by_800(browser: Browser, name: str) -> None:
    path, expected, params = PAGES[name]
    for dark in (False, True):
        browser.dark(dark)
        browser.open(path, **params)
        assert expected in browser.text()
        assert not browser.find("[data-testid=stException]")
        assert browser.script("return document.documentElement.scrollWidth <= window.innerWidth")
        browser.shot(SHOTS / f"{name}-{'dark' if dark else 'light'}.png")
    browser.dark(False)


def test_from_the_list_to_the_ten_with_the_least_agreement_and_on_to_the_next(browser: Browser) -> None:
    browser.open("overview")
    browser.click("The memes with the least agreement")
    assert "agreement, least first" in browser.script("return [...document.querySelectorAll('input')].map(i => i.value)"
                                                      ".join('|') + document.body.innerText")  # fmt: skip
    browser.click("sample-", css=".stPageLink a")
    assert "1 of 27 in the current filter" in browser.text()
    first = browser.driver.current_url
    browser.press("n")
    assert "2 of 27 in the current filter" in browser.text()
    browser.press("p")
    assert browser.driver.current_url == first
    browser.open(first.removeprefix(browser.address + "/"))
    assert "1 of 27 in the current filter" in browser.text()


def test_a_bar_of_the_overview_lists_its_memes(browser: Browser) -> None:
    browser.size(2400)
    browser.open("overview")
    browser.click_bar(0)
    deadline = time.monotonic() + 30
    while "f_label" not in browser.driver.current_url and time.monotonic() < deadline:
        time.sleep(0.2)
    browser.rest()
    assert "f_label=" in browser.driver.current_url
    browser.size(800)


def test_a_slider_moves_and_the_link_says_so(browser: Browser) -> None:
    browser.open("meme", run="run", meme="sample-02", mode="image+text")
    before = browser.find(".js-plotly-plot image")[0].get_attribute("href")
    browser.press("\ue012" * 4, css=SLIDER)  # arrow left
    assert "opacity=55" in browser.driver.current_url
    assert browser.find(".js-plotly-plot image")[0].get_attribute("href") != before
    browser.driver.refresh()
    browser.rest()
    assert browser.find(SLIDER)[0].get_attribute("value") == "55"


def test_pictures_are_blurred_until_asked_for_and_the_choice_holds_for_the_visit(browser: Browser) -> None:
    browser.open()
    blurred = browser.find(".xai-card img")[0].get_attribute("src")
    browser.click("Show pictures", css="button")
    assert browser.find(".xai-card img")[0].get_attribute("src") != blurred
    browser.click("sample-01", css=".stPageLink a")
    assert "is blurred" not in browser.text()
    browser.click("Memes", css="[data-testid=stSidebarNav] a")
    assert "Pictures are blurred" not in browser.text()


def test_a_verdict_by_keyboard_is_on_disk_at_once_and_there_after_a_reload(browser: Browser, opened: Path) -> None:
    store = VerdictStore(opened.with_name("run.verdicts.sqlite"))
    browser.open("meme", run="run", meme="sample-03", mode="image+text")
    browser.press("2")
    (verdict,) = store.current()
    assert (verdict["auditor"], verdict["meme_id"], verdict["relevance"]) == ("ann", "sample-03", "not plausible")
    note = browser.find("textarea")[0]
    note.send_keys("1 2 3 n p")
    browser.click("Words and rationale", css="[role=tab]")
    time.sleep(0.5)
    browser.rest()
    assert store.current()[0]["note"] == "1 2 3 n p"  # typing in the note presses no button
    assert store.current()[0]["relevance"] == "not plausible"
    browser.driver.refresh()
    browser.rest()
    assert browser.find("textarea")[0].get_attribute("value") == "1 2 3 n p"
    assert "History of verdicts (2)" in browser.text()
    browser.shot(SHOTS / "verdict.png")
    browser.open("verdicts")
    for label in ("Save as CSV", "Save as JSONL", "Save the whole history"):
        assert label in browser.text()


def test_a_hostile_name_and_caption_stay_text_on_every_page(browser: Browser) -> None:
    for params in ({"run": "run", "meme": HOSTILE_ID, "mode": "text"}, {"run": "run", "meme": HOSTILE_ID}):
        browser.open("meme", **params)
        assert HOSTILE in browser.text()
        assert HOSTILE_ID in browser.text()
        browser.shot(SHOTS / "hostile.png")
    browser.open("", f_text="onerror")
    assert HOSTILE_ID in browser.text()
    browser.shot(SHOTS / "hostile-list.png")
    assert browser.script("return document.title") != "owned"
    assert browser.find("img[src=x]") == []
    browser.open("overview")
    assert browser.script("return document.title") != "owned"


@pytest.mark.parametrize("name", ["arabic", "chinese"])
def test_every_script_is_shown_and_arabic_is_set_from_right_to_left(browser: Browser, name: str) -> None:
    browser.open("meme", run="run", meme=name, mode="image+text")
    caption = browser.find(".xai-caption")[0]
    direction = browser.script("return getComputedStyle(arguments[0]).direction", caption)
    assert direction == ("rtl" if name == "arabic" else "ltr")
    browser.shot(SHOTS / f"{name}.png")


@pytest.mark.parametrize("name", ["../../etc", "/etc", "..%2F..%2Fetc"])
def test_a_link_out_of_the_runs_is_refused_without_content_or_path(browser: Browser, name: str) -> None:
    browser.open("meme", run=name, meme="passwd")
    assert "no run that is open here has such a meme" in browser.text()
    assert "root:" not in browser.driver.page_source
    assert "/etc" not in browser.find("[data-testid=stMain]")[0].text


@pytest.mark.parametrize(
    "path", ["/media/../../etc/passwd", "/media/%2e%2e/%2e%2e/etc/passwd", "/app/static/../main.py"]
)
def test_the_server_hands_out_no_files(explorer: Explorer, path: str) -> None:
    with socket.create_connection(("127.0.0.1", explorer.port), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        reply = b""
        while part := connection.recv(65536):
            reply += part
    assert b"root:" not in reply
    assert b"st.navigation" not in reply


def test_an_own_meme_is_explained(browser: Browser, dataset: Path) -> None:
    browser.open("explain")
    browser.find("textarea")[0].send_keys("My quiet chair hears that rumour near that blue road")
    browser.find("input[type=file]")[0].send_keys(str(sorted((dataset / "images").glob("sample-*"))[0]))
    time.sleep(1)
    browser.rest()
    browser.click("Explain", css="button")
    deadline = time.monotonic() + 60
    while "Relevance by segment" not in browser.text() and time.monotonic() < deadline:
        time.sleep(0.3)
    assert browser.find(".xai-caption span[title]")
    browser.shot(SHOTS / "explain-result.png")


def test_ctrl_c_ends_it_quietly_and_other_addresses_come_with_a_warning(run: Path, tmp_path: Path) -> None:
    elsewhere = Explorer(run, "--host", "0.0.0.0", "--read-only", cache=tmp_path)
    code, said = elsewhere.stop()
    assert code == 0
    assert "there is no login" in said
    assert "Traceback" not in said
    assert f":{elsewhere.port}" in said


def test_a_port_that_is_taken_is_refused_with_one_line(run: Path, explorer: Explorer) -> None:
    command = [sys.executable, "-m", "xai.cli", "app", str(run), "--port", str(explorer.port)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 2
    assert f"port {explorer.port} is not free" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_is_no_run_is_refused_with_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "xai.cli", "app", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 2
    assert "is not a run folder" in result.stderr
    assert "Traceback" not in result.stderr

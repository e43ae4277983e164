"""The explorer as an auditor meets it: `xai app` in a process of its own, and a real browser."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.browser import Browser, missing
from tests.app.conftest import HOSTILE, HOSTILE_ID
from tests.app.serving import Explorer
from xai.app.verdicts import VerdictStore

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
SLIDER = "[data-testid=stSlider] input[type=range]"
SHOTS = Path(__file__).parents[2] / "build" / "explorer"


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
        browser.reads(expected)
        assert not browser.find("[data-testid=stException]")
        assert browser.script("return document.documentElement.scrollWidth <= window.innerWidth")
        browser.shot(SHOTS / f"{name}-{'dark' if dark else 'light'}.png")
    browser.dark(False)


def test_from_the_list_to_the_ten_with_the_least_agreement_and_on_to_the_next(browser: Browser) -> None:
    browser.open("overview")
    browser.click("The memes with the least agreement")
    browser.until(lambda: "agreement, least first" in values(browser), "the order is set")
    browser.click("sample-", css=".stPageLink a")
    browser.reads("1 of 27 in the current filter")
    browser.until(lambda: "meme=" in browser.driver.current_url, "the link names the meme")
    first = browser.driver.current_url
    browser.press("n")
    browser.reads("2 of 27 in the current filter")
    browser.press("p")
    browser.until(lambda: browser.driver.current_url == first, "the first meme is back")
    browser.open(first.removeprefix(browser.address + "/"))
    browser.reads("1 of 27 in the current filter")


def values(browser: Browser) -> str:
    """What stands in the fields of a page, and its text."""
    fields = browser.script("return [...document.querySelectorAll('input')].map(field => field.value).join('|')")
    return f"{fields}{browser.text()}"


def test_a_bar_of_the_overview_lists_its_memes(browser: Browser) -> None:
    browser.size(2400)
    browser.open("overview")
    browser.click_bar()
    # The longest bar is that of an answer or that of its gold label.
    wanted = ("f_label=", "f_gold=")
    browser.until(lambda: any(name in browser.driver.current_url for name in wanted), "the list is filtered")
    browser.reads("label ")
    browser.size(800)


def test_a_filter_is_set_where_it_is_asked_for_and_cleared_again(browser: Browser) -> None:
    browser.open()
    browser.click("Filter", css="button")
    browser.reads("Agreement of relevance and rationale")
    browser.shot(SHOTS / "filter.png")
    browser.press("\ue014" * 4, css=SLIDER)  # arrow right
    browser.reads("agreement 0.04 to 1.00")
    browser.press("\ue00c")  # escape closes what is open
    browser.click("Clear filters", css="button")
    browser.reads("55 memes")


def test_a_slider_moves_and_the_link_says_so(browser: Browser) -> None:
    browser.open("meme", run="run", meme="sample-02", mode="image+text")
    before = heatmap(browser)
    browser.press("\ue012" * 4, css=SLIDER)  # arrow left
    browser.until(lambda: "opacity=55" in browser.driver.current_url, "the link has the opacity")
    browser.until(lambda: heatmap(browser) != before, "the heatmap is drawn anew")
    browser.driver.refresh()
    browser.rest()
    browser.until(lambda: browser.find(SLIDER)[0].get_attribute("value") == "55", "the slider stands where it was")


def heatmap(browser: Browser) -> str:
    return str(browser.script("return document.querySelector('.js-plotly-plot image')?.getAttribute('href') ?? ''"))


def test_a_verdict_by_keyboard_is_on_disk_at_once_and_there_after_a_reload(browser: Browser, opened: Path) -> None:
    store = VerdictStore(opened.with_name("run.verdicts.sqlite"))
    browser.open("meme", run="run", meme="sample-03", mode="image+text")
    browser.press("2")
    browser.until(lambda: bool(store.current()), "the verdict is stored")
    (verdict,) = store.current()
    assert (verdict["auditor"], verdict["meme_id"], verdict["relevance"]) == ("ann", "sample-03", "not plausible")
    browser.rest()
    browser.find("textarea")[0].send_keys("1 2 3 n p")
    browser.click("Words and rationale", css="[role=tab]")
    browser.until(lambda: store.current()[0]["note"] == "1 2 3 n p", "the note is stored")  # and presses no button
    assert store.current()[0]["relevance"] == "not plausible"
    browser.driver.refresh()
    browser.rest()
    browser.reads("History of verdicts (2)")
    assert browser.find("textarea")[0].get_attribute("value") == "1 2 3 n p"
    browser.shot(SHOTS / "verdict.png")
    browser.open("verdicts")
    for label in ("Save as CSV", "Save as JSONL", "Save the whole history"):
        browser.reads(label)


def test_a_hostile_name_and_caption_stay_text_on_every_page(browser: Browser) -> None:
    for params in ({"run": "run", "meme": HOSTILE_ID, "mode": "text"}, {"run": "run", "meme": HOSTILE_ID}):
        browser.open("meme", **params)
        browser.reads(HOSTILE)
        assert HOSTILE_ID in browser.text()
        browser.shot(SHOTS / "hostile.png")
    browser.open("", f_text="onerror")
    browser.reads(HOSTILE_ID)
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
    browser.reads("no run that is open here has such a meme")
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
    picture = sorted((dataset / "images").glob("sample-*"))[0]
    browser.find("input[type=file]")[0].send_keys(str(picture))
    browser.reads(picture.name)
    browser.click("Explain", css="button")
    browser.reads("Relevance by segment")
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

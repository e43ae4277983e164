"""Chromium on a page of the explorer: waits until a page has come to rest, finds by text, takes pictures."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

WIDTH, HEIGHT = 1280, 800
SECONDS = 90
ROW = 35
"""Height of a row of a table and of its head, in points."""
"""How long a page may take on a busy machine."""
_AT_REST = """
const app = document.querySelector('[data-testid=stApp]');
return !!app && app.getAttribute('data-test-script-state') === 'notRunning'
    && !document.querySelector('[data-stale=true], [data-testid=stSkeleton]')
    && !!document.querySelector('[data-testid=stMainBlockContainer] > *');
"""


def missing() -> str:
    """Why there is no browser; empty where there is one."""
    if not (_chromium() and shutil.which("chromedriver")):
        return "no browser: install Debian's chromium and chromium-driver"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "no selenium: pip install 'meme-xai[dev]'"
    return ""


class Browser:
    """A window of 1280 × 800 points.

    Args:
        address: of the explorer, without a slash at its end.
        profile: an empty folder.
    """

    def __init__(self, address: str, profile: Path) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = _chromium()
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-dev-shm-usage",
        ):
            options.add_argument(argument)
        options.add_argument(f"--user-data-dir={profile}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.address = address
        self.size(HEIGHT)
        self.dark(False)

    def size(self, height: int) -> None:
        metrics = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def dark(self, on: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def open(self, path: str = "", *, calm: int = 4, **params: str) -> None:
        self.driver.get(f"{self.address}/{path}" + (f"?{urlencode(params)}" if params else ""))
        self.rest(calm)

    def rest(self, calm: int = 4) -> None:
        """Wait until the script has run and nothing is stale, so many times in a row."""
        deadline, seen = time.monotonic() + SECONDS, 0
        while seen < calm:
            assert time.monotonic() < deadline, f"the page does not come to rest: {self.text()[:500]}"
            time.sleep(0.15 if seen else 0.03)
            seen = seen + 1 if self.driver.execute_script(_AT_REST) else 0

    def until(self, happens: Callable[[], bool], what: str) -> None:
        """Wait for something: what a click or a key brings about comes some time later on a busy machine."""
        deadline = time.monotonic() + SECONDS
        while not self._calmly(happens):
            assert time.monotonic() < deadline, f"it does not come about that {what}: {self.text()[:500]}"
            time.sleep(0.1)

    def reads(self, text: str) -> None:
        """Wait until the page says so."""
        self.until(lambda: text in self.text(), f"the page says {text!r}")
        self.rest()

    @staticmethod
    def _calmly(happens: Callable[[], bool]) -> bool:
        from selenium.common.exceptions import StaleElementReferenceException

        try:
            return happens()
        except (StaleElementReferenceException, IndexError):  # the page is being built anew
            return False

    def text(self) -> str:
        return str(self.driver.execute_script("return document.body.innerText"))

    def script(self, source: str, *arguments: Any) -> Any:
        return self.driver.execute_script(source, *arguments)

    def find(self, css: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", css))

    def click(self, text: str, css: str = "button, a, label") -> None:
        """Click the first visible element with that text in it, once there is one, and wait."""
        self.until(lambda: self._clicked(text, css), f"something to click says {text!r}")
        time.sleep(0.3)
        self.rest()

    def _clicked(self, text: str, css: str) -> bool:
        from selenium.common.exceptions import ElementClickInterceptedException

        found = [element for element in self.find(css) if text in element.text and element.is_displayed()]
        if not found:
            return False
        self.script("arguments[0].scrollIntoView({block: 'center'})", found[0])
        try:
            found[0].click()
        except ElementClickInterceptedException:  # by what is still moving
            return False
        return True

    def choose_row(self, index: int, chosen: Callable[[], bool], table: int = 0) -> None:
        """Choose a row of a table by the box at its left, until that has happened.

        A table is one canvas, which takes clicks only once it is drawn.
        """
        from selenium.webdriver import ActionChains

        deadline = time.monotonic() + SECONDS
        while not self._calmly(chosen):
            assert time.monotonic() < deadline, f"the row is not chosen: {self.text()[:500]}"
            canvas = self.find("[data-testid=stDataFrame] canvas")[table]
            self.script("arguments[0].scrollIntoView({block: 'center'})", canvas)
            size = canvas.size
            x, y = 17 - size["width"] / 2, ROW * (index + 1.5) - size["height"] / 2
            ActionChains(self.driver).move_to_element_with_offset(canvas, round(x), round(y)).click().perform()
            # A second click would take the choice back, so that the first one gets its time.
            settled = time.monotonic() + 10
            while not self._calmly(chosen) and time.monotonic() < settled:
                time.sleep(0.1)

    def click_bar(self, chart: int = 0) -> None:
        """Point at the longest bar of a chart, and click once the chart has noticed.

        Plotly takes a click for one on the bar that it shows as hovered, and looks for that some time after a move.
        """
        from selenium.webdriver import ActionChains

        deadline = time.monotonic() + SECONDS
        for step in count():
            plot = self.find(".js-plotly-plot")[chart]
            bars = plot.find_elements("css selector", ".barlayer .point path")
            bar = max(bars, key=lambda one: one.size["width"] * one.size["height"])
            ActionChains(self.driver).move_to_element_with_offset(bar, step % 3, 0).perform()
            time.sleep(0.3)
            if plot.find_elements("css selector", ".hoverlayer .hovertext"):
                break
            assert time.monotonic() < deadline, "the chart shows no bar as hovered"
        ActionChains(self.driver).click().perform()

    def press(self, keys: str, css: str = "body") -> None:
        # What is pressed goes to what has the focus; a slider's own element is hidden and cannot be typed into.
        self.script("arguments[0].focus()", self.find(css)[0])
        self.driver.switch_to.active_element.send_keys(keys)
        time.sleep(0.5)
        self.rest()

    def errors(self) -> list[str]:
        """What the console complained of since it was asked last.

        Streamlit looks for its server below the page's own path first, and finds it a level up.
        """
        logged = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return [message for message in logged if "/_stcore/h" not in message or "404" not in message]

    def shot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))

    def close(self) -> None:
        self.driver.quit()


def _chromium() -> str:
    return shutil.which("chromium") or shutil.which("google-chrome") or ""

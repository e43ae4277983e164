"""The pages of a panel as people meet them: `xai app PANEL` in a process of its own, and a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.annotation.conftest import MEMES, panel_settings, recorded, write_dataset
from tests.annotation.serving import Endpoint, Reply, labelled
from tests.app.browser import Browser, missing
from tests.app.conftest import HOSTILE, HOSTILE_ID
from tests.app.serving import Explorer
from xai.annotation.folder import Panel
from xai.annotation.running import annotate

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
SHOTS = Path(__file__).parents[2] / "build" / "explorer"
FIRST = ""
"""Of a panel alone, the page of the arbiter is where the explorer opens."""
PAGES = {"arbiter": FIRST, "validator": "validator"}
POST = f"Look at {HOSTILE} and https://example.org/x"


def answer(model: str, prompt: str) -> str | Reply:
    """As recorded; the models disagree on the hostile record, and repeat what it says."""
    if '"phrases"' in prompt:
        return json.dumps({"phrases": [f"shows {HOSTILE} here", "thanks"]})
    if HOSTILE in prompt:
        return labelled(*{"1": ["Tools"], "2": ["Weather", HOSTILE], "3": ["Plain"]}[model])
    return recorded(model, prompt)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Dataset and panel: the memes of the panel's tests, drawn, and one whose texts are markup."""
    pytest.importorskip("openai")
    folder = tmp_path_factory.mktemp("panel")
    drawn = tuple({**meme, "draw": meme["text"]} for meme in MEMES)
    hostile = {"id": HOSTILE_ID, "text": HOSTILE, "post": POST, "image": "hostile.png"}
    dataset = write_dataset(folder / "data", (*drawn, hostile))
    endpoint = Endpoint(answer)
    settings = panel_settings(endpoint)
    cleaning = settings.cleaning.with_lengths(
        None, settings.cleaning.platforms["other"].picture_text.model_copy(update={"most": 500})
    )
    annotate(dataset, folder / "panel", settings.model_copy(update={"cleaning": cleaning}))
    yield dataset, folder / "panel"
    endpoint.close()


@pytest.fixture(scope="module")
def explorer(filled: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    running = Explorer(filled[1], cache=tmp_path_factory.mktemp("cache"))
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture
def panel(filled: tuple[Path, Path]) -> Panel:
    return Panel(filled[1])


@pytest.fixture(autouse=True)
def _no_errors(browser: Browser) -> Iterator[None]:
    """Whatever a test does, the console stays silent and nothing is fetched from elsewhere."""
    yield
    assert browser.errors() == []
    fetched = browser.script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in fetched if not name.startswith((browser.address, "data:", "blob:"))] == []


def sign(browser: Browser, name: str) -> None:
    """Type a name in the sidebar, as who decides does first."""
    field = browser.find("[data-testid=stSidebar] input")[0]
    field.send_keys(name + "\ue007")  # enter
    browser.until(lambda: "Type your name" not in browser.text(), "the name is taken")
    browser.script("document.activeElement.blur()")
    browser.rest()


def type_into(browser: Browser, label: str, text: str) -> None:
    field = browser.find(f"input[aria-label={label!r}]")[0]
    field.send_keys(text)


@pytest.mark.parametrize(("name", "expected"), [("arbiter", "What the models say"), ("validator", "Your vote")])
def test_both_pages_open_in_light_and_dark_at_1280_by_800(browser: Browser, name: str, expected: str) -> None:
    for dark in (False, True):
        browser.dark(dark)
        browser.open(PAGES[name])
        browser.reads(expected)
        assert not browser.find("[data-testid=stException]")
        assert browser.script("return document.documentElement.scrollWidth <= window.innerWidth")
        browser.shot(SHOTS / f"{name}-{'dark' if dark else 'light'}.png")
    browser.dark(False)


def test_a_panel_alone_has_its_two_pages_and_no_others(browser: Browser) -> None:
    browser.open()
    browser.reads("Arbiter")
    links = [one.text.splitlines()[-1] for one in browser.find("[data-testid=stSidebarNavLink]")]
    assert links == ["Arbiter", "Validator"]


def test_pictures_are_blurred_until_they_are_asked_for(browser: Browser) -> None:
    browser.open(FIRST)
    browser.reads("Pictures are blurred")
    blurred = browser.script("return document.querySelector('.xai-panel-picture img').src")
    browser.click("Show pictures")
    browser.until(
        lambda: browser.script("return document.querySelector('.xai-panel-picture img').src") != blurred,
        "the picture is shown",
    )


def test_without_a_name_nothing_can_be_decided(browser: Browser) -> None:
    for page, label in (("arbiter", "Exclude"), ("validator", "Against")):
        browser.open(PAGES[page])
        browser.reads("Type your name in the sidebar")
        (button,) = [one for one in browser.find("button") if one.text.startswith(label)]
        assert not button.is_enabled()


def test_a_person_takes_the_labels_of_a_model_and_the_next_record_comes(browser: Browser, panel: Panel) -> None:
    browser.open(FIRST)
    sign(browser, "ann")
    browser.reads("1 of 2")
    browser.click("Labels of 2")
    browser.until(lambda: "Weather" in browser.find("[data-testid=stMultiSelect]")[0].text, "the labels are taken")
    browser.click("Accept with these labels")
    browser.reads("Stored: mixed accepted as Weather")
    browser.reads("1 of 1")
    mixed = panel.item("mixed")
    assert mixed.accepted is not None
    assert (mixed.accepted.who, mixed.accepted.labels) == ("ann", ("Weather",))
    browser.click("Decided (1)")
    browser.reads("Take the decision back")
    browser.shot(SHOTS / "arbiter-decided.png")
    browser.click("Take the decision back")
    browser.reads("No record is in this list")
    assert panel.item("mixed").state == "people"
    assert [event["verdict"] for event in panel.history("mixed")] == ["accepted", None]


def test_an_exclusion_needs_a_reason(browser: Browser, panel: Panel) -> None:
    browser.open(FIRST, record="mixed")
    sign(browser, "ann")
    browser.click("Exclude")
    browser.reads("Not stored: say why the record is excluded")
    type_into(browser, "Why", "blurred beyond reading")
    browser.click("Exclude")
    browser.reads("Stored: mixed excluded")
    mixed = panel.item("mixed")
    assert mixed.person is not None
    assert (mixed.state, mixed.person["why"]) == ("excluded by people", "blurred beyond reading")
    browser.open(FIRST, record="mixed", show="decided")
    browser.reads("blurred beyond reading")
    sign(browser, "ann")
    browser.click("Take the decision back")
    browser.until(lambda: panel.item("mixed").state == "people", "it is taken back")


def test_votes_by_keyboard_keep_and_drop_and_others_are_seen_only_afterwards(browser: Browser, panel: Panel) -> None:
    panel.vote("sunny", "bob", "for", "the sun is praised")
    browser.open("validator", record="sunny")
    sign(browser, "ann")
    browser.reads("1 of 3 have voted; how is shown when you have")
    assert "bob" not in browser.find("[data-testid=stMain]")[0].text
    assert "the sun is praised" not in browser.text()
    browser.press("1")
    browser.reads("Stored: sunny, voted for")
    assert (panel.item("sunny").state, panel.item("sunny").n_for) == ("kept", 2)
    browser.open("validator", record="sunny", show="voted")
    sign(browser, "ann")
    browser.reads("2 of 3 have voted: 2 for, 0 against. Now: kept by the validators.")
    browser.reads("the sun is praised")
    browser.shot(SHOTS / "validator-voted.png")
    browser.open("validator", record="hammer")
    sign(browser, "ann")
    browser.press("2")
    browser.reads("Stored: hammer, voted against")
    panel.vote("hammer", "bob", "against")
    assert panel.item("hammer").state == "voted out"


def test_the_agreement_of_the_validators_is_shown(browser: Browser, panel: Panel) -> None:
    panel.vote("plain", "ann", "for")
    panel.vote("plain", "bob", "against")
    browser.open("validator", show="all")
    browser.click("Agreement of the validators", css="summary")
    browser.reads("1 is perfect")
    browser.until(lambda: bool(browser.find("[data-testid=stExpander] [data-testid=stDataFrame]")), "there is a table")
    browser.shot(SHOTS / "validator-agreement.png")


def test_hostile_texts_stay_text_on_both_pages(browser: Browser, panel: Panel) -> None:
    browser.open(FIRST, record=HOSTILE_ID)
    browser.reads(HOSTILE)
    assert HOSTILE_ID in browser.text()
    browser.shot(SHOTS / "arbiter-hostile.png")
    browser.open("validator", record="sunny", show="all")
    browser.reads(f"shows {HOSTILE}")
    panel.decide(HOSTILE_ID, HOSTILE[:90], "accepted", ["Tools"], HOSTILE)
    browser.open("validator", record=HOSTILE_ID)
    browser.reads(HOSTILE_ID)
    browser.reads("Accepted by")
    assert browser.script("return document.title") != "owned"
    assert browser.find("img[src=x]") == []


def test_a_link_to_a_record_or_panel_that_is_not_there_shows_the_first_of_the_list(browser: Browser) -> None:
    browser.open("validator", record="../../etc/passwd", panel="/etc", show="all")
    browser.reads("1 of ")
    assert "/etc" not in browser.find("[data-testid=stMain]")[0].text

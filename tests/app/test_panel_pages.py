"""The logic of a panel's pages, by Streamlit's own tester: which record comes, what a link reproduces and hides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.annotation.conftest import panel_settings, recorded, write_dataset
from tests.annotation.serving import Endpoint
from xai.annotation.folder import Panel
from xai.annotation.running import annotate
from xai.app.settings import Settings

Open = Callable[..., AppTest]


def page_script(name: str) -> None:
    from importlib import import_module

    import_module(f"xai.app.views.{name}").show()


@pytest.fixture
def panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Panel]:
    pytest.importorskip("openai")
    monkeypatch.setattr("xai.annotation.endpoint.MAX_RETRIES", 0)
    endpoint = Endpoint(recorded)
    yield annotate(write_dataset(tmp_path / "data"), tmp_path / "panel", panel_settings(endpoint))
    endpoint.close()


@pytest.fixture
def open_page(panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Shows one page to a person with these parameters of the URL."""

    def opened(name: str, *, who: str = "ann", read_only: bool = False, **params: str) -> AppTest:
        settings = Settings(panels=(panel.path,), cache=tmp_path / "cache", auditor=who, read_only=read_only)
        monkeypatch.setenv("XAI_APP_SETTINGS", settings.model_dump_json())
        tester = AppTest.from_function(page_script, default_timeout=60, args=(name,))
        for key, value in params.items():
            tester.query_params[key] = value
        tester.run()
        assert not tester.exception, tester.exception
        return tester

    return opened


def texts(tester: AppTest) -> str:
    found = [element.proto.body for element in tester.get("html")]
    return "\n".join([*found, *(element.value for element in (*tester.markdown, *tester.caption, *tester.info))])


def record(tester: AppTest) -> str:
    """The record that the URL names."""
    found = tester.query_params["record"]
    return found if isinstance(found, str) else found[0]


def press(tester: AppTest, label: str) -> AppTest:
    (found,) = [button for button in tester.button if button.label == label]
    found.click().run()
    assert not tester.exception, tester.exception
    return tester


def test_the_validator_goes_from_vote_to_vote_and_the_link_follows(open_page: Open, panel: Panel) -> None:
    tester = open_page("validator")
    seen = []
    for label in ("For", "Against", "For"):
        seen.append(record(tester))
        press(tester, label)
    assert seen == ["sunny", "hammer", "plain"]
    assert "No record is in this list" in texts(tester)
    votes = {name: panel.item(name).votes["ann"]["vote"] for name in seen}
    assert votes == {"sunny": "for", "hammer": "against", "plain": "for"}


def test_a_link_reproduces_list_and_record(open_page: Open) -> None:
    tester = open_page("validator", record="plain", show="all")
    assert "A chair stands near a door" in texts(tester)
    assert "3 of 3" in texts(tester)
    press(tester, "Previous")
    assert record(tester) == "hammer"
    assert record(open_page("validator", record="gone", show="nonsense")) == "sunny"


def test_votes_of_others_are_hidden_until_the_own_one_and_pressing_it_again_takes_it_back(
    open_page: Open, panel: Panel
) -> None:
    panel.vote("sunny", "zoe", "against", "no sun at all")
    before = texts(open_page("validator", record="sunny", show="all"))
    assert "no sun at all" not in before
    assert "zoe" not in before
    assert "1 of 3 have voted" in before
    tester = press(open_page("validator", record="sunny", show="all"), "For")
    assert "against: no sun at all" in texts(tester)
    press(tester, "For")
    assert "no sun at all" not in texts(tester)
    assert [event["vote"] for event in panel.history("sunny") if event["person"] == "ann"] == ["for", None]


def test_a_fourth_person_is_told_and_has_no_buttons(open_page: Open, panel: Panel) -> None:
    for who in ("bob", "eve", "dan"):
        panel.vote("sunny", who, "for")
    tester = open_page("validator", record="sunny", show="all")
    assert "3 people have voted on this record; it takes no more votes." in texts(tester)
    assert [button.disabled for button in tester.button if button.label in ("For", "Against")] == [True, True]
    assert record(open_page("validator")) == "hammer"


def test_read_only_stores_nothing(open_page: Open) -> None:
    for page, labels in (("arbiter", ("Exclude", "Accept with these labels")), ("validator", ("For", "Against"))):
        tester = open_page(page, read_only=True)
        assert "read-only" in texts(tester)
        assert {button.disabled for button in tester.button if button.label in labels} == {True}


def test_the_agreement_of_two_and_of_three_validators_is_a_table(open_page: Open, panel: Panel) -> None:
    assert "It takes two people" in texts(open_page("validator", show="all"))
    for who, votes in (("bob", "fa"), ("eve", "ff"), ("dan", "af")):
        for name, vote in zip(("sunny", "hammer"), votes, strict=True):
            panel.vote(name, who, "for" if vote == "f" else "against")
        tester = open_page("validator", show="all")
        if who != "bob":
            (table,) = [one.value for one in tester.dataframe if "measure" in one.value]
            assert list(table["records"]) == [2, 2, 2]
            # Pairs of the three: one record of two alike, one of two, none.
            assert table["value"][0] == pytest.approx({"eve": 1 / 2, "dan": 1 / 3}[who])


def test_the_arbiter_shows_every_answer_and_why_it_is_left_to_people(open_page: Open) -> None:
    found = texts(open_page("arbiter"))
    assert "Rain again, so I fixed the roof" in found
    for label in ("Tools", "Weather", "Plain"):
        assert f">{label}<" in found
    assert "Left to people: mean Jaccard 0\\.00; 0\\.50 is asked for" in found
    assert found.count("90% sure") == 3


def test_pictures_are_blurred_until_asked_for(open_page: Open) -> None:
    tester = open_page("arbiter")
    assert "Pictures are blurred" in texts(tester)
    before = [element.proto.body for element in tester.get("html") if "data:image" in element.proto.body]
    press(tester, "Show pictures")
    after = [element.proto.body for element in tester.get("html") if "data:image" in element.proto.body]
    assert len(before) == len(after) == 1
    assert "Pictures are blurred" not in texts(tester)


def test_what_is_written_meanwhile_is_seen_by_the_next_page(open_page: Open, panel: Panel) -> None:
    assert "Rain again" in texts(open_page("arbiter"))
    panel.decide("mixed", "bob", "excluded", [], "rain")
    assert "No record is in this list" in texts(open_page("arbiter"))


def test_runs_and_panels_can_be_opened_together(panel: Panel, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xai.app.session import shown_pages

    def pages(**opened: tuple[Path, ...]) -> list[str]:
        monkeypatch.setenv("XAI_APP_SETTINGS", Settings(**opened).model_dump_json())
        return shown_pages()

    of_runs = ["memes", "meme", "overview", "compare", "faithfulness", "verdicts"]
    assert pages(runs=(run,)) == of_runs
    assert pages(panels=(panel.path,)) == ["arbiter", "validator"]
    assert pages(runs=(run,), panels=(panel.path,)) == [*of_runs, "arbiter", "validator"]
    with pytest.raises(ValueError, match="name a run or a panel"):
        pages()

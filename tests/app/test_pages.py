"""The logic of the pages, by Streamlit's own tester: what is listed, what a link reproduces, what a click stores."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.app.conftest import HOSTILE, HOSTILE_ID
from xai.app.pieces import UNSIGNED, caption_html, legend_html, plain
from xai.app.settings import Settings
from xai.app.verdicts import VerdictStore
from xai.attribution.methods import methods

MAIN = Path(__file__).parents[2] / "app" / "main.py"
Open = Callable[..., AppTest]


def page_script(name: str) -> None:
    from importlib import import_module

    from xai.app.session import services

    services().sync_verdicts()
    import_module(f"xai.app.views.{name}").show()


@pytest.fixture
def open_page(settings: Settings) -> Open:
    """Shows one page with these parameters of the URL; the settings are published."""

    def opened(name: str, **params: str) -> AppTest:
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


def button(tester: AppTest, label: str) -> object:
    (found,) = [element for element in tester.button if element.label == label]
    return found


def test_the_list_has_every_row_and_blurs_pictures_until_asked(open_page: Open) -> None:
    tester = open_page("memes")
    assert "**55** memes" in texts(tester)
    assert "Pictures are blurred" in texts(tester)
    blurred = re.findall(r'src="data:image/webp;base64,([^"]+)"', texts(tester))
    tester.button[0].click().run()
    shown = re.findall(r'src="data:image/webp;base64,([^"]+)"', texts(tester))
    assert len(blurred) == len(shown) == 8
    assert set(blurred).isdisjoint(shown)
    assert "Pictures are blurred" not in texts(tester)


def test_a_link_sets_filter_order_and_page(open_page: Open) -> None:
    tester = open_page("memes", f_mode="text", f_sort="agreement", f_label="Bandwagon")
    assert tester.multiselect(key="memes.label").value == ["Bandwagon"]
    assert tester.selectbox(key="memes.sort").value == "agreement"
    assert "**3** memes" in texts(tester)
    tester.multiselect(key="memes.label").set_value([]).run()
    assert "f_label" not in tester.query_params
    assert tester.query_params["f_sort"] == "agreement"


def test_pages_are_turned_and_a_new_filter_begins_at_the_first(open_page: Open) -> None:
    tester = open_page("memes", page="3")
    assert "page 3 of 7" in texts(tester)
    button(tester, "Next").click().run()  # type: ignore[attr-defined]
    assert "page 4 of 7" in texts(tester)
    tester.selectbox(key="memes.correct").set_value("right").run()
    assert "page 1 of" in texts(tester)


def test_a_filter_that_nothing_passes_says_what_to_do(open_page: Open) -> None:
    tester = open_page("memes", f_text="no caption has this")
    assert "No meme passes this filter" in texts(tester)
    button(tester, "Clear filters").click().run()  # type: ignore[attr-defined]
    assert "**55** memes" in texts(tester)


def test_the_page_of_a_meme_shows_what_the_link_says(open_page: Open) -> None:
    tester = open_page("meme", run="run", meme="sample-02", mode="image+text", opacity="40", sign="for", f_mode="text")
    assert tester.slider(key="meme.opacity").value == 40
    assert "sample-02" in texts(tester)
    assert "not in the current filter" in texts(tester)
    tester.slider(key="meme.opacity").set_value(60).run()
    assert tester.query_params["opacity"] == "60"
    assert tester.query_params["sign"] == "for"


def test_relevance_words_stand_beside_rationale_words(open_page: Open) -> None:
    tester = open_page("meme", run="run", meme="sample-02", mode="image+text")
    shown = texts(tester)
    assert "Only relevance" in shown
    assert "Only rationale" in shown  # Bandwagon names the wrong word
    assert "Agreement (Jaccard of both sides, 0 to 1): 0.000" in shown


def test_a_click_is_stored_at_once_and_found_again(open_page: Open, settings: Settings) -> None:
    tester = open_page("meme", run="run", meme="sample-01", mode="text")
    tester.button(key="verdict.relevance.not plausible").click().run()
    store = VerdictStore(settings.runs[0].with_name("run.verdicts.sqlite"))
    (event,) = store.history()
    assert (event["auditor"], event["question"], event["answer"]) == ("ann", "relevance", "not plausible")
    tester.text_area[0].set_value("why not <b>").run()
    assert store.current()[0]["note"] == "why not <b>"
    again = open_page("meme", run="run", meme="sample-01", mode="text")
    assert again.button(key="verdict.relevance.not plausible").proto.type == "primary"
    assert again.text_area[0].value == "why not <b>"
    again.button(key="verdict.relevance.not plausible").click().run()
    assert store.current()[0]["relevance"] is None
    assert not any((settings.runs[0]).rglob("*.sqlite*"))


def test_another_meme_starts_with_an_empty_form(open_page: Open) -> None:
    tester = open_page("meme", run="run", meme="sample-01", mode="text")
    tester.text_area[0].set_value("of the first").run()
    tester.query_params["meme"] = "sample-03"
    tester.run()
    assert "sample-03" in texts(tester)
    assert tester.text_area[0].value == ""


def test_read_only_shows_the_form_and_stores_nothing(
    open_page: Open, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = settings.model_copy(update={"read_only": True})
    monkeypatch.setenv("XAI_APP_SETTINGS", frozen.model_dump_json())
    tester = open_page("meme", run="run", meme="sample-01", mode="text")
    assert tester.button(key="verdict.label.right").disabled
    assert not settings.runs[0].with_name("run.verdicts.sqlite").exists()


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("name", ["../../etc", "/etc", "nothing"])
def test_a_run_that_was_not_opened_is_refused_in_words(name: str) -> None:
    tester = AppTest.from_function(page_script, default_timeout=60, args=("meme",))
    tester.query_params["run"], tester.query_params["meme"] = name, "passwd"
    tester.run()
    (error,) = tester.exception
    assert "no run that is open here has such a meme" in error.message
    assert "etc" not in error.message


def test_a_hostile_meme_stays_text(open_page: Open) -> None:
    tester = open_page("meme", run="run", meme=HOSTILE_ID, mode="text")
    shown = texts(tester)
    assert "<script" not in shown
    assert "<img src=x" not in shown
    assert "&lt;script&gt;alert(1)" in shown


def test_every_page_opens(open_page: Open) -> None:
    assert [metric.value for metric in open_page("overview").metric][:2] == ["27", "100%"]
    assert "Same labels" in [metric.label for metric in open_page("compare").metric]
    assert "not measured yet" in texts(open_page("faithfulness"))
    assert "Nobody has judged" in texts(open_page("verdicts"))
    assert "No meme is chosen" in texts(open_page("meme"))
    assert "without a model" in texts(open_page("explain"))


def test_markdown_and_html_show_a_hostile_text_as_it_is() -> None:
    assert plain("a*b") == r"a\*b"
    assert all(f"\\{character}" in plain(HOSTILE) for character in "<>[]()*`$:&^")
    html = caption_html(HOSTILE, [(0, 4)], [1.0], 2.0, ['"><b>'])
    assert "<img" not in html
    assert 'title="&quot;&gt;&lt;b&gt;"' in html
    assert "&lt;img" in html


def test_two_visitors_with_names_filters_and_runs_of_their_own_do_not_mix(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = settings.runs[0].with_name("other")
    shutil.copytree(settings.runs[0], other)
    both = settings.model_copy(update={"runs": (settings.runs[0], other), "auditor": ""})
    monkeypatch.setenv("XAI_APP_SETTINGS", both.model_dump_json())
    visits = {"ann": ("run", "sample-01", "plausible"), "bo": ("other", "sample-02", "unclear")}
    testers = {}
    for name, (run, meme, _) in visits.items():
        tester = testers[name] = AppTest.from_function(page_script, default_timeout=60, args=("meme",))
        tester.session_state["auditor"] = name
        tester.query_params |= {"run": run, "meme": meme, "mode": "text", "f_text": meme}
    for tester in testers.values():
        tester.run()
    for name, (_, _, answer) in visits.items():
        testers[name].button(key=f"verdict.relevance.{answer}").click().run()
    for name, (run, meme, answer) in visits.items():
        (event,) = VerdictStore(settings.runs[0].with_name(f"{run}.verdicts.sqlite")).history()
        assert (event["auditor"], event["meme_id"], event["answer"]) == (name, meme, answer)
        assert testers[name].query_params["f_text"] == meme
        assert f"{meme}</div>" in texts(testers[name])


def test_methods_without_signs_are_those_of_the_registry() -> None:
    assert {method.name for method in methods() if method.sign == "unsigned"} == UNSIGNED
    assert "against" in legend_html(1.0, "logit")
    assert "against" not in legend_html(1.0, "logit", signed=False)

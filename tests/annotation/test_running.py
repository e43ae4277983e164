"""A dataset through the whole panel, asked of a real server: every record's way, stops, resuming, and refusals."""

from __future__ import annotations

import base64
import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import xai
from tests.annotation.conftest import TASK, panel_settings, recorded, write_dataset
from tests.annotation.serving import Endpoint, Reply, completion, failure, labelled, prompt_of
from tests.ocr.conftest import engine_for
from xai.annotation.endpoint import EndpointError
from xai.annotation.folder import Panel, PanelError
from xai.annotation.running import Work, annotate
from xai.annotation.settings import PanelSettings
from xai.journal import JournalError
from xai.models import VisionLanguageModel

SECRET = "sk-this-is-a-secret-of-the-tests"


def states(panel: Panel) -> dict[str, str]:
    return {item.id: item.state for item in panel.items()}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_every_record_goes_its_way(dataset: Path, tmp_path: Path, settings: PanelSettings) -> None:
    panel = annotate(dataset, tmp_path / "panel", settings)
    assert states(panel) == {
        "sunny": "votes",
        "hammer": "votes",
        "mixed": "people",
        "plain": "votes",
        "muddle": "excluded",
        "silent": "excluded",
        "short": "dropped",
        "quoted": "dropped",
        "no-picture": "unread",
    }
    found = {item.id: item for item in panel.items()}
    sunny = found["sunny"]
    assert sunny.meme.post == "Look at this!"
    assert [tuple(one.values()) for one in sunny.record["removed"]] == [
        ("link", "https://example.org/a"), ("mention", "@bob"), ("hashtag", "#sun"),
    ]  # fmt: skip
    assert sunny.accepted is not None
    assert (sunny.accepted.labels, sunny.accepted.why) == (("Weather",), "all 3 annotators gave the same labels")
    assert sunny.kept_phrases == ("praises the sun", "thanks a cloud")
    assert found["hammer"].accepted is not None
    assert found["hammer"].accepted.labels == ("Tools",)
    assert found["hammer"].phrases is None  # no label that is explicated
    assert found["short"].record["reason"] == "the picture's text has 2 characters; kept are 10 to 100"
    assert found["quoted"].record["reason"] == "the post has 9 characters; kept are 20 to 500"
    assert [one["stage"] for one in panel.failures()] == ["read", "answer", "answer"]


def test_every_decision_says_who_and_why_and_when(dataset: Path, tmp_path: Path, settings: PanelSettings) -> None:
    panel = annotate(dataset, tmp_path / "panel", settings)
    found = {item.id: item for item in panel.items()}
    first, second, third = found["silent"].answers
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first["annotator"], first["parse"]) == (settings.annotators[0], "unparsed")
    assert first["text"] == "I cannot say."
    assert first["version"]["endpoint"].startswith("http://127.0.0.1:")
    assert (first["model"], second["failure"]) == ("served-1", "127.0.0.1 answered with status 500")
    assert third["failure"] == "a filter of 127.0.0.1 refused the question"
    for item in found.values():
        for entry in (item.record, item.decision, item.phrases, *item.answers):
            assert entry is None or entry["time"].startswith("20")
    assert found["muddle"].decision is not None
    assert (found["muddle"].decision["who"], found["muddle"].decision["rule"]) == ("arbiter 1", "hopeless")


def test_the_second_run_asks_nothing_and_changes_nothing(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint
) -> None:
    annotate(dataset, tmp_path / "panel", settings)
    before, n = files_of(tmp_path / "panel"), len(endpoint.requests)
    annotate(dataset, tmp_path / "panel", settings)
    assert files_of(tmp_path / "panel") == before
    assert len(endpoint.requests) == n


class Stop:
    """A progress bar that interrupts after so many steps of all stages together, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, what: str, total: int) -> Stop:
        return self

    def __enter__(self) -> Any:
        return self._step

    def __exit__(self, *error: object) -> None:
        pass

    def _step(self, n: int) -> None:
        self.left -= n
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", range(0, 28, 3))
def test_a_panel_that_was_stopped_anywhere_goes_on_and_asks_nothing_twice(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint, after: int
) -> None:
    whole = annotate(dataset, tmp_path / "whole", settings, work=Work(batch_size=1))
    asked = len(endpoint.requests)
    endpoint.requests.clear()
    with pytest.raises(KeyboardInterrupt):
        annotate(dataset, tmp_path / "panel", settings, work=Work(batch_size=1, progress=Stop(after)))
    panel = annotate(dataset, tmp_path / "panel", settings, work=Work(batch_size=1))
    assert len(endpoint.requests) == asked
    assert without_times(panel) == without_times(whole)
    assert not list((tmp_path / "panel").glob("*.part"))


def without_times(panel: Panel) -> list[Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(inner) for name, inner in value.items() if name != "time"}
        return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    return [
        plain([item.record, item.answers, item.decision, item.phrases, item.state, item.accepted and item.accepted[:3]])
        for item in panel.items()
    ]


def test_models_are_open_one_after_the_other(
    dataset: Path, tmp_path: Path, settings: PanelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xai.annotation.endpoint import Endpoint as Model

    opened: list[str] = []
    enter, leave = Model.__enter__, Model.__exit__
    monkeypatch.setattr(Model, "__enter__", lambda self: opened.append("open") or enter(self))
    monkeypatch.setattr(Model, "__exit__", lambda self, *error: opened.append("close") or leave(self, *error))
    annotate(dataset, tmp_path / "panel", settings)
    assert opened == ["open", "close"] * 4  # three annotators and the explicator


def test_another_option_or_panel_is_refused_with_what_differs(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint
) -> None:
    annotate(dataset, tmp_path / "panel", settings)
    before = files_of(tmp_path / "panel")
    names = settings.annotators
    for changed, message in (
        (panel_settings(endpoint, rules={"aligned_jaccard": 0.7}), r"settings.rules.aligned_jaccard: 0.5, now 0.7"),
        (panel_settings(endpoint, votes={"validators": 5}), r"settings.votes.validators: 3, now 5"),
        (panel_settings(endpoint, annotators=[*names[:2], endpoint.name("4")]), r"settings.annotators"),
    ):
        with pytest.raises(PanelError, match=message):
            annotate(dataset, tmp_path / "panel", changed)
    with pytest.raises(PanelError, match=r"dataset.records: 9, now 3"):
        annotate(dataset, tmp_path / "panel", settings, limit=3)
    picture = dataset / "sunny.png"
    picture.write_bytes(picture.read_bytes() + b"\0")
    with pytest.raises(PanelError, match="records of the dataset, or the paths or sizes of its pictures, have changed"):
        annotate(dataset, tmp_path / "panel", settings)
    assert files_of(tmp_path / "panel") == before


def test_a_folder_with_something_else_is_left_alone(dataset: Path, tmp_path: Path, settings: PanelSettings) -> None:
    with pytest.raises(PanelError, match="'data' holds something else than a panel"):
        annotate(dataset, dataset, settings)
    assert not (dataset / ".lock").exists()
    with pytest.raises(PanelError, match="is a file"):
        annotate(dataset, dataset / "memes.jsonl", settings)


def test_the_folder_is_filled_by_one_process_at_a_time(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint
) -> None:
    said: list[str] = []

    def meanwhile(model: str, prompt: str) -> str | Reply:
        if not said:
            said.append("")
            with pytest.raises(PanelError) as caught:
                annotate(dataset, tmp_path / "panel", settings)
            said.append(str(caught.value))
        return recorded(model, prompt)

    endpoint.answer = meanwhile
    annotate(dataset, tmp_path / "panel", settings, work=Work(batch_size=1))
    assert said == ["", "panel 'panel' is being filled by another process; wait for it"]


def test_what_people_accept_is_explicated_by_the_same_command(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint
) -> None:
    panel = annotate(dataset, tmp_path / "panel", settings)
    panel.decide("mixed", "ann", "accepted", ["Weather", "Tools"], "it rains, and a roof is fixed")
    assert states(panel)["mixed"] == "phrases"
    n = len(endpoint.requests)
    annotate(dataset, tmp_path / "panel", settings)
    assert len(endpoint.requests) == n + 1
    assert "the labels: Weather, Tools." in prompt_of(endpoint.requests[-1])
    mixed = panel.item("mixed")
    assert (mixed.state, mixed.kept_phrases) == ("votes", ("praises the sun", "thanks a cloud"))


def test_an_explicator_that_fails_is_asked_again_by_the_next_run(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint
) -> None:
    endpoint.answer = lambda model, prompt: failure(500) if '"phrases"' in prompt else recorded(model, prompt)
    panel = annotate(dataset, tmp_path / "panel", settings)
    assert states(panel)["sunny"] == "phrases"
    assert panel.failures()[-1]["reason"] == "127.0.0.1 answered with status 500"
    endpoint.answer = recorded
    annotate(dataset, tmp_path / "panel", settings)
    assert states(panel)["sunny"] == "votes"
    assert [one["stage"] for one in panel.failures()] == ["read", "answer", "answer"]


def test_an_answer_without_phrases_is_refused_visibly_and_not_asked_for_again(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint
) -> None:
    endpoint.answer = lambda model, prompt: "It shines." if '"phrases"' in prompt else recorded(model, prompt)
    panel = annotate(dataset, tmp_path / "panel", settings)
    sunny = panel.item("sunny")
    assert sunny.phrases is not None
    assert (sunny.state, sunny.kept_phrases) == ("votes", ())
    assert (sunny.phrases["refused"], sunny.phrases["text"]) == ("the answer is not one JSON object", "It shines.")


def test_the_picture_goes_as_a_data_url_and_the_prompt_is_the_tasks(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint
) -> None:
    annotate(dataset, tmp_path / "panel", settings, limit=1)
    request = endpoint.requests[0]
    picture, text = request["messages"][0]["content"]
    head, _, content = picture["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    with Image.open(dataset / "sunny.png") as original:
        sent = Image.open(io.BytesIO(base64.b64decode(content)))
        assert (sent.size, sent.convert("RGB").tobytes()) == (original.size, original.convert("RGB").tobytes())
    shown = "Look at this!\nText: What a lovely sunny morning"
    assert text["text"] == settings.task.instruction("image+text+post") + shown
    assert text["text"].endswith("\nPost: " + shown)
    assert (request["model"], request["temperature"]) == ("1", 0)


def test_a_picture_is_sent_without_what_its_file_says_of_it(tmp_path: Path, endpoint: Endpoint) -> None:
    folder = write_dataset(tmp_path / "own", ({"id": "sunny", "text": "What a lovely sunny morning"},))
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    Image.new("RGB", (4000, 20)).save(folder / "sunny.png", exif=exif)
    annotate(folder, tmp_path / "panel", panel_settings(endpoint))
    url = endpoint.requests[0]["messages"][0]["content"][0]["image_url"]["url"]
    sent = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    assert (sent.size, dict(sent.getexif()), b"taken at home" in base64.b64decode(url.partition(",")[2])) == (
        (2048, 10), {}, False,
    )  # fmt: skip


def test_text_that_is_given_is_kept_and_tesseract_reads_what_is_not(tmp_path: Path, endpoint: Endpoint) -> None:
    engine_for("tesseract", "en")
    memes = (
        {"id": "read", "draw": "WHAT A LOVELY SUNNY DAY"},
        {"id": "given", "text": "What a lovely sunny morning", "draw": "SOMETHING ELSE"},
    )
    endpoint.answer = lambda model, prompt: PHRASED if '"phrases"' in prompt else labelled("Weather")
    options = {"ocr_engine": "tesseract", "ocr_languages": ["en"]}
    panel = annotate(write_dataset(tmp_path / "own", memes), tmp_path / "panel", panel_settings(endpoint, **options))
    read, given = panel.items()
    assert read.meme.text == "WHAT A LOVELY SUNNY DAY"
    assert read.record["text_from"].startswith("tesseract ")
    assert [word.text for word in read.meme.words or ()] == ["WHAT", "A", "LOVELY", "SUNNY", "DAY"]
    assert (given.meme.text, given.record["text_from"]) == ("What a lovely sunny morning", "dataset")
    assert any(prompt_of(request).endswith("WHAT A LOVELY SUNNY DAY") for request in endpoint.requests)


PHRASED = '{"phrases": ["praises a day"]}'


def test_a_language_that_nobody_names_is_asked_for(tmp_path: Path, endpoint: Endpoint) -> None:
    folder = write_dataset(tmp_path / "own", ({"id": "read", "draw": "WORDS"},))
    with pytest.raises(ValueError, match="does not show in which language it is"):
        annotate(folder, tmp_path / "panel", panel_settings(endpoint))


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (failure(401), "does not accept the key in XAI_API_KEY_127_0_0_1"),
        (failure(403), "gives the key in XAI_API_KEY_127_0_0_1 no access"),
        (failure(404), "check the address and the model"),
        (failure(429), "wait"),
        (failure(422), "takes no such request"),
    ],
)
def test_what_concerns_every_record_stops_the_command_and_keeps_what_was_answered(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint, reply: Reply, message: str
) -> None:
    endpoint.answer = lambda model, prompt: reply if model == "2" else recorded(model, prompt)
    with pytest.raises(EndpointError, match=message):
        annotate(dataset, tmp_path / "panel", settings)
    assert endpoint.asked("1") == 6
    endpoint.answer = recorded
    panel = annotate(dataset, tmp_path / "panel", settings)
    assert endpoint.asked("1") == 6 + 1  # and the explicator's question
    assert states(panel)["sunny"] == "votes"


def test_an_endpoint_that_is_not_there_is_named(dataset: Path, tmp_path: Path, endpoint: Endpoint) -> None:
    names = [endpoint.name("1"), "http://127.0.0.1:9/v1#x"]
    with pytest.raises(EndpointError, match=r"127\.0\.0\.1 cannot be reached; check the address"):
        annotate(dataset, tmp_path / "panel", panel_settings(endpoint, annotators=names))


def test_the_client_tries_again_before_a_record_fails(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xai.annotation.endpoint.MAX_RETRIES", 1)
    failed: list[str] = []

    def once(model: str, prompt: str) -> str | Reply:
        if not failed and "best hammer" in prompt:
            failed.append(model)
            return failure(503)
        return recorded(model, prompt)

    endpoint.answer = once
    panel = annotate(dataset, tmp_path / "panel", settings, limit=2)
    assert failed == ["1"]
    assert panel.failures() == []


@pytest.mark.parametrize(
    ("reply", "failed", "parse"),
    [
        (completion(None, refusal="I would rather not."), "the model at 127.0.0.1 or its filter refused", "unparsed"),
        ((200, "<html>sign in</html>"), "sent no answer that could be read", "unparsed"),
        (completion("Tools, I think."), None, "unparsed"),
        (completion('Sure: {"labels": ["tools"], "referred_words": [], "confidence": "80%"}'), None, "repaired"),
    ],
)
def test_an_answer_is_read_by_the_tasks_parser_and_nothing_is_guessed(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint, reply: Reply, failed: str, parse: str
) -> None:
    endpoint.answer = lambda model, prompt: reply if model == "1" else recorded(model, prompt)
    panel = annotate(dataset, tmp_path / "panel", settings, limit=1)
    answer = panel.item("sunny").answers[0]
    assert answer is not None
    assert answer["parse"] == parse
    assert (answer["failure"] is None) == (failed is None)
    assert failed is None or failed in answer["failure"]
    if parse == "repaired":
        assert (answer["labels"], answer["confidence"]) == (["Tools"], 0.8)


def test_the_key_of_a_host_goes_to_that_host_alone_and_into_no_file_log_or_error(
    dataset: Path,
    tmp_path: Path,
    settings: PanelSettings,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XAI_API_KEY_127_0_0_1", SECRET)
    monkeypatch.setenv("XAI_API_KEY_LOCALHOST", "sk-of-another-host")
    monkeypatch.setenv("XAI_LLM_API_KEY", "sk-of-the-tagger")
    caplog.set_level(logging.DEBUG)
    annotate(dataset, tmp_path / "panel", settings, limit=2)
    assert set(endpoint.keys) == {f"Bearer {SECRET}"}
    endpoint.answer = lambda model, prompt: failure(401, said=f"refused for {SECRET}")
    with pytest.raises(EndpointError) as caught:
        annotate(dataset, tmp_path / "other", settings)
    written = [path.read_text() for path in tmp_path.glob("*/*.json*")]
    logged = "\n".join([record.getMessage() for record in caplog.records])
    assert len(written) > 5
    assert caplog.records
    for text in (*written, logged, str(caught.value), repr(caught.value)):
        assert SECRET not in text


@pytest.mark.parametrize(
    "name", ["http://user:pw@127.0.0.1/v1#m", "http://127.0.0.1/v1?key=pw#m", "http://127.0.0.1/v1", "http:///v1#m"]
)
def test_an_address_with_a_secret_or_without_a_model_is_refused(
    dataset: Path, tmp_path: Path, endpoint: Endpoint, name: str
) -> None:
    settings = panel_settings(endpoint, annotators=[name, endpoint.name("1")])
    with pytest.raises(ValueError, match=r"leave out names, passwords and keys|names no model") as caught:
        annotate(dataset, tmp_path / "panel", settings)
    assert "pw" not in str(caught.value)
    assert not (tmp_path / "panel").exists()


def test_the_shipped_model_answers_beside_an_endpoint(
    tmp_path: Path, endpoint: Endpoint, model: VisionLanguageModel
) -> None:
    from xai.planted import SAMPLES

    answer = {"labels": ["Doubt"], "referred_words": [], "referred_image_concepts": []}
    endpoint.answer = lambda model, prompt: json.dumps(answer)
    settings = PanelSettings.model_validate(
        {
            "annotators": ["planted", endpoint.name("1")],
            "asked": {"task": "ukrmeme"},
            "cleaning": {"version": "none", "platforms": {"other": {}}},
        }
    )
    panel = annotate(SAMPLES, tmp_path / "panel", settings, limit=4, work=Work(device="cpu", batch_size=3))
    memes = [item.meme for item in panel.items()]
    said = xai.predict(model, memes)
    for item, prediction in zip(panel.items(), said, strict=True):
        planted, served = item.answers
        assert planted is not None
        assert served is not None
        assert planted["text"] == prediction.text
        assert planted["labels"] == list(prediction.labels)
        assert planted["version"]["fingerprint"] == model.fingerprint
        assert served["labels"] == ["Doubt"]


def test_a_loaded_model_that_knows_no_such_prompt_stops_before_the_first_record(
    dataset: Path, tmp_path: Path, endpoint: Endpoint
) -> None:
    asked = {"task": str(TASK), "variant": "terse"}
    settings = panel_settings(endpoint, annotators=["planted", endpoint.name("1")], asked=asked)
    with pytest.raises(ValueError, match="has no variant 'terse'"):
        annotate(dataset, tmp_path / "panel", settings, work=Work(device="cpu"))


def test_a_journal_that_another_version_of_a_model_began_is_not_gone_on_with(
    dataset: Path, tmp_path: Path, settings: PanelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        annotate(dataset, tmp_path / "panel", settings, work=Work(batch_size=1, progress=Stop(11)))
    monkeypatch.setattr("xai.annotation.endpoint.LONGEST", 512)
    with pytest.raises(JournalError, match="version"):
        annotate(dataset, tmp_path / "panel", settings)


def test_settings_that_make_no_sense_are_refused(endpoint: Endpoint) -> None:
    name = endpoint.name("1")
    with pytest.raises(ValueError, match="is named twice"):
        panel_settings(endpoint, annotators=[name, name])
    with pytest.raises(ValueError, match="at least 2"):
        panel_settings(endpoint, annotators=[name])
    with pytest.raises(ValueError, match="4 votes in favour cannot come from 3 validators"):
        panel_settings(endpoint, votes={"keep": 4})
    with pytest.raises(ValueError, match="'Hate' is no label of task 'harmless'"):
        panel_settings(endpoint, explicator={"labels": ["Hate"]}).resolved()
    assert panel_settings(endpoint, explicator={"labels": ["weather"]}).resolved().explicator.labels == ("Weather",)
    assert Path(panel_settings(endpoint).resolved().asked.task) == TASK.resolve()


def test_a_model_that_answers_in_batches_is_asked_in_the_same_ones_after_a_stop(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xai.annotation.models import LoadedModel
    from xai.planted import SAMPLES

    asked: list[list[str]] = []
    ask = LoadedModel.ask

    def noted(self: LoadedModel, task: Any, memes: Any, how: Any) -> Any:
        asked.append([meme.id for meme in memes])
        return ask(self, task, memes, how)

    monkeypatch.setattr(LoadedModel, "ask", noted)
    endpoint.answer = lambda model, prompt: json.dumps({"labels": ["Doubt"], "referred_words": []})
    settings = PanelSettings.model_validate(
        {
            "annotators": ["planted", endpoint.name("1")],
            "asked": {"task": "ukrmeme"},
            "cleaning": {"version": "none", "platforms": {"other": {}}},
        }
    )
    # Five records are read; the fourth answer is the first of the second batch.
    with pytest.raises(KeyboardInterrupt):
        annotate(
            SAMPLES, tmp_path / "panel", settings, limit=5, work=Work(batch_size=3, device="cpu", progress=Stop(8))
        )
    with pytest.raises(JournalError, match="batch size: 3, now 2"):
        annotate(SAMPLES, tmp_path / "panel", settings, limit=5, work=Work(batch_size=2, device="cpu"))
    panel = annotate(SAMPLES, tmp_path / "panel", settings, limit=5, work=Work(batch_size=3, device="cpu"))
    names = [item.id for item in panel.items()]
    assert asked == [names[:3], names[3:], names[3:]]
    assert [item.answers[0]["id"] for item in panel.items() if item.answers[0]] == names


@pytest.mark.parametrize(
    "said",
    [
        '{"labels": ["Tools"], "referred_words": [], "confidence": 0.5} \ud83d',
        '{"labels": ["\\ud83d"], "referred_words": [], "confidence": 0.5}',
        '{"labels": ["Tools"], "referred_words": ["\\ud83d"], "confidence": 0.5}',
        '{"labels": ["Tools"], "\\ud83d": [], "confidence": 0.5}',
        '{"labels": ["Tools"], "referred_words": [], "confidence": "\\ud83d"}',
    ],
)
def test_half_a_character_in_an_answer_stops_nothing(
    dataset: Path, tmp_path: Path, settings: PanelSettings, endpoint: Endpoint, said: str
) -> None:
    endpoint.answer = lambda model, prompt: said if model == "1" else recorded(model, prompt)
    panel = annotate(dataset, tmp_path / "panel", settings, limit=1)
    answer = panel.item("sunny").answers[0]
    assert answer is not None
    json.dumps(answer, ensure_ascii=False).encode("utf-8")


def test_a_platform_without_rules_is_refused(endpoint: Endpoint) -> None:
    with pytest.raises(ValueError, match="no rules for platform '4chn'; there is 4chan, x, reddit, other"):
        panel_settings(endpoint, platform="4chn").resolved()
    assert panel_settings(endpoint, platform="Twitter").resolved().platform == "Twitter"

"""Whatever a data set, a model or a file name says is text on every page, in every Markdown and on the terminal."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from xai.app.verdicts import COLUMNS, as_csv, as_jsonl
from xai.cli import app
from xai.display import out, print_explanation, print_json
from xai.planted import CHECKPOINT, SAMPLES
from xai.store import open_run
from xai.tasks import load_task

TAG = "<img src=x onerror=alert(1)>"
END = "</td></script><script>alert(2)</script>"
LINK = "[click](javascript:alert(3)) | `code` **bold** ![i](http://127.0.0.1:9/i.png) <http://127.0.0.1:9/>"
NAME = f"{TAG} [a](b) `c` 'd\" &amp;"
"""What a file or a folder may be called: without a slash."""
LABEL = f"{TAG}{END} {LINK} $\\frac{{1}}$"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def pages(folder: Path) -> Path:
    """A folder whose name is markup, with everything that the package writes about a run whose texts are markup."""
    model, task = shutil.copytree(CHECKPOINT, folder / f"model {NAME}"), write_task(folder / f"task {NAME}.yaml")
    data, answers = write_data(folder)
    run = folder / f"run {NAME}"
    asked = ("--model", model, "--task", task, "--variant", "short", "--answers", answers, "--device", "cpu")
    xai("explain", data, "--out", run, "--mode", "text", "--mode", "image+text", "--targets", "each", *asked, code=1)
    shutil.copytree(run, folder / f"other {NAME}")
    xai("score", run, "--against", folder / f"other {NAME}", "--task", task, "--draws", "2")
    xai("analyze", run)
    xai("faithfulness", run, "--task", task, "--draws", "1", "--budget", "60f", "--model", model, code=None)
    xai("agreement", write_annotations(folder), "--out", run / "reports", "--draws", "2")
    xai("categories", "validate", write_gold(folder), "--out", run / "reports")
    few = ("--n", "2", "--method", "attnlrp", "--no-curves", "--no-pretrained")
    xai("bench-methods", *few, "--model", model, "--out", run / "reports")
    shown = ("--html", run / "reports" / "show.html", "--png", run / "reports" / "show.png")
    xai("show", run, LABEL, "--mode", "image+text", *shown)
    return run


def xai(*arguments: str | Path, code: int | None = 0) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert code is None or done.exit_code == code, (arguments[0], done.output, done.exception)
    return done.output


def write_task(path: Path) -> Path:
    """The task that ships, with a label, a name and a version of markup."""
    source = Path(load_task.__code__.co_filename).with_name("ukrmeme.yaml")
    task = yaml.safe_load(source.read_text(encoding="utf-8"))
    doubt = next(label for label in task["labels"] if label["name"] == "Doubt")
    doubt["name"] = LABEL
    task |= {"name": f"task {NAME}", "version": f"1 {NAME}"}
    path.write_text(yaml.safe_dump(task, allow_unicode=True), encoding="utf-8")
    return path


def write_data(folder: Path) -> tuple[Path, Path]:
    """Three memes, and answers to them, in which every text is markup."""
    picture = f"picture {NAME}.jpg"
    shutil.copy(SAMPLES / "images" / "sample-01.jpg", folder / picture)
    ids = [LABEL, f"2 {NAME}", "3 =HYPERLINK(1)"]
    text = f"{TAG} {END} {LINK} [bold]x[/bold]"
    memes = [{"id": one, "text": text, "image": picture, "labels": [LABEL], "language": "en"} for one in ids]
    memes.append({"id": f"broken {NAME}", "text": text, "image": f"{NAME}.png", "labels": []})
    answer = {
        "labels": [LABEL, f"no label {TAG}"],
        "referred_words": [TAG, END, LINK],
        "referred_image_concepts": [TAG],
    }
    answers = [{"id": one["id"], "text": json.dumps(answer)} for one in memes]
    data, given = folder / f"memes {NAME}.jsonl", folder / "answers.jsonl"
    for path, rows in ((data, memes), (given, answers)):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return data, given


def write_annotations(folder: Path) -> Path:
    path = folder / f"annotations {NAME}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = [[f"{n} {TAG}", json.dumps([LABEL]), json.dumps([LABEL if n % 2 else "b"])] for n in range(6)]
        csv.writer(file).writerows([["item", f"labels_{TAG}{END}", f"labels_{LINK}"], *rows])
    return path


def write_gold(folder: Path) -> Path:
    path = folder / f"gold {NAME}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = [[word, f"{word} {END}", "en", "Entity"] for word in (TAG, END, LINK, "=HYPERLINK(1)")]
        csv.writer(file).writerows([["word", "context", "language", "category"], *rows])
    return path


REPORTS = ("score", "analyze", "faithfulness", "agreement", "categories", "methods")


class Seen(HTMLParser):
    """Every element with its attributes, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def written(run: Path, kind: str) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((run / "reports").rglob(f"*.{kind}"))}


def test_every_report_was_written(pages: Path) -> None:
    for kind in ("html", "md", "json"):
        names = " ".join(written(pages, kind))
        assert [name for name in REPORTS if name not in names] == []


def test_no_page_has_an_element_or_an_attribute_that_acts_or_loads(pages: Path) -> None:
    acting = ("script", "iframe", "object", "embed", "form", "link", "base", "a", "foreignobject", "audio", "video")
    for name, page in written(pages, "html").items():
        seen = Seen(page)
        for tag, attributes in seen.elements:
            assert tag not in acting, (name, tag, attributes)
            assert not [one for one in attributes if one.startswith("on")], (name, tag, attributes)
            for key in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                value = attributes.get(key)
                assert value is None or value.startswith(("data:image/png;base64,", "#")), (name, tag, value)
            assert not re.search(r"url\((?!#)|@import|expression", attributes.get("style") or ""), (name, tag)
            refresh = attributes.get("http-equiv")
            assert refresh is None or refresh == "Content-Security-Policy", (name, refresh)


def test_every_page_forbids_scripts_and_loading_by_its_policy(pages: Path) -> None:
    for name, page in written(pages, "html").items():
        policies = [a["content"] for _, a in Seen(page).elements if a.get("http-equiv") == "Content-Security-Policy"]
        assert policies == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"], name


def test_pages_show_the_markup_as_the_text_that_it_is(pages: Path) -> None:
    texts = {name: Seen(page).text for name, page in written(pages, "html").items()}
    for report in ("score", "analyze", "agreement", "categories", "methods", "show"):
        (text,) = [text for name, text in texts.items() if report in name]
        assert TAG in text, report
    assert LABEL in texts["score.html"]
    assert END in texts["show.html"]


def test_markdown_has_no_live_markup_and_each_row_as_many_cells_as_its_head(pages: Path) -> None:
    for name, text in written(pages, "md").items():
        width = None
        for line in text.splitlines():
            bare = re.sub(r"\\.", "", line)
            assert not re.search(r"[<>`]|\]\(", bare), (name, line)
            cells = bare.count("|")
            if cells == 0:
                width = None
                continue
            width = width or cells
            assert cells == width, (name, line)


def test_a_caption_cannot_steer_the_terminal(pages: Path) -> None:
    explanation = open_run(pages).explanation(LABEL, "text", LABEL)
    steering = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08[red]x[/red]"
    meme = explanation.meme.model_copy(update={"id": steering, "text": steering})
    with out.capture() as captured:
        print_explanation(explanation.model_copy(update={"meme": meme}))
        out.print(f"xai: no {steering}", markup=False)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", captured.get())
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert "\\x1b]0;owned" in shown
    assert "[red]x[/red]" in shown


def test_json_for_machines_holds_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    steering = {"a": "\x1b[2J \x7f \x9b31m é"}
    print_json(steering)
    printed = capsys.readouterr().out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", printed)
    assert json.loads(printed) == steering


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1", "-1+cmd|' /C x'!A0", "@SUM(1)", "\t=1", "\r=1"])
def test_a_verdict_is_no_formula_in_a_spreadsheet_and_exact_in_jsonl(text: str) -> None:
    row: dict[str, Any] = dict.fromkeys(COLUMNS, text)
    _, cells = csv.reader(io.StringIO(as_csv([row]).decode("utf-8-sig"), newline=""))
    assert set(cells) == {f"'{text}"}
    assert json.loads(as_jsonl([row])) == row

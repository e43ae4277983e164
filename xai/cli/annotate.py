"""`xai annotate`: a panel of models labels memes, people decide what is left open, and the result becomes a dataset."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xai.cli.common import (
    DONE_WITH_FAILURES,
    DeviceOption,
    DtypeOption,
    ImagesOption,
    JsonOption,
    app,
    dataset_path,
    resumable,
)
from xai.display import out, print_frame, print_json, print_report, progress

if TYPE_CHECKING:
    from xai.annotation.folder import Panel
    from xai.annotation.settings import PanelSettings

SHARE = {"min": 0, "max": 1}


@app.command()
def annotate(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|PANEL",
            help="JSONL, CSV, Parquet, a folder of pictures, or 'samples'; with --status or --export a panel's folder.",
        ),
    ],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The panel's folder; started again, it goes on.")
    ] = None,
    annotator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="'planted', a checkpoint folder, a hub id, or http://HOST/v1#MODEL; once for each, usually three.",
        ),
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Say how far a panel is, and write its report.")] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what the validators kept as JSONL.")
    ] = None,
    task: Annotated[str, typer.Option(help="A task that ships (see `xai tasks`) or a YAML file.")] = "m3",
    mode: Annotated[
        str | None,
        typer.Option(help="What models see; by default picture, its text, and the post where a record has one."),
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the instruction.")] = "en",
    variant: Annotated[str | None, typer.Option(help="Prompt variant; each model's own by default.")] = None,
    with_none: Annotated[bool, typer.Option("--with-none/--without-none", help="Offer the none label.")] = True,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest answer of a loaded model, in tokens.")] = 512,
    images: ImagesOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N records.")] = None,
    ocr_engine: Annotated[str, typer.Option(help="Reads pictures whose text is not given; see `xai ocr`.")] = "auto",
    ocr_language: Annotated[
        list[str] | None, typer.Option(help="As en, uk, ar, zh-Hans; may be repeated. The dataset's own by default.")
    ] = None,
    platform: Annotated[
        str, typer.Option(help="Of records whose column 'platform' names none: 4chan, x, reddit, other.")
    ] = "other",
    cleaning: Annotated[Path | None, typer.Option(help="YAML of cleaning rules, if not those that ship.")] = None,
    post_length: Annotated[
        str | None, typer.Option(metavar="LEAST:MOST", help="Characters of a post, for every platform.")
    ] = None,
    text_length: Annotated[
        str | None, typer.Option(metavar="LEAST:MOST", help="Characters of a picture's text, for every platform.")
    ] = None,
    aligned_jaccard: Annotated[float, typer.Option(help="Accept from this mean Jaccard on …", **SHARE)] = 0.5,
    aligned_confidence: Annotated[float, typer.Option(help="… and this mean confidence.", **SHARE)] = 0.6,
    hopeless_jaccard: Annotated[float, typer.Option(help="Exclude below this mean Jaccard …", **SHARE)] = 0.2,
    hopeless_confidence: Annotated[float, typer.Option(help="… and this mean confidence.", **SHARE)] = 0.5,
    explicator: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Writes the phrases; the first endpoint of the panel by default."),
    ] = None,
    explicate: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Labels that get phrases; may be repeated. Of m3: Hate.")
    ] = None,
    no_phrases: Annotated[bool, typer.Option("--no-phrases", help="Ask for no phrases.")] = False,
    max_words: Annotated[int, typer.Option(min=2, help="Words of all phrases of a record together.")] = 30,
    validators: Annotated[int, typer.Option(min=1, help="People who vote on an accepted record …")] = 3,
    keep: Annotated[int, typer.Option(min=1, help="… and votes in favour that keep it.")] = 2,
    batch_size: Annotated[int, typer.Option(min=1, help="Records asked about at once.")] = 8,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label memes by a panel of models; people decide the rest and vote in `xai app`.

    The models describe and people decide: nothing is removed from anywhere. There is no collector; what is on the disk
    is read. Texts and pictures are sent to the endpoints that are named as annotators, and to nobody else.
    """
    if status or export is not None:
        if out_folder is not None or annotator:
            raise ValueError("--status and --export are of a panel that is there; leave out --out and --annotator")
        _look(Path(dataset), export, as_json)
        return
    if out_folder is None:
        raise ValueError("name the panel's folder with --out; to look at one that is there, add --status")
    from xai.annotation.cleaning import Length, load_cleaning
    from xai.annotation.running import Work
    from xai.annotation.running import annotate as fill
    from xai.annotation.settings import PANEL

    lengths = [None if text is None else Length.parse(text) for text in (post_length, text_length)]
    settings = _settings(
        annotators=annotator or [],
        asked={
            "task": task,
            "mode": mode or PANEL,
            "language": language,
            "variant": variant,
            "with_none": with_none,
            "max_new_tokens": max_new_tokens,
        },
        platform=platform,
        cleaning=load_cleaning(cleaning).with_lengths(*lengths),
        ocr_engine=ocr_engine,
        ocr_languages=ocr_language or [],
        rules={
            "aligned_jaccard": aligned_jaccard,
            "aligned_confidence": aligned_confidence,
            "hopeless_jaccard": hopeless_jaccard,
            "hopeless_confidence": hopeless_confidence,
        },
        explicator={"model": explicator, "labels": [] if no_phrases else explicate, "max_words": max_words},
        votes={"validators": validators, "keep": keep},
    )
    work = Work(batch_size=batch_size, device=device, dtype=dtype, progress=progress)
    with resumable():
        panel = fill(dataset_path(dataset), out_folder, settings, images=images, limit=limit, work=work)
    if _say(panel, as_json):
        raise typer.Exit(DONE_WITH_FAILURES)


def _settings(**options: Any) -> PanelSettings:
    from pydantic import ValidationError

    from xai.annotation.settings import PanelSettings

    if len(options["annotators"]) < 2:
        raise ValueError("a panel needs two annotators or more; name each with --annotator")
    try:
        return PanelSettings.model_validate(options)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


def _look(folder: Path, export: Path | None, as_json: bool) -> None:
    """The state of a panel that is there, or its final dataset."""
    from xai.annotation.export import export as write
    from xai.annotation.folder import Panel

    panel = Panel(folder)
    if export is None:
        _say(panel, as_json)
        return
    kept = write(panel, export)
    if as_json:
        print_json({"panel": str(folder), "exported": len(kept), "file": str(export)})
        return
    out.print(f"{len(kept)} records: {export}", markup=False, highlight=False, soft_wrap=True)
    root = export.resolve().parent
    folders = {meme.image.parent for meme in kept if isinstance(meme.image, Path)}
    if not all(where.is_relative_to(root) for where in folders):
        line = "the pictures lie elsewhere: read the file with --images and their folder"
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _say(panel: Panel, as_json: bool) -> bool:
    """Write and print the report, and what is to be done next; whether a record failed."""
    import pandas as pd

    from xai.analysis.report import write_report
    from xai.annotation.report import NAME, counts, panel_report

    report, failures = panel_report(panel), panel.failures()
    paths = write_report(report, panel.reports, NAME)
    states = counts(panel.items())
    if as_json:
        print_json({"panel": str(panel.path), "states": states, "failures": failures, "report": str(paths["json"])})
        return bool(failures)
    print_report(report, paths["html"], as_json=False)
    if failures:
        print_frame(f"Failures ({len(failures)})", pd.DataFrame(failures))
    for line in _next(panel, states):
        out.print(f"next       {line}", markup=False, highlight=False, soft_wrap=True)
    return bool(failures)


def _next(panel: Panel, states: dict[str, int]) -> list[str]:
    """The commands that take the records further."""
    folder = shlex.quote(str(panel.path))
    lines = []
    if states.get("people") or states.get("votes"):
        waiting = [f"{states[name]} wait for {what}" for name, what in _WAITING.items() if states.get(name)]
        lines.append(f"xai app {folder}    ({', '.join(waiting)})")
    if states.get("unanswered") or states.get("phrases"):
        lines.append("the same command again, with DATASET and --out: it goes on where it was")
    if states.get("kept"):
        lines.append(f"xai annotate {folder} --export FILE.jsonl    ({states['kept']} are kept)")
    return lines


_WAITING = {"people": "a decision", "votes": "votes"}

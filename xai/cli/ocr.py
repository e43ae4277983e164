"""`xai ocr`: reads the words in the pictures of a dataset."""

from __future__ import annotations

import shlex
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from xai.cli.common import (
    DONE_WITH_FAILURES,
    DatasetArgument,
    ImagesOption,
    JsonOption,
    app,
    dataset_path,
    resumable,
)
from xai.display import out, print_json, print_reading, progress


@app.command()
def ocr(
    dataset: DatasetArgument,
    out_file: Annotated[
        Path, typer.Option("--out", help="JSONL of the memes with what was read; a stopped start goes on.")
    ],
    engine: Annotated[
        str, typer.Option(help="auto, tesseract, rapidocr, easyocr, or dataset for the words that it brings.")
    ] = "auto",
    language: Annotated[
        list[str] | None, typer.Option(help="As en, uk, ar, zh-Hans; may be repeated. The dataset's own by default.")
    ] = None,
    images: ImagesOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N memes.")] = None,
    min_confidence: Annotated[float, typer.Option(min=0, max=1, help="Words below it are flagged.")] = 0.5,
    as_json: JsonOption = False,
) -> None:
    """Read the words in the pictures: text, boxes, confidence; explain what is written with --text ocr or both."""
    from xai.datasets import read_memes
    from xai.ocr import ocr_dataset

    source = dataset_path(dataset)
    records = list(islice(read_memes(source, images=images), limit))
    with resumable(), progress("reading", len(records)) as advance:
        summary = ocr_dataset(
            records,
            out_file,
            engine=engine,
            languages=language or [],
            min_confidence=min_confidence,
            on_progress=advance,
        )
    if as_json:
        print_json(summary.report() | {"out": str(out_file)})
    else:
        print_reading(summary, out_file)
        command = _explain_read(out_file, images or source)
        out.print(f"next       {command}", markup=False, highlight=False, soft_wrap=True)
    if summary.failures:
        raise typer.Exit(DONE_WITH_FAILURES)


def _explain_read(file: Path, source: Path) -> str:
    """The command that explains what was read; pictures that do not lie beside the file are named."""
    folder = (source if source.is_dir() else source.parent).resolve()
    inside = folder.is_relative_to(file.parent.resolve())
    where = "" if inside else f" --images {shlex.quote(str(folder))}"
    return f"xai explain {shlex.quote(str(file))} --text both{where} --out RUN"

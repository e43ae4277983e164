"""`xai show`: one explanation in the terminal, as a picture or as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xai.cli.common import JsonOption, ModeName, RunArgument, app
from xai.display import emit, err, print_explanation, print_json


@app.command()
def show(
    run: RunArgument,
    meme_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A meme of the run; none lists them.")] = None,
    mode: Annotated[ModeName | None, typer.Option(help="Where the run has several.")] = None,
    target: Annotated[str, typer.Option(help="A label, or * for all together.")] = "*",
    method: Annotated[str | None, typer.Option(help="Where the run has several.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture here.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show one explanation in the terminal, or write it as a picture or a page."""
    from xai.store import open_run

    opened = open_run(run)
    if meme_id is None:
        emit("Memes of the run", opened.predictions().select("meme_id", "mode", "labels").df(), as_json)
        return
    explanation = opened.explanation(meme_id, mode=mode.mode if mode else None, target=target, method=method)
    if png or html:
        from xai.attribution.figure import save_png
        from xai.attribution.page import save_html

        for path, save in ((png, save_png), (html, save_html)):
            if path is not None:
                save(explanation, path)
                err.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print_json(json.loads(explanation.model_dump_json()))
    elif not (png or html):
        print_explanation(explanation)

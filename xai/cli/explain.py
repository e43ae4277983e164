"""`xai explain`: predictions and relevance of a dataset, in a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from xai.cli.common import (
    DONE_WITH_FAILURES,
    DatasetArgument,
    DeviceOption,
    DtypeOption,
    ImagesOption,
    JsonOption,
    ModeName,
    app,
    dataset_path,
    resumable,
)
from xai.display import out, print_frame, print_json, progress, records

KindName = Literal["logit", "log_probability", "contrastive"]


@app.command()
def explain(
    dataset: DatasetArgument,
    out_folder: Annotated[Path, typer.Option("--out", help="The run folder; started again, it goes on.")],
    model: Annotated[str, typer.Option(help="'planted', a checkpoint folder, or a hub id.")] = "planted",
    task: Annotated[str, typer.Option(help="A task that ships (see `xai tasks`) or a YAML file.")] = "ukrmeme",
    mode: Annotated[list[ModeName] | None, typer.Option(help="What the model sees; may be repeated.")] = None,
    method: Annotated[str, typer.Option(help="See `xai methods`.")] = "attnlrp",
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of the method, see `xai methods`; may be repeated.")
    ] = None,
    targets: Annotated[Literal["each", "all"], typer.Option(help="Every label, or only all together.")] = "each",
    target_kind: Annotated[KindName, typer.Option(help="What is made of the logits of a label's tokens.")] = "logit",
    against: Annotated[str | None, typer.Option(help="For contrastive: the label to be contrasted with.")] = None,
    answers: Annotated[
        Path | None, typer.Option(help="JSONL of answers generated elsewhere: id, mode, generated_ids or text.")
    ] = None,
    text: Annotated[
        Literal["dataset", "ocr", "both"],
        typer.Option(help="What the prompt gets; ocr and both are of memes that `xai ocr` wrote."),
    ] = "dataset",
    images: ImagesOption = None,
    language: Annotated[str, typer.Option(help="Language of the instruction.")] = "en",
    variant: Annotated[str | None, typer.Option(help="Prompt variant; the model's own by default.")] = None,
    with_none: Annotated[bool, typer.Option("--with-none/--without-none", help="Offer the none label.")] = True,
    batch_size: Annotated[int, typer.Option(min=1, help="Memes answered at once.")] = 8,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N memes.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest answer in tokens.")] = 512,
    max_pixels: Annotated[int, typer.Option(min=1, help="A larger picture is refused.")] = 64_000_000,
    max_characters: Annotated[int, typer.Option(min=1, help="A longer text is cut, or refused.")] = 10_000,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Of a prompt with its picture; by default what the model's context leaves."),
    ] = None,
    long_text: Annotated[
        Literal["cut", "refuse"], typer.Option(help="What becomes of a text beyond the limits; a cut is flagged.")
    ] = "cut",
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label memes and explain every label: predictions and relevance, in a run folder."""
    from xai.attribution.methods import get_method
    from xai.datasets import read_memes
    from xai.limits import Limits
    from xai.models import load_model
    from xai.pipeline import explain_dataset
    from xai.prompts import PromptStyle

    options = get_method(method).parse_options(option or [])
    limits = Limits(max_pixels, max_characters, max_tokens, long_text)
    source = dataset_path(dataset)
    total = sum(1 for _ in read_memes(source, images=images))
    loaded = load_model(model, device=device, dtype=dtype)
    style = PromptStyle(language=language, variant=variant or loaded.style.variant, with_none=with_none)
    with resumable(), progress("explaining", min(total, limit or total)) as advance:
        result = explain_dataset(
            loaded,
            source,
            out_folder,
            task=task,
            modes=[name.mode for name in mode or [ModeName.BOTH]],
            method=method,
            targets=targets,
            target_kind=target_kind,
            against=against,
            answers=answers,
            text=text,
            style=style,
            images=images,
            batch_size=batch_size,
            limit=limit,
            max_new_tokens=max_new_tokens,
            limits=limits,
            options=options,
            on_progress=advance,
        )
    _report_run(out_folder, result.explained, result.failed, result.resumed, as_json)
    if result.failed:
        raise typer.Exit(DONE_WITH_FAILURES)


def _report_run(folder: Path, explained: int, failed: int, resumed: int, as_json: bool) -> None:
    from xai.store import open_run

    opened = open_run(folder)
    failures, changed = opened.failures().df(), len(opened.explanations().filter("target_choice_changed > 0"))
    cut = opened.explanations().filter("characters_cut > 0").select("meme_id, mode").distinct().fetchall()
    if as_json:
        counts = {"run": str(folder), "explained": explained, "failed": failed, "resumed": resumed}
        counts |= {"target_choice_changed": changed, "text_cut": len(cut)}
        print_json(counts | {"failures": records(failures)})
        return
    earlier = f", {resumed} were there already" if resumed else ""
    out.print(f"{explained} explained, {failed} failed{earlier}: {folder}", markup=False, highlight=False)
    if changed:
        what = "1 explanation is" if changed == 1 else f"{changed} explanations are"
        out.print(f"{what} of tokens that the model, as it explains, would not choose itself", highlight=False)
    if cut:
        what = "1 text was" if len(cut) == 1 else f"{len(cut)} texts were"
        out.print(f"{what} too long and cut, see --max-characters and --max-tokens", highlight=False)
    if len(failures):
        print_frame("Failures", failures.head(20))

"""`xai explain`: predictions and relevance of a dataset, in a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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

if TYPE_CHECKING:
    from xai.pipeline import RunSummary
    from xai.store import Run

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
    part_size: Annotated[int, typer.Option(min=1, help="Memes a part file.")] = 32,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N memes.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest answer in tokens.")] = 512,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="This machine, or a Ray cluster.")] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Models at work at a time; one a GPU by default, else one.")
    ] = None,
    max_pixels: Annotated[int, typer.Option(min=1, help="A larger picture is refused.")] = 64_000_000,
    max_characters: Annotated[int, typer.Option(min=1, help="A longer text is cut, or refused.")] = 10_000,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Of a prompt with its picture; by default what the model's context leaves."),
    ] = None,
    long_text: Annotated[
        Literal["cut", "refuse"], typer.Option(help="What becomes of a text beyond the limits; a cut is flagged.")
    ] = "cut",
    stages_on: Annotated[
        Literal["answers", "gold"],
        typer.Option(help="Of a task with stages: what each is told of the earlier ones, its answers or gold labels."),
    ] = "answers",
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label memes and explain every label: predictions and relevance, in a run folder."""
    from xai.attribution.methods import get_method
    from xai.datasets import read_memes
    from xai.limits import Limits
    from xai.models import ModelSource
    from xai.pipeline import explain_dataset
    from xai.prompts import PromptStyle
    from xai.stages import stage_name
    from xai.tasks import load_stages

    options = get_method(method).parse_options(option or [])
    limits = Limits(max_pixels, max_characters, max_tokens, long_text)
    source = dataset_path(dataset)
    modes = [name.mode for name in mode or [ModeName.BOTH]]
    total = sum(1 for _ in read_memes(source, images=images))
    found, stages = ModelSource(model, device, dtype), load_stages(task)
    style = PromptStyle(
        language=language, variant=variant or stages[0].variant(found.style().variant), with_none=with_none
    )
    with resumable(), progress("explaining", min(total, limit or total) * len(modes) * len(stages)) as advance:
        result = explain_dataset(
            found,
            source,
            out_folder,
            task=task,
            modes=modes,
            method=method,
            targets=targets,
            target_kind=target_kind,
            against=against,
            answers=answers,
            text=text,
            style=style,
            images=images,
            batch_size=batch_size,
            part_size=part_size,
            limit=limit,
            max_new_tokens=max_new_tokens,
            limits=limits,
            options=options,
            engine=engine,
            workers=workers,
            stages_on=stages_on,
            on_progress=advance,
        )
    folders = [out_folder] if len(stages) == 1 else [out_folder / stage_name(stage) for stage in stages]
    _report_run(out_folder, folders, result, as_json)
    if result.failed:
        raise typer.Exit(DONE_WITH_FAILURES)


def _report_run(folder: Path, runs: Sequence[Path], result: RunSummary, as_json: bool) -> None:
    """What came of a run, or of the runs of a task's stages in one folder."""
    import pandas as pd

    from xai.store import open_run

    opened = [open_run(run) for run in runs]
    failures = pd.concat([run.failures().df().assign(**_of_stage(run, folder)) for run in opened], ignore_index=True)
    changed = sum(len(run.explanations().filter("target_choice_changed > 0")) for run in opened)
    cut = {key for run in opened for key in _cut_texts(run)}
    if as_json:
        more = {"target_choice_changed": changed, "text_cut": len(cut), "failures": records(failures)}
        print_json({"run": str(folder)} | asdict(result) | more)
        return
    earlier = f", {result.resumed} were there already" if result.resumed else ""
    where = str(folder) if len(runs) == 1 else ", ".join(map(str, runs))
    out.print(f"{result.explained} explained, {result.failed} failed{earlier}: {where}", markup=False, highlight=False)
    if result.halved:
        out.print(f"memory was too small for {result.halved} batches, which were halved", highlight=False)
    if changed:
        what = "1 explanation is" if changed == 1 else f"{changed} explanations are"
        out.print(f"{what} of tokens that the model, as it explains, would not choose itself", highlight=False)
    if cut:
        what = "1 text was" if len(cut) == 1 else f"{len(cut)} texts were"
        out.print(f"{what} too long and cut, see --max-characters and --max-tokens", highlight=False)
    if len(failures):
        print_frame("Failures", failures.head(20))


def _of_stage(run: Run, folder: Path) -> dict[str, str]:
    return {"asked": run.path.name} if run.path != folder else {}


def _cut_texts(run: Run) -> list[tuple[str, str]]:
    found = run.explanations().filter("characters_cut > 0").select("meme_id, mode").distinct().fetchall()
    return [(meme_id, mode) for meme_id, mode in found]

"""The command line: explain, look, score, analyse.

Exit codes: 0 done, 1 done with failed records (they are listed in the run), 2 nothing could be done.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from xai.display import (
    emit,
    err,
    out,
    print_diagnosis,
    print_environment,
    print_explanation,
    print_frame,
    print_json,
    print_reading,
    progress,
    records,
)

if TYPE_CHECKING:
    from xai.attribution.methods import Method
    from xai.schema import Mode

DONE, DONE_WITH_FAILURES, NOTHING_DONE, INTERRUPTED = 0, 1, 2, 130
SAMPLES = "samples"
"""The dataset name that stands for the memes that ship with the package."""


class ModeName(StrEnum):
    """What the model sees; a class, since an option that may be repeated takes no `Literal`."""

    TEXT = "text"
    IMAGE = "image"
    BOTH = "image+text"


KindName = Literal["logit", "log_probability", "contrastive"]

app = typer.Typer(
    name="xai",
    help="Explain what a vision-language model read when it labelled a meme.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by `xai explain`.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; CUDA if there is one by default.")]
DtypeOption = Annotated[str | None, typer.Option(help="float32, bfloat16, …; float32 on CPU by default.")]


ImagesOption = Annotated[Path | None, typer.Option(help="Folder of the pictures, if not the dataset's.")]


def main() -> None:
    """Entry point of the `xai` command."""
    try:
        app()
    except (ValueError, KeyError, OSError) as error:
        err.print(f"xai: {_reason(error)}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(NOTHING_DONE)


@app.command()
def explain(
    dataset: Annotated[str, typer.Argument(help="JSONL, CSV, Parquet, a folder of pictures, or 'samples'.")],
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
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label memes and explain every label: predictions and relevance, in a run folder."""
    from xai.attribution.methods import get_method
    from xai.datasets import read_memes
    from xai.models import load_model
    from xai.pipeline import explain_dataset
    from xai.prompts import PromptStyle

    options = get_method(method).parse_options(option or [])
    source = _dataset(dataset)
    total = sum(1 for _ in read_memes(source, images=images))
    loaded = load_model(model, device=device, dtype=dtype)
    style = PromptStyle(language=language, variant=variant or loaded.style.variant, with_none=with_none)
    with _resumable(), progress("explaining", min(total, limit or total)) as advance:
        result = explain_dataset(
            loaded,
            source,
            out_folder,
            task=task,
            modes=[_mode(name) for name in mode or [ModeName.BOTH]],
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
            options=options,
            on_progress=advance,
        )
    _report_run(out_folder, result.explained, result.failed, result.resumed, as_json)
    if result.failed:
        raise typer.Exit(DONE_WITH_FAILURES)


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
    explanation = opened.explanation(meme_id, mode=_mode(mode) if mode else None, target=target, method=method)
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


@app.command()
def score(run: RunArgument, as_json: JsonOption = False) -> None:
    """Detection: hierarchical micro, macro and per-sample F1 against the gold labels, by mode."""
    import pandas as pd

    from xai.analysis.scores import score_run
    from xai.store import open_run

    opened = open_run(run)
    scores = score_run(opened)
    if not scores:
        raise ValueError(f"run {run.name!r} has no gold labels to score against; add a 'labels' column to its dataset")
    rows = [
        {
            "mode": mode,
            "n": s.n,
            "precision": s.micro.precision,
            "recall": s.micro.recall,
            "micro_f1": s.micro.f1,
            "macro_f1": s.macro_f1,
            "sample_f1": s.sample_f1,
        }
        for mode, s in scores.items()
    ]
    convention = next(iter(scores.values())).none_label
    frame = pd.DataFrame(rows)
    _write_report(opened.reports / "score.json", {"none_label": convention, "modes": records(frame)})
    emit(f"Hierarchical F1 (none label: {convention})", frame, as_json)


@app.command()
def analyze(
    run: RunArgument,
    pooling: Annotated[Literal["sum", "mean_abs"], typer.Option(help="How tokens make a word's relevance.")] = "sum",
    as_json: JsonOption = False,
) -> None:
    """How far the words with most relevance are the words that the model says it used (Jaccard)."""
    from xai.analysis.agreement import COUNTS, agreement_table, summary
    from xai.planted.groups import by_rationale
    from xai.schema import ALL_LABELS
    from xai.store import open_run

    opened = open_run(run)
    if not len(opened.explanations().filter(f"target = '{ALL_LABELS}'")):
        raise ValueError(
            f"run {run.name!r} has no explanation of all labels together, which is what is analysed; "
            "explain with --target-kind logit or log_probability"
        )
    table = agreement_table(opened, pooling=pooling)
    frame = summary(table)
    groups = by_rationale(opened, table)
    report = {"summary": records(frame), "planted": records(groups), "memes": records(table)}
    _write_report(opened.reports / "agreement.json", report)
    if as_json:
        print_json({"summary": report["summary"], "planted": report["planted"]})
        return
    print_frame("Jaccard of relevance words and rationale words", frame.drop(columns=list(COUNTS)))
    print_frame("Words of the rationales in the text, and words left out", frame[["mode", *COUNTS]].drop_duplicates())
    if len(groups):
        print_frame("The same by what the planted world says of the rationale", groups)


@app.command()
def ocr(
    dataset: Annotated[str, typer.Argument(help="JSONL, CSV, Parquet, a folder of pictures, or 'samples'.")],
    out_file: Annotated[Path, typer.Option("--out", help="JSONL of the memes with what was read.")],
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

    source = _dataset(dataset)
    total = sum(1 for _ in read_memes(source, images=images))
    with progress("reading", min(total, limit or total)) as advance:
        summary = ocr_dataset(
            source,
            out_file,
            engine=engine,
            languages=language or [],
            images=images,
            limit=limit,
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


class _WriteByDefault(TyperGroup):
    """`xai planted OUT` means `xai planted write OUT`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["write", *args]
        return super().resolve_command(ctx, args)


planted_app = typer.Typer(
    cls=_WriteByDefault,
    no_args_is_help=True,
    help="Memes with planted evidence: `xai planted OUT --n N --seed S` writes them, `xai planted evaluate` "
    "measures a model on new ones.",
)
app.add_typer(planted_app, name="planted")


@planted_app.command("write")
def planted_write(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for memes.jsonl and images/.")],
    n: Annotated[int, typer.Option("--n", min=1, help="How many.")] = 100,
    seed: Annotated[int, typer.Option(help="Which world; the same seed gives the same memes.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Write memes whose labels have a known cause, with their truth."""
    from xai.planted.truth import write_planted

    path = write_planted(folder, n, seed)
    if as_json:
        print_json({"memes": n, "path": str(path)})
    else:
        out.print(f"wrote {n} memes to {path}", markup=False, highlight=False, soft_wrap=True)


@planted_app.command("evaluate")
def planted_evaluate(
    model: Annotated[str, typer.Option(help="'planted' or a checkpoint folder.")] = "planted",
    n: Annotated[int, typer.Option("--n", min=1, help="New memes to answer.")] = 500,
    n_explained: Annotated[int, typer.Option(min=1, help="Of these, how many to explain and intervene on.")] = 200,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answers, interventions and pointing of a planted model on memes that its training never drew."""
    import pandas as pd

    from xai.models import load_model
    from xai.planted.evaluate import evaluate

    with err.status("loading") as status:
        result = evaluate(load_model(model, device=device), n, min(n, n_explained), progress=status.update)
    if as_json:
        print_json(result)
        return
    for title, part in result.items():
        print_frame(title.capitalize(), pd.DataFrame(part if isinstance(part, list) else [part]))


@app.command()
def doctor(
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="'planted', a folder, or a hub id.")] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Versions, devices and OCR; with a model, the rule of every module and the conservation self-check."""
    from xai.doctor import devices, diagnose, ocr_engines, versions

    environment: dict[str, Any] = {"versions": versions(), "devices": devices(), "ocr": ocr_engines()}
    if not as_json:
        print_environment(environment)
    diagnosis = None if model is None else diagnose(model, device, dtype)
    if as_json:
        print_json(environment | ({} if diagnosis is None else {"model": diagnosis.report()}))
    elif diagnosis is not None:
        print_diagnosis(diagnosis)
    if diagnosis is not None and diagnosis.problem:
        reason = f"xai: {model} cannot be explained: {diagnosis.problem}"
        err.print(reason, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(NOTHING_DONE)


@app.command("methods")
def list_methods(as_json: JsonOption = False) -> None:
    """The attribution methods: what each needs, its baseline, its sign, where it comes from, and its options."""
    import pandas as pd

    from xai.attribution.methods import methods

    options = {m.name: _options(m) for m in methods()}
    rows = [
        {
            "name": m.name,
            "needs": ", ".join(sorted(m.needs)),
            "baseline": m.baseline,
            "sign": m.sign,
            "source": m.source,
            "description": m.description,
        }
        for m in methods()
    ]
    if as_json:
        print_json([row | {"options": options[row["name"]]} for row in rows])
        return
    print_frame("Attribution methods", pd.DataFrame(rows))
    listed = [
        {"method": name, "option": one["name"], "values": one["values"], "default": _shown(one["default"])}
        for name, of_method in options.items()
        for one in of_method
    ]
    print_frame("Options: xai explain … --option NAME=VALUE", pd.DataFrame(listed))


def _options(method: Method) -> list[dict[str, Any]]:
    defaults = method.complete({})
    return [{"name": o.name, "values": o.values, "default": defaults[o.name]} for o in method.options]


@app.command("tasks")
def list_tasks(as_json: JsonOption = False) -> None:
    """The tasks that ship."""
    import pandas as pd

    from xai.tasks import load_task, task_names

    tasks = [load_task(name) for name in task_names()]
    rows = [{"name": t.name, "labels": len(t.labels), "prompts": ", ".join(t.prompts)} for t in tasks]
    emit("Tasks", pd.DataFrame(rows), as_json)


@app.command("models")
def list_models(as_json: JsonOption = False) -> None:
    """The model families that can be explained, and which of their classes get which rule."""
    import pandas as pd

    from xai.attribution.families import FAMILIES

    rows = [
        {
            "name": family.name,
            "model_types": ", ".join(sorted(family.model_types)),
            "reads": "text" if family.vision is None else "text, pictures",
            "deepstack": family.vision is not None and family.vision.deepstack_features is not None,
            "rules": "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in _own_rules(family.rules)),
        }
        for family in FAMILIES
    ]
    emit("Model families", pd.DataFrame(rows), as_json)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _own_rules(rules: Any) -> list[tuple[str, Any]]:
    """The rules by class of a family; activations are the same for all."""
    return [(str(kind), names) for kind, names in rules.items() if str(kind) != "activation"]


def _mode(name: ModeName) -> Mode:
    mode: Mode = name.value
    return mode


def _dataset(name: str) -> Path:
    if name == SAMPLES and not Path(name).exists():
        from xai.planted import SAMPLES as FOLDER

        return FOLDER
    return Path(name)


def _report_run(folder: Path, explained: int, failed: int, resumed: int, as_json: bool) -> None:
    from xai.store import open_run

    opened = open_run(folder)
    failures, changed = opened.failures().df(), len(opened.explanations().filter("target_choice_changed > 0"))
    if as_json:
        counts = {"run": str(folder), "explained": explained, "failed": failed, "resumed": resumed}
        print_json(counts | {"target_choice_changed": changed, "failures": records(failures)})
        return
    earlier = f", {resumed} were there already" if resumed else ""
    out.print(f"{explained} explained, {failed} failed{earlier}: {folder}", markup=False, highlight=False)
    if changed:
        what = "1 explanation is" if changed == 1 else f"{changed} explanations are"
        out.print(f"{what} of tokens that the model, as it explains, would not choose itself", highlight=False)
    if len(failures):
        print_frame("Failures", failures.head(20))


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        err.print("xai: stopped; the same command goes on where it was", highlight=False)
        raise typer.Exit(INTERRUPTED) from None


def _write_report(path: Path, report: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _reason(error: Exception) -> str:
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


if __name__ == "__main__":
    main()

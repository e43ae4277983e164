"""`xai bench-methods`: every method against the planted truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xai.cli.common import DeviceOption, JsonOption, ModeName, app
from xai.display import err, print_report, progress

if TYPE_CHECKING:
    from xai.analysis.report import Section
    from xai.models import VisionLanguageModel
    from xai.planted.bench import Bench
    from xai.schema import Mode

SANITY_MEMES = 10


@app.command("bench-methods")
def bench_methods(
    n: Annotated[int, typer.Option("--n", min=1, help="Planted memes that training never drew.")] = 50,
    method: Annotated[list[str] | None, typer.Option(help="A method; may be repeated. All by default.")] = None,
    mode: Annotated[list[ModeName] | None, typer.Option(help="May be repeated. image+text by default.")] = None,
    model: Annotated[str, typer.Option(help="'planted' or a checkpoint folder of the planted world.")] = "planted",
    curves: Annotated[bool, typer.Option(help="Ask the model by taking words and cells away.")] = True,
    pretrained: Annotated[bool, typer.Option(help="A trained decoder too, if it is installed.")] = True,
    sanity: Annotated[bool, typer.Option(help="Shuffle the model and swap labels, too. Takes long.")] = False,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Write methods.json, .md and .html here.")] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every method on planted memes: is the cause found, does the model agree, and what does it cost?"""
    from xai.analysis.report import write_report
    from xai.attribution.methods import methods
    from xai.models import load_model
    from xai.planted.bench_report import bench_report, in_order

    names = in_order(method or [], [one.name for one in methods()])
    modes = [one.mode for one in mode or [ModeName.BOTH]]
    with err.status("loading"):
        loaded = load_model(model, device=device)
    measured = _planted(loaded, n, names, modes, curves)
    trained = _pretrained(names, n, device) if pretrained else None
    more = [_sanity(loaded, measured)] if sanity else []
    report = bench_report(measured, _facts(loaded, n, names, modes), trained, more)
    page = None if out_folder is None else write_report(report, out_folder, "methods")["html"]
    print_report(report, page, as_json)


def _planted(model: VisionLanguageModel, n: int, names: list[str], modes: list[Mode], with_curves: bool) -> Bench:
    from xai.planted.bench import bench, joined
    from xai.planted.evaluate import EVALUATION_SEED
    from xai.planted.truth import planted_memes

    memes = planted_memes(n, EVALUATION_SEED)
    with progress("planted memes", n * len(names) * len(modes)) as advance:
        return joined(
            [bench(model, memes, names, mode, with_curves=with_curves, on_progress=advance) for mode in modes]
        )


def _pretrained(names: list[str], n: int, device: str | None) -> Bench | None:
    from xai.models import load_model
    from xai.planted.bench import bench_answers
    from xai.planted.pretrained import QUESTION, pretrained_folder, questions

    folder = pretrained_folder()
    if folder is None:
        return None
    asked = questions(n)
    with err.status("loading a trained decoder"):
        model = load_model(folder, device=device)
    with progress("trained decoder", len(asked) * len(names)) as advance:
        return bench_answers(model, asked, names, QUESTION, on_progress=advance)


def _sanity(model: VisionLanguageModel, measured: Bench) -> Section:
    from xai.analysis.faithfulness.sanity import check_sanity, n_steps

    with progress("sanity checks", n_steps(model, measured.explanations, SANITY_MEMES)) as advance:
        return check_sanity(model, measured.explanations, n=SANITY_MEMES, on_progress=advance)


def _facts(model: VisionLanguageModel, n: int, names: list[str], modes: list[Mode]) -> dict[str, Any]:
    import torch

    from xai.analysis.faithfulness.rescoring import Perturbation
    from xai.attribution.methods import get_method
    from xai.environment import installed_versions
    from xai.planted.evaluate import EVALUATION_SEED

    return {
        "model": model.describe(),
        "memes": n,
        "seed": EVALUATION_SEED,
        "modes": list(modes),
        "options": {name: get_method(name).complete({}) for name in names},
        "perturbation": Perturbation().describe(model),
        "threads": torch.get_num_threads(),
        "versions": installed_versions(),
    }

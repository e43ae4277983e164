"""`xai planted`: memes with planted evidence, and how a model does on new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from xai.cli.common import DeviceOption, JsonOption, app
from xai.display import err, out, print_frame, print_json


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

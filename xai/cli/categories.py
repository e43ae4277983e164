"""`xai categories`: semantic categories of words, and how far a tagger of them can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xai.cli.common import DeviceOption, JsonOption, app
from xai.display import emit, print_report

if TYPE_CHECKING:
    from xai.analysis.categories import Tagger

categories_app = typer.Typer(
    no_args_is_help=True,
    help="Semantic categories of words: Entity, Emotional, Rhetoric, Content, Other.",
)
app.add_typer(categories_app, name="categories")

TaggerOption = Annotated[str, typer.Option("--tagger", help="rules, llm (an endpoint), or local (a loaded model).")]
ModelOption = Annotated[
    str | None, typer.Option(help="For local: 'planted', a checkpoint folder, a GGUF file, or a hub id.")
]


@categories_app.command("validate")
def categories_validate(
    gold: Annotated[
        str, typer.Argument(metavar="GOLD", help="CSV with word, context, language, category; 'shipped' is ours.")
    ] = "shipped",
    tagger: TaggerOption = "rules",
    model: ModelOption = None,
    device: DeviceOption = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Folder for the report.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Accuracy, F1 by category, confusion and Cohen's kappa of a tagger against gold words."""
    from xai.analysis.categories.validation import SHIPPED, SHIPPED_GOLD, read_gold, validate
    from xai.analysis.report import write_report

    path = SHIPPED_GOLD if gold == SHIPPED and not Path(gold).exists() else Path(gold)
    words = read_gold(path)
    report = validate(words, tagger_named(tagger, model, device), source=SHIPPED if path == SHIPPED_GOLD else path.name)
    page = None if out_folder is None else write_report(report, out_folder, "categories")["html"]
    print_report(report, page, as_json)


@categories_app.command("tag")
def categories_tag(
    text: Annotated[str, typer.Argument(help="The text of a meme.")],
    language: Annotated[str | None, typer.Option(help="en, uk, ar, zh; by the script if it is not given.")] = None,
    tagger: TaggerOption = "rules",
    model: ModelOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """The category of every word of a text."""
    import pandas as pd

    from xai.analysis.categories import WordInContext
    from xai.attribution.align import split_words

    words = list(dict.fromkeys(text[start:end] for start, end in split_words(text)))
    if not words:
        raise ValueError("the text has no word")
    asked = [WordInContext(word, text, language) for word in words]
    found = tagger_named(tagger, model, device).tag(asked)
    emit("Categories", pd.DataFrame({"word": words, "category": found}), as_json)


def tagger_named(name: str, model: str | None, device: str | None) -> Tagger:
    """The tagger of that name; `local` asks the model, the others none.

    Raises:
        ValueError: there is no such tagger, or it lacks what it needs.
    """
    from xai.analysis.categories import get_tagger

    if name != "local":
        return get_tagger(name)
    if model is None:
        raise ValueError("the tagger 'local' asks a model that is loaded here: say which with --model")
    from xai.models import load_model

    return get_tagger(name, model=load_model(model, device=device))

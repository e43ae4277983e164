"""`xai analyze`: relevance words beside rationale words."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from xai.cli.common import JsonOption, RunArgument, app, write_json
from xai.display import print_frame, print_json, records


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
    write_json(opened.reports / "agreement.json", report)
    if as_json:
        print_json({"summary": report["summary"], "planted": report["planted"]})
        return
    print_frame("Jaccard of relevance words and rationale words", frame.drop(columns=list(COUNTS)))
    print_frame("Words of the rationales in the text, and words left out", frame[["mode", *COUNTS]].drop_duplicates())
    if len(groups):
        print_frame("The same by what the planted world says of the rationale", groups)

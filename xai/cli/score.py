"""`xai score`: how well a run detects."""

from __future__ import annotations

from xai.cli.common import JsonOption, RunArgument, app, write_json
from xai.display import emit, records


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
    write_json(opened.reports / "score.json", {"none_label": convention, "modes": records(frame)})
    emit(f"Hierarchical F1 (none label: {convention})", frame, as_json)

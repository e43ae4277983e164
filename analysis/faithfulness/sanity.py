"""Sanity checks of attribution (Adebayo et al. 2018, arXiv:1810.03292): a map must change when its reasons are gone.

Two questions, each asked of the same inputs and the same answer. *Layers*: what becomes of the map when the weights of
the model are shuffled, from the top layer down, until nothing that it learnt is left? *Label*: what becomes of it when
the token of another label is explained in the place of this label's? A method whose maps stay as they
are explains the input, and neither this model nor this answer. A third check takes methods that promise to add up at
their word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from xai.analysis.faithfulness.randomisation import Progress, check_label, check_layers, sanity_frame, stages
from xai.analysis.report import Chart, Section, Series, Table
from xai.analysis.statistics import Interval, mean_interval
from xai.attribution.methods import get_method
from xai.models import VisionLanguageModel
from xai.schema import Explanation
from xai.tasks import Task

MOST_ALIKE = 0.5
"""A method fails a check if its maps and their counterparts agree by more than this mean rank correlation."""
PASSES, FAILS, UNDECIDED = "passes", "FAILS", "not decided"


def check_sanity(
    model: VisionLanguageModel,
    explanations: Sequence[Explanation],
    *,
    task: Task | None = None,
    n: int | None = None,
    seed: int = 0,
    on_progress: Progress = lambda done: None,
) -> Section:
    """All three checks of the methods of some explanations, as a part of a report.

    Args:
        explanations: of this model, of any methods and modes; see :func:`one_label_each`.
        n: at most so many explanations of each method and mode; all by default.
        on_progress: called with the number of steps done since the last call; :func:`n_steps` says of how many.

    Raises:
        ValueError: nothing to check, or the model reads another prompt than the one that was explained.
    """
    chosen = one_label_each(explanations, n)
    if not chosen:
        raise ValueError("there is no explanation of a single label to check; explain with --targets each")
    rows = check_layers(model, chosen, task=task, seed=seed, on_progress=on_progress)
    rows += check_label(model, chosen, task=task, seed=seed, on_progress=on_progress)
    return sanity_section(sanity_frame(rows), completeness(explanations))


def one_label_each(explanations: Iterable[Explanation], n: int | None = None) -> list[Explanation]:
    """The first explanation of a single label of each meme, mode and method; of each mode and method at most ``n``."""
    first: dict[tuple[str, str, str], Explanation] = {}
    for explanation in explanations:
        if explanation.target in explanation.prediction.labels:
            first.setdefault((explanation.method, explanation.mode, explanation.meme.id), explanation)
    taken: dict[tuple[str, str], list[Explanation]] = {}
    for (method, mode, _), explanation in first.items():
        taken.setdefault((method, mode), []).append(explanation)
    return [explanation for group in taken.values() for explanation in group[:n]]


def n_steps(model: VisionLanguageModel, explanations: Sequence[Explanation], n: int | None = None) -> int:
    """How often :func:`check_sanity` will report progress."""
    chosen = one_label_each(explanations, n)
    with_picture = any(explanation.image is not None for explanation in chosen)
    return len(chosen) * (len(stages(model.model, with_picture=with_picture)) + 1)


def verdicts(frame: pd.DataFrame) -> pd.DataFrame:
    """By mode, method, check and units: how alike the maps are at the end, and what follows from it.

    The end of the check of layers is the last step, where all is shuffled. A method passes if the 95 % interval of the
    mean rank correlation lies below :data:`MOST_ALIKE`, fails if it lies above, and is not decided otherwise.

    Columns: mode, method, check, units, n (explanations), n_undefined (maps of one value, or of fewer than 3 units),
    rank_correlation and structural_similarity with intervals, verdict.
    """
    last = frame[frame["step"] == frame.groupby(["check", "mode"])["step"].transform("max")]
    rows = []
    for names, part in last.groupby(["mode", "method", "check", "units"], sort=False):
        alike = mean_interval(part["rank_correlation"].to_numpy())
        rows.append(
            dict(zip(("mode", "method", "check", "units"), names, strict=True))
            | {"n": len(part), "n_undefined": int(part["rank_correlation"].isna().sum())}
            | alike.columns("rank_correlation")
            | mean_interval(part["structural_similarity"].to_numpy()).columns("structural_similarity")
            | {"verdict": _verdict(alike)}
        )
    return pd.DataFrame(rows)


def completeness(explanations: Iterable[Explanation]) -> pd.DataFrame:
    """Whether methods that promise to add up do: total relevance against what the target gained from the baseline.

    Columns: mode, method, n, promised (the largest relative residual that the method's registration allows, or
    none), residual (median of ``|total / (value - baseline value) - 1|``), largest_residual, verdict.
    """
    groups: dict[tuple[str, str, float | None], list[float]] = {}
    for e in explanations:
        if get_method(e.method).sign == "signed":
            off = float("nan") if e.quality.conservation is None else abs(e.quality.conservation - 1)
            groups.setdefault((e.mode, e.method, _promise(e)), []).append(off)
    rows = [
        {
            "mode": mode,
            "method": method,
            "n": len(residuals),
            "promised": promise,
            "residual": float(np.nanmedian(residuals)),
            "largest_residual": float(np.nanmax(residuals)),
            "verdict": "no promise" if promise is None else (PASSES if np.nanmax(residuals) <= promise else FAILS),
        }
        for (mode, method, promise), residuals in groups.items()
        if not np.isnan(residuals).all()
    ]
    columns = ["mode", "method", "n", "promised", "residual", "largest_residual", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def sanity_section(frame: pd.DataFrame, residuals: pd.DataFrame | None = None) -> Section:
    """The checks as a part of a report; methods that fail come first and are named in its words."""
    table = verdicts(frame)
    order = {FAILS: 0, UNDECIDED: 1, PASSES: 2}
    table = table.sort_values("verdict", key=lambda column: column.map(order), kind="stable")
    tables = [Table.of("sanity", "Maps that should have changed", table, note=_NOTE)]
    steps = _by_step(frame)
    if len(steps):
        tables.append(Table.of("sanity_layers", "After each step of shuffling", steps, n_shown=40))
    failed = [f"{method} {_UNNOTICED[check]} ({where})" for method, check, where in _with_verdict(table, FAILS)]
    undecided = [f"{method}, {check} ({where})" for method, check, where in _with_verdict(table, UNDECIDED)]
    if residuals is not None and len(residuals):
        tables.append(Table.of("completeness", "Does relevance add up?", residuals, note=_COMPLETENESS))
        failed += [
            f"{row.method} does not add up ({row.mode})" for row in residuals.itertuples() if row.verdict == FAILS
        ]
    words = [_TEXT, f"Failed: {'; '.join(failed)}." if failed else "No method failed."]
    if undecided:
        words.append(f"Not decided by so few explanations: {'; '.join(undecided)}.")
    return Section(title="Sanity checks", text="\n\n".join(words), tables=tuple(tables), charts=tuple(_charts(steps)))


def _promise(explanation: Explanation) -> float | None:
    """The residual that the method allows itself; none where its promise does not reach.

    Without a baseline a total is the target's value for what is linear in the logits only, and not where the relevance
    of sinks was dropped.
    """
    method = get_method(explanation.method)
    without_baseline = method.baseline == "none"
    if without_baseline and (explanation.target_kind == "log_probability" or "sinks_dropped" in explanation.settings):
        return None
    return method.max_residual


def _verdict(alike: Interval) -> str:
    if alike.high < MOST_ALIKE:
        return PASSES
    return FAILS if alike.low > MOST_ALIKE else UNDECIDED


def _with_verdict(table: pd.DataFrame, verdict: str) -> list[tuple[str, str, str]]:
    """(method, check, units and mode in words)."""
    found = table[table["verdict"] == verdict]
    return [
        (str(method), str(check), f"{' and '.join(units)}, {mode}")
        for (method, check, mode), units in found.groupby(["method", "check", "mode"], sort=False)["units"]
    ]


def _by_step(frame: pd.DataFrame) -> pd.DataFrame:
    layers = frame[frame["check"] == "layers"]
    rows = []
    for names, part in layers.groupby(["mode", "units", "method", "step", "stage"], sort=False):
        rows.append(
            dict(zip(("mode", "units", "method", "step", "shuffled_last"), names, strict=True))
            | {"n": len(part)}
            | mean_interval(part["rank_correlation"].to_numpy()).columns("rank_correlation")
            | {"structural_similarity": mean_interval(part["structural_similarity"].to_numpy()).value}
        )
    order = ["mode", "units", "method", "step"]
    return pd.DataFrame(rows, columns=None if rows else order).sort_values(order, kind="stable")


def _charts(steps: pd.DataFrame) -> Iterator[Chart]:
    for (mode, units), group in steps.groupby(["mode", "units"], sort=False):
        stages_of = group.drop_duplicates("step")
        named = ", ".join(f"{row.step}: {row.shuffled_last}" for row in stages_of.itertuples())
        yield Chart(
            name=f"sanity_layers_{str(mode).replace('+', '_and_')}_{units}",
            title=f"The model is shuffled from the top: {units}, {mode}",
            kind="lines",
            x_label="parts shuffled",
            y_label="rank correlation with the map of the model as it is",
            series=tuple(_series(str(method), part) for method, part in group.groupby("method", sort=False)),
            note=f"0: as it is. {named}.",
            y_range=(-1.0, 1.0),
        )


def _series(name: str, part: pd.DataFrame) -> Series:
    alike = {f"rank_correlation{end}": 1.0 for end in ("", "_low", "_high")}
    whole = pd.concat([pd.DataFrame([{"step": 0, **alike}]), part])
    return Series.of(name, whole["step"].astype(float), whole, "rank_correlation")


_UNNOTICED = {
    "layers": "does not notice that the model was shuffled",
    "label": "does not notice which label is explained",
}
_TEXT = (
    "An explanation of this model and this label has to change when the model is destroyed or another label is "
    f"explained. A method fails where the mean rank correlation stays above {MOST_ALIKE} (its 95 % interval does), and "
    "passes where it stays below. To pass is necessary and proves nothing: noise that is drawn anew passes as well."
)
_NOTE = (
    "Less alike is better. layers: maps of the model and of its copy with all parts but the embeddings shuffled. "
    "label: maps of the label's token and of another label's in its place. rank correlation: Spearman, of signed "
    "relevance, maps of one value left out (n undefined). structural similarity: 3 x 3 cells, zero relevance in the "
    "middle of the scale. Intervals: 95 %, bootstrap over memes."
)
_COMPLETENESS = (
    "residual: |total relevance / (value - baseline value) - 1|, median over explanations. Methods that promise to add "
    "up state the largest residual that they allow. CP-LRP promises it for decoders without biases."
)

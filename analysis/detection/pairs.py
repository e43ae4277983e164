"""The sections of the report of `xai score` that compare: modes of one run, and several runs on the same memes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import pandas as pd

from xai.analysis.detection.comparison import compare
from xai.analysis.detection.scored import Scored, Settings
from xai.analysis.report import Section, Table
from xai.analysis.statistics import holm
from xai.schema import Mode

COMPARED = (
    ("hierarchical", "micro_f1"), ("hierarchical", "macro_f1"), ("hierarchical", "sample_f1"),
    ("flat", "micro_f1"), ("flat", "macro_f1"), ("flat", "subset_accuracy"),
)  # fmt: skip
"""The measures of whole sets that are compared; every label's flat F1 is, too."""
_MOST_ROWS = 15
_ORDER = "First and second are the two sides as What was paired names them; of two modes, in the order they stand in."
_HOW = (
    "Memes are paired by their ids. The difference is first minus second, with its paired bootstrap interval over "
    "memes. p is that of a paired permutation test in which the two answers of each meme change places (two-sided); "
    "p_holm is corrected, by Holm's method, for all comparisons of the same measure, and in the table of labels for "
    "all labels of a pair."
)


def between_modes(scored: Mapping[Mode, Scored], settings: Settings) -> Section | None:
    """Every two modes of a run compared on the memes that both have; ``None`` if no two have one in common."""
    pairs = [Pair(first, second) for first, second in combinations(scored.values(), 2)]
    compared = [pair for pair in pairs if pair.rows]
    if not compared:
        return None
    return _section("Modes compared", "modes", compared, settings, _HOW)


def against_runs(
    name: str, scored: Mapping[Mode, Scored], others: Mapping[str, Mapping[Mode, Scored]], settings: Settings
) -> Section:
    """The modes that a run shares with each of some others, compared; or the one mode of each, if they share none.

    Raises:
        ValueError: two of them share no mode and one has several, or they have no scored meme in common.
    """
    pairs = [pair for other, theirs in others.items() for pair in _shared(name, scored, other, theirs)]
    first, second = f"{name} (first)", " and ".join(others)
    return _section(f"{first} and {second} (second)", "against", pairs, settings, _HOW + _differing_gold(pairs))


def _shared(name: str, scored: Mapping[Mode, Scored], other_name: str, other: Mapping[Mode, Scored]) -> Sequence[Pair]:
    shared = [mode for mode in scored if mode in other]
    matched = [(mode, mode) for mode in shared]
    if not shared and len(scored) == len(other) == 1:
        matched = [(next(iter(scored)), next(iter(other)))]
    if not matched:
        raise ValueError(
            f"{name!r} has the modes {', '.join(scored)} and {other_name!r} {', '.join(other)}; "
            "compare runs with a mode in common, or with one mode each"
        )
    pairs = [Pair(scored[mine], other[theirs], name, other_name) for mine, theirs in matched]
    pairs = [pair for pair in pairs if pair.rows]
    if not pairs:
        raise ValueError(f"{name!r} and {other_name!r} have no scored meme in common; their ids must be the same")
    return pairs


class Pair:
    """Two modes' answers to the memes that both have; ``rows`` are their places on either side."""

    def __init__(self, first: Scored, second: Scored, run: str = "", other_run: str = "") -> None:
        self.first, self.second, self.other_run = first, second, other_run
        self.names = tuple(f"{run} {one.name}".strip() for run, one in ((run, first), (other_run, second)))
        place = {meme_id: index for index, meme_id in enumerate(second.answers.ids)}
        self.rows = [(index, place[meme_id]) for index, meme_id in enumerate(first.answers.ids) if meme_id in place]

    @property
    def n_other_gold(self) -> int:
        """Memes whose gold labels are not the same on both sides."""
        mine, theirs = (list(places) for places in zip(*self.rows, strict=True))
        return int((self.first.sets.gold[mine] != self.second.sets.gold[theirs]).any(axis=1).sum())

    def overlap(self) -> dict[str, object]:
        """What was paired and what not."""
        return {
            "first": self.names[0],
            "second": self.names[1],
            "memes": len(self.rows),
            "only_first": len(self.first.sets) - len(self.rows),
            "only_second": len(self.second.sets) - len(self.rows),
            "other_gold": self.n_other_gold,
        }

    def compared(self, settings: Settings) -> pd.DataFrame:
        """All measures of :func:`compare`."""
        mine, theirs = zip(*self.rows, strict=True)
        frame = compare(
            self.first.of(mine), self.second.of(theirs),
            n_swaps=settings.n_swaps, n_draws=settings.n_draws, seed=settings.seed,
        )  # fmt: skip
        modes = dict.fromkeys((self.first.name, self.second.name))
        return frame.assign(modes=" and ".join(modes), second_run=self.other_run)


def _section(title: str, name: str, pairs: Sequence[Pair], settings: Settings, text: str) -> Section:
    found = [pair.compared(settings) for pair in pairs]
    overall = pd.concat([_overall(frame) for frame in found], ignore_index=True)
    # One other run is named in the title.
    told = [] if len(set(overall["second_run"])) > 1 else ["second_run"]
    short = {} if told else {"second_run": "run", "difference": "diff", "p": "", "p_holm": "p (Holm)"}
    for _, family in overall.groupby("measure"):
        overall.loc[family.index, "p_holm"] = holm(list(family["p"]))
    each = pd.concat([_labels(frame) for frame in found], ignore_index=True).drop(columns=told)
    return Section(
        title=title,
        text=text,
        tables=(
            Table.of(name, title, overall.drop(columns=told), note=_ORDER, short=short),
            Table.of(
                f"{name}_overlap",
                "What was paired",
                pd.DataFrame([pair.overlap() for pair in pairs]),
                note="only first, only second: scored memes that the other side does not have, which are left out. "
                "other gold: paired memes whose gold labels differ; each answer is scored against its own.",
            ),
            Table.of(f"{name}_labels", "Labels, by p; flat F1", each, n_shown=_MOST_ROWS),
        ),
    )


def _overall(frame: pd.DataFrame) -> pd.DataFrame:
    rows = frame.set_index(["kind", "measure", "name"]).loc[[(*key, "") for key in COMPARED]].reset_index()
    rows = rows.assign(measure=rows["kind"] + " " + rows["measure"].str.replace("_", " ").str.replace("f1", "F1"))
    return rows[["second_run", "modes", "measure", "first", "second", *_DIFFERENCE, "p"]]


def _labels(frame: pd.DataFrame) -> pd.DataFrame:
    """The labels whose F1 is defined on both sides."""
    rows = frame[(frame["kind"] == "flat") & (frame["measure"] == "f1") & frame["p"].notna()]
    rows = rows.assign(p_holm=holm(list(rows["p"]))).rename(columns={"name": "label"})
    columns = ["second_run", "modes", "label", "first", "second", *_DIFFERENCE, "p", "p_holm"]
    return rows[columns].sort_values("p", kind="stable")


_DIFFERENCE = ("difference", "difference_low", "difference_high")


def _differing_gold(pairs: Sequence[Pair]) -> str:
    n = sum(pair.n_other_gold for pair in pairs)
    return f" Gold labels of {n} paired memes differ between the two runs." if n else ""

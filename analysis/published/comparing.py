"""Published measures of two answers to the same memes compared: two runs, or two input settings of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, Self, TypeVar

import pandas as pd

from xai.analysis.detection.comparison import compare
from xai.analysis.detection.scored import Settings
from xai.analysis.detection.scores import Additive
from xai.analysis.report import Table
from xai.analysis.statistics import holm


class OfMemes(Protocol):
    """Something of each of some memes."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The memes."""
        ...

    def of_rows(self, rows: Sequence[int]) -> Self:
        """The same of some of them, in that order."""
        ...


Subject = TypeVar("Subject", bound=OfMemes)
Shown = Mapping[tuple[str, str], str]
"""Kind and name of a measure to what a table calls it."""
NOTE = (
    "Memes are paired by their ids; those that one side alone has are left out. difference: first minus second, with "
    "its paired bootstrap interval over memes. p: paired permutation test in which the two answers of each meme change "
    "places, two-sided; p_holm: corrected for all comparisons of the same measure in this table."
)

_SHORT = {"memes": "", "of_first": "1st", "of_second": "2nd", "difference": "diff", "p": "", "p_holm": "p (Holm)"}


def between_runs(
    name: str, mine: Mapping[str, Subject], others: Mapping[str, Mapping[str, Subject]]
) -> list[tuple[str, str, Subject, Subject]]:
    """Every mode of a run beside the same mode of each other run."""
    return [
        (f"{name} {mode}", f"{other} {mode}", one, theirs[mode])
        for other, theirs in others.items()
        for mode, one in mine.items()
        if mode in theirs
    ]


def shared_rows(sets: Iterable[OfMemes]) -> list[list[int]]:
    """The rows of each at which the memes stand that all have, in the order of the first."""
    places = [{meme: row for row, meme in enumerate(one.ids)} for one in sets]
    shared = [meme for meme in places[0] if all(meme in place for place in places)]
    return [[place[meme] for meme in shared] for place in places]


def comparison_table(
    name: str,
    title: str,
    pairs: Sequence[tuple[str, str, Subject, Subject]],
    measure: Callable[[Subject], Additive],
    shown: Shown,
    settings: Settings,
) -> Table | None:
    """The shown measures of every pair that has memes in common; ``None`` if no pair has."""
    found = [_compared(*pair, measure, shown, settings) for pair in pairs]
    frames = [frame for frame in found if frame is not None]
    if not frames:
        return None
    frame = pd.concat(frames, ignore_index=True)
    for _, family in frame[frame["p"].notna()].groupby("measure"):
        frame.loc[family.index, "p_holm"] = holm(list(family["p"]))
    return Table.of(name, title, frame, note=NOTE, short=_SHORT)


def _compared(
    first_name: str,
    second_name: str,
    first: Subject,
    second: Subject,
    measure: Callable[[Subject], Additive],
    shown: Shown,
    settings: Settings,
) -> pd.DataFrame | None:
    mine, theirs = shared_rows([first, second])
    if not mine:
        return None
    frame = compare(
        measure(first.of_rows(mine)), measure(second.of_rows(theirs)),
        n_swaps=settings.n_swaps, n_draws=settings.n_draws, seed=settings.seed,
    )  # fmt: skip
    frame = frame.set_index(["kind", "measure"]).loc[list(shown)].reset_index()
    frame["measure"] = [title.replace("_", " ") for title in shown.values()]
    frame = frame.rename(columns={"first": "of_first", "second": "of_second"})
    frame = frame.assign(first=first_name, second=second_name, memes=len(mine), p_holm=float("nan"))
    differs = ["difference", "difference_low", "difference_high"]
    return frame[["first", "second", "measure", "memes", "of_first", "of_second", *differs, "p", "p_holm"]]

"""Categories of the words that relevance and rationale share, and of those that only one of them has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import stats

from xai.analysis.categories.tagger import CATEGORIES, UNKNOWN, Tagger, WordInContext
from xai.analysis.report import Chart, Heatmap, Section, Series, Table
from xai.analysis.statistics import holm
from xai.parts import write_part
from xai.store import Run

FILE = "categories.parquet"
COLUMNS = ("meme_id", "mode", "method", "group", "word", "category", "tagger", "tagger_version")
"""Of the file of :func:`write_categories`, all of them text."""
GROUPS = ("shared", "rationale only", "relevance only")
MAX_BARS = 6
"""Modes and methods up to which each has a chart of bars; the heat map has all of them."""
_TEXT = (
    "Shared words are both among the relevance words and in the rationale; the others are in one of the two only. "
    "Words of a rationale that are not in the text are judged by themselves, without a text. Categories by {tagger}."
)
_RESIDUAL_NOTE = (
    "Adjusted standardised residuals: beyond ±1.96, a cell has more (or fewer) words than independence of group and "
    "category would give, at the 5 % level for that cell alone."
)
_TEST_NOTE = (
    "p_chi2 is that of Pearson's chi-square, which takes words as independent and is rough where an expected count is "
    "under 5. p_permuted takes neither for granted: the same chi-square, with the groups of each meme's words dealt "
    "anew among that meme's words; p_holm is it, corrected for the number of rows. In a large run every p is small: "
    "read the effect size (Cramér's V) and the residuals. Categories and groups without a word are left out."
)
N_DRAWS = 999
_DEALT = 50_000_000
"""Words dealt in all at most; for more, there are fewer draws, but always :data:`FEWEST_DRAWS`."""
FEWEST_DRAWS = 99


class Independence(NamedTuple):
    """A test of whether two ways of sorting words are independent.

    Attributes:
        chi2, dof, p: Pearson's chi-square without continuity correction; NaN, 0 and NaN where fewer than two rows or
            columns have a word.
        cramers_v: effect size, 0 to 1: sqrt(chi2 / (n · (min(rows, columns) - 1))) (Cramér, 1946).
        smallest_expected: of all cells.
        residuals: as :func:`adjusted_residuals`, of the table that was given.
    """

    n: int
    chi2: float
    dof: int
    p: float
    cramers_v: float
    smallest_expected: float
    residuals: np.ndarray


def category_section(
    table: pd.DataFrame,
    tagger: Tagger,
    contexts: Mapping[str, tuple[str, str | None]],
    *,
    title: str = "Categories",
    n_memes: int | None = None,
    seed: int = 0,
) -> Section:
    """Counts, percentages, chi-square and residuals of groups of words by category, for every mode and method.

    Args:
        table: of :func:`xai.analysis.rationale.agreement.agreement_table`, one row a meme, mode and method. Rows in
            which nothing could be compared (no word in the text, or none in the rationale) are left out.
        tagger: of :func:`~xai.analysis.categories.tagger.get_tagger`.
        contexts: text and language of every meme, as :func:`meme_contexts` has them of a run. A column ``language``
            of the table goes before it.
        n_memes: where there are more, so many are drawn at random with ``seed``; the section says so.

    Returns:
        Tables ``categories`` (a row a mode, method, group and category: n, percent of the group, residual) and
        ``category_tests`` (a row a mode and method); the residuals as a heat map, and the percentages as bars.

    Raises:
        ValueError: the table has more than one row of a meme, mode and method; or what the tagger raises.
    """
    return section_of_words(categorised(table, tagger, contexts, n_memes=n_memes, seed=seed), title=title)


class Categorised(NamedTuple):
    """Words with their categories.

    Attributes:
        words: of :func:`tagged_words`.
        tagger: who said the categories.
        drawn: which memes they are of, where it is not all; a sentence.
    """

    words: pd.DataFrame
    tagger: Tagger
    drawn: str = ""


def categorised(
    table: pd.DataFrame,
    tagger: Tagger,
    contexts: Mapping[str, tuple[str, str | None]],
    *,
    n_memes: int | None = None,
    seed: int = 0,
) -> Categorised:
    """The words of both sides with their categories; arguments and errors as :func:`category_section`."""
    chosen, drawn = _drawn(table, n_memes, seed)
    return Categorised(tagged_words(chosen, tagger, contexts), tagger, drawn)


def write_categories(found: Categorised, folder: Path) -> Path:
    """Write :data:`FILE`, a row a word with :data:`COLUMNS`; it is whole or not there."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = found.words.assign(tagger=found.tagger.name, tagger_version=found.tagger.version)
    table = pa.table({name: pa.array(frame[name].astype(object), type=pa.string()) for name in COLUMNS})
    path = folder / FILE
    write_part(path, table)
    return path


def section_of_words(found: Categorised, *, title: str = "Categories") -> Section:
    """The section of :func:`category_section`, of words whose categories are known already."""
    words, tagger = found.words, found.tagger
    counts = category_counts(words)
    tests = {key: independence(_known(group)) for key, group in _matrices(counts)}
    permuted = {key: permuted_p(words[(words["mode"] == key[0]) & (words["method"] == key[1])]) for key in tests}
    unknown = int((words["category"] == UNKNOWN).sum())
    said = [_TEXT.format(tagger=tagger.version), *filter(None, [found.drawn])]
    said += [f"{unknown} of {len(words)} words have no category and are in no table."] if unknown else []
    answers = ", ".join(f"{name} {n}" for name, n in getattr(tagger, "counts", {}).items())
    said += [f"What the tagger counted: {answers}."] if answers else []
    tables = (_counts_table(counts, tests), _tests_table(tests, permuted))
    bars = _bars(counts) if len(tests) <= MAX_BARS else ()
    charts = (_residual_map(tests), *bars) if tests else ()
    return Section(title=title, text=" ".join(said), tables=tables, charts=charts)


def meme_contexts(run: Run) -> dict[str, tuple[str, str | None]]:
    """Text and language of every meme of a run, by its id."""
    rows = run.predictions().select("meme_id", "meme_text", "language").fetchall()
    return {meme_id: (text or "", language) for meme_id, text, language in rows}


def _drawn(table: pd.DataFrame, n_memes: int | None, seed: int) -> tuple[pd.DataFrame, str]:
    """The rows of at most so many memes, and what is to be said of it."""
    memes = np.sort(table["meme_id"].unique().astype(str))
    if n_memes is None or len(memes) <= n_memes:
        return table, ""
    chosen = np.random.default_rng(seed).choice(memes, n_memes, replace=False)
    said = f"These are the words of {n_memes} of {len(memes)} memes, drawn at random with seed {seed}."
    return table[table["meme_id"].isin(chosen)], said


def tagged_words(table: pd.DataFrame, tagger: Tagger, contexts: Mapping[str, tuple[str, str | None]]) -> pd.DataFrame:
    """One row a word, with the columns meme_id, mode, method, group, word, category.

    The tagger is asked about each word of a meme once, however many modes and methods have it.

    Raises:
        ValueError: the table has more than one row of a meme, mode and method, as with several poolings.
    """
    if table.duplicated(["meme_id", "mode", "method"]).any():
        raise ValueError("give one row a meme, mode and method: the agreement table of one pooling")
    rows, asked = [], []
    for row in _compared(table).to_dict("records"):
        text, language = contexts.get(row["meme_id"], ("", None))
        own = row.get("language")
        for group, word in _groups(row):
            rows.append((row["meme_id"], row["mode"], row["method"], group, word))
            asked.append(WordInContext(word, text, own if isinstance(own, str) else language))
    distinct = list(dict.fromkeys(asked))
    category = dict(zip(distinct, tagger.tag(distinct), strict=True))
    frame = pd.DataFrame(rows, columns=["meme_id", "mode", "method", "group", "word"])
    return frame.assign(category=[category[one] for one in asked])


def category_counts(words: pd.DataFrame) -> pd.DataFrame:
    """Words by mode, method and group (rows, all three groups each) and category (columns), unknown ones left out."""
    known = words[words["category"] != UNKNOWN]
    names = ["mode", "method", "group"]
    counted = known.pivot_table(index=names, columns="category", values="word", aggfunc="count", fill_value=0)
    pairs = known[["mode", "method"]].drop_duplicates().sort_values(["mode", "method"])
    index = pd.MultiIndex.from_tuples(
        [(mode, method, group) for mode, method in pairs.itertuples(index=False, name=None) for group in GROUPS],
        names=names,
    )
    return counted.reindex(index=index, columns=list(CATEGORIES), fill_value=0)


def independence(counts: np.ndarray) -> Independence:
    """Whether rows and columns of a table of counts are independent; what has no word is left out of the test."""
    observed = np.asarray(counts, dtype=float)
    residuals = adjusted_residuals(observed)
    inner = observed[observed.sum(axis=1) > 0][:, observed.sum(axis=0) > 0]
    n = int(observed.sum())
    if min(inner.shape) < 2:
        return Independence(n, float("nan"), 0, float("nan"), float("nan"), float("nan"), residuals)
    tested = stats.chi2_contingency(inner, correction=False)
    cramers_v = float(np.sqrt(tested.statistic / (n * (min(inner.shape) - 1))))
    smallest = float(tested.expected_freq.min())
    return Independence(
        n, float(tested.statistic), int(tested.dof), float(tested.pvalue), cramers_v, smallest, residuals
    )


def adjusted_residuals(counts: np.ndarray) -> np.ndarray:
    """Adjusted standardised residuals of a table of counts (Haberman, 1973), of its shape.

    With observed count O of a cell, row total r, column total c and n words, the expected count is E = r·c/n and the
    residual (O - E) / sqrt(E · (1 - r/n) · (1 - c/n)), which is near to standard normal if rows and columns are
    independent. Positive: more words than expected. NaN where a row or a column has none or all of the words.
    """
    observed = np.asarray(counts, dtype=float)
    n = observed.sum()
    rows, columns = observed.sum(axis=1, keepdims=True), observed.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = rows * columns / n
        variance = expected * (1 - rows / n) * (1 - columns / n)
        return np.asarray(np.where(variance > 0, (observed - expected) / np.sqrt(variance), np.nan))


def permuted_p(words: pd.DataFrame, *, seed: int = 0) -> float:
    """How often chance within memes gives a chi-square of groups and categories as large as that of these words.

    Under the null hypothesis a meme's words are exchangeable between its groups: how many words each group has in each
    meme, and which categories a meme's words are of, stay as they are (a stratified permutation test). p is
    (reached + 1) / (draws + 1); NaN where fewer than two groups or categories have a word.

    Args:
        words: of one mode and method, as :func:`tagged_words` has them; unknown ones are left out.
    """
    known = words[words["category"] != UNKNOWN].sort_values(["meme_id", "word"])
    meme, _ = pd.factorize(known["meme_id"])
    group = known["group"].map(GROUPS.index).to_numpy(dtype=int)
    category = known["category"].map(list(CATEGORIES).index).to_numpy(dtype=int)
    shape = len(GROUPS), len(CATEGORIES)
    expected = np.outer(np.bincount(group, minlength=shape[0]), np.bincount(category, minlength=shape[1]))
    if min(np.count_nonzero(expected.sum(axis=axis)) for axis in (0, 1)) < 2:
        return float("nan")
    expected = np.where(expected == 0, np.inf, expected / len(known))

    def chi2(groups: np.ndarray) -> float:
        counted = np.bincount(groups * shape[1] + category, minlength=shape[0] * shape[1]).reshape(shape)
        return float(((counted - np.where(np.isinf(expected), 0, expected)) ** 2 / expected).sum())

    rng, observed = np.random.default_rng(seed), chi2(group)
    draws = min(N_DRAWS, max(FEWEST_DRAWS, _DEALT // len(known)))
    reached = 0
    for _ in range(draws):
        # Words are in the order of their memes, so that this orders them at random within each.
        dealt = group[np.argsort(meme + rng.random(len(meme)))]
        reached += chi2(dealt) >= observed * (1 - 1e-12)
    return (reached + 1) / (draws + 1)


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    return table[~table["empty_rationale"] & ~table["without_text"]]


def _groups(row: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    relevance, rationale = set(row["relevance_words"]), set(row["rationale_words"])
    for word in dict.fromkeys((*row["relevance_words"], *row["rationale_words"])):
        if word in relevance and word in rationale:
            yield "shared", word
        else:
            yield ("relevance only" if word in relevance else "rationale only"), word


def _matrices(counts: pd.DataFrame) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    for (mode, method), group in counts.groupby(["mode", "method"], sort=True):
        yield (str(mode), str(method)), group


def _known(group: pd.DataFrame) -> np.ndarray:
    return group.to_numpy(dtype=float)


def _counts_table(counts: pd.DataFrame, tests: Mapping[tuple[str, str], Independence]) -> Table:
    rows = []
    for (mode, method), group in _matrices(counts):
        residuals = tests[mode, method].residuals
        for index, (name, row) in enumerate(zip(GROUPS, _known(group), strict=True)):
            total = row.sum()
            for column, category in enumerate(CATEGORIES):
                percent = 100 * row[column] / total if total else None
                cells = (mode, method, name, category, int(row[column]), percent, residuals[index, column])
                rows.append(cells)
    names = ["mode", "method", "group", "category", "n", "percent", "residual"]
    frame = pd.DataFrame(rows, columns=names)
    return Table.of("categories", "Words by group and category, percent of the group", frame, note=_RESIDUAL_NOTE)


def _tests_table(tests: Mapping[tuple[str, str], Independence], permuted: Mapping[tuple[str, str], float]) -> Table:
    tested = {key: p for key, p in permuted.items() if not np.isnan(p)}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    rows = []
    for key, test in tests.items():
        ps = test.p, permuted[key], corrected.get(key)
        rows.append((*key, test.n, test.chi2, test.dof, *ps, test.cramers_v, test.smallest_expected))
    names = ["mode", "method", "n", "chi2", "dof", "p_chi2", "p_permuted", "p_holm", "cramers_v", "smallest_expected"]
    frame = pd.DataFrame(rows, columns=names)
    return Table.of("category_tests", "Are group and category independent?", frame, note=_TEST_NOTE)


def _residual_map(tests: Mapping[tuple[str, str], Independence]) -> Heatmap:
    rows, values = [], []
    for (mode, method), test in tests.items():
        rows += [f"{mode}, {method}: {group}" for group in GROUPS]
        values += [tuple(None if np.isnan(value) else float(value) for value in row) for row in test.residuals]
    return Heatmap(
        name="category_residuals", title="Adjusted residuals of groups and categories", rows=tuple(rows),
        columns=tuple(CATEGORIES), values=tuple(values), unit="adjusted residual", row_label="group",
        column_label="category", diverging=True, note=_RESIDUAL_NOTE,
    )  # fmt: skip


def _bars(counts: pd.DataFrame) -> Iterator[Chart]:
    for (mode, method), group in _matrices(counts):
        matrix = _known(group)
        series = tuple(
            Series(name=name, x=tuple(CATEGORIES), y=tuple((100 * row / row.sum()).tolist()))
            for name, row in zip(GROUPS, matrix, strict=True)
            if row.sum()
        )
        yield Chart(
            name=f"category_shares_{mode}_{method}", title=f"Categories of words: {mode}, {method}", kind="bars",
            x_label="category", y_label="share of the group (%)", series=series,
        )  # fmt: skip

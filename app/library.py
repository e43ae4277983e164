"""Opens runs for reading and keeps an index of them in DuckDB, one row a meme, mode and method: lists, filters, pages.

The index holds what lists and filters need. Relevance stays in the part files; one meme is read from the one part
file that has it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pandas as pd

from xai.analysis.faithfulness.stored import (
    files_by_meme,
    measured_folders,
    read_curves,
    read_settings,
    settings_text,
)
from xai.analysis.report import Report, read_report
from xai.app.cautions import FLAGS_SQL
from xai.app.filters import Filter
from xai.app.paths import picture_folder, resolved_picture
from xai.database import connect
from xai.parts import SCHEMAS, Kind, explanation_from_rows, part_path, part_paths
from xai.schema import ALL_LABELS, SEGMENTS, Explanation
from xai.store import Run, open_run, run_names
from xai.tasks import load_task

MEMORY = "512MB"
"""What DuckDB may use; what does not fit goes to disk."""
THREADS = 2
TOP_WORDS = 5
"""So many words with most relevance are in the index."""
AGREEMENT, CATEGORIES = "agreement.parquet", "categories.parquet"
"""What `xai analyze` stores of every meme, and of every word, among the reports of a run."""

_PLAIN_CHOICES = ("run", "mode", "method", "language")
_LIST_CHOICES = ("labels", "gold", "flags", "word_categories")
_LIST_COLUMNS = (
    *("run", "meme_id", "mode", "method", "text", "language", "image", "labels", "gold", "correct", "jaccard"),
    *("n_invented", "flags", "part_text", "part_image", "part_instruction", "part_template"),
    *("template_share", "top_words", "f1"),
)


class Key(NamedTuple):
    """What one row of the list is about; ``method`` is empty where there is no explanation."""

    run: str
    meme_id: str
    mode: str
    method: str


class Place(NamedTuple):
    """Where a row stands in a filtered list, counted from 1, how long that is, and the rows beside it."""

    at: int | None
    total: int
    previous: Key | None
    following: Key | None


class WordCategories(NamedTuple):
    """Category by word, in normal form, and who said so."""

    category: Mapping[str, str]
    tagger: str
    version: str


class MeasuredCurves(NamedTuple):
    """Curves of one meme and mode, a row a target and order, and how they were measured."""

    rows: tuple[Mapping[str, Any], ...]
    settings: str

    @property
    def targets(self) -> list[str]:
        """What was measured, in order."""
        return list(dict.fromkeys(str(row["target"]) for row in self.rows))


@dataclass(frozen=True)
class OpenedRun:
    """A run under the name by which URLs call it."""

    name: str
    number: int
    run: Run
    pictures: tuple[Path, ...]
    moved: bool

    @cached_property
    def none_label(self) -> str | None:
        """The label of the run's task that says "none of these", if the task can be loaded here."""
        try:
            return load_task(self.run.config["task"]).none_label
        except (ValueError, KeyError):
            return None

    @property
    def verdicts(self) -> Path:
        """Where the verdicts on this run are kept: beside it."""
        folder = self.run.path.resolve()
        return folder.with_name(f"{folder.name}.verdicts.sqlite")

    def picture(self, recorded: str | None) -> Path:
        """The file of a picture that the run names.

        Raises:
            PictureError: it is not there, or outside the folders that may be shown.
        """
        return resolved_picture(recorded, (self.run.path, *self.pictures), moved=self.moved)

    def report(self, name: str) -> Report | None:
        """What ``score``, ``analyze`` or another command wrote; ``None`` where it was not run yet.

        Raises:
            ValueError: the file is no report of this version.
        """
        path = self.run.reports / f"{name}.json"
        return read_report(path) if path.is_file() else None


class Library:
    """Opened runs and their index; safe to be used by several threads.

    Args:
        paths: run folders.
        images: folders of the pictures, instead of those that the runs name.

    Raises:
        RunError: a folder is no run.
    """

    def __init__(self, paths: Sequence[Path], images: Sequence[Path] = ()) -> None:
        self._lock = threading.Lock()
        self._database = connect(memory_limit=MEMORY, threads=THREADS)
        self._database.execute("SET preserve_insertion_order = false")
        self._database.execute(_TABLES)
        self.runs: dict[str, OpenedRun] = {}
        names = run_names([Path(path) for path in paths])
        for number, (name, path) in enumerate(zip(names, paths, strict=True)):
            run = open_run(path)
            folders = tuple(images) or _recorded_folders(self._database, run)
            self.runs[name] = OpenedRun(name, number, run, folders, moved=bool(images))
        self._seen: dict[str, tuple[int, ...]] = {}
        self._choices: dict[str, list[tuple[str, int]]] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Bring the index up to date with the folders; whether anything was new."""
        with self._lock:
            changed = [opened for opened in self.runs.values() if self._seen.get(opened.name) != _state(opened.run)]
            for opened in changed:
                state = _state(opened.run)
                self._index(opened)
                self._seen[opened.name] = state
            self._choices.clear()
            return bool(changed)

    def is_stale(self) -> bool:
        """Whether a run has parts or reports that the index does not know."""
        return any(self._seen.get(opened.name) != _state(opened.run) for opened in self.runs.values())

    def count(self, wanted: Filter, auditor: str = "") -> int:
        """How many rows the filter lets through."""
        condition, values = wanted.where(auditor)
        return int(self._one(f"SELECT count(*) FROM memes WHERE {condition}", values)[0])

    def page(self, wanted: Filter, *, start: int, size: int, auditor: str = "") -> pd.DataFrame:
        """``size`` rows of the filtered list from ``start`` on, in its order."""
        condition, values = wanted.where(auditor)
        columns = ", ".join(_LIST_COLUMNS)
        sql = f"SELECT {columns} FROM memes WHERE {condition} ORDER BY {wanted.order} LIMIT ? OFFSET ?"
        return self.query(sql, [*values, size, start])

    def place(self, key: Key, wanted: Filter, auditor: str = "") -> Place:
        """Where a row stands in the filtered list; ``at`` is ``None`` where the filter leaves it out."""
        condition, values = wanted.where(auditor)
        numbered = (
            f"SELECT run, meme_id, mode, method, row_number() OVER (ORDER BY {wanted.order}) AS nth, "
            f"count(*) OVER () AS total FROM memes WHERE {condition}"
        )
        here = "run = ? AND meme_id = ? AND mode = ? AND method = ?"
        sql = (
            f"WITH numbered AS ({numbered}), here AS (SELECT nth FROM numbered WHERE {here}) "
            "SELECT numbered.* FROM numbered, here WHERE abs(numbered.nth - here.nth) <= 1 ORDER BY numbered.nth"
        )
        rows = self._cursor().execute(sql, [*values, *key]).fetchall()
        own = next((row for row in rows if tuple(row[:4]) == key), None)
        if own is None:
            return Place(None, self.count(wanted, auditor), None, None)
        beside = {row[4] - own[4]: Key(*row[:4]) for row in rows}
        return Place(own[4], own[5], beside.get(-1), beside.get(1))

    def rows_of(self, run: str, meme_id: str) -> list[Key]:
        """The rows about one meme in one run: its modes and methods."""
        sql = "SELECT run, meme_id, mode, method FROM memes WHERE run = ? AND meme_id = ? ORDER BY position, method"
        return [Key(*row) for row in self._cursor().execute(sql, [run, meme_id]).fetchall()]

    def row(self, key: Key) -> dict[str, Any]:
        """Everything that the index has of a row.

        Raises:
            KeyError: there is no such row.
        """
        sql = "SELECT * FROM memes WHERE run = ? AND meme_id = ? AND mode = ? AND method = ?"
        cursor = self._cursor().execute(sql, list(key))
        found = cursor.fetchone()
        if found is None:
            raise KeyError("no run that is open here has such a meme; go back to the list of memes")
        return dict(zip([column[0] for column in cursor.description], found, strict=True))

    def targets(self, key: Key) -> list[str]:
        """What is explained of a row, all labels together first."""
        found = [str(row["target"]) for row in self._explained(key, "target")]
        return sorted(found, key=lambda target: target != ALL_LABELS)

    def explanation(self, key: Key, target: str) -> Explanation:
        """One explanation, read from its part file.

        Raises:
            KeyError: there is none.
        """
        rows = [row for row in self._explained(key, "*") if row["target"] == target]
        if not rows:
            raise KeyError("this target is not explained; choose another")
        return explanation_from_rows(_without("explanations") | rows[0], self.answer(key))

    def answer(self, key: Key) -> dict[str, Any]:
        """The row of the prediction, with the meme itself."""
        path = part_path(self.runs[key.run].run.path, "predictions", self.row(key)["part"])
        sql = "SELECT * FROM read_parquet(?) WHERE meme_id = ? AND mode = ?"
        return _without("predictions") | self._rows(sql, [str(path), *key[1:3]])[0]

    def agreement(self, key: Key) -> dict[str, Any] | None:
        """Relevance words beside rationale words as `xai analyze` wrote them, or ``None`` where it did not."""
        path = self.runs[key.run].run.reports / AGREEMENT
        if not path.is_file():
            return None
        sql = "SELECT * FROM read_parquet(?) WHERE meme_id = ? AND mode = ? AND method = ?"
        rows = self._rows(sql, [str(path), *key[1:]])
        return min(rows, key=lambda row: row.get("pooling") != "sum", default=None)

    def categories(self, key: Key) -> WordCategories | None:
        """The categories of the words on both sides, or ``None`` where `xai analyze` did not sort those of this row."""
        path = self.runs[key.run].run.reports / CATEGORIES
        if not path.is_file():
            return None
        sql = (
            "SELECT word, category, tagger, tagger_version FROM read_parquet(?) "
            "WHERE meme_id = ? AND mode = ? AND method = ?"
        )
        rows = self._rows(sql, [str(path), *key[1:]])
        if not rows:
            return None
        category = {row["word"]: row["category"] for row in rows}
        return WordCategories(category, rows[0]["tagger"], rows[0]["tagger_version"])

    def has_categories(self, run: str) -> bool:
        """Whether `xai analyze` sorted words of it into categories."""
        return (self.runs[run].run.reports / CATEGORIES).is_file()

    def curves(self, key: Key) -> MeasuredCurves | None:
        """What `xai faithfulness` measured of a meme and mode last, or ``None`` where it did not."""
        for folder in measured_folders(self.runs[key.run].run.reports):
            file = _files_by_meme(folder, folder.stat().st_mtime_ns).get((key.meme_id, key.mode))
            if file is not None and (rows := read_curves(file, key.meme_id, key.mode)):
                return MeasuredCurves(tuple(rows), settings_text(read_settings(folder)))
        return None

    def failures(self, run: str) -> pd.DataFrame:
        """What failed in a run, by meme, mode, stage and reason; of paths in a reason the last name is left."""
        failures: pd.DataFrame = self.runs[run].run.failures().df()
        return failures.assign(reason=failures["reason"].str.replace(_PATH, r"'\1'", regex=True))

    def has_agreement(self, run: str) -> bool:
        """Whether `xai analyze` was run on it."""
        return (self.runs[run].run.reports / AGREEMENT).is_file()

    def variants(self) -> list[tuple[str, str, str]]:
        """Every (run, mode, method) with explanations."""
        sql = (
            "SELECT run, mode, method FROM memes WHERE method <> '' GROUP BY run, run_number, mode, method "
            "ORDER BY run_number, min(position), method"
        )
        return [(run, mode, method) for run, mode, method in self._cursor().execute(sql).fetchall()]

    def choices(self, column: str) -> list[tuple[str, int]]:
        """The values of a column (of a list: of its entries) and how many rows have them, most frequent first."""
        if column in self._choices:
            return self._choices[column]
        if column not in {*_PLAIN_CHOICES, *_LIST_CHOICES}:
            raise ValueError(f"{column!r} is no column to choose from")
        value = f"unnest({column})" if column in _LIST_CHOICES else f"coalesce({column}, '')"
        sql = f"SELECT value, count(*) FROM (SELECT {value} AS value FROM memes) GROUP BY 1 ORDER BY 2 DESC, 1"
        self._choices[column] = [(str(found), int(n)) for found, n in self._cursor().execute(sql).fetchall()]
        return self._choices[column]

    def query(self, sql: str, values: Sequence[Any] = ()) -> pd.DataFrame:
        """The result of a query on the tables ``memes`` and ``verdicts``, of this library's own making."""
        frame: pd.DataFrame = self._cursor().execute(sql, list(values)).df()
        return frame

    def set_verdicts(self, run: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Let filters know the current verdicts on a run."""
        names = ("meme_id", "mode", "method", "auditor", "relevance", "rationale", "label")
        values = [(run, *(row[name] for name in names)) for row in rows]
        with self._lock:
            cursor = self._cursor()
            cursor.execute("BEGIN")
            cursor.execute("DELETE FROM verdicts WHERE run = ?", [run])
            if values:
                cursor.executemany(f"INSERT INTO verdicts VALUES ({', '.join('?' * 8)})", values)
            cursor.execute("COMMIT")

    def _index(self, opened: OpenedRun) -> None:
        kinds: tuple[Kind, ...] = ("predictions", "explanations")
        files = {str(kind): [str(path) for path in part_paths(opened.run.path, kind)] for kind in kinds}
        cursor = self._cursor()
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM memes WHERE run = ?", [opened.name])
        if files["predictions"]:
            _create_sources(cursor, opened, files)
            cursor.execute(_INSERT, {"run": opened.name, "number": opened.number, "none": opened.none_label})
            cursor.execute("".join(f"DROP TABLE {name};" for name in _SOURCES))
        cursor.execute("COMMIT")

    def _explained(self, key: Key, columns: str) -> list[dict[str, Any]]:
        path = part_path(self.runs[key.run].run.path, "explanations", self.row(key)["part"])
        if not path.is_file():
            return []
        sql = f"SELECT {columns} FROM read_parquet(?) WHERE meme_id = ? AND mode = ? AND method = ?"
        return self._rows(sql, [str(path), *key[1:]])

    def _rows(self, sql: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        cursor = self._cursor().execute(sql, list(values))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _one(self, sql: str, values: Sequence[Any]) -> tuple[Any, ...]:
        found = self._cursor().execute(sql, list(values)).fetchone()
        assert found is not None
        return found

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        # A connection of its own to the same database: threads must not share one.
        return self._database.cursor()


@lru_cache(maxsize=32)
def _files_by_meme(folder: Path, changed: int) -> dict[tuple[str, str], Path]:
    """Of what was measured until the folder ``changed``, which a new part makes it do."""
    return files_by_meme(folder)


def _recorded_folders(database: duckdb.DuckDBPyConnection, run: Run) -> tuple[Path, ...]:
    files = [str(path) for path in part_paths(run.path, "predictions")]
    if not files:
        return ()
    sql = "SELECT DISTINCT image FROM read_parquet(?) WHERE image IS NOT NULL"
    folder = picture_folder([row[0] for row in database.execute(sql, [files]).fetchall()])
    return () if folder is None else (folder,)


def _without(kind: Kind) -> dict[str, Any]:
    """A row without a value: of a run that was made before a column was, the column is empty."""
    return dict.fromkeys(SCHEMAS[kind].names)


def _state(run: Run) -> tuple[int, ...]:
    """What changes when a run grows or is analysed."""
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in _watched(run))


def _watched(run: Run) -> tuple[Path, ...]:
    # A part is renamed into its folder, which touches the folder.
    return run.path / "predictions", run.reports / AGREEMENT, run.reports / CATEGORIES


def _create_sources(cursor: duckdb.DuckDBPyConnection, opened: OpenedRun, files: Mapping[str, list[str]]) -> None:
    """The temporary tables that the index is made of: :data:`_SOURCES`."""
    cursor.execute(_ANSWERS, [files["predictions"]])
    if files["explanations"]:
        cursor.execute(_EXPLAINED + _FROM_PARTS, [files["explanations"]])
    else:
        cursor.execute(_EXPLAINED + _FROM_NOTHING)
    cursor.execute(
        "CREATE TEMP TABLE agreed (meme_id TEXT, mode TEXT, method TEXT, jaccard DOUBLE, n_invented BIGINT, f1 DOUBLE)"
    )
    path = opened.run.reports / AGREEMENT
    if path.is_file():
        cursor.execute(_agreed(cursor, path), [str(path)])
    cursor.execute("CREATE TEMP TABLE sorted (meme_id TEXT, mode TEXT, method TEXT, word_categories TEXT[])")
    path = opened.run.reports / CATEGORIES
    if path.is_file():
        cursor.execute(_sorted(cursor, path), [str(path)])
    cursor.execute("CREATE TEMP TABLE names (written TEXT, meant TEXT)")
    written = [row[0] for row in cursor.execute("SELECT DISTINCT unnest(gold_labels) FROM answers").fetchall()]
    if written:
        cursor.executemany("INSERT INTO names VALUES (?, ?)", list(_meant(opened.run, written).items()))


def _agreed(cursor: duckdb.DuckDBPyConnection, path: Path) -> str:
    """How the table of `xai analyze` fills ``agreed``: where it has several poolings, by the sum.

    Raises:
        ValueError: the file is no such table.
    """
    columns = _columns_of(cursor, path, {"meme_id", "mode", "method", "jaccard"})
    invented = "n_invented" if "n_invented" in columns else "len(invented)" if "invented" in columns else "NULL"
    order = "pooling <> 'sum'" if "pooling" in columns else "1"
    f1 = "CASE WHEN isnan(f1) THEN NULL ELSE f1 END" if "f1" in columns else "NULL"
    return (
        "INSERT INTO agreed SELECT meme_id, mode, method, CASE WHEN isnan(jaccard) THEN NULL ELSE jaccard END, "
        f"{invented}, {f1} FROM read_parquet(?) "
        f"QUALIFY row_number() OVER (PARTITION BY meme_id, mode, method ORDER BY {order}) = 1"
    )


def _sorted(cursor: duckdb.DuckDBPyConnection, path: Path) -> str:
    """How the words of `xai analyze` fill ``sorted``: the side and the category of every word of a row.

    Raises:
        ValueError: the file is no such table.
    """
    _columns_of(cursor, path, {"meme_id", "mode", "method", "group", "word", "category", "tagger", "tagger_version"})
    return (
        "INSERT INTO sorted SELECT meme_id, mode, method, list(\"group\" || ': ' || category) FROM read_parquet(?) "
        "GROUP BY ALL"
    )


def _columns_of(cursor: duckdb.DuckDBPyConnection, path: Path, needed: set[str]) -> set[str]:
    try:
        rows = cursor.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    except duckdb.Error:
        raise ValueError(f"{path.name} cannot be read; run xai analyze again") from None
    columns = {row[0] for row in rows}
    if missing := needed - columns:
        raise ValueError(f"{path.name} lacks {', '.join(sorted(missing))}; run xai analyze again")
    return columns


def _meant(run: Run, written: Sequence[str]) -> dict[str, str]:
    """The labels of the task that gold labels name; a gold label that it does not have stays as it is."""
    try:
        task = load_task(run.config["task"])
    except (ValueError, KeyError):
        return {name: name for name in written}
    return {name: task.match_label(name) or name for name in written}


_PARTS = {segment: f"abs(share_{segment})" for segment in SEGMENTS}
_WHOLE = " + ".join(f"coalesce({part}, 0)" for part in _PARTS.values())

_TABLES = f"""
CREATE TABLE memes (
    run TEXT, run_number INTEGER, position BIGINT, part BIGINT, meme_id TEXT, mode TEXT, method TEXT,
    text TEXT, language TEXT, image TEXT, labels TEXT[], gold TEXT[], correct BOOLEAN, answer TEXT, parse TEXT,
    parse_note TEXT, unknown_labels TEXT[], referred_words TEXT[], target TEXT, labels_missing TEXT[],
    target_choice_changed BIGINT,
    {", ".join(f"share_{segment} DOUBLE, part_{segment} DOUBLE" for segment in SEGMENTS)},
    conservation DOUBLE, sink_share DOUBLE, template_share DOUBLE, non_finite BIGINT, characters_cut BIGINT,
    picture_frames BIGINT, top_words TEXT[],
    jaccard DOUBLE, n_invented BIGINT, f1 DOUBLE, word_categories TEXT[], flags TEXT[]
);
CREATE TABLE verdicts (
    run TEXT, meme_id TEXT, mode TEXT, method TEXT, auditor TEXT, relevance TEXT, rationale TEXT, label TEXT
);
"""

_PATH = r"'(?:/|[A-Za-z]:\\)[^']*?([^'/\\]*)'"

_SOURCES = ("answers", "explained", "agreed", "sorted", "names")
_NUMBER = "CAST(regexp_extract(filename, 'part-(\\d+)\\.parquet$', 1) AS BIGINT)"
_ANSWERS = f"""
CREATE TEMP TABLE answers AS SELECT
    {_NUMBER} AS part, {_NUMBER} * 1000000 + file_row_number AS position, meme_id, mode, meme_text, language, image,
    labels, gold_labels, answer, parse, parse_note, unknown_labels, referred_words
FROM read_parquet(?, filename = true, file_row_number = true)
"""

_EXPLAINED = f"""
CREATE TEMP TABLE explained AS SELECT
    meme_id, mode, method, target, labels_missing, target_choice_changed,
    {", ".join(f"share_{segment}" for segment in SEGMENTS)},
    conservation, sink_share, template_share, non_finite, characters_cut, picture_frames,
    list_transform(
        list_slice(list_reverse_sort(list_zip(word_relevance, word)), 1, {TOP_WORDS}), lambda pair: pair[2]
    ) AS top_words
"""
# Parts that were written before a column was added lack it. Of the targets of a meme, mode and method it is the first
# in the order of preference: all labels together.
_FROM_PARTS = f"""
FROM (
    SELECT * FROM read_parquet(?)
    UNION ALL BY NAME SELECT
        NULL::DOUBLE AS share_post, NULL::DOUBLE AS share_examples,
        NULL::BIGINT AS characters_cut, NULL::BIGINT AS picture_frames
    WHERE false
)
QUALIFY row_number() OVER (PARTITION BY meme_id, mode, method ORDER BY target <> '{ALL_LABELS}', target) = 1
"""
_FROM_NOTHING = f"""
FROM (SELECT
    NULL::TEXT AS meme_id, NULL::TEXT AS mode, NULL::TEXT AS method, NULL::TEXT AS target,
    NULL::TEXT[] AS labels_missing, NULL::BIGINT AS target_choice_changed,
    {", ".join(f"NULL::DOUBLE AS share_{segment}" for segment in SEGMENTS)},
    NULL::DOUBLE AS conservation, NULL::DOUBLE AS sink_share, NULL::DOUBLE AS template_share,
    NULL::BIGINT AS non_finite, NULL::BIGINT AS characters_cut, NULL::BIGINT AS picture_frames,
    NULL::DOUBLE[] AS word_relevance, NULL::TEXT[] AS word) WHERE false
"""

_INSERT = f"""
INSERT INTO memes BY NAME
WITH meant AS (
    SELECT position, list_sort(list_distinct(list(names.meant))) AS gold
    FROM (SELECT position, unnest(gold_labels) AS written FROM answers) JOIN names USING (written) GROUP BY position
), joined AS (
    SELECT
        $run AS run, $number AS run_number, answers.position, part, answers.meme_id, answers.mode,
        coalesce(explained.method, '') AS method, meme_text AS text, language, image, labels,
        CASE WHEN gold_labels IS NULL THEN NULL ELSE coalesce(gold, []) END AS gold, answer, parse, parse_note,
        unknown_labels, referred_words, target, labels_missing, target_choice_changed,
        {", ".join(f"share_{name}, {part} / nullif({_WHOLE}, 0) AS part_{name}" for name, part in _PARTS.items())},
        conservation, sink_share, template_share, non_finite, characters_cut, picture_frames, top_words,
        jaccard, n_invented, f1, word_categories
    FROM answers
    LEFT JOIN explained ON explained.meme_id = answers.meme_id AND explained.mode = answers.mode
    LEFT JOIN agreed ON agreed.meme_id = answers.meme_id AND agreed.mode = answers.mode
        AND agreed.method = explained.method
    LEFT JOIN sorted ON sorted.meme_id = answers.meme_id AND sorted.mode = answers.mode
        AND sorted.method = explained.method
    LEFT JOIN meant ON meant.position = answers.position
)
SELECT *,
    CASE WHEN gold IS NULL THEN NULL ELSE
        list_sort(list_filter(list_distinct(labels), lambda label: label IS DISTINCT FROM $none))
        = list_filter(gold, lambda label: label IS DISTINCT FROM $none) END AS correct,
    {FLAGS_SQL} AS flags
FROM joined
"""

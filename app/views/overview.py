"""What a run is and what came out of it, in figures; a click on a bar lists its memes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from xai.analysis.report import Chart, Series
from xai.app import session
from xai.app.cautions import CAUTIONS
from xai.app.filters import CATEGORY_NAMES, SEGMENT_NAMES, SIDES, SORTS, Correct, Filter, Segment
from xai.app.library import Library, OpenedRun
from xai.app.pieces import facts_html, plain
from xai.app.report_view import show_chart, show_report
from xai.schema import SEGMENTS

BIN = 0.1
_REPORTS = {"score": "How well it detects", "analyze": "What relevance says"}


def show() -> None:
    """The page."""
    library = session.services().library
    st.header("Overview")
    opened, mode, method = _chosen(library)
    # With the answers that have no explanation, which are of no method.
    base = Filter(run=(opened.name,), mode=(mode,), method=(method, "") if method else ())
    condition, values = base.where("")
    _what(opened)
    _numbers(library, opened, condition, values)
    st.page_link(
        session.page("memes"), label="The memes with the least agreement of relevance and rationale",
        icon=":material/troubleshoot:", query_params=dict(base.model_copy(update={"sort": "agreement"}).to_params()),
    )  # fmt: skip
    st.caption("Click a bar to list its memes.")
    left, right = st.columns(2, gap="medium")
    with left:
        _labels(library, base, condition, values)
        _outcomes(library, base, condition, values)
        _shares(library, base, condition, values)
        _cautions(library, base, condition, values)
    with right:
        _agreement(library, opened, base, condition, values)
        _categories(library, opened, base, condition, values)
    _failures(library, opened)
    _reports(opened)


def _chosen(library: Library) -> tuple[OpenedRun, str, str]:
    first, second, third = st.columns(3)
    runs = list(library.runs)
    name = first.selectbox("Run", runs, key="overview.run")
    variants = [(mode, method) for run, mode, method in library.variants() if run == name]
    modes = list(dict.fromkeys(mode for mode, _ in variants)) or library.runs[name].run.config.get("modes", ["text"])
    mode = second.selectbox("Mode", modes, index=len(modes) - 1, key=f"overview.mode.{name}")
    methods = [method for of, method in variants if of == mode] or [""]
    method = third.selectbox("Method", methods, key=f"overview.method.{name}.{mode}")
    return library.runs[name], mode, method


def _what(opened: OpenedRun) -> None:
    config, info = opened.run.config, opened.run.info
    model = config.get("model", {})
    facts = [
        ("Data set", str(config.get("dataset"))),
        ("Model", f"{model.get('name')} ({model.get('type')}, {model.get('dtype')} on {model.get('device')})"),
        ("Task", f"{config.get('task')}, prompt {json.dumps(config.get('prompt'), ensure_ascii=False)}"),
        ("Explains", f"{config.get('target', {}).get('kind')} by {config.get('method')}"),
        ("State", f"{info.get('state')}; {json.dumps(info.get('counts'))}"),
    ]
    if info.get("resumed_with"):
        facts.append(("Versions", "it was resumed with other versions of what it depends on; see its run.json"))
    with st.expander("What this run is", expanded=False):
        st.html(facts_html(facts))


def _numbers(library: Library, opened: OpenedRun, condition: str, values: list[Any]) -> None:
    sql = (
        "SELECT count(*), count(*) FILTER (correct), count(*) FILTER (NOT correct), avg(jaccard), count(jaccard), "
        f"count(*) FILTER (len(flags) > 0), avg(f1), count(f1) FROM memes WHERE {condition}"
    )
    n, right, wrong, agreed, n_agreed, flagged, f1, n_f1 = library.query(sql, values).iloc[0].tolist()
    columns = st.columns(6)
    columns[0].metric("Memes answered", f"{n:,.0f}")
    columns[1].metric("As in the gold labels", f"{right / (right + wrong):.0%}" if right + wrong else "no gold labels")
    title = "Mean over the memes that have gold labels; by label and with intervals in the report of `xai score`"
    columns[2].metric("Hierarchical F1", f"{f1:.2f}" if n_f1 else "–", help=title)
    title = "Mean of the Jaccard of relevance words and rationale words"
    columns[3].metric("Mean agreement", f"{agreed:.2f}" if n_agreed else "–", help=title)
    columns[4].metric("With a warning", f"{flagged:,.0f}")
    columns[5].metric("Failed records", f"{len(library.failures(opened.name)):,}")


def _labels(library: Library, base: Filter, condition: str, values: list[Any]) -> None:
    sql = f"SELECT label, count(*) AS n FROM (SELECT unnest({{}}) AS label FROM memes WHERE {condition}) GROUP BY 1"
    predicted = library.query(sql.format("labels"), values).set_index("label")["n"]
    gold = library.query(sql.format("gold"), values).set_index("label")["n"]
    names = sorted({*predicted.index, *gold.index}, key=lambda label: -int(predicted.get(label, 0)))
    sides = [("answers", predicted), *([("gold", gold)] if len(gold) else [])]
    series = tuple(
        Series(name=side, x=tuple(names), y=tuple(float(found.get(name, 0)) for name in names)) for side, found in sides
    )
    chart = Chart(name="labels", title="Labels", kind="bars", x_label="", y_label="memes", series=series)
    fields = [{"answers": "label", "gold": "gold"}[side] for side, _ in sides]
    _clickable(chart, names, lambda name, n: base.model_copy(update={fields[n]: (name,)}))


def _outcomes(library: Library, base: Filter, condition: str, values: list[Any]) -> None:
    sql = f"SELECT count(*) FILTER (correct), count(*) FILTER (NOT correct) FROM memes WHERE {condition}"
    right, wrong = library.query(sql, values).iloc[0].tolist()
    if not right + wrong:
        return
    names: dict[str, Correct] = {"right": "right", "wrong": "wrong"}
    series = (Series(name="memes", x=tuple(names), y=(float(right), float(wrong))),)
    chart = Chart(
        name="outcomes", title="Answers against the gold labels", kind="bars", x_label="", y_label="memes",
        series=series, note="Right: exactly the gold labels.",
    )  # fmt: skip
    _clickable(chart, list(names), lambda name, _: base.model_copy(update={"correct": names[name]}))


def _agreement(library: Library, opened: OpenedRun, base: Filter, condition: str, values: list[Any]) -> None:
    if not library.has_agreement(opened.name):
        st.info("How far relevance and rationale agree was not compared yet. This command does:")
        st.code(f"xai analyze {opened.name}", language=None)
        return
    last = round(1 / BIN) - 1
    sql = (
        f"SELECT least(floor(jaccard / {BIN} + 1e-9), {last}) AS bin, count(*) AS n FROM memes "
        f"WHERE jaccard IS NOT NULL AND {condition} GROUP BY 1"
    )
    counts = library.query(sql, values).set_index("bin")["n"]
    if not len(counts):
        st.info("No answer of this mode names words that could be compared with the relevance.")
        return
    lows = [index * BIN for index in range(last + 1)]
    y = tuple(float(counts.get(index, 0)) for index in range(last + 1))
    chart = Chart(
        name="agreement", title="Agreement of relevance and rationale", kind="bars", bin_width=BIN,
        x_label="Jaccard of relevance words and rationale words", y_label="memes",
        series=(Series(name="memes", x=tuple(lows), y=y),),
    )  # fmt: skip
    # A bin ends before the next begins; the last one has the 1, too.
    ranges = {index: (round(low, 2), round(low + BIN - 0.01 * (index < last), 2)) for index, low in enumerate(lows)}
    _clickable(
        chart,
        list(ranges),
        lambda index, _: base.model_copy(update={"low": ranges[index][0], "high": ranges[index][1]}),
    )
    _by_label(library, base, condition, values)


def _by_label(library: Library, base: Filter, condition: str, values: list[Any]) -> None:
    pairs = f"SELECT unnest(labels) AS label, jaccard FROM memes WHERE {condition} AND jaccard IS NOT NULL"
    sql = f"SELECT label, avg(jaccard) AS mean FROM ({pairs}) GROUP BY 1 ORDER BY 2, 1"
    means = library.query(sql, values)
    names = means["label"].tolist()
    series = (Series(name="mean agreement", x=tuple(names), y=tuple(means["mean"].tolist())),)
    chart = Chart(
        name="agreement_by_label", title="Mean agreement by label", kind="bars", x_label="", y_label="mean Jaccard",
        series=series, y_range=(0.0, 1.0),
    )  # fmt: skip
    _clickable(chart, names, lambda name, _: base.model_copy(update={"label": (name,), "sort": "agreement"}))


def _categories(library: Library, opened: OpenedRun, base: Filter, condition: str, values: list[Any]) -> None:
    if not library.has_categories(opened.name):
        st.info("The words of relevance and rationale were not sorted into categories yet. This command does:")
        st.code(f"xai analyze {opened.name}", language=None)
        return
    words = f"SELECT unnest(word_categories) AS word FROM memes WHERE {condition}"
    counted = library.query(f"SELECT word, count(*) AS n FROM ({words}) GROUP BY 1", values).set_index("word")["n"]
    sides = [side for side in SIDES if side]
    known = [name for name in CATEGORY_NAMES if any(f"{side}: {name}" in counted.index for side in sides)]
    if not known:
        st.info("No words of this mode and method are sorted into categories.")
        return
    numbers = {side: [float(counted.get(f"{side}: {name}", 0)) for name in known] for side in sides}
    shown = [side for side in sides if sum(numbers[side])]
    series = tuple(
        Series(
            name=f"{side} ({sum(numbers[side]):,.0f})",
            x=tuple(known),
            y=tuple(100 * n / sum(numbers[side]) for n in numbers[side]),
        )
        for side in shown
    )
    sql = f"SELECT count(*) FILTER (word_categories IS NOT NULL), count(*) FROM memes WHERE {condition}"
    n, total = library.query(sql, values).iloc[0].tolist()
    chart = Chart(
        name="categories", title="Categories of words by side", kind="bars", x_label="", y_label="share of the side, %",
        series=series, note=f"Words of {n:,.0f} of {total:,.0f} memes, by xai analyze. A click lists the memes.",
    )  # fmt: skip
    _clickable(chart, known, lambda name, n: base.model_copy(update={"category": (name,), "side": shown[n]}))


def _shares(library: Library, base: Filter, condition: str, values: list[Any]) -> None:
    columns = ", ".join(f"avg(part_{segment})" for segment in SEGMENTS)
    means = library.query(f"SELECT {columns} FROM memes WHERE {condition}", values).iloc[0].tolist()
    known = [(segment, mean) for segment, mean in zip(SEGMENTS, means, strict=True) if not pd.isna(mean)]
    if not known:
        return
    names = [SEGMENT_NAMES[segment] for segment, _ in known]
    series = (Series(name="mean share", x=tuple(names), y=tuple(mean for _, mean in known)),)
    chart = Chart(
        name="shares", title="Where relevance sits", kind="bars", x_label="", y_label="mean share of absolute sums",
        series=series, y_range=(0.0, 1.0),
        note="Of each meme the sums of its segments, without their signs. A click lists the memes whose share is at "
        "least the mean, the largest first.",
    )  # fmt: skip
    means_of: dict[Segment, float] = {segment: int(100 * mean) / 100 for segment, mean in known}
    segments: list[Segment] = [segment for segment, _ in known]
    places = dict(zip(names, segments, strict=True))

    def wanted(name: str, _: int) -> Filter:
        segment = places[name]
        sort = segment if segment in SORTS else "order"
        return base.model_copy(update={"share": segment, "least": means_of[segment], "sort": sort})

    _clickable(chart, names, wanted)


def _cautions(library: Library, base: Filter, condition: str, values: list[Any]) -> None:
    flags = f"SELECT unnest(flags) AS flag FROM memes WHERE {condition}"
    sql = f"SELECT flag, count(*) AS n FROM ({flags}) GROUP BY 1 ORDER BY 2 DESC"
    found = library.query(sql, values)
    if not len(found):
        st.caption("No warnings.")
        return
    shorts = {CAUTIONS[flag].short: flag for flag in found["flag"]}
    series = (Series(name="memes", x=tuple(shorts), y=tuple(map(float, found["n"]))),)
    chart = Chart(name="cautions", title="Warnings", kind="bars", x_label="", y_label="memes", series=series)
    _clickable(chart, list(shorts), lambda name, _: base.model_copy(update={"flag": (shorts[name],)}))


def _clickable(chart: Chart, names: list[Any], wanted: Callable[[Any, int], Filter]) -> None:
    """A chart whose bars lead to the list: ``wanted`` has the name of a bar and the number of its colour."""
    lying = chart.bin_width is None
    event = show_chart(chart, key=f"overview.{chart.name}", lying=lying, on_select="rerun", selection_mode="points")
    points = event.selection.points if event is not None else []
    if points and points[0].get("point_index", -1) in range(len(names)):
        point = points[0]
        session.go_to("memes", wanted(names[point["point_index"]], point.get("curve_number", 0)).to_params())


def _failures(library: Library, opened: OpenedRun) -> None:
    failures = library.failures(opened.name)
    if not len(failures):
        return
    st.subheader("What failed")
    st.dataframe(failures.rename(columns={"meme_id": "meme"}), hide_index=True)


def _reports(opened: OpenedRun) -> None:
    for name, title in _REPORTS.items():
        try:
            report = opened.report(name)
        except ValueError as error:
            st.warning(plain(error.args[0]))
            continue
        if report is None:
            st.caption(f"{title}: not computed yet. This command does:")
            st.code(f"xai {name} {opened.name}", language=None)
            continue
        with st.expander(f"{title}: {plain(report.title)}"):
            show_report(report, key=name)

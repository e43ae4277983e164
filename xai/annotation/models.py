"""The models of a panel: one that is loaded here, or one behind an endpoint; both are asked in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from xai.annotation.asking import PanelModel, Reply, mode_of
from xai.annotation.endpoint import Endpoint
from xai.annotation.settings import Asked, is_endpoint
from xai.schema import Meme, Mode
from xai.tasks import Task


def panel_model(name: str, *, device: str | None = None, dtype: str | None = None) -> PanelModel:
    """The model of that name; it is loaded, or connected to, when it is entered.

    Args:
        name: an address with the model behind ``#``, as ``http://127.0.0.1:8000/v1#some-model``; or ``planted``, a
            checkpoint folder or a hub id.
        device, dtype: of a model that is loaded.

    Raises:
        ValueError: an address that names no model or holds a password.
    """
    if is_endpoint(name):
        return Endpoint(name)
    return LoadedModel(name, device, dtype)


@dataclass
class LoadedModel:
    """A model of :func:`xai.models.load_model`, in memory only while it is entered."""

    name: str
    device: str | None = None
    dtype: str | None = None
    in_batches: bool = True

    def __enter__(self) -> Self:
        from xai.models import ModelSource

        self._model: Any = ModelSource(self.name, self.device, self.dtype).load()
        return self

    def __exit__(self, *error: object) -> None:
        import gc

        import torch

        del self._model
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def version(self) -> dict[str, Any]:
        """Name, fingerprint, device, dtype and attention."""
        described: dict[str, Any] = self._model.describe()
        return described

    def ask(self, task: Task, memes: Sequence[Meme], asked: Asked) -> Iterator[Reply]:
        """Greedy answers, those of one mode in one batch, which is halved where memory is too small for it."""
        from xai.prompts import PromptStyle

        variant = asked.variant or task.variant(self._model.style.variant)
        style = PromptStyle(asked.language, variant, asked.with_none)
        modes = [mode_of(meme, task, asked, variant) for meme in memes]
        found: dict[str, Reply] = {}
        for mode in dict.fromkeys(modes):
            some = [meme for meme, own in zip(memes, modes, strict=True) if own == mode]
            found |= self._answers(task, mode, style, some, asked)
        yield from (found[meme.id] for meme in memes)

    def _answers(self, task: Task, mode: Mode, style: Any, memes: Sequence[Meme], asked: Asked) -> dict[str, Reply]:
        from xai.batches import answered, encoded
        from xai.jobs import Job
        from xai.prompts import EncodedPrompt
        from xai.schema import Failure

        job = Job(self._model, task, mode, style, max_new_tokens=asked.max_new_tokens)
        job.model.reader.check(mode)
        task.instruction(mode, style.language, style.variant, style.with_none)  # what no meme can satisfy
        prompts = {meme.id: encoded(job, meme) for meme in memes}
        readable = [meme for meme in memes if isinstance(prompts[meme.id], EncodedPrompt)]
        results, _ = answered(job, readable, [cast(EncodedPrompt, prompts[meme.id]) for meme in readable])
        found = {**{name: one for name, one in prompts.items() if isinstance(one, Failure)}, **results}
        return {
            name: Reply(mode=mode, failure=one.reason) if isinstance(one, Failure) else Reply(mode=mode, text=one.text)
            for name, one in found.items()
        }

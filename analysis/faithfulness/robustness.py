"""How well relevance adds up to what the model does, and how much it changes when the input hardly does."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from captum.metrics import infidelity as captum_infidelity
from captum.metrics import sensitivity_max
from PIL import Image
from scipy.stats import spearmanr
from torch import Tensor

from xai.analysis.faithfulness.curves import Scorer
from xai.analysis.faithfulness.units import Unit
from xai.attribution.families import input_embeddings
from xai.choice import TargetChoice
from xai.jobs import Job
from xai.models import VisionLanguageModel
from xai.prompts import PromptStyle
from xai.schema import Explanation, Meme
from xai.tasks import Task, load_task

JPEG_QUALITY = 75
RADIUS = 0.02
"""Of the noise of :func:`max_sensitivity`, as a share of the root mean square of the embeddings."""
N_SUBSETS, N_NOISES = 30, 5


def infidelity(
    scorer: Scorer, units: Sequence[Unit], values: np.ndarray, target: int, *, n: int = N_SUBSETS, seed: int = 0
) -> float:
    """Share of the square of the score's changes that relevance does not account for, 0 to 1; lower is better.

    Random subsets of the units, of every size alike often, are taken away, and the relevance of a subset is held
    against the change of the logit (of a contrastive target, its lead). The infidelity of Yeh et al. (2019,
    arXiv:1901.09392), by captum, scaled as they do so that a constant factor of the relevance does not matter, over the
    mean square of the changes. Without any change it is NaN.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, len(units) + 1, size=n)
    gone = np.array([np.isin(np.arange(len(units)), rng.permutation(len(units))[:size]) for size in sizes])
    masks = torch.from_numpy(gone.astype(float))

    def score(switches: Tensor) -> Tensor:
        rows = [scorer.without(unit for unit, on in zip(units, row, strict=True) if not on) for row in switches.bool()]
        return torch.from_numpy(np.ascontiguousarray(scorer(rows).logit[:, target]))

    whole = torch.ones(1, len(units), dtype=torch.float64)
    change = score(whole) - score(1 - masks)
    squares = float((change**2).mean())
    attributions = torch.from_numpy(np.asarray(values, dtype=float))[None]
    found = captum_infidelity(
        score, lambda inputs: (masks, inputs - masks), whole, attributions, n_perturb_samples=n, normalize=True
    )
    return float(found) / squares if squares > 0 else float("nan")


def max_sensitivity(
    model: VisionLanguageModel,
    explanation: Explanation,
    *,
    radius: float = RADIUS,
    n: int = N_NOISES,
    seed: int = 0,
    task: Task | None = None,
) -> float:
    """Largest relative change of the word relevance under noise on the embeddings; lower is better.

    ``max ‖φ(x + noise) - φ(x)‖ / ‖φ(x)‖`` (Yeh et al., 2019), by captum, uniform noise of at most ``radius`` times the
    root mean square of the embeddings on every token; of the cells where there are no words.
    """
    job = job_of(model, explanation, task)
    prompt = job.encode(explanation.meme)
    embedding = input_embeddings(model.model)
    ids = torch.tensor([[*prompt.inputs["input_ids"][0].tolist(), *explanation.prediction.generated_ids]])
    with torch.no_grad():
        base = embedding(ids.to(model.device)).detach()

    def explain(inputs: Tensor | tuple[Tensor]) -> tuple[Tensor]:
        found = []
        # captum passes a tuple first and tensors then, and takes tuples only.
        for row in inputs[0] if isinstance(inputs, tuple) else inputs:
            with model.lock:
                hook = embedding.register_forward_hook(lambda _m, _a, out, row=row: row[None, : out.shape[1]].to(out))
                try:
                    found.append(_values(_again(job, explanation, explanation.meme)))
                finally:
                    hook.remove()
        return (torch.from_numpy(np.array(found)),)

    size = radius * float(base.pow(2).mean().sqrt())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = sensitivity_max(explain, base, perturb_radius=size, n_perturb_samples=n)
    return float(found.max())


def stability(
    model: VisionLanguageModel, explanation: Explanation, *, seed: int = 0, task: Task | None = None
) -> dict[str, float]:
    """Spearman's rank correlation of relevance with that of nearly the same meme, for the answer as it was.

    ``jpeg`` of the cells, with the picture saved as JPEG of quality 75; ``typo`` of the words, with two neighbouring
    letters of a random word exchanged. -1 to 1, higher is better; NaN where there is no picture, or no word to change.
    """
    job = job_of(model, explanation, task)
    found = {"jpeg": float("nan"), "typo": float("nan")}
    if explanation.image is not None:
        other = _again(job, explanation, as_jpeg(explanation.meme))
        assert other.image is not None
        found["jpeg"] = _correlation(explanation.image.ravel(), other.image.ravel())
    noisy = with_typo(explanation.meme, seed)
    if explanation.word_table.word and noisy is not None:
        other = _again(job, explanation, noisy)
        found["typo"] = _correlation(explanation.word_table.relevance, other.word_table.relevance)
    return found


def as_jpeg(meme: Meme, quality: int = JPEG_QUALITY) -> Meme:
    """The meme with its picture as it comes out of a JPEG file."""
    buffer = io.BytesIO()
    meme.open_image().save(buffer, format="JPEG", quality=quality)
    return meme.model_copy(update={"image": Image.open(buffer).convert("RGB")})


def with_typo(meme: Meme, seed: int = 0) -> Meme | None:
    """The meme with two neighbouring letters of one word exchanged; ``None`` where no two differ."""
    text = meme.text
    places = [
        at
        for at in range(1, len(text) - 1)
        if text[at - 1 : at + 2].isalpha() and text[at] != text[at + 1] and text[at + 1].isalpha()
    ]
    if not places:
        return None
    at = places[int(np.random.default_rng(seed).integers(len(places)))]
    changed = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    words = meme.words and tuple(
        word.model_copy(update={"text": changed[word.start : word.end]}) for word in meme.words
    )
    return meme.model_copy(update={"text": changed, "words": words})


def job_of(model: VisionLanguageModel, explanation: Explanation, task: Task | None = None) -> Job:
    """The question of which an explanation is the answer, to be asked again."""
    config: dict[str, Any] = dict(explanation.config)
    target = dict(config["target"])
    target["span"] = None if target["span"] is None else tuple(target["span"])
    return Job(
        model,
        task or load_task(config["task"]),
        explanation.mode,
        PromptStyle(**config["prompt"]),
        explanation.method,
        config["options"],
        choice=TargetChoice(**target),
    )


def _again(job: Job, explanation: Explanation, meme: Meme) -> Explanation:
    """The explanation of the same target and answer for another meme."""
    found = job.explain(meme, job.encode(meme), explanation.prediction)
    return next(one for one in found if one.target == explanation.target)


def _values(explanation: Explanation) -> np.ndarray:
    if explanation.word_table.word or explanation.image is None:
        return np.array(explanation.word_table.relevance)
    return explanation.image.ravel().copy()


def _correlation(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(spearmanr(first, second).statistic)

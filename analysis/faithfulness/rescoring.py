"""Scores the stored target of explanations again, on inputs with units taken away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor

from xai.analysis.faithfulness.curves import Scale
from xai.analysis.faithfulness.units import Unit
from xai.attribution.perturb import Baseline, OpenModel, Variant, VariantScorer, WordChange, open_model
from xai.attribution.targets import Target
from xai.choice import target_of
from xai.jobs import inputs_of_answer
from xai.limits import Limits
from xai.models import VisionLanguageModel
from xai.prompts import EncodedPrompt, PromptStyle, encode_prompt
from xai.schema import Explanation
from xai.tasks import Task, load_task

WordWay = Literal["replace", "mean", "delete", "mask"]
CellWay = Literal["mean_token", "mean_colour", "blur"]
NEUTRAL = ("…", "_", "-", ".")
"""What may stand in for a token: the first of these that is one token of the vocabulary."""
BLUR_RADIUS = 0.05
"""Standard deviation of the Gaussian, as a share of the longer side of the picture."""


@dataclass(frozen=True)
class Perturbation:
    """How units are taken away; results depend on it, so that every report names it.

    Attributes:
        words: ``replace`` every token of a word by one neutral token, so that the length stays; ``mean``, by the mean
            of the embedding matrix; ``delete`` them, so that what follows moves up, the target's positions too; or
            ``mask``: they keep their place and nothing attends to them.
        cells: ``mean_token`` puts the mean over the picture in the place of a merged image token and of its deepstack
            levels; ``mean_colour`` and ``blur`` paint the cell of the picture, with its mean colour or with the same
            place of the blurred picture, and the vision tower runs anew.
    """

    words: WordWay = "replace"
    cells: CellWay = "mean_token"

    def __post_init__(self) -> None:
        for name, known in (("words", WordWay), ("cells", CellWay)):
            if getattr(self, name) not in get_args(known):
                ways = ", ".join(get_args(known))
                raise ValueError(f"{name} are taken away by one of {ways}, not {getattr(self, name)!r}")

    def describe(self, model: VisionLanguageModel) -> dict[str, Any]:
        """What a report records, in JSON values."""
        token, text = neutral_token(model)
        return asdict(self) | {"neutral_token": {"id": token, "text": text}, "blur_radius": BLUR_RADIUS}


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of targets on variants, each array ``(n_variants, n_targets)``.

    Attributes:
        logit: the sum of the logits of the target's tokens; of a contrastive target, its lead.
        log_probability: the sum of the log-probabilities of its tokens, given those before; of a contrastive target,
            that of its token where only the two are to choose from, ``log sigmoid(lead)``.
        margin: the smallest lead of a token over the best other token, of the tokens of the target and of what
            separates it from what precedes it, at which a list may also end (of a contrastive target, its lead): below
            0, the model would write something else there.
    """

    logit: np.ndarray
    log_probability: np.ndarray
    margin: np.ndarray

    @property
    def probability(self) -> np.ndarray:
        """Of all tokens of the target together, 0 to 1."""
        return np.asarray(np.exp(self.log_probability))

    def on(self, scale: Scale) -> np.ndarray:
        """The scores on one scale."""
        return np.asarray(getattr(self, scale))


@contextmanager
def rescoring(
    model: VisionLanguageModel,
    explanations: Sequence[Explanation],
    perturbation: Perturbation | None = None,
    *,
    task: Task | None = None,
    batch_size: int = 32,
) -> Iterator[Rescorer]:
    """Within the block, variants of the input of these explanations are scored for the target of each.

    Args:
        explanations: of one meme, mode, prompt and answer; of any targets and methods.

    Raises:
        ValueError: they are not of one input, or the model does not read the same prompt as when it was explained.
        UnsupportedModelError: the model cannot be run piece by piece.
    """
    way, first = perturbation or Perturbation(), explanations[0]
    _refuse_mixed(explanations)
    prompt = prompt_of(model, first, task)
    targets = list(dict.fromkeys(map(target_of, explanations)))
    written = [with_separators(target, first) for target in targets]
    with model.lock:
        inputs = inputs_of_answer(prompt, first.prediction.generated_ids)
        with open_model(model.model, inputs, [*targets, *written], gradients=False) as opened:
            yield Rescorer(model, opened, prompt, first, targets, way, batch_size)


class Rescorer:
    """Scores variants of one input; each variant is run once only. Made by :func:`rescoring`."""

    def __init__(
        self,
        model: VisionLanguageModel,
        opened: OpenModel,
        prompt: EncodedPrompt,
        explanation: Explanation,
        targets: Sequence[Target],
        way: Perturbation,
        batch_size: int,
    ) -> None:
        self.prompt, self.opened, self._batch_size = prompt, opened, batch_size
        self._index = {target: index for index, target in enumerate(targets)}
        self._model, self._explanation, self._way = model, explanation, way
        self._scorer: VariantScorer | None = None
        self._known: dict[Variant, np.ndarray] = {}

    @property
    def n_forwards(self) -> int:
        """How many sequences were run, the unchanged one included."""
        return 1 + (0 if self._scorer is None else self._scorer.n_forwards)

    def target_index(self, explanation: Explanation) -> int:
        """Which column of the scores is that of an explanation's target."""
        return self._index[target_of(explanation)]

    def without(self, units: Iterable[Unit]) -> Variant:
        """The input without these units."""
        parts = [unit.part for unit in units]
        return Variant(
            frozenset[int]().union(*(part.tokens for part in parts)),
            frozenset[int]().union(*(part.cells for part in parts)),
        )

    def __call__(self, variants: Sequence[Variant]) -> Scores:
        """The scores of every target on every variant."""
        new = [variant for variant in dict.fromkeys(variants) if variant not in self._known]
        if new:
            self._known |= dict(zip(new, self._scorer_for(new)(new), strict=True))
        rows = np.array([self._known[variant] for variant in variants]).reshape(len(variants), -1, 3)
        return Scores(*(rows[..., column] for column in range(3)))

    def _scorer_for(self, variants: Sequence[Variant]) -> VariantScorer:
        """One scorer for all calls: its prefixes fit the words and cells of the whole explanation."""
        if self._scorer is None:
            self._scorer = VariantScorer(
                self.opened,
                [*self._changes(), *variants],
                batch_size=self._batch_size,
                baseline=self._baseline(),
                words=_CHANGE_OF[self._way.words],
                pixels=self._pixels(),
                read=lambda logits: read_scores(logits, self.opened),
            )
        return self._scorer

    def _changes(self) -> list[Variant]:
        text = [index for index, segment in enumerate(self.prompt.segments) if segment == "text"]
        variants = [Variant(frozenset({index})) for index in text]
        if self.prompt.grid is not None:
            n_cells, (rows, columns) = len(self.opened.batch.image_positions), self.prompt.grid
            variants.append(Variant(cells=frozenset({n_cells - rows * columns})))
        return variants

    def _baseline(self) -> Baseline:
        return neutral_token(self._model)[0] if self._way.words == "replace" else "mean"

    def _pixels(self) -> Tensor | None:
        if self.prompt.grid is None or self._way.cells == "mean_token":
            return None
        picture = stand_in(self._explanation.open_image(), self._way.cells)
        shown = self._model.reader.picture(picture).inputs["pixel_values"]
        # The pictures of examples come before the meme's own and stay as they are.
        before: Tensor = self.opened.batch.inputs["pixel_values"][: -len(shown)]
        return torch.cat([before.to(shown), shown])


_CHANGE_OF: Mapping[WordWay, WordChange] = {"replace": "replace", "mean": "replace", "delete": "delete", "mask": "mask"}


def with_separators(target: Target, explanation: Explanation) -> Target:
    """The target with what precedes each of its runs of tokens in the answer and holds neither letter nor digit.

    A label that is not the first of a list can also go because the list ends before it, which is decided there.
    """
    if target.kind == "contrastive":
        return target
    tokens, ids = explanation.token_table, explanation.prediction.generated_ids
    start = len(tokens.token) - len(ids)
    positions = set(target.positions)
    for first in (place for place in target.positions if place - 1 not in target.positions):
        place = first - 1
        while place >= start and not any(map(str.isalnum, tokens.token[place])):
            positions.add(place)
            place -= 1
    at = tuple(sorted(positions))
    chosen = dict(zip(target.positions, target.token_ids, strict=True))
    return Target(target.name, at, tuple(chosen.get(place, ids[place - start]) for place in at))


def read_scores(logits: Tensor, opened: OpenModel) -> Tensor:
    """Logit, log-probability and margin of every target, ``(batch, n_kept, vocab) -> (batch, 3 · n_targets)``.

    The second half of the model's targets are those of the first half :func:`with_separators`.
    """
    logits = logits.float()
    logs, best = logits.log_softmax(dim=-1), logits.topk(2, dim=-1)
    row_of = {position: row for row, position in enumerate(opened.batch.predicted)}
    columns: list[Tensor] = []
    n_targets = len(opened.targets) // 2
    for target, written in zip(opened.targets[:n_targets], opened.targets[n_targets:], strict=True):
        rows = torch.tensor([row_of[position] for position in target.positions], device=logits.device)
        own = logits[:, rows, list(target.token_ids)]
        if target.kind == "contrastive":
            lead = (own - logits[:, rows, list(target.contrast_ids)]).amin(dim=-1)
            columns += [lead, torch.nn.functional.logsigmoid(lead), lead]
            continue
        chances = logs[:, rows, list(target.token_ids)].sum(dim=-1)
        places = torch.tensor([row_of[position] for position in written.positions], device=logits.device)
        ids = torch.tensor(written.token_ids, device=logits.device)
        other = torch.where(best.indices[:, places, 0] == ids, best.values[:, places, 1], best.values[:, places, 0])
        columns += [own.sum(dim=-1), chances, (logits[:, places, ids] - other).amin(dim=-1)]
    return torch.stack(columns, dim=-1)


def prompt_of(model: VisionLanguageModel, explanation: Explanation, task: Task | None = None) -> EncodedPrompt:
    """The prompt that was explained, encoded anew.

    Raises:
        ValueError: the meme's picture is gone, or this model reads another prompt than the one that was explained.
    """
    config = explanation.config
    chosen = task or load_task(config["task"])
    style, limits = PromptStyle(**config["prompt"]), Limits.of(config)
    prompt = encode_prompt(model.processor, chosen, explanation.meme, explanation.mode, style, limits)
    tokens = explanation.token_table
    if tuple(prompt.tokens) != tokens.token[: len(prompt)] or prompt.segments != tokens.segment[: len(prompt)]:
        raise ValueError(
            f"meme {explanation.meme.id!r} makes another prompt than the one that was explained; "
            "use the model, task and version that the run was made with"
        )
    return prompt


def neutral_token(model: VisionLanguageModel) -> tuple[int, str]:
    """What stands in for every token of a replaced word: its id, and its text.

    Raises:
        ValueError: the vocabulary has none of :data:`NEUTRAL`.
    """
    for text in NEUTRAL:
        ids = model.processor.tokenizer.encode(text, add_special_tokens=False)
        if len(ids) == 1:
            return int(ids[0]), text
    raise ValueError(f"the vocabulary has no token for any of {' '.join(NEUTRAL)}; take words away by 'mask'")


def stand_in(picture: Image.Image, way: CellWay) -> Image.Image:
    """The picture whose pixels a cell shows once it is taken away: its mean colour, or the picture blurred."""
    if way == "blur":
        return picture.filter(ImageFilter.GaussianBlur(BLUR_RADIUS * max(picture.size)))
    colour = np.asarray(picture, dtype=float).reshape(-1, 3).mean(axis=0)
    return Image.new("RGB", picture.size, tuple(round(value) for value in colour))


def _refuse_mixed(explanations: Sequence[Explanation]) -> None:
    keys = {(e.meme.id, e.mode, e.prediction.generated_ids) for e in explanations}
    if len(keys) != 1:
        raise ValueError(f"explanations of {len(keys)} inputs cannot be scored together; give those of one")

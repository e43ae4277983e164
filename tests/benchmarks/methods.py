"""Explanations a second for every method on the shipped model, beside captum's and inseq's own calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

import xai
from tests.benchmarks import peers
from tests.benchmarks.harness import Record, Run, Settings, figure, paired, ratios
from xai.attribution.align import words_of
from xai.attribution.methods import get_method, methods
from xai.attribution.relevance import Relevance
from xai.attribution.targets import Target, token_offsets
from xai.choice import target_of
from xai.jobs import inputs_of_answer, word_groups
from xai.pipeline import explain_answer
from xai.planted import SAMPLES
from xai.prompts import encode_prompt
from xai.tasks import load_task

SECONDS_EACH = 20.0
N_MEMES = 8
SAME = 1e-3
LIKE_THEIRS: dict[str, dict[str, Any]] = {"integrated_gradients": {"max_steps": 32}}
"""Options without which a method does more than captum and inseq do."""


@dataclass(frozen=True)
class Case:
    """One shipped meme with the model's own answer.

    Attributes:
        inputs: prompt and answer.
        target: all labels together.
        groups: the tokens of each word.
    """

    model: xai.VisionLanguageModel
    meme: xai.Meme
    prediction: xai.Prediction
    prompt: str
    inputs: dict[str, Tensor]
    target: Target
    groups: list[list[int]]


def measure(settings: Settings) -> Iterator[Record]:
    """Explanations a second of the front door, then pairs of the same thing by this package and by another."""
    model = xai.load_model("planted", device="cpu")
    cases = _cases(model, "image+text", 3 if settings.small else N_MEMES)
    yield from _front_door(cases, settings)
    for name in (*peers.OF_TOKENS, *peers.OF_WORDS):
        yield from _beside_captum(name, cases, settings)
    yield Record("attnlrp, cplrp: captum", "none", note=peers.captum_lrp_says(_captum_score(cases[0])))
    yield Record("attention_rollout, attention_x_gradient, random: captum", "none", note="captum has no such method")
    try:
        inseq = peers.Inseq(model)
    except Exception as error:
        # Whatever keeps inseq from running here is the figure.
        yield Record("inseq", "none", note=f"{type(error).__name__}: {error}; python -m pip install inseq")
        return
    texts = _cases(model, "text", 3 if settings.small else N_MEMES)
    for name in inseq.CALLS:
        yield from _beside_inseq(name, inseq, texts, settings)


def _cases(model: xai.VisionLanguageModel, mode: Any, n: int) -> list[Case]:
    """The first ``n`` shipped memes for which the model answers a label."""
    memes = [meme for meme in xai.read_memes(SAMPLES / "memes.jsonl") if isinstance(meme, xai.Meme)]
    answered = zip(memes, xai.predict(model, memes, mode=mode), strict=True)
    labelled = [(meme, prediction) for meme, prediction in answered if prediction.label_spans]
    return [_case(model, meme, prediction) for meme, prediction in islice(labelled, n)]


def _case(model: xai.VisionLanguageModel, meme: xai.Meme, prediction: xai.Prediction) -> Case:
    prompt = encode_prompt(model.processor, load_task("ukrmeme"), meme, prediction.mode, model.style)
    (explained,) = explain_answer(model, meme, prediction, method="random", targets="all")
    return Case(
        model=model,
        meme=meme,
        prediction=prediction,
        prompt="".join(prompt.tokens),
        inputs=inputs_of_answer(prompt, prediction.generated_ids),
        target=target_of(explained),
        groups=word_groups(words_of(meme.text, meme.words), prompt),
    )


def _front_door(cases: list[Case], settings: Settings) -> Iterator[Record]:
    note = "xai.explain(model, meme): prompt, greedy answer, relevance of all labels together, words"
    seconds = paired({"explain": _over(cases, lambda case: xai.explain(case.model, case.meme))}, settings.rounds(24))
    yield figure("attnlrp with the model's answer", _rate(seconds["explain"]), "1/s", note=note)
    for method in methods():
        run = _over(cases, partial(_explain, method.name))
        seconds = paired({"ours": run}, settings.rounds(24), budget=SECONDS_EACH)
        note = f'explain_answer(model, meme, answer, method="{method.name}", targets="all"); words and picture'
        yield figure(method.name, _rate(seconds["ours"]), "1/s", note=note)


def _beside_captum(name: str, cases: list[Case], settings: Settings) -> Iterator[Record]:
    ours = _of_words if name in peers.OF_WORDS else _of_tokens
    theirs = _captum_words if name in peers.OF_WORDS else _captum_tokens
    call = "groups=words, cells=[]" if name in peers.OF_WORDS else "targets" + _given(name)
    note = f'get_method("{name}")(model, inputs, {call}) beside captum.attr.{peers.CAPTUM_CALLS[name]}'
    arms: dict[str, Run] = {"ours": _over(cases, partial(ours, name)), "captum": _over(cases, partial(theirs, name))}
    seconds = paired(arms, settings.rounds(24), budget=SECONDS_EACH)
    yield figure(f"{name}: captum / ours, time", ratios(seconds["captum"], seconds["ours"]), note=note)
    if name not in ("smooth_gradients", "integrated_gradients"):
        yield _difference(f"{name}: captum", [(ours(name, case), theirs(name, case)) for case in cases])


def _beside_inseq(name: str, inseq: peers.Inseq, cases: list[Case], settings: Settings) -> Iterator[Record]:
    method, options = inseq.CALLS[name]
    given = "".join(f", {key}={value}" for key, value in options.items())
    note = (
        f'xai.explain(…, mode="text", answer=ids, span=first token of the label, method="{name}"{_given(name)}) beside '
        f'inseq.load_model(decoder, "{method}").attribute(prompt, prompt + answer, attributed_fn="logit"{given})'
    )
    arms: dict[str, Run] = {
        "ours": _over(cases, partial(_explain_first_token, name)),
        "inseq": _over(cases, partial(_inseq_first_token, inseq, name)),
    }
    seconds = paired(arms, settings.rounds(24), budget=SECONDS_EACH)
    yield figure(f"{name}, text: inseq / ours, time", ratios(seconds["inseq"], seconds["ours"]), note=note)
    if name in ("gradient", "gradient_x_input"):
        pairs = [(_explain_first_token(name, case), _inseq_first_token(inseq, name, case)) for case in cases]
        yield _difference(f"{name}, text: inseq", pairs)


def _difference(what: str, pairs: list[tuple[np.ndarray, np.ndarray]]) -> Record:
    """The largest difference between two maps of a meme over the largest value of the map, the worst of all memes."""
    worst = max(float(np.abs(ours - theirs).max() / np.abs(theirs).max()) for ours, theirs in pairs)
    return figure(f"{what} against ours, largest relative difference", [worst], at_most=SAME)


def _over(cases: list[Case], of_case: Callable[[Case], object]) -> Run:
    """A run that takes the next case each time; arms that are built alike stay on the same case."""
    turns = cycle(cases)
    return lambda: of_case(next(turns))


def _rate(seconds: list[float]) -> list[float]:
    return [1 / one for one in seconds]


def _explain(method: str, case: Case) -> object:
    return explain_answer(case.model, case.meme, case.prediction, method=method, targets="all")


def _relevance(method: str, case: Case, **options: Any) -> Relevance:
    (result,) = get_method(method)(case.model.model, case.inputs, [case.target], **options)
    return result


def _given(method: str) -> str:
    return "".join(f", {name}={value}" for name, value in LIKE_THEIRS.get(method, {}).items())


def _of_tokens(method: str, case: Case) -> np.ndarray:
    """``(n_text_tokens,)`` before the last target; the picture's relevance comes along and is left out here."""
    return _relevance(method, case, **LIKE_THEIRS.get(method, {})).text[_text_places(case)]


def _captum_tokens(method: str, case: Case) -> np.ndarray:
    found = peers.OF_TOKENS[method](_captum_score(case))
    return found.detach().double().numpy()[_text_places(case)]


def _of_words(method: str, case: Case) -> np.ndarray:
    """``(n_words,)``."""
    text = _relevance(method, case, groups=case.groups, cells=[]).text
    return np.array([text[group].sum() for group in case.groups])


def _captum_words(method: str, case: Case) -> np.ndarray:
    places = [place for group in case.groups for place in group]
    units = torch.tensor([index for index, group in enumerate(case.groups) for _ in group])
    found = peers.OF_WORDS[method](_captum_score(case, places), units).double().numpy()
    return np.array([found[units == index][0] for index in range(len(case.groups))])


def _captum_score(case: Case, places: list[int] | None = None) -> peers.CaptumScore:
    return peers.CaptumScore(case.model.model, case.inputs, case.target, places)


def _text_places(case: Case) -> np.ndarray:
    ids = case.inputs["input_ids"][0, : max(case.target.positions)]
    return np.flatnonzero(ids.numpy() != case.model.processor.image_token_id)


def _explain_first_token(method: str, case: Case) -> np.ndarray:
    """``(n_tokens,)`` before the first token of the first label."""
    tokenizer = case.model.processor.tokenizer
    _, offsets = token_offsets(tokenizer, case.prediction.generated_ids)
    n_prompt = case.inputs["input_ids"].shape[1] - len(case.prediction.generated_ids)
    first = min(case.target.positions)
    found = xai.explain(
        case.model,
        case.meme,
        mode="text",
        method=method,
        answer=case.prediction.generated_ids,
        span=offsets[first - n_prompt],
        **LIKE_THEIRS.get(method, {}),
    )
    return np.array(found.token_table.relevance)[:first]


def _inseq_first_token(inseq: peers.Inseq, method: str, case: Case) -> np.ndarray:
    first = min(case.target.positions)
    tokenizer = case.model.processor.tokenizer
    answer = tokenizer.decode(case.prediction.generated_ids, skip_special_tokens=False)
    scores = inseq.attribute(method, case.prompt, answer, first).double()
    if scores.ndim == 1:
        return scores.numpy()
    return (scores.norm(dim=-1) if method == "gradient" else scores.sum(dim=-1)).numpy()

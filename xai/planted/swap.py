"""Makes, of a planted model, another one that differs only in which words cause two labels."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import chain

import torch

from xai.attribution.families import input_embeddings, output_embeddings
from xai.models import VisionLanguageModel, fingerprint
from xai.planted.lexicon import Vocabulary, load_lexicon
from xai.planted.truth import CauseTruth, Truth


def with_swapped_words(model: VisionLanguageModel, first: str, second: str) -> VisionLanguageModel:
    """A copy that reads and writes every trigger word of one class as its partner in the other class.

    The rows of paired words change places in the embeddings and in the output head, so that the copy is the same
    function of a text in which each word stands for its partner: on a caption it does what ``model`` does on the
    caption with these words swapped, rationale included. Nothing is trained, so nothing else can differ.

    Args:
        first, second: labels that words alone cause, e.g. ``"Doubt"`` and ``"Slogans"``.

    Raises:
        ValueError: a label is not caused by words, or a word is not one token, so that its row is not its own.
    """
    pairs = [(_token(model, one), _token(model, other)) for one, other in paired_words(first, second)]
    changed = copy.deepcopy(model.model)
    ours, theirs = (list(tokens) for tokens in zip(*chain(pairs, ((b, a) for a, b in pairs)), strict=True))
    heads = (input_embeddings(changed), output_embeddings(changed))
    # Where the head is the embeddings, there is one matrix to change and not two.
    for weight in {id(head.weight): head.weight for head in heads}.values():
        with torch.no_grad():
            weight[ours] = weight[theirs]
    name = f"{model.name}, words of {first} and {second} swapped"
    return replace(model, name=name, model=changed, fingerprint=fingerprint(changed))


def paired_words(first: str, second: str) -> list[tuple[str, str]]:
    """Trigger words of two labels in pairs: the same lexeme of the class, in the same form, in every language.

    Raises:
        ValueError: a label is not caused by words alone.
    """
    lexicon = load_lexicon()
    for label in (first, second):
        if label not in lexicon.by_kind("word"):
            known = ", ".join(lexicon.by_kind("word"))
            raise ValueError(f"label {label!r} is not caused by words alone; those that are: {known}")
    return [
        pair
        for vocabulary in lexicon.languages.values()
        for pair in zip(_words_of(vocabulary, first), _words_of(vocabulary, second), strict=True)
    ]


def swapped_truth(truth: Truth, first: str, second: str) -> Truth:
    """What is true of a meme for the changed model, where both labels hold: each is caused by the other's words."""
    words = {cause.label: cause.words for cause in truth.causes}
    other = {first: second, second: first}

    def swapped(cause: CauseTruth) -> CauseTruth:
        return cause.model_copy(update={"words": words.get(other.get(cause.label, cause.label), ())})

    return truth.model_copy(update={"causes": tuple(map(swapped, truth.causes))})


def _words_of(vocabulary: Vocabulary, label: str) -> list[str]:
    group = load_lexicon().labels[label].words or ""
    return [form for forms in vocabulary.triggers[group] for form in forms]


def _token(model: VisionLanguageModel, word: str) -> int:
    ids = model.processor.tokenizer.encode(word, add_special_tokens=False)
    if len(ids) != 1:
        raise ValueError(f"{word!r} is {len(ids)} tokens to {model.name!r}; its meaning cannot be swapped by its row")
    return int(ids[0])

"""How far the phrases of a rationale are those of gold: sentence BLEU and ROUGE-L of the phrases joined to one text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
import regex

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
_STEMMED_FROM = 4
"""Letters that a word needs to be stemmed, as in the rouge-score package."""


class Similarity(Protocol):
    """A model that says how alike two texts are: :class:`xai.bertscore.BertScore`."""

    @property
    def source(self) -> str:
        """Which model, and what else the figures depend on."""
        ...

    def __call__(self, gold: Sequence[str], predicted: Sequence[str]) -> np.ndarray:
        """Of every pair, ``(n,)``, 0 to 1."""
        ...


def joined(phrases: Iterable[str]) -> str:
    """Phrases as one text: in their order, one space between them and between their words.

    Nothing else stands between two phrases, since a comma would be a token that any two lists of phrases share.
    """
    return " ".join(word for phrase in phrases for word in phrase.split())


def bleu(gold: str, predicted: str) -> float:
    """Sentence BLEU up to 4-grams with smoothing method 1, 0 to 1 (Papineni et al., 2002; Chen and Cherry, 2014).

    Tokens are runs of letters and digits, and runs of other marks, in lower case. An n-gram precision of 0 counts as
    0.1 over its number of n-grams, and as 0.1 where a text has too few tokens for any: a text of 3 tokens scores
    ``(1 · 1 · 1 · 0.1) ** (1 / 4) = 0.562`` against itself. 0 where no word is shared.
    """
    from nltk.tokenize import wordpunct_tokenize
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    reference, answer = wordpunct_tokenize(gold.lower()), wordpunct_tokenize(predicted.lower())
    if not reference or not answer:
        return 0.0
    return float(sentence_bleu([reference], answer, smoothing_function=SmoothingFunction().method1))


def rouge_l(gold: str, predicted: str) -> float:
    """F of ROUGE-L (Lin, 2004) of stemmed words, 0 to 1: 2·LCS / (words of gold + words of the prediction).

    LCS is the length of the longest common subsequence. Words are runs of letters and digits in lower case, those of 4
    letters and more cut by Porter's stemmer. On English text this is what the rouge-score package gives, which drops
    every letter that is not a-z.
    """
    reference, answer = _stems(gold), _stems(predicted)
    n = len(reference) + len(answer)
    return 2 * _common_subsequence(reference, answer) / n if n else 0.0


def _stems(text: str) -> list[str]:
    return [_stem(word) if len(word) >= _STEMMED_FROM else word for word in _WORD.findall(text.lower())]


@cache
def _stem(word: str) -> str:
    return str(_stemmer().stem(word))


@cache
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest one, by a row of the table at a time."""
    row = [0] * (len(second) + 1)
    for one in first:
        before = 0
        for place, other in enumerate(second, start=1):
            before, row[place] = row[place], before + 1 if one == other else max(row[place], row[place - 1])
    return row[-1]

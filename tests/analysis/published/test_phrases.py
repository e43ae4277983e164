"""Rationale phrases are joined in their order, and their BLEU and ROUGE-L are those of the formula and of libraries."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from xai.analysis.published.phrases import bleu, joined, rouge_l

WORDS = ["praise", "praises", "praising", "the", "old", "bridge", "bridges", "rivers", "at", "noon", "a1"]
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
long_texts = st.lists(st.sampled_from(WORDS), min_size=4, max_size=9).map(" ".join)


def by_the_formula(gold: str, predicted: str) -> float:
    """BLEU as Papineni et al. define it, with 0.1 for a count of 0 and no fewer than 1 n-gram below the line."""
    reference, answer = gold.split(), predicted.split()
    if not set(reference) & set(answer):
        return 0.0
    logs = []
    for n in (1, 2, 3, 4):
        have, want = (Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1)) for text in (answer, reference))
        shared = sum(min(count, want[gram]) for gram, count in have.items())
        logs.append(math.log((shared or 0.1) / max(1, sum(have.values()))))
    brevity = min(1.0, math.exp(1 - len(reference) / len(answer)))
    return brevity * math.exp(sum(logs) / 4)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("bridges", (1 * 0.1 * 0.1 * 0.1) ** 0.25),
        ("praise bridges", (1 * 1 * 0.1 * 0.1) ** 0.25),
        ("praise old bridges", (1 * 1 * 1 * 0.1) ** 0.25),
        ("praise the old bridges", 1.0),
    ],
)
def test_a_text_without_four_tokens_does_not_reach_1_against_itself(text: str, value: float) -> None:
    assert bleu(text, text) == pytest.approx(value)
    assert rouge_l(text, text) == 1


@settings(max_examples=300, deadline=None)
@given(texts, texts)
def test_bleu_is_that_of_the_formula(gold: str, predicted: str) -> None:
    assert bleu(gold, predicted) == pytest.approx(by_the_formula(gold, predicted), abs=1e-12)


@settings(max_examples=300, deadline=None)
@given(texts, long_texts)
def test_bleu_of_four_tokens_and_more_is_that_of_sacrebleu(gold: str, predicted: str) -> None:
    found = sacrebleu.sentence_bleu(
        predicted, [gold], smooth_method="floor", smooth_value=0.1, tokenize="none", use_effective_order=False
    )
    shares_a_word = bool(set(gold.split()) & set(predicted.split()))
    # sacrebleu smooths also where not one word is shared, where NLTK has 0.
    assert bleu(gold, predicted) == pytest.approx(found.score / 100 if shares_a_word else 0.0, abs=1e-9)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abeginrs ,-'A1", max_size=40), st.text(alphabet="abeginrs ,-'A1", max_size=40))
def test_rouge_l_of_english_is_that_of_rouge_score(gold: str, predicted: str) -> None:
    found = RougeScorer(["rougeL"], use_stemmer=True).score(gold, predicted)["rougeL"].fmeasure
    assert rouge_l(gold, predicted) == pytest.approx(found, abs=1e-12)


@given(texts, texts)
def test_rouge_l_of_words_that_have_stems_is_that_of_rouge_score(gold: str, predicted: str) -> None:
    found = RougeScorer(["rougeL"], use_stemmer=True).score(gold, predicted)["rougeL"].fmeasure
    assert rouge_l(gold, predicted) == pytest.approx(found, abs=1e-12)


def test_rouge_l_by_hand() -> None:
    # Longest common subsequence: "prais", "bridg"; 3 and 4 words.
    assert rouge_l("praise old bridges", "he praises one bridge") == pytest.approx(2 * 2 / (3 + 4))
    assert rouge_l("bridges praise", "praise bridges") == pytest.approx(2 * 1 / 4)


def test_words_of_every_script_count() -> None:
    assert rouge_l("хвалить міст", "хвалить річку") == pytest.approx(0.5)
    assert bleu("赞美 桥 和 河", "赞美 桥 和 河") == 1
    assert rouge_l("يمدح الجسر", "يمدح الجسر") == 1


def test_phrases_are_joined_in_their_order_with_a_space_and_nothing_else() -> None:
    assert joined(["praise  bridges", " ", "name\nrivers "]) == "praise bridges name rivers"
    assert joined([]) == ""
    # One phrase of four words and two phrases of two are the same text, and the order of phrases counts.
    assert bleu(joined(["praise old", "bridges here"]), joined(["praise old bridges here"])) == 1
    swapped = bleu(joined(["praise old", "bridges here"]), joined(["bridges here", "praise old"]))
    assert swapped == pytest.approx((1 * 2 / 3 * 0.1 / 2 * 0.1) ** 0.25)


def test_case_does_not_count_and_an_empty_side_scores_0() -> None:
    assert bleu("Praise the Old bridges", "praise the old bridges") == 1
    assert [bleu("", "a b"), bleu("a b", ""), rouge_l("", ""), rouge_l("a", "")] == [0, 0, 0, 0]


def test_gold_against_itself_is_far_from_1_where_phrases_are_short() -> None:
    """The effect that published figures have, on phrases of our own."""
    rationales = [["praise bridges"], ["name rivers"], ["praise old bridges"], ["name rivers", "praise bridges"]]
    found = np.mean([bleu(joined(one), joined(one)) for one in rationales])
    assert found == pytest.approx((2 * 0.01**0.25 + 0.1**0.25 + 1) / 4)
    assert round(100 * found, 1) == 54.9

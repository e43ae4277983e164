"""What is scored again is the quantity that was explained, on inputs without the units that are taken away."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from xai.analysis.faithfulness.rescoring import Perturbation, neutral_token, rescoring, stand_in, with_separators
from xai.analysis.faithfulness.units import Unit, named_units, ranked, unit_values, units_of
from xai.attribution.perturb import Variant
from xai.attribution.relevance import target_values
from xai.choice import target_of
from xai.jobs import inputs_of_answer
from xai.models import VisionLanguageModel
from xai.pipeline import explain_answer, predict
from xai.planted.truth import planted_memes
from xai.schema import Explanation, Meme, Mode

WAYS = [Perturbation(words, cells) for words, cells in (("replace", "mean_token"), ("delete", "blur"))]


@pytest.fixture(scope="module")
def meme() -> Meme:
    """One with two labels, one of a word and one of an icon."""
    return planted_memes(1, 900_001)[0]


@pytest.fixture(scope="module")
def explained(model: VisionLanguageModel, meme: Meme) -> list[Explanation]:
    torch.set_num_threads(1)
    (answer,) = predict(model, [meme], mode="image+text")
    return explain_answer(model, meme, answer)


def explain(model: VisionLanguageModel, meme: Meme, mode: Mode = "text", **options: object) -> list[Explanation]:
    return explain_answer(model, meme, predict(model, [meme], mode=mode)[0], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["logit", "log_probability", "contrastive"])
def test_the_score_on_the_input_as_it_is_is_the_value_that_was_explained(
    kind: str, model: VisionLanguageModel, meme: Meme
) -> None:
    found = explain(model, meme, "image+text", target_kind=kind)
    with rescoring(model, found) as scorer:
        scores = scorer([Variant()])
        for explanation in found:
            name = "log_probability" if kind == "log_probability" else "logit"
            value = scores.on(name)[0, scorer.target_index(explanation)]  # type: ignore[arg-type]
            assert value == pytest.approx(explanation.target_value, rel=1e-5, abs=1e-6)


def test_a_contrastive_target_is_scored_against_the_stored_alternative(model: VisionLanguageModel, meme: Meme) -> None:
    (found,) = [e for e in explain(model, meme, target_kind="contrastive") if e.target == "Loaded Language"]
    with rescoring(model, [found]) as scorer:
        words = units_of(found, "words")
        without = scorer([scorer.without(words)])
        assert without.probability[0, 0] == pytest.approx(1 / (1 + np.exp(-without.logit[0, 0])))
        assert without.margin[0, 0] == without.logit[0, 0] < found.target_value


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_batches_prefixes_and_repetition_change_no_score(
    way: Perturbation, model: VisionLanguageModel, explained: list[Explanation]
) -> None:
    units = units_of(explained[0])
    chosen = [units[:1], units[-1:], units[2:9], units[5:20], units]
    with rescoring(model, explained, way, batch_size=2) as scorer:
        variants = [scorer.without(part) for part in chosen]
        found, again = scorer(variants), scorer(variants[::-1])
        assert scorer.n_forwards == 1 + len(variants)
    np.testing.assert_array_equal(found.logit, again.logit[::-1])
    for index, variant in enumerate(variants):
        with rescoring(model, explained, way) as alone:
            np.testing.assert_allclose(alone([variant]).logit[0], found.logit[index], rtol=1e-4, atol=1e-4)


def test_replacing_puts_one_neutral_token_in_the_place_of_each_token(
    model: VisionLanguageModel, explained: list[Explanation]
) -> None:
    word = units_of(explained[0], "words")[0]
    with rescoring(model, explained) as scorer:
        found = scorer([word.part]).logit[0]
        inputs = inputs_of_answer(scorer.prompt, explained[0].prediction.generated_ids)
    ids = inputs["input_ids"].clone()
    ids[0, sorted(word.part.tokens)] = neutral_token(model)[0]
    expected = target_values(model.model, inputs | {"input_ids": ids}, [target_of(e) for e in explained])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_picture_is_kept_with_all_its_placeholders_however_much_of_it_is_taken_away(
    model: VisionLanguageModel, explained: list[Explanation]
) -> None:
    cells = units_of(explained[0], "cells")
    assert len(cells) == explained[0].image.size  # type: ignore[union-attr]
    assert all(not unit.part.tokens for unit in cells)
    for way in ("mean_token", "mean_colour", "blur"):
        with rescoring(model, explained, Perturbation("delete", way)) as scorer:  # type: ignore[arg-type]
            assert np.isfinite(scorer([scorer.without(cells)]).logit).all()


def test_words_that_share_a_token_are_one_unit_and_every_unit_has_its_relevance(
    explained: list[Explanation],
) -> None:
    explanation = explained[1]
    units = units_of(explanation)
    tokens = [token for unit in units for token in unit.part.tokens]
    assert len(tokens) == len(set(tokens))
    values = unit_values(units, explanation)
    assert values.sum() == pytest.approx(sum(explanation.word_table.relevance) + explanation.image.sum())  # type: ignore[union-attr]
    assert units[ranked(values)[0]].cell is not None  # Smears is caused by an icon


def test_the_rationale_names_words_by_their_normal_form_only() -> None:
    caption, spans = "Not a Lie, lie 这不是", [(0, 3), (4, 5), (6, 9), (11, 14), (15, 16), (16, 17), (17, 18)]
    units = [Unit(caption[a:b], Variant(frozenset({i})), (i,), ((a, b),)) for i, (a, b) in enumerate(spans)]
    assert named_units(units, ["LIE"], caption) == (2, 3)
    assert named_units(units, ["not a"], caption) == (0, 1)
    assert named_units(units, ["不是"], caption) == (5, 6)
    assert named_units(units, ["是不"], caption) == ()
    assert named_units(units, ["liar", "…"], caption) == ()


def test_a_cell_that_is_taken_away_shows_the_mean_colour_or_the_blurred_picture(meme: Meme) -> None:
    picture = meme.open_image()
    plain = np.asarray(stand_in(picture, "mean_colour"))
    assert plain.shape == np.asarray(picture).shape
    np.testing.assert_allclose(plain[0, 0], np.asarray(picture).reshape(-1, 3).mean(axis=0), atol=0.5)
    blurred = np.asarray(stand_in(picture, "blur"), dtype=float)
    assert blurred.std() < np.asarray(picture, dtype=float).std()


def test_a_label_counts_as_gone_where_the_list_ends_before_it(
    model: VisionLanguageModel, explained: list[Explanation]
) -> None:
    first, second = explained[1:]
    tokens = first.token_table.token
    text = ["".join(tokens[place] for place in with_separators(target_of(one), one).positions) for one in explained[1:]]
    assert text == ['":["Smears', '","Loaded Language']
    assert [one.target for one in (first, second)] == ["Smears", "Loaded Language"]
    contrastive = target_of(explain(model, explained[0].meme, target_kind="contrastive")[0])
    assert with_separators(contrastive, first) == contrastive


def test_another_prompt_than_the_one_that_was_explained_is_refused(
    model: VisionLanguageModel, explained: list[Explanation]
) -> None:
    other = explained[0].model_copy(update={"meme": explained[0].meme.model_copy(update={"text": "another text"})})
    with pytest.raises(ValueError, match="another prompt than the one that was explained"), rescoring(model, [other]):
        pass


def test_explanations_of_two_inputs_are_refused(model: VisionLanguageModel, explained: list[Explanation]) -> None:
    other = explained[1].model_copy(update={"mode": "text"})
    with pytest.raises(ValueError, match="explanations of 2 inputs"), rescoring(model, [explained[0], other]):
        pass


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="one of replace, mean, delete, mask, not 'drop'"):
        Perturbation("drop")  # type: ignore[arg-type]


def test_there_are_no_cells_in_mode_text_and_no_words_in_mode_image(model: VisionLanguageModel, meme: Meme) -> None:
    (text,), (image,) = explain(model, meme, "text", targets="all"), explain(model, meme, "image", targets="all")
    assert all(unit.cell is None for unit in units_of(text))
    assert all(unit.cell is not None for unit in units_of(image))

"""BERTScore is the greedy matching of its authors, of a folder that is read without running code."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from xai.analysis.report import Report
from xai.bertscore import load_bertscore, pair_f1
from xai.schema import Meme, Prediction
from xai.store import RunWriter

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "praise", "name", "old", "bridges", "rivers"]
GOLD = ["praise old bridges", "name rivers", "praise", "old rivers name bridges"]
OTHER = ["praise bridges", "name rivers", "", "rivers"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of random weights and two layers, with its tokenizer."""
    path = tmp_path_factory.mktemp("encoder")
    tokens = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokens.normalizer, tokens.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    tokens.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokens, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    ).save_pretrained(path)
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    BertModel(config).save_pretrained(path)
    return path


def test_f_of_two_texts_by_hand() -> None:
    gold, other = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[3.0, 4.0]])
    # Cosines of the one token are 0.6 and 0.8: precision 0.8, recall 0.7.
    assert pair_f1(gold, np.array([True, True]), other, np.array([True])) == pytest.approx(2 * 0.8 * 0.7 / 1.5)
    # The first token of gold does not count for recall, and is still what the other is nearest to.
    turned = np.array([[4.0, 3.0]])
    found = pair_f1(gold, np.array([False, True]), turned, np.array([True]))
    assert found == pytest.approx(2 * 0.8 * 0.6 / 1.4)


def test_a_text_has_1_against_itself_and_0_without_tokens(folder: Path) -> None:
    score = load_bertscore(folder)
    assert score(GOLD, GOLD) == pytest.approx(np.ones(4), abs=1e-6)
    assert score(GOLD, OTHER)[2] == 0


def test_scores_are_those_of_loops_over_the_vectors_of_the_model(folder: Path) -> None:
    """Worked out anew, one text at a time, from the encoder itself."""
    score = load_bertscore(folder, layer=1)
    model = BertModel.from_pretrained(folder).eval()

    def vectors(text: str) -> list[torch.Tensor]:
        ids = torch.tensor([[1, *(WORDS.index(word) for word in text.split()), 2]])
        with torch.no_grad():
            return list(model(ids, output_hidden_states=True).hidden_states[1][0])

    def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
        return float(torch.nn.functional.cosine_similarity(one, other, dim=0))

    def mean_best(of: list[torch.Tensor], among: list[torch.Tensor]) -> float:
        return float(np.mean([max(cosine(one, other) for other in among) for one in of[1:-1]]))

    expected = []
    for gold, other in zip(GOLD, OTHER, strict=True):
        x, y = vectors(gold), vectors(other)
        precision, recall = (mean_best(y, x), mean_best(x, y)) if other else (0.0, 0.0)
        expected.append(2 * precision * recall / (precision + recall) if other else 0.0)
    assert score(GOLD, OTHER) == pytest.approx(expected, abs=1e-6)


def test_a_batch_changes_nothing(folder: Path) -> None:
    score = load_bertscore(folder)
    alone = [float(score([gold], [other])[0]) for gold, other in zip(GOLD, OTHER, strict=True)]
    assert score(GOLD, OTHER) == pytest.approx(alone, abs=1e-6)
    assert replace(score, batch_size=3)(GOLD, OTHER) == pytest.approx(alone, abs=1e-6)


def test_the_source_names_model_layer_and_type(folder: Path) -> None:
    assert load_bertscore(folder, dtype="bfloat16").source == f"{folder.name}, layer 2, bfloat16, not rescaled"


def test_a_layer_that_is_not_there_and_a_folder_without_a_model_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 2 layers, and no layer 3"):
        load_bertscore(folder, layer=3)
    with pytest.raises(ValueError, match=r"is no folder of a model \(no config.json\)"):
        load_bertscore(tmp_path)


def test_a_pickle_is_not_read(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pickle"):
        load_bertscore(tmp_path)


def test_as_many_texts_are_needed_on_both_sides(folder: Path) -> None:
    with pytest.raises(ValueError, match="2 gold texts and 1 others"):
        load_bertscore(folder)(["a", "b"], ["a"])


def run_of(path: Path, phrases: list[str]) -> Path:
    """A run of M³ that answers hate with one phrase a meme, gold being `GOLD`."""
    with RunWriter(path, {"task": "m3"}) as writer:
        for number, (gold, phrase) in enumerate(zip(GOLD, phrases, strict=True)):
            answer = Prediction(
                meme_id=f"m{number}", mode="image+text", generated_ids=(1,), text="", labels=("Hate",),
                reasons=(phrase,),
            )  # fmt: skip
            meme = Meme(id=f"m{number}", labels=("Hate",), metadata={"rationale": [gold]})
            writer.add(answer, meme=meme)
    return path


def xai_score(*arguments: str | Path, code: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xai.cli", "score", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False)
    assert result.returncode == code, result.stderr
    return result


def test_the_command_scores_rationales_of_several_runs_with_an_encoder(folder: Path, tmp_path: Path) -> None:
    run, right, empty = (
        run_of(tmp_path / name, phrases) for name, phrases in (("run", OTHER), ("right", GOLD), ("empty", [""] * 4))
    )
    options = ("--bert-score", folder, "--bert-layer", "1", "--device", "cpu")
    printed = xai_score(run, "--against", right, "--against", empty, *options, "--json", code=0).stdout
    report = Report.model_validate(json.loads(printed))
    found = report.table("m3_metrics").frame.set_index("run")["bertscore"]
    assert found.to_dict() == pytest.approx(
        {"run": load_bertscore(folder, layer=1)(GOLD, OTHER).mean(), "right": 1, "empty": 0}, abs=1e-6
    )
    overall = report.table("m3_overall").frame.set_index("run")
    # All answer hate alike, so that the phrase metrics alone tell the runs apart.
    assert overall["n_metrics"].tolist() == [3, 3, 3]
    assert overall["overall"][["right", "empty"]].tolist() == [100, 0]
    (section,) = [section for section in report.sections if section.title == "M³: scores as published"]
    assert f"BERTScore is F of {folder.name}, layer 1, float32, not rescaled" in section.text


def test_the_command_says_what_to_do_where_there_is_no_encoder(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", OTHER)
    result = xai_score(run, "--bert-layer", "1", code=2)
    assert "are of an encoder; name it with --bert-score" in " ".join(result.stderr.split())
    result = xai_score(run, "--bert-score", tmp_path, code=2)
    assert "is no folder of a model (no config.json); give that of an encoder" in " ".join(result.stderr.split())

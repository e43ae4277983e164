"""The command line as a user meets it: real processes, exit codes, JSON, one line that says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import xai
from xai.analysis.report import Report, read_report
from xai.planted.truth import write_planted


def run_xai(*arguments: str | Path, check: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xai.cli", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False)
    if check is not None:
        assert result.returncode == check, result.stderr
    return result


@pytest.fixture(scope="module")
def samples_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped samples, explained in two modes."""
    out = tmp_path_factory.mktemp("cli") / "run"
    run_xai("explain", "samples", "--out", out, "--mode", "text", "--mode", "image+text", check=0)
    return out


def test_help_and_import_load_no_torch() -> None:
    probe = (
        "import sys, xai, xai.cli\n"
        "sys.argv = ['xai', '--help']\n"
        "try:\n    xai.cli.main()\nexcept SystemExit:\n    pass\n"
        "print('loaded:', sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'transformers', 'pandas'}))"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "explain" in result.stdout
    assert "loaded: []" in result.stdout


def test_200_memes_with_a_broken_picture_give_199_explanations_one_failure_and_exit_code_1(tmp_path: Path) -> None:
    write_planted(tmp_path / "data", 200, 11)
    (tmp_path / "data" / "images" / "planted-11-56.png").write_bytes(b"\x89PNG broken")
    arguments = ("explain", tmp_path / "data", "--out", tmp_path / "run", "--targets", "all", "--json")
    result = run_xai(*arguments, "--batch-size", "16", check=1)
    printed = json.loads(result.stdout)
    assert (printed["explained"], printed["failed"]) == (199, 1)
    (failure,) = printed["failures"]
    assert failure["meme_id"] == "planted-11-56"
    assert failure["stage"] == "read"
    assert "cannot be decoded" in failure["reason"]
    run = xai.open_run(tmp_path / "run")
    assert len(run.explanations().df()) == 199
    again = run_xai(*arguments, "--batch-size", "16", check=0)
    assert json.loads(again.stdout)["resumed"] == 200


def test_score_and_analyze_print_what_they_write(samples_run: Path) -> None:
    score = json.loads(run_xai("score", samples_run, "--json", check=0).stdout)
    written = read_report(samples_run / "reports" / "score.json")
    assert written == Report.model_validate(score)
    by_mode = written.table("by_mode").frame
    assert by_mode["mode"].tolist() == ["text", "image+text"]
    assert by_mode["micro_f1"][1] >= 0.9
    assert written.table("calibration").frame["confidence"].tolist() == ["sequence", "sequence"]
    analysis = json.loads(run_xai("analyze", samples_run, "--json", check=0).stdout)
    assert analysis == json.loads((samples_run / "reports" / "analyze.json").read_text(encoding="utf-8"))
    assert "NaN" not in json.dumps(analysis)
    found = read_report(samples_run / "reports" / "analyze.json").table("planted_rationales").frame
    means = found.set_index(["mode", "rationale"])["jaccard"]
    tagged = read_report(samples_run / "reports" / "analyze.json").table("categories").frame
    assert set(tagged["group"]) >= {"shared", "rationale only"}
    for mode in ("text", "image+text"):
        assert means[mode, "all labels word-caused and faithful"] >= 0.9
        assert means[mode, "all labels unfaithful"] <= 0.1


def test_analyze_takes_several_runs_and_keeps_the_memes_of_each(samples_run: Path, tmp_path: Path) -> None:
    other = tmp_path / "b" / samples_run.name
    run_xai("explain", "samples", "--out", other, "--mode", "text", "--limit", "3", "--targets", "all", check=0)
    printed = run_xai("analyze", samples_run, other, "--out", tmp_path / "both", check=0).stdout
    assert "Overlap of the two sets of words" in printed
    table = read_report(tmp_path / "both" / "analyze.json").table("counts").frame
    names = ["/".join(path.parts[-2:]) for path in (samples_run, other)]
    assert table.set_index(["run", "mode"])["memes"].to_dict() == {
        (names[0], "text"): 24, (names[0], "image+text"): 24, (names[1], "text"): 3,
    }  # fmt: skip
    memes = pq.read_table(other / "reports" / "agreement.parquet")
    assert memes.num_rows == 3
    assert {"meme_id", "mode", "method", "language", "relevance_words", "rationale_words"} <= set(memes.column_names)


def test_show_in_the_terminal_and_as_files(samples_run: Path, tmp_path: Path) -> None:
    shown = run_xai("show", samples_run, "sample-01", "--mode", "image+text", check=0).stdout
    assert "sample-01" in shown
    assert "shares" in shown
    png, html = tmp_path / "a.png", tmp_path / "a.html"
    run_xai("show", samples_run, "sample-01", "--mode", "text", "--png", png, "--html", html, check=0)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("explain", "nothing.jsonl", "--out", "x"), "does not exist"),
        (("explain", "samples", "--out", "x", "--model", "no/such-model"), "give 'planted', a folder"),
        (("explain", "samples", "--out", "x", "--method", "magic"), "attnlrp"),
        (("explain", "samples", "--out", "x", "--option", "depht=pixels"), "attnlrp takes depth (tokens or pixels)"),
        (("explain", "samples", "--out", "x", "--option", "vision_rule=gamma", "--model", "none"), "depth='pixels'"),
        (("explain", "samples", "--out", "x", "--task", "magic"), "ukrmeme"),
        (("explain", "samples", "--out", "x", "--language", "xx"), "en"),
        (("explain", "samples", "--out", "x", "--against", "Smears"), "contrastive"),
        (("explain", "samples", "--out", "x", "--target-kind", "contrastive", "--targets", "all"), "have no sum"),
        (("explain", "samples", "--out", "x", "--answers", "nothing.jsonl"), "cannot be read"),
        (("doctor", "no/such-model"), "give 'planted', a folder"),
        (("explain", "samples"), "--out"),
        (("score", "nothing"), "nothing"),
        (("show", "nothing", "id"), "nothing"),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_wrong_arguments_end_with_2_and_say_what_to_do(
    arguments: tuple[str, ...], remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_xai(*arguments, check=2)
    assert remedy in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "x").exists()


def test_options_of_the_method_are_typed_stored_and_not_mixed(tmp_path: Path) -> None:
    explain = ("explain", "samples", "--out", tmp_path / "run", "--limit", "1", "--targets", "all")
    options = ("--option", "depth=pixels", "--option", "vision_rule=gamma", "--option", 'gamma={"linear": 0.5}')
    run_xai(*explain, *options, check=0)
    run = xai.open_run(tmp_path / "run")
    assert run.config["options"] == {
        "depth": "pixels",
        "vision_rule": "gamma",
        "gamma": {"linear": 0.5},
        "without_sinks": False,
        "sink_positions": [],
    }
    e = run.explanation("sample-01")
    assert e.pixels is not None
    assert e.settings["gamma"] == {"linear": 0.5, "conv": 0.0}
    shown = run_xai("show", tmp_path / "run", "sample-01", check=0).stdout
    assert "attnlrp (depth pixels, vision rule gamma, gamma 0.5 for linear and 0 for conv)" in shown
    assert "one square a patch" in shown
    refused = run_xai(*explain, *options[:-1], 'gamma={"linear": 0.6}', check=2).stderr
    assert "differing: options.gamma.linear" in refused
    run_xai(*explain, *options, "--option", "without_sinks=false", check=0)


def test_tokens_that_the_model_would_not_choose_are_counted(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    text = json.dumps({"labels": ["Smears"], "referred_words": [], "referred_image_concepts": []})
    answers.write_text(json.dumps({"id": "sample-01", "text": text}) + "\n", encoding="utf-8")
    explain = ("explain", "samples", "--out", tmp_path / "run", "--limit", "1", "--answers", answers)
    assert "2 explanations are of tokens that the model" in run_xai(*explain, check=0).stdout
    assert json.loads(run_xai(*explain, "--json", check=0).stdout)["target_choice_changed"] == 2
    shown = run_xai("show", tmp_path / "run", "sample-01", check=0).stdout
    assert "the model, as it explains, would choose another" in shown


def test_limits_are_options_and_a_cut_text_is_counted_and_shown(tmp_path: Path) -> None:
    explain = ("explain", "samples", "--out", tmp_path / "run", "--limit", "1", "--max-characters", "30")
    assert "1 text was too long and cut" in run_xai(*explain, check=0).stdout
    assert json.loads(run_xai(*explain, "--json", check=0).stdout)["text_cut"] == 1
    assert xai.open_run(tmp_path / "run").config["limits"]["max_characters"] == 30
    e = xai.open_run(tmp_path / "run").explanation("sample-01")
    assert len(e.meme.text) <= 30
    shown = run_xai("show", tmp_path / "run", "sample-01", check=0).stdout
    assert f"the last {e.quality.characters_cut} characters of the text" in shown
    assert "differing: limits.max_characters" in run_xai(*explain[:-1], "31", check=2).stderr
    refused = run_xai(*explain[:3], tmp_path / "other", *explain[4:], "--long-text", "refuse", check=1).stdout
    assert "shorten it, raise" in " ".join(refused.split())
    for option in ("--max-pixels", "--max-tokens"):
        failed = run_xai(*explain[:3], tmp_path / option, "--limit", "1", option, "10", "--json", check=1)
        assert "and there is room for 10" in failed.stdout or "more than 10 pixels" in failed.stdout


def test_a_meme_cannot_command_the_terminal(tmp_path: Path) -> None:
    name, text = "\x1b]0;owned\x07", "slow\x1b[31m"
    words = [{"text": text, "start": 0, "end": len(text)}]
    dataset = tmp_path / "memes.jsonl"
    dataset.write_text(json.dumps({"id": name, "text": text, "words": words}) + "\n{}\n", encoding="utf-8")
    run_xai("explain", dataset, "--out", tmp_path / "run", "--mode", "text", check=1)
    for shown in (run_xai("show", tmp_path / "run", check=0), run_xai("show", tmp_path / "run", name, check=0)):
        assert "\x1b" not in shown.stdout
        assert "\x07" not in shown.stdout
        assert "\\x1b]0;owned" in shown.stdout


def test_an_unknown_meme_is_named_with_what_there_is(samples_run: Path) -> None:
    result = run_xai("show", samples_run, "nobody", check=2)
    assert "nobody" in result.stderr


def test_registries_print_as_tables_and_as_json() -> None:
    methods = {row["name"]: row for row in json.loads(run_xai("methods", "--json", check=0).stdout)}
    assert {"attnlrp", "cplrp", "gradient_x_input", "random"} <= methods.keys()
    assert (methods["attention_rollout"]["needs"], methods["attention_rollout"]["sign"]) == (
        "attention weights",
        "unsigned",
    )
    assert {"name": "n_samples", "values": "int, 1 or more", "default": 25} in methods["shapley"]["options"]
    assert methods["gradient"]["options"] == []
    assert "n_samples" in run_xai("methods", check=0).stdout
    assert methods["occlusion"]["baseline"] != methods["attnlrp"]["baseline"] == "none"
    assert all(row["source"] for row in methods.values())
    families = {row["name"]: row for row in json.loads(run_xai("models", "--json", check=0).stdout)}
    assert families["Qwen3-VL"]["deepstack"]
    assert families["Qwen3-VL"]["reads"] == "text, pictures"
    assert "gated MLP: Qwen3VLTextMLP" in families["Qwen3-VL"]["rules"]
    assert families["Llama"]["reads"] == "text"
    assert "ukrmeme" in run_xai("tasks", check=0).stdout
    assert "qwen3_vl" in run_xai("models", check=0).stdout


def test_doctor_prints_versions_and_devices_and_the_check_of_a_model() -> None:
    environment = json.loads(run_xai("doctor", "--json", check=0).stdout)
    assert environment.keys() == {"versions", "devices", "ocr"}
    printed = run_xai("doctor", "planted", "--device", "cpu", check=0).stdout
    for expected in ("transformers", "tesseract", "Qwen3VLTextMLP", "gated MLP", "conservation", "holds"):
        assert expected in printed
    assert "FAILS" not in printed


def test_doctor_ends_with_2_for_a_model_that_cannot_be_explained(tmp_path: Path) -> None:
    import transformers

    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, **heads)).save_pretrained(tmp_path)
    result = run_xai("doctor", tmp_path, "--json", check=2)
    assert json.loads(result.stdout)["model"]["can_be_explained"] is False
    assert "no attribution rules for model type 'mistral'" in result.stderr
    assert "Traceback" not in result.stderr


def test_leads_of_answers_from_elsewhere(samples_run: Path, tmp_path: Path) -> None:
    labels = next(
        row for row in xai.open_run(samples_run).predictions().df().to_dict("records") if row["mode"] == "text"
    )
    answers = tmp_path / "answers.jsonl"
    answers.write_text(json.dumps({"id": labels["meme_id"], "text": labels["answer"]}) + "\n", encoding="utf-8")
    chosen = ("--target-kind", "contrastive", "--against", "Smears", "--answers", answers, "--limit", "1")
    run_xai("explain", "samples", "--mode", "text", "--out", tmp_path / "run", *chosen, check=0)
    stored = xai.open_run(tmp_path / "run").explanations().df()
    assert stored["target"].tolist() == list(labels["labels"])
    assert {tuple(contrast) for contrast in stored["contrast"]} == {("Smears",)}
    shown = run_xai("show", tmp_path / "run", labels["meme_id"], "--target", stored["target"][0], check=0).stdout
    assert f"{stored['target'][0]} rather than Smears" in shown
    assert "given from outside, re-tokenised" in shown
    assert "no explanation of all labels together" in run_xai("analyze", tmp_path / "run", check=2).stderr


def test_planted_writes_the_same_dataset_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run_xai("planted", tmp_path / name, "--n", "3", "--seed", "4", check=0)
    first, second = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("a", "b")
    )
    assert first == second
    assert len(first) == 4

"""The harness measures what it says; its rows are no tests, and no test waits for a full one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .harness import MIB, PACKAGE, ROOT, exponent, figure, line, paired, ratios


def test_a_figure_is_the_median_with_quartiles_and_keeps_to_its_bar_or_not() -> None:
    found = figure("time", [5.0, 1.0, 2.0, 4.0, 3.0], "s", at_most=3.0)
    assert (found.value, found.spread, len(found.runs), found.wanted, found.held) == (3.0, (2.0, 4.0), 5, "≤ 3", True)
    assert figure("time", [3.1], at_most=3.0).held is False
    assert figure("gain", [3.1], at_least=3.0).held is True
    assert figure("time", [3.1]).held is None


def test_arms_run_in_turn_and_the_first_turn_is_not_counted() -> None:
    order: list[str] = []
    seconds = paired({name: (lambda name=name: order.append(name)) for name in "ab"}, rounds=3)
    assert "".join(order) == "ab" * 4
    assert [len(seconds[name]) for name in "ab"] == [3, 3]


def test_a_spent_budget_ends_after_three_rounds() -> None:
    assert len(paired({"a": lambda: None}, rounds=9, budget=0.0)["a"]) == 3


def test_ratios_are_taken_pair_by_pair() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]


def test_fits_find_what_made_the_figures() -> None:
    xs = [1.0, 2.0, 4.0, 8.0]
    assert line(xs, [3.0 + 0.5 * x for x in xs]) == pytest.approx((3.0, 0.5, 1.0))
    assert line(xs, [1.0, 0.0, 1.0, 0.0])[2] < 0.5
    assert exponent(xs, [7.0 * x**1.5 for x in xs]) == pytest.approx(1.5)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a peak cannot be forgotten, so loading counts as well")
def test_a_peak_is_of_the_run_and_not_of_what_was_freed_before() -> None:
    code = (
        f"from {PACKAGE}.harness import report_peak\n"
        f"bytearray(b'x' * {300 * MIB})\n"
        f"report_peak(lambda: bytearray(b'x' * {100 * MIB}) and None)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    peak = json.loads(result.stdout)
    # The literal and its copy.
    assert (peak["peak"] - peak["loaded"]) / MIB == pytest.approx(200, abs=10)


def test_an_interrupted_run_keeps_what_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    options = ["--small", "--threads", "1", "--row", "occlusion", "--row", "speed", "--out", str(out)]
    command = [sys.executable, "-m", PACKAGE, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True) as run:
        assert run.stdout is not None
        for printed in run.stdout:
            if printed.startswith("speed"):
                os.killpg(run.pid, signal.SIGINT)
    assert run.returncode == 130
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["occlusion"]["complete"]
    assert not found.get("speed", {}).get("records")
    assert found["occlusion"]["environment"]["threads"] == 1
    assert found["occlusion"]["environment"]["versions"]["torch"]
    difference = found["occlusion"]["records"][-1]
    assert (difference["held"], difference["wanted"]) == (True, "≤ 0.0001")

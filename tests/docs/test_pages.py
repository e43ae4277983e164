"""The examples of the documentation run as they stand on the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def code_of(page: str) -> str:
    """All Python of a page, in its order, with each line where it stands there."""
    text = (DOCS / page).read_text(encoding="utf-8")
    lines = [""] * text.count("\n")
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        for offset, line in enumerate(block[1].splitlines()):
            lines[first + offset] = line
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("adding-a-family.md", ["no attribution rules for model type 'mistral'", "MistralMLP", "double precision"]),
        ("adding-a-method.md", ["only_this ['forwards'] signed What one word or cell gives", "relevance"]),
        ("adding-an-ocr-engine.md", ["['TOTAL', 'REVENUE', '12']"]),
        ("adding-a-task.md", ["- Other", "is not a valid task: labels", "('Food: cheap',)"]),
        ("categories.md", ["['Rhetoric', 'Entity', 'Other', 'Emotional']"]),
        ("annotation.md", ["aligned ('Hate', 'Race') 3 of 3 agree on Hate"]),
        ("annotators.md", ["'match': 0.667", "'exact match': 0.333"]),
        ("iron-meme.md", ["label='Voter: hero'"]),
        ("published-scores.md", ["two    90.909", "gold against itself: 0.549"]),
        ("scores.md", ["Ad Hominem", "Smears   Doubt"]),
        ("ground-truth.md", ["words 1.0 cause"]),
        ("faithfulness.md", ["rumour goes first"]),
        ("few-shot.md", ["['tram', 'bus']", "brightness rises to the right"]),
    ],
)
def test_the_code_of_a_page_runs(page: str, printed: list[str], tmp_path: Path) -> None:
    script = tmp_path / page.replace(".md", ".py").replace("-", "_")
    script.write_text(code_of(page), encoding="utf-8")
    # In a process of its own: the pages add to the registries.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, encoding="utf-8", check=False, env=environment
    )
    assert result.returncode == 0, result.stderr
    for expected in printed:
        assert expected in result.stdout


@pytest.mark.parametrize(
    "page",
    [
        "adding-a-family.md",
        "adding-a-method.md",
        "adding-a-task.md",
        "adding-an-ocr-engine.md",
        "annotation.md",
        "annotators.md",
        "categories.md",
        "iron-meme.md",
        "published-scores.md",
    ],
)
def test_a_page_is_in_the_navigation_and_has_code(page: str) -> None:
    assert page in (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert code_of(page).count("assert ") >= 3

"""Notebooks run from top to bottom, and ship with the outputs that they give."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_says_what_its_shipped_outputs_say(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Streamlit, which another test may have loaded, chooses a backend for all that is started after it.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    shipped = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    NotebookClient(fresh, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    for before, after in zip(shipped.cells, fresh.cells, strict=True):
        if before.cell_type == "code" and not _is_skipped(after):
            assert _kinds(before) == _kinds(after), before.source
    assert any(_kinds(cell) for cell in shipped.cells if cell.cell_type == "code")


def _is_skipped(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell says, instead of its output, which font or OCR language is not installed here."""
    return any(out.output_type == "stream" and out.text.startswith("skipped: ") for out in cell.outputs)


def _kinds(cell: nbformat.NotebookNode) -> set[str]:
    """The media types that a cell shows; progress bars on standard error do not count."""
    shown = (out for out in cell.outputs if not (out.output_type == "stream" and out.name == "stderr"))
    return {kind for out in shown for kind in (out.get("data") or {"stream": ""})}

"""The notebook on the published tables does not need the published annotations to run."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "04_published_tables.ipynb"


def test_without_the_annotations_it_says_what_to_do_and_shows_the_printed_figures(tmp_path: Path) -> None:
    elsewhere = tmp_path / "project" / "notebooks"
    elsewhere.mkdir(parents=True)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(elsewhere)}}).execute()
    first, table, *_ = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "put annotators.csv" in first.outputs[0].text
    assert "match 0.764 NaN NaN" in " ".join(table.outputs[0].data["text/plain"].split())

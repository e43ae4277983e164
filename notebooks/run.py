"""Runs the notebooks and keeps their outputs, without what they print on standard error (progress bars, warnings)."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main() -> None:
    """Run every notebook of this folder in place."""
    for path in sorted(Path(__file__).parent.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
        for cell in notebook.cells:
            cell.metadata.clear()
            if cell.cell_type == "code":
                cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
        nbformat.write(notebook, path)
        print(f"ran {path.name}")


if __name__ == "__main__":
    main()

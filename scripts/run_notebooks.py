"""Runs the notebooks of the docs and keeps what they show.

python scripts/run_notebooks.py docs/notebooks/*.ipynb
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from carso.storage.files import replacing

PATIENCE = 900
"""Seconds for one cell."""


def executed(path: Path, folder: Path) -> NotebookNode:
    """A notebook with the outputs that its cells have now, run in `folder`."""
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(
        notebook, timeout=PATIENCE, kernel_name="python3", resources=place, record_timing=False,
        coalesce_streams=True,
    ).execute()  # fmt: skip
    notebook.metadata["ran"] = code_hash(notebook)
    return notebook


def code_hash(notebook: NotebookNode) -> str:
    """Of the code alone: outputs that are kept with it are outputs of this code."""
    code = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", type=Path, nargs="+")
    for path in parser.parse_args().notebooks:
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
        with replacing(path) as written:
            nbformat.write(notebook, written)
        print(path)


if __name__ == "__main__":
    main()

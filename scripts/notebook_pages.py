"""A notebook with its outputs as a page of Markdown and the pictures that it shows."""

from __future__ import annotations

import base64
from pathlib import Path

import nbformat
from nbformat import NotebookNode


def as_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook, and its pictures by the names that the page gives them."""
    notebook = nbformat.read(path, as_version=4)
    blocks, pictures = [], {}
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            blocks.append(cell.source)
            continue
        blocks.append(fenced(cell.source, "python"))
        for output in cell.outputs:
            picture = output.get("data", {}).get("image/png")
            if picture:
                name = f"{path.stem}-{number}.png"
                pictures[name] = base64.b64decode(picture)
                blocks.append(f"![What the code above draws.]({name})")
            else:
                blocks.append(fenced(words(output).rstrip(), "text"))
    blocks.append(f"[The notebook itself]({path.name}), with these outputs.")
    return "\n\n".join(blocks) + "\n", pictures


def words(output: NotebookNode) -> str:
    """What a cell printed, or the value it ended with."""
    if output.output_type == "stream":
        return str(output.text)
    return str(output.data["text/plain"])


def fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"

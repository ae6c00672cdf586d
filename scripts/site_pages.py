"""A hook of mkdocs: the pages of the site that are written elsewhere, and links that leave it."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath
from typing import Any

from mkdocs.structure.files import File, Files
from notebook_pages import as_page

import carso

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """README becomes the first page, the public names a page of their docstrings, and each
    notebook a page with what it showed."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    start = readme.replace("](docs/", "](").replace('src="docs/', 'src="')
    names = "\n\n".join(f"::: carso.{name}" for name in carso.__all__)
    api = f"# API reference\n\nThe public names, from their docstrings.\n\n{names}\n"
    pages: dict[str, str | bytes] = {"index.md": start, "api.md": api}
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        text, pictures = as_page(notebook)
        pages[f"notebooks/{notebook.stem}.md"] = text
        pages |= {f"notebooks/{name}": picture for name, picture in pictures.items()}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to the source, which the site has not, become plain words; links to a notebook lead to
    its page."""
    own = Path(page.file.src_uri)

    def kept(match: re.Match[str]) -> str:
        words, target = match.groups()
        path = target.partition("#")[0]
        if not path or re.match(r"[a-z]+:", target):
            return match[0]
        if files.get_file_from_path(normpath(own.parent / path)) is None:
            return words
        if path == own.with_suffix(".ipynb").name:  # a notebook's page offers the notebook
            return match[0]
        return match[0].replace(".ipynb)", ".md)")

    return LINK.sub(kept, markdown)

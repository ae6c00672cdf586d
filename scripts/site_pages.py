"""A hook of mkdocs: the pages of the site that are written elsewhere, and links that leave it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import carso

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """README becomes the first page, and the public names a page of their docstrings."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    start = readme.replace("](docs/", "](").replace('src="docs/', 'src="')
    names = "\n\n".join(f"::: carso.{name}" for name in carso.__all__)
    api = f"# API reference\n\nThe public names, from their docstrings.\n\n{names}\n"
    for path, text in {"index.md": start, "api.md": api}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to the source, which the site has not, become plain words."""
    folder = Path(page.file.src_uri).parent

    def kept(match: re.Match[str]) -> str:
        words, target = match.groups()
        path = target.partition("#")[0]
        if not path or re.match(r"[a-z]+:", target):
            return match[0]
        inside = (ROOT / "docs" / folder / path).resolve()
        known = files.get_file_from_path(str((folder / path).as_posix()))
        return match[0] if known is not None and inside else words

    return LINK.sub(kept, markdown)

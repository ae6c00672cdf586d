"""What people look at: figures, tables and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carso.evaluation import record as records
from carso.report import record_tables
from carso.report.table_formats import as_latex, as_markdown, as_text
from carso.storage import files


def write_page(found: Sequence[dict[str, Any]], path: Path) -> None:
    """The HTML page of records."""
    from carso.report.html import page

    files.write_text(path, page(found))


def write_report(paths: Sequence[Path], folder: Path) -> tuple[list[str], list[Path]]:
    """The lines for the terminal, and the files written into `folder`."""
    written = rendered_files(paths, folder)
    for path, text in written.items():
        files.write_text(path, text)
    return terminal([records.read(path) for path in paths]), list(written)


def rendered_files(paths: Sequence[Path], folder: Path) -> dict[Path, str]:
    """The page and the tables of records, as the files in `folder` that they belong into."""
    from carso.report.html import page

    found = [records.read(path) for path in paths]
    return {
        folder / "index.html": page(found),
        folder / "tables.md": markdown(found) + "\n",
        folder / "tables.tex": latex(found) + "\n",
    }


def heading(record: dict[str, Any]) -> str:
    return f"{record_tables.title(record)}: {record['suite']['name']}"


def terminal(found: Sequence[dict[str, Any]]) -> list[str]:
    """The tables of records as lines of text."""
    lines: list[str] = []
    if len(found) > 1:
        lines += [*as_text(record_tables.summary(found)), ""]
    for record in found:
        lines += [heading(record), record["verdict"], ""]
        lines += [*as_text(record_tables.attacks(record)), ""]
        lines += [*as_text(record_tables.diagnostics(record)), ""]
    return lines


def markdown(found: Sequence[dict[str, Any]]) -> str:
    """The tables of records in Markdown."""
    sections = [as_markdown(record_tables.summary(found))] if len(found) > 1 else []
    for record in found:
        sections += [f"## {heading(record)}", record["verdict"]]
        sections += [
            as_markdown(make(record)) for make in (record_tables.attacks, record_tables.diagnostics)
        ]
    return "\n\n".join(sections)


def latex(found: Sequence[dict[str, Any]]) -> str:
    """The tables of records in LaTeX (package booktabs)."""
    tables = [as_latex(record_tables.summary(found), "All records")] if len(found) > 1 else []
    tables += [as_latex(record_tables.attacks(record), heading(record)) for record in found]
    return "\n\n".join(tables)

"""What people look at: figures, tables and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carso import files
from carso.evaluation import record as records
from carso.report import tables


def write_page(found: Sequence[dict[str, Any]], path: Path) -> None:
    """The HTML page of records."""
    from carso.report.html import page

    files.write_text(path, page(found))


def write_report(paths: Sequence[Path], folder: Path) -> tuple[list[str], list[Path]]:
    """The lines for the terminal, and the files written into `folder`."""
    found = [records.read(path) for path in paths]
    lines: list[str] = []
    markdown, latex = [], []
    if len(found) > 1:
        table = tables.summary(found)
        lines += [*tables.as_text(table), ""]
        markdown.append(tables.as_markdown(table))
        latex.append(tables.as_latex(table, "All records"))
    for record in found:
        heading = f"{tables.title(record)}: {record['suite']['name']}"
        table = tables.attacks(record)
        lines += [heading, record["verdict"], "", *tables.as_text(table), ""]
        lines += [*tables.as_text(tables.diagnostics(record)), ""]
        markdown += [
            f"## {heading}",
            record["verdict"],
            tables.as_markdown(table),
            tables.as_markdown(tables.diagnostics(record)),
        ]
        latex.append(tables.as_latex(table, heading))
    written = [folder / name for name in ("index.html", "tables.md", "tables.tex")]
    write_page(found, written[0])
    files.write_text(written[1], "\n\n".join(markdown) + "\n")
    files.write_text(written[2], "\n\n".join(latex) + "\n")
    return lines, written

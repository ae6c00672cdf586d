"""`carso report`: tables and a page of records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    records: Annotated[list[Path], typer.Argument(help="Records that `carso evaluate` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for page and tables.")] = Path("report"),
) -> None:
    """Make tables (text, Markdown, LaTeX) and one self-contained HTML page of records."""
    from carso.report.write import write_report

    found, written = write_report(records, out)
    print("\n".join(found))
    for path in written:
        print(f"wrote {path}")

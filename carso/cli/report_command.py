"""`carso report`: tables and a page of records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from carso.cli.before_work import check_files, check_places
from carso.cli.options import JsonOption


def report(
    records: Annotated[list[Path], typer.Argument(help="Records that `carso evaluate` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for page and tables.")] = Path("report"),
    as_json: JsonOption = False,
) -> None:
    """Make tables (text, Markdown, LaTeX) and one self-contained HTML page of records."""
    check_files("", records)
    check_places(folders=[out])
    from carso.report.write import figures, write_report

    found, written = write_report(records, out)
    if as_json:
        figured = [figures(path) for path in records]
        files = [str(path) for path in written]
        print(json.dumps({"written": files, "records": figured, "tables": found}, indent=1))
        return
    print("\n".join(found))
    for path in written:
        print(f"wrote {path}")

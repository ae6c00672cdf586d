"""What people look at: figures, tables and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carso.certification.certificate_record import read_certificates
from carso.errors import CarsoError
from carso.evaluation import record as records
from carso.report import certificates, record_tables
from carso.report.certificates import certificate_table, certificate_title, is_certificate
from carso.report.table_formats import Table, as_latex, as_markdown, as_text
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
    return terminal(read_all(paths)), list(written)


def rendered_files(paths: Sequence[Path], folder: Path) -> dict[Path, str]:
    """The page and the tables of records, as the files in `folder` that they belong into."""
    from carso.report.html import page

    found = read_all(paths)
    try:
        return {
            folder / "index.html": page(found),
            folder / "tables.md": markdown(found) + "\n",
            folder / "tables.tex": latex(found) + "\n",
        }
    except CarsoError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        which = ", ".join(map(str, paths))
        raise CarsoError(f"{which}: damaged, or of another version of carso ({error!r})") from error


def read_all(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Records; certificates that would have the same title have the names of their files too."""
    found = [read_any(path) for path in paths]
    titles = [certificate_title(one) if is_certificate(one) else "" for one in found]
    for record, path, title in zip(found, paths, titles, strict=True):
        if title and titles.count(title) > 1:
            record["title"] = f"{title} ({path.stem})"
    return found


def read_any(path: Path) -> dict[str, Any]:
    """A record of `carso evaluate` or of `carso certify`, each checked by its own reader."""
    found = files.read_json(path)
    if isinstance(found, dict) and is_certificate(found):
        return read_certificates(path)
    return records.read(path)


def figures(path: Path) -> dict[str, Any]:
    """What a script would read of a record: who was measured, on what, and the numbers."""
    record = read_any(path)
    found = {"record": str(path), "data": record["data"], "accuracy": record["accuracy"]}
    if is_certificate(record):
        return {**found, "evaluated": certificate_title(record), "smoothing": record["smoothing"]}
    return {
        **found,
        "evaluated": record_tables.title(record),
        "suite": record["suite"]["name"],
        "threat": {"norm": record_tables.norm(record), "eps": record["threat"]["eps"]},
        "unreliable": record["unreliable"],
        "reasons": record["reasons"],
    }


def heading(record: dict[str, Any]) -> str:
    return f"{record_tables.title(record)}: {record['suite']['name']}"


def apart(found: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Table]]:
    """The evaluations, and the table of the certificates if there are any."""
    certified = [record for record in found if is_certificate(record)]
    evaluated = [record for record in found if not is_certificate(record)]
    return evaluated, [certificate_table(certified)] if certified else []


def tables_of(record: dict[str, Any]) -> list[Table]:
    """The tables of one record: attacks, tries where they were counted, diagnostics."""
    tries = record_tables.tries(record)
    own = [tries] if tries else []
    return [record_tables.attacks(record), *own, record_tables.diagnostics(record)]


def terminal(found: Sequence[dict[str, Any]]) -> list[str]:
    """The tables of records as lines of text."""
    lines: list[str] = []
    evaluated, certified = apart(found)
    if len(evaluated) > 1:
        lines += [*as_text(record_tables.summary(evaluated)), ""]
    for record in evaluated:
        lines += [heading(record), record["verdict"], ""]
        for table in tables_of(record):
            lines += [*as_text(table), ""]
    for table in certified:
        lines += [certificates.CAPTION, *as_text(table), ""]
    return lines


def markdown(found: Sequence[dict[str, Any]]) -> str:
    """The tables of records in Markdown."""
    evaluated, certified = apart(found)
    sections = [as_markdown(record_tables.summary(evaluated))] if len(evaluated) > 1 else []
    for record in evaluated:
        sections += [f"## {heading(record)}", record["verdict"]]
        sections += map(as_markdown, tables_of(record))
    for table in certified:
        sections += [f"## {certificates.CAPTION}", as_markdown(table)]
    return "\n\n".join(sections)


def latex(found: Sequence[dict[str, Any]]) -> str:
    """The tables of records in LaTeX (package booktabs)."""
    evaluated, certified = apart(found)
    several = len(evaluated) > 1
    tables = [as_latex(record_tables.summary(evaluated), "All records")] if several else []
    tables += [as_latex(record_tables.attacks(record), heading(record)) for record in evaluated]
    tables += [as_latex(table, certificates.CAPTION) for table in certified]
    return "\n\n".join(tables)

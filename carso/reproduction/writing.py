"""A reproduced table on paper: text, Markdown, LaTeX."""

from __future__ import annotations

from pathlib import Path

from carso.report.table_formats import as_latex, as_markdown, as_text
from carso.reproduction.sheet import Reproduced
from carso.storage import files


def as_lines(made: Reproduced) -> list[str]:
    """For the terminal."""
    notes = [note.replace("`", "") for note in made.notes]
    return ["", f"{made.name}: {made.title}", "", *as_text(made.table), "", *notes]


def as_page(made: Reproduced) -> str:
    """Markdown: a heading, the table, and what its cells rest on."""
    notes = "\n".join(f"- {note}" for note in made.notes)
    return f"## {made.name}\n\n{made.title}.\n\n{as_markdown(made.table)}\n\n{notes}\n"


def write(folder: Path, made: Reproduced) -> None:
    """The table in `folder`, in both languages."""
    files.write_text(folder / f"{made.name}.md", as_page(made))
    caption = f"{made.title}. " + " ".join(note.replace("`", "") for note in made.notes)
    files.write_text(folder / f"{made.name}.tex", as_latex(made.table, caption) + "\n")

"""The numbers that the paper's result tables print, to hold measured ones against."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from carso.errors import CarsoError

FILE = Path(__file__).with_suffix(".toml")

Value = float | str


@dataclass(frozen=True, slots=True)
class PaperColumn:
    """What one column of a table holds."""

    key: str
    heading: str
    unit: str
    """"accuracy" (a fraction), "minutes", "eps" or "text"."""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of the paper, its rows and columns in the paper's order."""

    name: str
    label: str
    """Of the table in the paper's LaTeX source."""
    title: str
    columns: tuple[PaperColumn, ...]
    rows: tuple[Mapping[str, Value], ...]
    """By the keys of the columns; a cell that the paper leaves empty has no key."""


def load() -> dict[str, PublishedTable]:
    """Every table, by name."""
    return {
        name: PublishedTable(
            name=name,
            label=entry["label"],
            title=entry["title"],
            columns=tuple(PaperColumn(**column) for column in entry["columns"]),
            rows=tuple(entry["rows"]),
        )
        for name, entry in tomllib.loads(FILE.read_text(encoding="utf-8")).items()
    }


def table(name: str) -> PublishedTable:
    """The table called `name`."""
    tables = load()
    if name not in tables:
        raise CarsoError(f"there is no published table {name!r}; there are {', '.join(tables)}")
    return tables[name]


def value(name: str, row: Mapping[str, str], column: str) -> Value | None:
    """One cell of the table `name`, or None if the paper leaves it empty.

    `row` picks the row by as many of its cells as tell it from the others: {"scenario": "a"}.
    """
    found = table(name)
    keys = [known.key for known in found.columns]
    for key in (*row, column):
        if key not in keys:
            raise CarsoError(
                f"the published table {name!r} has no column {key!r}; it has {', '.join(keys)}"
            )
    matching = [r for r in found.rows if all(r.get(k) == v for k, v in row.items())]
    if len(matching) != 1:
        raise CarsoError(
            f"{len(matching)} rows of the published table {name!r} match {dict(row)}; one must"
        )
    return matching[0].get(column)

"""A table of the paper with rows of our own above the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from carso import published
from carso.columns import Row, Table
from carso.published import Column, Value
from carso.report.tables import interval
from carso.reproduction.workshop import Missing, Record, Subject, Workshop

ADAPTIVE = Column("adaptive", "Adaptive, worst case", "accuracy")
"""The column that the paper does not have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduced:
    """A finished table, and what its cells rest on."""

    name: str
    title: str
    table: Table
    notes: tuple[str, ...]


class Sheet:
    """A table in the making; what a cell needs is made when it is written."""

    def __init__(
        self,
        shop: Workshop,
        name: str,
        *,
        without: tuple[str, ...] = (),
        extra: tuple[Column, ...] = (ADAPTIVE,),
    ) -> None:
        self.shop, self.published = shop, published.table(name)
        self.columns = [*(c for c in self.published.columns if c.key not in without), *extra]
        self.rows: list[Row] = []
        self.notes: dict[str, None] = {}
        self.missing: dict[str, None] = {}

    def row(self, who: str, **cells: str | Callable[[], str]) -> None:
        """A row of our own; a cell that cannot be made here says so, and why stands below."""
        made = {}
        for key, cell in cells.items():
            try:
                made[key] = cell if isinstance(cell, str) else cell()
            except Missing as error:
                made[key] = "not run"
                self.missing.setdefault(str(error))
        self.rows.append((who, *(made.get(column.key, "") for column in self.columns)))

    def clean(self, subject: Subject, measurement: str) -> Callable[[], str]:
        """The accuracy without attack."""
        return lambda: f"{self.record(subject, measurement)['accuracy']['clean']['value']:.3f}"

    def worst(self, subject: Subject, measurement: str) -> Callable[[], str]:
        """The accuracy under attack; marked where the diagnostics object."""

        def cell() -> str:
            record = self.record(subject, measurement)
            mark = " (!)" if record["unreliable"] else ""
            return interval(record["accuracy"]["worst"]) + mark

        return cell

    def record(self, subject: Subject, measurement: str) -> Record:
        record = self.shop.record(subject, measurement)
        attacks = record["suite"]["name"]
        self.note(
            f"`{subject.name}-{measurement}`: {attacks}, {record['data']['count']} test images of "
            f"{record['data']['set']}, eps = {record['threat']['eps']:.4g}, seed {record['seed']}."
        )
        return record

    def note(self, text: str) -> None:
        self.notes.setdefault(text)

    def finished(self) -> Reproduced:
        """Our rows, then the paper's."""
        header = ("", *(column.heading for column in self.columns))
        theirs = [
            ("the paper", *(printed(row.get(column.key), column) for column in self.columns))
            for row in self.published.rows
        ]
        if any("(!)" in cell for row in self.rows for cell in row):
            self.note("(!) The diagnostics of the record say why the number cannot be trusted.")
        if self.missing:
            self.note(f"Not run: {'; '.join(self.missing)}.")
        return Reproduced(
            name=self.published.name,
            title=self.published.title,
            table=(header, [*self.rows, *theirs]),
            notes=tuple(self.notes),
        )


def printed(value: Value | None, column: Column) -> str:
    """A cell of the paper's, as it stands there."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:.4f}" if column.unit == "accuracy" else f"{value:g}"

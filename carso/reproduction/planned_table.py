"""A table of the paper as data: which record or time each cell of ours rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from carso.reproduction import published
from carso.reproduction.plan import MeasuredDefence, PlannedRecord
from carso.reproduction.published import PaperColumn

ADAPTIVE = PaperColumn("adaptive", "Adaptive, worst case", "accuracy")
"""The column that the paper does not have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCell:
    """An accuracy of a record: "clean", or "worst" under attack."""

    record: PlannedRecord
    share: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeCell:
    """Minutes of a stage of a run, or, without a stage, the hardware that it was trained with."""

    run: str
    stage: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRow:
    """A row of ours, by the keys of the columns."""

    who: str
    texts: Mapping[str, str]
    measured: Mapping[str, MeasuredCell] = field(default_factory=dict)
    timed: Mapping[str, TimeCell] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedTable:
    """A table of the paper, with rows of ours."""

    name: str
    title: str
    columns: tuple[PaperColumn, ...]
    rows: tuple[PlannedRow, ...]
    theirs: tuple[Mapping[str, published.Value], ...]
    """The paper's rows."""
    notes: tuple[str, ...] = ()

    def records(self) -> list[PlannedRecord]:
        """All that the cells rest on, in the order of the cells."""
        cells = (cell for row in self.rows for cell in row.measured.values())
        return list(dict.fromkeys(cell.record for cell in cells))

    def timed_runs(self) -> list[str]:
        """The runs whose times it shows."""
        return list(dict.fromkeys(cell.run for row in self.rows for cell in row.timed.values()))


def clean(defence: MeasuredDefence, measurement: str) -> MeasuredCell:
    """The accuracy without attack, on the images of a measurement."""
    record = PlannedRecord(defence=defence, measurement=measurement)
    return MeasuredCell(record=record, share="clean")


def worst(defence: MeasuredDefence, measurement: str) -> MeasuredCell:
    """The accuracy under attack."""
    record = PlannedRecord(defence=defence, measurement=measurement)
    return MeasuredCell(record=record, share="worst")


def planned(
    name: str,
    rows: list[PlannedRow],
    *notes: str,
    without: tuple[str, ...] = (),
    extra: tuple[PaperColumn, ...] = (ADAPTIVE,),
) -> PlannedTable:
    """The table `name` with our rows, `without` some of the paper's columns, and with `extra`."""
    theirs = published.table(name)
    kept = (column for column in theirs.columns if column.key not in without)
    return PlannedTable(
        name=name,
        title=theirs.title,
        columns=(*kept, *extra),
        rows=tuple(rows),
        theirs=theirs.rows,
        notes=notes,
    )

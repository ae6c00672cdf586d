"""A table of the paper with rows of our own above the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from carso.evaluation.record import FEW
from carso.evaluation.statistics import Proportion, share
from carso.report.record_tables import outcomes
from carso.report.table_formats import Row, Table
from carso.reproduction import published
from carso.reproduction.published import PaperColumn, Value
from carso.reproduction.workshop import MeasuredDefence, Missing, Record, Workshop

ADAPTIVE = PaperColumn("adaptive", "Adaptive, worst case", "accuracy")
"""The column that the paper does not have."""


SHARES = ("clean", "worst")
RELEASED = ("randaa-released",)
CELLS = (
    "Under attack: the accuracy with its 95 % interval, of that without attack on the same images, "
    "and their number."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a table takes of a record."""

    record: Record
    count: int
    clean: Proportion
    worst: Proportion


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
        extra: tuple[PaperColumn, ...] = (ADAPTIVE,),
    ) -> None:
        self.shop, self.published = shop, published.table(name)
        self.columns = [*(c for c in self.published.columns if c.key not in without), *extra]
        self.rows: list[Row] = []
        self.notes: dict[str, None] = {}
        self.records: dict[str, None] = {}
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

    def clean(self, subject: MeasuredDefence, measurement: str) -> Callable[[], str]:
        """The accuracy without attack."""
        return lambda: f"{self.found(subject, measurement).clean.value:.3f}"

    def worst(self, subject: MeasuredDefence, measurement: str) -> Callable[[], str]:
        """The accuracy under attack, beside that without on the same images, and their number;
        marked where the diagnostics object."""

        def cell() -> str:
            found = self.found(subject, measurement)
            self.note(CELLS)
            if found.count < FEW:
                self.note(
                    f"Of fewer than {FEW} images the diagnostics can hardly object: that a cell of "
                    "so few has no mark means little."
                )
            own = found.record["subject"].get("aggregation") == "double-exponential"
            if self.shop.scale.measurements[measurement].attacks == RELEASED and not own:
                self.note(
                    "On a defence without the double exponential, as the hardened are, randAA "
                    "attacks the log-odds that the released code would compute of its logits."
                )
            mark = " (!)" if found.record["unreliable"] else ""
            return f"{found.worst} of {found.clean.value:.3f}, n = {found.count}{mark}"

        return cell

    def found(self, subject: MeasuredDefence, measurement: str) -> Found:
        """The record of a measurement; where it has more images than a suite is asked for here,
        the first of them, so that a table compares the same images."""
        record = self.shop.record(subject, measurement)
        count = record["data"]["count"]
        if self.shop.scale.measurements[measurement].suite:
            count = min(count, self.shop.wanted(subject, measurement).images)
        of = "" if count == record["data"]["count"] else f"the first {count} of "
        name = self.shop.path(subject, measurement).stem
        self.records.setdefault(
            f"`{name}`: {settings(record['subject'])}{record['suite']['name']}, {of}"
            f"{record['data']['count']} test images of {record['data']['set']}, "
            f"eps = {record['threat']['eps']:.4g}, seed {record['seed']}."
        )
        clean, worst = (share(outcomes(record, f"{key}_right")[:count]) for key in SHARES)
        return Found(record=record, count=count, clean=clean, worst=worst)

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
            self.note("(!) Only an upper bound: the diagnostics of the record say why.")
        if self.missing:
            self.note(f"Not run: {'; '.join(self.missing)}.")
        return Reproduced(
            name=self.published.name,
            title=self.published.title,
            table=(header, [*self.rows, *theirs]),
            notes=(*self.notes, *self.records),
        )


def printed(value: Value | None, column: PaperColumn) -> str:
    """A cell of the paper's, as it stands there."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:.4f}" if column.unit == "accuracy" else f"{value:g}"


def settings(subject: Record) -> str:
    """How candidates become the defence's answer; nothing for a classifier alone."""
    if subject["kind"] == "classifier":
        return ""
    anchor = f" with weight {subject['anchor']:g}" if subject.get("anchor") else ""
    return f"{subject['aggregation']}{anchor}, N = {subject['samples']}; "

"""Tables from records that are there; a missing one is a cell that says so. Nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from carso.evaluation.record import FEW
from carso.evaluation.statistics import share
from carso.report.record_tables import outcomes
from carso.report.table_formats import Row, Table, as_latex, as_markdown, as_text
from carso.reproduction.plan import PlannedRecord
from carso.reproduction.planned_table import MeasuredCell, PlannedRow, PlannedTable, TimeCell
from carso.reproduction.published import PaperColumn, Value
from carso.reproduction.results_folder import Record, ResultsFolder
from carso.storage import files

NOT_RUN = "not run"
MARK = "(!)"
RELEASED = ("randaa-released",)
CELLS = (
    "Under attack: the accuracy with its 95 % interval, of that without attack on the same images, "
    "and their number."
)
OF_FEW = (
    f"Of fewer than {FEW} images the diagnostics can hardly object: that a cell of so few has no "
    "mark means little."
)
OTHER_LOG_ODDS = (
    "On a defence without the double exponential, as the hardened are, randAA attacks the log-odds "
    "that the released code would compute of its logits."
)
NO_BANK = (
    "Over: the making of the attacked images, before the first epoch, was not timed for this run."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedTable:
    """A finished table, and what its cells rest on."""

    name: str
    title: str
    table: Table
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRenderer:
    """Writes the cells of one table, and gathers what stands below it."""

    results: ResultsFolder
    reasons: Mapping[Path, str]
    """Why a run or a record could not be made, by its path."""
    notes: dict[str, None] = field(default_factory=dict)
    records: dict[str, None] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)

    def row(self, row: PlannedRow, columns: tuple[PaperColumn, ...]) -> Row:
        """A row of ours."""
        cells = dict(row.texts)
        cells |= {key: self.accuracy(cell) for key, cell in row.measured.items()}
        cells |= {key: self.time(cell) for key, cell in row.timed.items()}
        return (row.who, *(cells.get(column.key, "") for column in columns))

    def accuracy(self, cell: MeasuredCell) -> str:
        """The accuracy without attack; or that under attack, beside that without on the same
        images, and their number, marked where the diagnostics object."""
        record = self.results.record(cell.record)
        path = self.results.record_path(cell.record)
        if record is None:
            return self.not_run(path, f"the record {path.name}")
        count = self.count(cell.record, record)
        self.records.setdefault(about(path.stem, record, count))
        clean = share(outcomes(record, "clean_right")[:count])
        if cell.share == "clean":
            return f"{clean.value:.3f}"
        self.notes.setdefault(CELLS)
        if count < FEW:
            self.notes.setdefault(OF_FEW)
        measurement = self.results.scale.measurement(cell.record)
        own = record["subject"].get("aggregation") == "double-exponential"
        if measurement.attacks == RELEASED and not own:
            self.notes.setdefault(OTHER_LOG_ODDS)
        worst = share(outcomes(record, "worst_right")[:count])
        mark = f" {MARK}" if record["unreliable"] else ""
        return f"{worst} of {clean.value:.3f}, n = {count}{mark}"

    def count(self, wanted: PlannedRecord, record: Record) -> int:
        """How many images of a record count: where it has more than a suite is asked for here, the
        first of them, so that a table compares the same images."""
        there, measurement = int(record["data"]["count"]), self.results.scale.measurement(wanted)
        return min(there, measurement.images) if measurement.suite else there

    def time(self, cell: TimeCell) -> str:
        """How long a stage took, or with what."""
        stages = self.results.times(cell.run)
        if stages is None:
            return self.not_run(self.results.run_folder(cell.run), f"the run {cell.run}")
        if not cell.stage:
            return hardware(next(iter(stages.values()))["hardware"])
        found = stages.get(cell.stage)
        if found is None:
            return ""
        if found["whole"]:
            return f"{found['minutes']:.0f}"
        self.notes.setdefault(NO_BANK)
        return f"over {found['minutes']:.0f}"

    def not_run(self, path: Path, what: str) -> str:
        """A cell of something that is not there; why stands below the table."""
        self.missing.setdefault(self.reasons.get(path, f"{what} is not made yet"))
        return NOT_RUN


def render(
    planned: PlannedTable, results: ResultsFolder, reasons: Mapping[Path, str] | None = None
) -> RenderedTable:
    """Our rows of what is there, then the paper's."""
    renderer = TableRenderer(results=results, reasons=reasons or {})
    ours = [renderer.row(row, planned.columns) for row in planned.rows]
    theirs = [
        ("the paper", *(printed(row.get(column.key), column) for column in planned.columns))
        for row in planned.theirs
    ]
    notes = [*renderer.notes, *planned.notes]
    if any(MARK in cell for row in ours for cell in row):
        notes.append(f"{MARK} Only an upper bound: the diagnostics of the record say why.")
    if renderer.missing:
        notes.append(f"Not run: {'; '.join(renderer.missing)}.")
    return RenderedTable(
        name=planned.name,
        title=planned.title,
        table=(("", *(column.heading for column in planned.columns)), [*ours, *theirs]),
        notes=(*notes, *renderer.records),
    )


def about(name: str, record: Record, count: int) -> str:
    """A line on the record that a cell rests on."""
    there = record["data"]["count"]
    of = "" if count == there else f"the first {count} of "
    return (
        f"`{name}`: {answered_by(record['subject'])}{record['suite']['name']}, {of}{there} test "
        f"images of {record['data']['set']}, eps = {record['threat']['eps']:.4g}, "
        f"seed {record['seed']}."
    )


def answered_by(subject: Record) -> str:
    """How candidates become the defence's answer; nothing for a classifier alone."""
    if subject["kind"] == "classifier":
        return ""
    anchor = f" with weight {subject['anchor']:g}" if subject.get("anchor") else ""
    return f"{subject['aggregation']}{anchor}, N = {subject['samples']}; "


def hardware(found: Record) -> str:
    """What a training ran on."""
    gpus, number = ", ".join(found["gpus"]), found.get("processes", 1)
    words = gpus or f"CPU, {found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    return words if number == 1 else f"{number} processes, each: {words}"


def printed(value: Value | None, column: PaperColumn) -> str:
    """A cell of the paper's, as it stands there."""
    if value is None:
        return ""
    if column.unit == "text":
        return str(value)
    return f"{value:.4f}" if column.unit == "accuracy" else f"{value:g}"


def as_lines(made: RenderedTable) -> list[str]:
    """For the terminal."""
    notes = [note.replace("`", "") for note in made.notes]
    return ["", f"{made.name}: {made.title}", "", *as_text(made.table), "", *notes]


def as_page(made: RenderedTable) -> str:
    """Markdown: a heading, the table, and what its cells rest on."""
    notes = "\n".join(f"- {note}" for note in made.notes)
    return f"## {made.name}\n\n{made.title}.\n\n{as_markdown(made.table)}\n\n{notes}\n"


def write(folder: Path, made: RenderedTable) -> None:
    """The table in `folder`, as Markdown and as LaTeX."""
    files.write_text(folder / f"{made.name}.md", as_page(made))
    caption = f"{made.title}. " + " ".join(note.replace("`", "") for note in made.notes)
    files.write_text(folder / f"{made.name}.tex", as_latex(made.table, caption) + "\n")

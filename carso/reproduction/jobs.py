"""What has to be made for some tables: a list of jobs, known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from carso.distributed.processes import Processes
from carso.report.table_formats import Row, as_text
from carso.reproduction.costs import COMMITTED, KnownCosts, known_costs
from carso.reproduction.plan import MeasuredDefence, PlannedRecord
from carso.reproduction.planned_table import PlannedTable
from carso.reproduction.results_folder import ResultsFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A training of a run, or, where a record is planned, an evaluation."""

    run: str
    makes: Path
    there: bool
    """Whether what it makes is there already."""
    minutes: float | None
    """What it will probably take; None: not known."""
    record: PlannedRecord | None = None
    outdated: bool = False
    """A record that is there, and would be made on more images or with more attacks now."""
    renew: bool = False
    """Whether it is made anew for that."""
    verify: bool = False
    """A training that is there and whose weights another job uses: it is taken up once more, which
    refuses a folder of other settings and else ends at once."""

    @property
    def to_do(self) -> bool:
        return self.verify or self.renew or not self.there

    @property
    def title(self) -> str:
        """What is done to whom."""
        if self.record is None:
            return f"train {self.run}"
        defence = self.record.defence
        words = [
            self.run,
            "classifier alone" if defence.bare else "",
            defence.aggregation,
            defence.final and f"answered by {defence.final}",
        ]
        return f"evaluate {', '.join(word for word in words if word)}: {self.record.measurement}"


def list_jobs(
    tables: Iterable[PlannedTable],
    results: ResultsFolder,
    costs: KnownCosts,
    *,
    renew: bool = False,
) -> list[Job]:
    """All jobs of some tables, each once, a training before what uses its weights; with `renew`
    outdated records are made anew."""
    tables = list(tables)
    records = needed_records(tables, results)
    there = {record: results.record(record) is not None for record in records}
    timed = dict.fromkeys(run for table in tables for run in table.timed_runs())
    known = {run for run in timed if results.times(run) is not None}
    jobs: dict[Path, Job] = {}
    for run in timed:
        if run in known and not results.ships(run):
            path = results.time_path(run)
            jobs[path] = Job(run=run, makes=path, there=True, minutes=0.0)
        elif run not in known:
            add_training(jobs, run, results, costs)
    for record in records:
        outdated = results.outdated(record)
        again = renew and outdated
        for run in record.runs if again or not there[record] else ():
            add_training(jobs, run, results, costs)
        path = results.record_path(record)
        done = there[record] and not outdated
        minutes = 0.0 if done else costs.evaluation(results.scale, record)
        if minutes:  # known for as many images as are planned
            minutes *= results.images(record) / results.scale.measurement(record).images
        jobs[path] = Job(
            run=record.defence.run,
            makes=path,
            there=there[record],
            outdated=outdated,
            renew=again,
            minutes=minutes,
            record=record,
        )
    return list(jobs.values())


def needed_records(tables: Iterable[PlannedTable], results: ResultsFolder) -> list[PlannedRecord]:
    """What the tables rest on; where one asks for few images and another for more of the same, the
    record of more serves both."""
    asked = dict.fromkeys(record for table in tables for record in table.records())

    def serving(record: PlannedRecord) -> PlannedRecord:
        larger = results.scale.larger(record)
        own = results.own_path(record).exists()
        return larger if larger is not None and larger in asked and not own else record

    return list(dict.fromkeys(serving(record) for record in asked))


def add_training(
    jobs: dict[Path, Job], run: str, results: ResultsFolder, costs: KnownCosts
) -> None:
    """The training of a run whose weights do not ship, after that of the classifier it takes."""
    path = results.run_folder(run)
    if results.ships(run) or path in jobs:
        return
    if taken := results.scale.runs[run].classifier:
        add_training(jobs, taken, results, costs)
    stages = results.stages_to_train(run)
    there = not stages and results.time_path(run).exists()
    jobs[path] = Job(
        run=run, makes=path, there=there, minutes=costs.training(run, stages), verify=True
    )


def list_together(
    tables: Iterable[PlannedTable],
    results: ResultsFolder,
    processes: Processes,
    *,
    renew: bool = False,
) -> list[Job]:
    """The first process's list, in all processes: they must not come to lists of their own while
    files appear."""

    def listed() -> list[Job]:
        if not processes.is_first:
            return []
        costs = known_costs([results.records_folder, COMMITTED])
        return list_jobs(tables, results, costs, renew=renew)

    own = processes.first_then_others(listed)
    rows = processes.broadcast([{**asdict(job), "makes": str(job.makes)} for job in own])
    return [job_of(row) for row in rows]


def job_of(row: dict[str, Any]) -> Job:
    """A job that came from another process, as JSON."""
    record = row["record"] and PlannedRecord(
        defence=MeasuredDefence(**row["record"]["defence"]),
        measurement=row["record"]["measurement"],
    )
    return Job(**{**row, "makes": Path(row["makes"]), "record": record})


def as_list(jobs: Sequence[Job], results: ResultsFolder) -> list[str]:
    """For the terminal: every job, whether it is there, and what it will probably take."""
    header = ("job", "images", "there", "minutes", "makes")
    rows: list[Row] = []
    for job in jobs:
        images = str(results.images(job.record)) if job.record else ""
        minutes = "unknown" if job.minutes is None else f"{job.minutes:.0f}"
        there = "no" if not job.there else "outdated" if job.outdated else "yes"
        cost = "" if there == "yes" else minutes
        rows.append((job.title, images, there, cost, str(job.makes)))
    return ["", *as_text((header, rows)), "", in_all(jobs)]


def in_all(jobs: Sequence[Job]) -> str:
    """How much there is to do."""
    missing = [job for job in jobs if job.renew or not job.there]
    number = f"{len(jobs)} job{'s' if len(jobs) != 1 else ''}"
    older = sum(job.outdated and not job.renew for job in jobs)
    if older:
        number += f", {older} outdated (--renew makes them anew)"
    if not missing:
        return f"{number}, nothing to do."
    known = [job.minutes for job in missing if job.minutes is not None]
    unknown = len(missing) - len(known)
    words = []
    if known:
        words.append(f"about {sum(known):.0f} min, by what the same took before")
    if unknown:
        words.append(f"{unknown} of unknown length")
    return f"{number}, {len(missing)} to do: {', and '.join(words)}."

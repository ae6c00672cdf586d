"""Make the tables of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carso.cli.before_work import check_folder, check_machine, check_name, check_places
from carso.cli.options import (
    DataOption,
    DeviceOption,
    DevicesOption,
    DownloadOption,
    NodesOption,
    OversubscribeOption,
    PrecisionOption,
    QuietOption,
    ThreadsOption,
    started,
)
from carso.errors import CarsoError

if TYPE_CHECKING:  # torch takes a second to import, and --help does not need it
    from carso.distributed.processes import Processes
    from carso.reproduction.planned_table import PlannedTable
    from carso.reproduction.results_folder import ResultsFolder


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="results, times, high-eps, aggregation, majority-vote, ablation, classifiers, "
            "literature, or all."
        ),
    ],
    scale: Annotated[str, typer.Option(help="small (two cores) or paper (many GPUs).")] = "small",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of runs, records and tables; default reproduction/SCALE."),
    ] = None,
    records: Annotated[
        Path | None, typer.Option(help="Folder of the records; default OUT/records.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Folder with the classifiers that the paper scale needs.")
    ] = None,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train also what ships with the package.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Make nothing: the tables of what is there.")
    ] = False,
    jobs: Annotated[
        bool,
        typer.Option("--jobs", "--dry-run", help="Only list what would be made, and its cost."),
    ] = False,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew", help="Make anew the records of fewer images or of a suite as it was before."
        ),
    ] = False,
    data: DataOption = None,
    download: DownloadOption = False,
    device: DeviceOption = "auto",
    devices: DevicesOption = 1,
    nodes: NodesOption = 1,
    oversubscribe: OversubscribeOption = False,
    precision: PrecisionOption = "32-true",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Make a table of the paper, from training to the finished table, with its figures beside.

    What has to be made is listed first, with what it will probably take. Every step is kept:
    stopped and called again, it goes on; --show gives the tables of what is there.
    """
    from carso.reproduction.plan import read_scale

    planned = read_scale(scale)
    check_name("table", "" if table == "all" else table)
    check_name("precision", precision)
    check_folder("--data", data)
    check_folder("--weights", weights)
    check_places(folders=[out, records])
    check_machine(device, threads)
    from carso.reproduction.paper_tables import TABLES
    from carso.reproduction.render import as_lines, render, write
    from carso.reproduction.results_folder import ResultsFolder

    if table != "all" and table not in TABLES:
        raise CarsoError(f"there is no table {table!r}; there are {', '.join(TABLES)}, and all")
    if retrain and records is not None:
        raise CarsoError("--retrain makes records of its own: leave --records out")
    if show and renew:
        raise CarsoError("--show gives tables and makes nothing, --renew makes records: choose one")
    if show and jobs:
        raise CarsoError("--show gives tables, --jobs the list of what is missing: choose one")
    folder = out or Path("reproduction") / (f"{scale}-retrained" if retrain else scale)
    results = ResultsFolder(scale=planned, folder=folder, records=records, retrain=retrain)
    tables = [TABLES[name](planned) for name in (TABLES if table == "all" else [table])]
    processes, place = started(
        device, devices, nodes, threads, oversubscribe=oversubscribe, precision=precision
    )
    if processes.is_first:
        print(f"scale {scale}: {planned.what}; all tables need {planned.needs}", flush=True)
    reasons: dict[Path, str] = {}
    if not show:
        reasons = make(
            tables,
            results,
            processes,
            only_list=jobs,
            renew=renew,
            quiet=quiet,
            gpus=scale == "paper" and device == "auto",
            device=place,
            data=data,
            download=download,
            weights=weights,
        )
    if jobs or not processes.is_first:
        return
    for one in tables:
        made = render(one, results, reasons)
        write(folder, made)
        print("\n".join(as_lines(made)), flush=True)
    print(f"tables: {folder}; records: {results.records_folder}; runs: {folder / 'runs'}")


def make(
    tables: list[PlannedTable],
    results: ResultsFolder,
    processes: Processes,
    *,
    only_list: bool,
    renew: bool,
    quiet: bool,
    gpus: bool,
    **settings: Any,
) -> dict[Path, str]:
    """List the jobs of some tables and what they need, then run them; by its path, why a thing
    could not be made. At the paper's scale nothing runs before everything is here."""
    from carso.machine.progress import progress
    from carso.reproduction.jobs import as_list, list_together
    from carso.reproduction.needs import JobSettings, Missing, check_needs
    from carso.reproduction.run_jobs import run_jobs

    jobs = list_together(tables, results, processes, renew=renew)
    if processes.is_first:
        print("\n".join(as_list(jobs, results)), flush=True)
    with progress(shown=processes.is_first and not quiet) as bars:
        how = JobSettings(bars=bars, processes=processes, **settings)
        try:
            check_needs(jobs, results.scale, how, gpus=gpus)
        except Missing as missing:
            if results.scale.name == "paper" and not only_list:
                raise
            if processes.is_first:
                print(f"{missing}; without them some rows will say that they were not run")
        return {} if only_list else run_jobs(jobs, results, how)

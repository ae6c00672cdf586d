"""Make the tables of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carso.cli.options import (
    DataOption,
    DeviceOption,
    DevicesOption,
    DownloadOption,
    NodesOption,
    PrecisionOption,
    ThreadsOption,
    prepare,
)
from carso.errors import CarsoError


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
    data: DataOption = None,
    download: DownloadOption = False,
    device: DeviceOption = "auto",
    devices: DevicesOption = 1,
    nodes: NodesOption = 1,
    precision: PrecisionOption = "32-true",
    threads: ThreadsOption = 0,
) -> None:
    """Make a table of the paper, from training to the finished table, with its figures beside.

    Every step is kept: stopped and called again, it goes on.
    """
    from carso.distributed.launchers import launch
    from carso.report.progress import progress
    from carso.reproduction import TABLES, Workshop, read_scale, runs_needed
    from carso.reproduction.workshop import Missing
    from carso.reproduction.writing import as_lines, write

    planned = read_scale(scale)
    if table != "all" and table not in TABLES:
        raise CarsoError(f"there is no table {table!r}; there are {', '.join(TABLES)}, and all")
    if retrain and records is not None:
        raise CarsoError("--retrain makes records of its own: leave --records out")
    folder = out or Path("reproduction") / (f"{scale}-retrained" if retrain else scale)
    place, auto = prepare(device, threads), device == "auto"
    processes, place = launch(
        device=place, devices=devices, nodes=nodes, precision=precision, threads=threads
    )
    if processes.is_first:
        print(f"scale {scale}: {planned.what}; all tables need {planned.needs}", flush=True)
    with progress(shown=processes.is_first) as bars:
        shop = Workshop(
            scale=planned,
            folder=folder,
            device=place,
            bars=bars,
            data=data,
            download=download,
            weights=weights,
            records=records,
            retrain=retrain,
            make=not show,
            processes=processes,
        )
        wanted = list(TABLES) if table == "all" else [table]
        if not show:
            try:
                shop.check_needs(runs_needed(shop, wanted), gpus=scale == "paper" and auto)
            except Missing as missing:
                if scale == "paper":
                    raise
                bars.say(f"{missing}; without them some rows say that they were not run")
        for name in wanted:
            made = TABLES[name](shop)
            if processes.is_first:
                write(folder, made)
                print("\n".join(as_lines(made)), flush=True)
    if processes.is_first:
        print(f"tables: {folder}; records: {shop.kept}; runs: {folder / 'runs'}")

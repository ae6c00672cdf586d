"""`carso demo`: what published attacks see of a defence, and what better ones see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from carso.cli.before_work import check_machine, check_places
from carso.cli.options import (
    DeviceOption,
    JsonOption,
    QuietOption,
    ThreadsOption,
    prepare,
    print_table,
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for picture and page.")] = Path("demo"),
    images: Annotated[int, typer.Option(help="How many test images.", min=3, max=2000)] = 100,
    seed: Annotated[int, typer.Option(help="Of the attacks and the defence's noise.")] = 0,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """See what published attacks say of the shipped defence, and what better ones say."""
    check_places(folders=[out])
    check_machine(device, threads)
    from carso import demo as story
    from carso.machine.progress import progress
    from carso.report.certificates import certificate_conclusion
    from carso.storage.provenance import provenance

    place = prepare(device, threads)
    with progress(shown=not quiet) as bars:
        found = story.run(out, count=images, seed=seed, device=place, counted=bars.announced)
    if as_json:
        print(json.dumps({"records": found.records, "provenance": provenance()}, indent=1))
        return
    print_table(*story.table(found.records))
    print(f"a proof: {certificate_conclusion([found.certified])}")
    print(f"picture: {found.picture}")
    print(f"page:    {found.page}  (open it in a browser)")

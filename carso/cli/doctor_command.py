"""`carso doctor`: the machine, and what is fastest on it."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from carso.cli.before_work import check_folder
from carso.cli.options import DataOption, JsonOption, print_table


def doctor(
    data: DataOption = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Measure what is fastest here, and say how to ask for it"),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the machine, the versions, and what data and weights are found."""
    check_folder("--data", data)
    from carso import data as data_sets
    from carso.defence import shipped
    from carso.storage.provenance import provenance

    facts = provenance()
    facts["data"] = dict(data_sets.available(data))
    facts["weights"] = {name: str(shipped.SHIPPED / name) for name in shipped.names()}
    if tune:
        from carso.cli.speed import ratios, suggestions

        print("measuring for a minute or two ...", file=sys.stderr)
        facts["ratios"] = ratios()
        facts["suggestions"] = suggestions(facts["ratios"])
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for key in ("versions", "hardware", "data", "weights"):
        print(f"{key}:")
        for name, value in facts[key].items():
            print(f"  {name:18} {'not found' if value is None else value}")
    print(f"revision: {facts['revision']}")
    if tune:
        rows = [(name, f"{value:.2f}") for name, value in facts["ratios"].items()]
        print_table(("alternative", "time over the default's"), rows)
        print("\n".join(facts["suggestions"]))

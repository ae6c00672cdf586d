"""`carso doctor`: the machine, what works and what is fastest on it."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from carso.cli.before_work import check_folder
from carso.cli.options import DataOption, JsonOption, prepare, print_table

WORKS = "works"
"""What the self-test says of a thing that does."""


def doctor(
    data: DataOption = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Measure what is fastest here, and say how to ask for it"),
    ] = False,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Try each thing that a run does; about a minute"),
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
    if self_test:
        from carso.cli.self_test import self_test as tried_here

        print("trying for about a minute ...", file=sys.stderr)
        facts["self_test"] = tried_here(prepare("auto", 0))
    if as_json:
        print(json.dumps(facts, indent=1))
    else:
        told(facts)
    if any(found != WORKS for found in facts.get("self_test", {}).values()):
        raise typer.Exit(1)


def told(facts: dict[str, Any]) -> None:
    """Print what was found, a line each."""
    for key in ("versions", "hardware", "data", "weights"):
        print(f"{key}:")
        for name, value in facts[key].items():
            print(f"  {name:18} {'not found' if value is None else value}")
    print(f"revision: {facts['revision']}")
    if "ratios" in facts:
        rows = [(name, f"{value:.2f}") for name, value in facts["ratios"].items()]
        print_table(("alternative", "time over the default's"), rows)
        print("\n".join(facts["suggestions"]))
    for name, found in facts.get("self_test", {}).items():
        print(f"{name}: {found}")

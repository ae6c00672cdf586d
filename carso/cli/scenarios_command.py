"""`carso scenarios`: what ships."""

from __future__ import annotations

import json

from carso.cli.options import JsonOption, print_table


def scenarios(as_json: JsonOption = False) -> None:
    """List the shipped scenarios."""
    from carso.scenario import parser
    from carso.scenario.tables import as_table

    found = [parser.read(name) for name in parser.names()]
    if as_json:
        print(json.dumps([as_table(scenario) for scenario in found], indent=1))
        return
    print_table(
        ("scenario", "eps", "what"),
        [(s.name, f"{s.threat.eps:.4g}", s.summary) for s in found],
    )

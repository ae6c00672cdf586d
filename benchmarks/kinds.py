"""Alternatives of how passes are run, each over the default: what `carso doctor --tune` measures.

Time of a gradient through the whole defence in bfloat16, with one thread, with contiguous instead
of channels-last weights.

    python benchmarks/kinds.py [--scenario fashion] [--turns 7] [--json]
"""

from __future__ import annotations

import json

from measuring import asked

from carso.cli.speed import ratios


def main() -> None:
    options = asked(__doc__, scenario="fashion", turns=7)
    found = ratios(options.scenario, turns=options.turns)
    if options.json:
        print(json.dumps({"scenario": options.scenario, "ratios": found}, indent=1))
        return
    for name, value in found.items():
        print(f"  {name:18} {value:6.2f} times the default's time")


if __name__ == "__main__":
    main()

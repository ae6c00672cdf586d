"""Alternatives of how passes are run, each over the default: what `carso doctor --tune` measures.

Time of a gradient through the whole defence in bfloat16, with one thread, with contiguous instead
of channels-last weights.

    python benchmarks/kinds.py [--scenario fashion] [--turns 7] [--json]
"""

from __future__ import annotations

import argparse
import json

import torch

from carso.cli.speed import ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", default="fashion")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    found = ratios(options.scenario, turns=options.turns)
    if options.json:
        print(json.dumps({"scenario": options.scenario, "ratios": found}, indent=1))
        return
    for name, value in found.items():
        print(f"  {name:18} {value:6.2f} times the default's time")


if __name__ == "__main__":
    main()

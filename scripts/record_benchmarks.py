"""Runs benchmarks and records what they print, for README and docs.

python scripts/record_benchmarks.py docs/results/benchmarks.json [NAME...]

Without names all of them; with names only these, and the others stay as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from records import in_one_line

from carso.storage import files
from carso.storage.provenance import provenance

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
NAMES = (
    "train_step",
    "inference",
    "eot",
    "hardening",
    "kinds",
    "growth",
    "sides",
    "start_up",
    "play",
)


def measured(name: str) -> Any:
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME")
    given = parser.parse_args()
    record = files.read_json(given.out) if given.out.exists() else {}
    for name in given.names or NAMES:
        record[name] = {**measured(name), "provenance": provenance()}
    files.write_json(given.out, record)


if __name__ == "__main__":
    in_one_line(main)

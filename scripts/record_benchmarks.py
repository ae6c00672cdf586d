"""Runs the benchmarks and records what they print, for README and docs.

python scripts/record_benchmarks.py docs/results/benchmarks.json
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from carso import files
from carso.provenance import provenance

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def measured(name: str) -> Any:
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    names = ("train_step", "inference", "eot")
    record = {name: measured(name) for name in names}
    files.write_json(Path(sys.argv[1]), {**record, "provenance": provenance()})


if __name__ == "__main__":
    main()

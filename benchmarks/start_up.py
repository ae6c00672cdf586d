"""How long `carso --help` takes to answer, beside the import of torch that it does without.

python benchmarks/start_up.py [--turns 9] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

from carso.machine.timing import seconds


def started(*words: str) -> None:
    subprocess.run([sys.executable, *words], check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    started("-m", "carso", "--help")  # warm
    turns = [
        (
            seconds(lambda: started("-m", "carso", "--help")),
            seconds(lambda: started("-c", "import torch")),
        )
        for _ in range(options.turns)
    ]
    answer, torch = (statistics.median(column) for column in zip(*turns, strict=True))
    if options.json:
        print(json.dumps({"help_seconds": answer, "help_over_torch": answer / torch}, indent=1))
        return
    print(f"carso --help          {answer:.2f} s")
    print(f"over importing torch  {answer / torch:.2f}")


if __name__ == "__main__":
    main()

"""How long `carso play` takes to answer: an attack on one image, from the request to what is drawn.

python benchmarks/play.py [--turns 7] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

import torch

from carso.machine.timing import seconds
from carso.play.answers import answer
from carso.play.exhibition import Exhibition, exhibition
from carso.play.visitor_requests import attack_request

STEPS = 20


def measured(shown: Exhibition, aim: str, turns: int) -> dict[str, float]:
    """Medians of the time on the clock and of the processor's."""
    asked = attack_request(
        {"defence": "fashion", "image": 9, "aim": aim, "steps": STEPS}, shown.names
    )
    answer(asked, shown)  # warm
    clock, processor = [], []
    for _ in range(turns):
        before = time.process_time()
        clock.append(seconds(lambda: answer(asked, shown)))
        processor.append(time.process_time() - before)
    return {
        "seconds": statistics.median(clock),
        "processor_seconds": statistics.median(processor),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)  # as the command does
    shown = exhibition(["fashion"])
    found: dict[str, Any] = {"steps": STEPS}
    for aim in ("classifier", "defence"):
        found[aim] = measured(shown, aim, options.turns)
    found["load"] = os.getloadavg()[0]
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for aim in ("classifier", "defence"):
        clock, processor = found[aim]["seconds"], found[aim]["processor_seconds"]
        print(f"{aim:12} {clock:.2f} s, {processor:.2f} s of a core")


if __name__ == "__main__":
    main()

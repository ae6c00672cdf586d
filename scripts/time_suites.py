"""Times the adaptive suite of this checkout beside that of an earlier revision.

    git worktree add EARLIER REVISION
    python scripts/time_suites.py EARLIER OUT [--defence fashion-hardened] [--images 100]
                                  [--turns 2]

Both evaluate the shipped defence on the same test images at the same time, in a process and on a
thread each; every turn starts them in the other order. OUT is a JSON of their seconds and of what
each left of the defence. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from records import ROOT, in_one_line, record

from carso.errors import CarsoError
from carso.storage import files
from carso.storage.provenance import provenance

ON = "fashion-embedded"


def started(checkout: Path, defence: str, images: int, out: Path) -> subprocess.Popen[str]:
    """The suite of `checkout`, on its way."""
    asked = f"evaluate {defence} --suite adaptive --images {images} --on {ON} --threads 1 --quiet"
    return subprocess.Popen(
        [sys.executable, "-m", "carso", *asked.split(), "--out", str(out)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def turn(checkouts: dict[str, Path], defence: str, images: int) -> dict[str, Any]:
    """Each checkout's seconds, accuracy and revision, by its name."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        outs = {name: Path(folder) / f"{name}.json" for name in checkouts}
        running = {
            name: started(checkout, defence, images, outs[name])
            for name, checkout in checkouts.items()
        }
        for name, process in running.items():
            _, said = process.communicate()
            if process.returncode:
                raise CarsoError(f"{checkouts[name]} could not evaluate {defence}: {said.strip()}")
            made = record(outs[name])
            found[name] = {
                "seconds": made["provenance"]["seconds"],
                "revision": made["provenance"]["revision"],
                "clean": made["accuracy"]["clean"]["value"],
                "worst": made["accuracy"]["worst"]["value"],
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("earlier", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--defence", default="fashion-hardened")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--turns", type=int, default=2)
    given = parser.parse_args()
    if not (given.earlier / "carso" / "__main__.py").is_file():
        raise CarsoError(
            f"{given.earlier} is no checkout of this project: git worktree add makes one"
        )
    checkouts = {"earlier": given.earlier.resolve(), "now": ROOT}
    turns = []
    for _ in range(given.turns):
        turns.append(turn(checkouts, given.defence, given.images))
        checkouts = dict(reversed(checkouts.items()))
    found = {
        "defence": given.defence,
        "on": ON,
        "images": given.images,
        "turns": turns,
        "provenance": provenance(),
    }
    files.write_json(given.out, found)
    for made in turns:
        earlier, now = made["earlier"], made["now"]
        print(f"{now['seconds'] / earlier['seconds']:.2f} of the time, {now['worst']:.3f} left")


if __name__ == "__main__":
    in_one_line(main)

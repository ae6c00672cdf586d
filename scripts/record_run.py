"""Keeps the history of a hardening, finished or not, as a record for the lab log.

    python scripts/record_run.py RUN docs/results/trials/NAME.json --what "with flips"

RUN is the folder that `carso harden` or `carso train` made. The weights are not kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from records import best_of, in_one_line

from carso.defence.description import read_description
from carso.storage import files
from carso.storage.provenance import provenance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--what", required=True)
    given = parser.parse_args()
    finished = given.run / "hardening.json"
    over = finished.exists()
    found = files.read_json(finished if over else given.run / "hardening" / "checkpoint.json")
    history = found["history"]
    scenario = read_description(given.run)["scenario"]
    files.write_json(
        given.out,
        {
            "trial": {"name": given.out.stem, "what": given.what},
            "scenario": scenario,
            "data": {
                "set": scenario["data"]["set"],
                "fingerprint": found["identity"]["data"],
            },
            "identity": found["identity"],
            "history": history,
            "best": best_of(history),
            "provenance": found["provenance"] if over else provenance(),
        },
    )


if __name__ == "__main__":
    in_one_line(main)

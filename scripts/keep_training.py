"""Keeps the epochs of a hardening among the trials of the lab log, without its weights.

    python scripts/keep_training.py RUN NAME WHAT

RUN is the folder of a finished hardening, NAME such as whole.resnet20.continued, WHAT the words of
its line in the table. `docs/results/trials/NAME.json` is written.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from records import RESULTS, best_of, record

from carso.storage import files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("what")
    given = parser.parse_args()
    found = record(given.run / "hardening.json")
    data = {"set": found["data"]["name"], "fingerprint": found["data"]["fingerprint"]}
    kept = {key: found[key] for key in ("scenario", "identity", "history", "provenance")}
    files.write_json(
        RESULTS / "trials" / f"{given.name}.json",
        {
            "trial": {"name": given.name, "what": given.what},
            "data": data,
            **kept,
            "best": best_of(found["history"]),
        },
    )


if __name__ == "__main__":
    main()

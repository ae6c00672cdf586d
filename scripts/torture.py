"""Tries to break the package: kills, flipped bytes, wrong input, two at once, a full disk.

    python scripts/torture.py                    everything, an hour at most; writes the record
    python scripts/torture.py --short            a little of each, half a minute of a processor
    python scripts/torture.py --only calls       one kind, which takes its place in the record
    python scripts/torture.py --minutes 5        of each kind as many as that allows
    python scripts/torture.py --seed 1           other moments, other bytes
    python scripts/torture.py --only kills --seed 1 --more     besides those of the record

The record is docs/results/torture.json, of which `scripts/render_docs.py` makes the table in
docs/reliability.md. Exit code 1 if something was silent, a traceback or unclear.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import torture_calls
import torture_commands
import torture_disk
import torture_flips
import torture_kills
import torture_together
from records import RESULTS, in_one_line
from torture_outcomes import RIGHT, WRONG, Trial, summary
from torture_subject import Subject

from carso.storage import files
from carso.storage.provenance import provenance, revision

KINDS = {
    "kills": torture_kills.trials,
    "flips": torture_flips.trials,
    "commands": torture_commands.trials,
    "parallel": torture_together.parallel_starts,
    "disk": torture_disk.trials,
    "threads": torture_together.threads,
    "calls": torture_calls.trials,
}
"""In this order: what computes in this process itself comes after all that forks it."""


def main() -> None:
    options = argparse.ArgumentParser(description="Try to break the package.")
    options.add_argument("--short", action="store_true", help="a little of each")
    options.add_argument("--only", choices=KINDS, help="one kind")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--minutes", type=float, default=60, help="at most, for each kind")
    options.add_argument(
        "--more", action="store_true", help="add to what the record has of this kind"
    )
    options.add_argument("--out", type=Path, help="file of the record")
    chosen = options.parse_args()
    out = chosen.out or (None if chosen.short else RESULTS / "torture.json")
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        subject = Subject(Path(folder).resolve())
        found: dict[str, Any] = {"kinds": {}, "faults": []}
        if out is not None and out.exists() and chosen.only:
            found = files.read_json(out)
        for name in KINDS if chosen.only is None else [chosen.only]:
            found = merged(found, tried(name, subject, chosen), more=chosen.more)
            if out is not None:  # after each kind, since a round is long
                files.write_json(out, {**found, "provenance": provenance()})
    for kind, counts in found["kinds"].items():
        wrong = ", ".join(f"{counts[outcome]} {outcome}" for outcome in WRONG)
        print(f"{kind}: {counts['right']} of {counts['tried']} right, {wrong}")
    sys.exit(1 if found["faults"] else 0)


def tried(name: str, subject: Subject, chosen: argparse.Namespace) -> dict[str, Any]:
    """What came of one kind."""
    began, trials, made_by = time.monotonic(), [], revision()  # of the code that is imported
    for trial in KINDS[name](subject, Random(f"{chosen.seed} {name}"), short=chosen.short):
        trials.append(trial)
        show(trial)
        if time.monotonic() - began > 60 * chosen.minutes:
            break
    print()
    found = summary(trials)
    minutes = round((time.monotonic() - began) / 60, 1)
    about = {"seed": chosen.seed, "short": chosen.short, "minutes": minutes, "revision": made_by}
    return {
        "kinds": {kind: {**counts, **about} for kind, counts in found["kinds"].items()},
        "faults": found["faults"],
    }


def merged(before: dict[str, Any], found: dict[str, Any], *, more: bool = False) -> dict[str, Any]:
    """The record with a kind tried anew, or tried `more` often."""
    if more:
        sums = {
            kind: added(before["kinds"].get(kind), counts)
            for kind, counts in found["kinds"].items()
        }
        return {
            "kinds": {**before["kinds"], **sums},
            "faults": [*before["faults"], *found["faults"]],
        }
    other = [fault for fault in before["faults"] if fault["kind"] not in found["kinds"]]
    return {
        "kinds": {**before["kinds"], **found["kinds"]},
        "faults": [*other, *found["faults"]],
    }


def added(before: dict[str, Any] | None, counts: dict[str, Any]) -> dict[str, Any]:
    """The figures of two rounds of a kind; seeds and revisions of both, with commas between."""
    if before is None:
        return counts
    how = {key: before["how"].get(key, 0) + counts["how"].get(key, 0) for key in RIGHT}
    both = {key: f"{before[key]}, {counts[key]}" for key in ("seed", "revision")}
    numbers = ("tried", "right", *WRONG)
    return {
        **counts,
        **{key: before[key] + counts[key] for key in numbers},
        "how": {key: value for key, value in how.items() if value},
        "minutes": round(before["minutes"] + counts["minutes"], 1),
        **both,
    }


def show(trial: Trial) -> None:
    """Faults in full, the rest as a dot."""
    if trial.outcome in WRONG:
        print(f"\n{trial.outcome}: {trial.kind}: {trial.what}\n  {trial.said}", flush=True)
    else:
        print(".", end="", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    in_one_line(main)

"""Tries to break the package: kills, flipped bytes, wrong input, two at once, a full disk.

    python scripts/torture.py                    everything, an hour at most; writes the record
    python scripts/torture.py --short            a little of each, half a minute of a processor
    python scripts/torture.py --only calls       one kind, which takes its place in the record
    python scripts/torture.py --minutes 5        as much as that allows, in the order of `KINDS`
    python scripts/torture.py --seed 1           other moments, other bytes

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
from torture_outcomes import WRONG, Trial, summary
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
    options.add_argument("--minutes", type=float, default=60, help="at most, in all")
    options.add_argument("--out", type=Path, help="file of the record")
    chosen = options.parse_args()
    out = chosen.out or (None if chosen.short else RESULTS / "torture.json")
    clock, made_by = Clock(chosen.minutes), revision()  # before the record changes the checkout
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        subject = Subject(Path(folder).resolve())
        found: dict[str, Any] = {"kinds": {}, "faults": []}
        if out is not None and out.exists() and chosen.only:
            found = files.read_json(out)
        for name in KINDS if chosen.only is None else [chosen.only]:
            found = merged(found, tried(name, subject, chosen, clock, made_by))
            if chosen.only is None:
                found["whole"] = {"seed": chosen.seed, "revision": made_by, **clock.read()}
            if out is not None:  # after each kind, since a round is long
                files.write_json(out, {**found, "provenance": provenance()})
    for kind, counts in found["kinds"].items():
        wrong = ", ".join(f"{counts[outcome]} {outcome}" for outcome in WRONG)
        print(f"{kind}: {counts['right']} of {counts['tried']} right, {wrong}")
    if "whole" in found:
        print("{minutes} minutes, {processor_minutes} of a processor".format(**found["whole"]))
    sys.exit(1 if found["faults"] else 0)


class Clock:
    """How long it took so far: by the wall, and of a processor, with all processes that it began.
    On a busy machine the two are far apart."""

    def __init__(self, most: float) -> None:
        self.most, self.began, self.used = most, time.monotonic(), processor_seconds()

    def read(self) -> dict[str, float]:
        minutes = (time.monotonic() - self.began) / 60
        used = (processor_seconds() - self.used) / 60
        return {"minutes": round(minutes, 1), "processor_minutes": round(used, 1)}

    def over(self) -> bool:
        return time.monotonic() - self.began > 60 * self.most


def processor_seconds() -> float:
    """Of this process, and of those that it began and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def tried(
    name: str, subject: Subject, chosen: argparse.Namespace, whole: Clock, made_by: str
) -> dict[str, Any]:
    """What came of one kind."""
    clock, trials = Clock(0), []
    for trial in KINDS[name](subject, Random(f"{chosen.seed} {name}"), short=chosen.short):
        trials.append(trial)
        show(trial)
        if whole.over():
            break
    print()
    found = summary(trials)
    about = {"seed": chosen.seed, "short": chosen.short, "revision": made_by, **clock.read()}
    return {
        "kinds": {kind: {**counts, **about} for kind, counts in found["kinds"].items()},
        "faults": found["faults"],
    }


def merged(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The record with a kind tried anew; what the whole run had found of it stays, apart."""
    other = [fault for fault in before["faults"] if fault["kind"] not in found["kinds"]]
    replaced = {
        kind: {**counts, "faults": [one for one in before["faults"] if one["kind"] == kind]}
        for kind, counts in before["kinds"].items()
        if kind in found["kinds"]
    }
    return {
        **before,
        "replaced": {**replaced, **before.get("replaced", {})},
        "kinds": {**before["kinds"], **found["kinds"]},
        "faults": [*other, *found["faults"]],
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

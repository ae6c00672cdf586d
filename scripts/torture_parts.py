"""The generated parts of `docs/reliability.md`."""

from __future__ import annotations

from records import RESULTS, record, table
from torture_outcomes import WRONG

GOALS = {
    "kills at random moments": 100,
    "damaged files": 100,
    "wrong command lines": 250,
    "wrong calls": 200,
    "the same command twice at once": 20,
}
"""How many of a kind a whole round tries at least."""
WORDS = ("wrong command lines", "wrong calls")
"""Kinds of which two that read the same are one."""


def counts() -> str:
    """A row for each kind of trial."""
    rows = []
    for kind, found in record(RESULTS / "torture.json")["kinds"].items():
        goal = GOALS.get(kind, 0)
        counted = found["distinct"] if kind in WORDS else found["tried"]
        few = f" (of {goal} wanted)" if counted < goal else ""
        distinct = found["distinct"] if kind in WORDS else ""
        wrong = " | ".join(str(found[outcome]) for outcome in WRONG)
        ways = ", ".join(f"{count} {outcome}" for outcome, count in found["how"].items())
        rows.append(
            f"| {kind} | {found['tried']}{few} | {distinct} | {found['right']} | {wrong} | {ways} |"
        )
    header = "| what | tried | distinct | right | silent | traceback | unclear | how it ended |"
    return table(header, rows)


def about() -> str:
    """Whether anything is left, of which code, and how long it took."""
    found = record(RESULTS / "torture.json")
    left, whole = len(found["faults"]), found["whole"]
    words = [
        f"One run of one command, seed {whole['seed']}, at revision `{whole['revision'][:7]}`: "
        f"{whole['minutes']:.0f} minutes, {whole['processor_minutes']:.0f} minutes of a processor."
    ]
    for kind, first in found["replaced"].items():
        again, wrong = found["kinds"][kind], "; ".join(fault["what"] for fault in first["faults"])
        words.append(
            f"In that run {first['right']} of {first['tried']} {kind} ended right"
            + (f", all but `{wrong}`" if wrong else "")
            + f". The row above is of a second try, at revision `{again['revision'][:7]}`, with "
            f"seed {again['seed']}, in {again['minutes']:.0f} minutes."
        )
    words.append(
        f"Faults that are left: {left}, listed in the record." if left else "No fault is left."
    )
    if missing := [kind for kind in GOALS if kind not in found["kinds"]]:
        words.append(f"Not tried yet: {', '.join(missing)}.")
    return " ".join(words)


TORTURE_PARTS = {"torture-counts": counts, "torture-about": about}

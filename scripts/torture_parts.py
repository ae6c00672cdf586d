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


def counts() -> str:
    """A row for each kind of trial."""
    rows = []
    for kind, found in record(RESULTS / "torture.json")["kinds"].items():
        goal = GOALS.get(kind, 0)
        few = f" (of {goal} wanted)" if found["tried"] < goal else ""
        revisions = ", ".join(f"`{one[:7]}`" for one in found["revision"].split(", "))
        wrong = " | ".join(str(found[outcome]) for outcome in WRONG)
        rows.append(
            f"| {kind} | {found['tried']}{few} | {found['right']} | {wrong} | {found['seed']} | "
            f"{revisions} |"
        )
    header = "| what | tried | right | silent | traceback | unclear | seed | revision |"
    return table(header, rows)


def about() -> str:
    """Whether anything is left."""
    found = record(RESULTS / "torture.json")
    left = len(found["faults"])
    words = [
        f"Faults that are left: {left}, listed in the record." if left else "No fault is left."
    ]
    if missing := [kind for kind in GOALS if kind not in found["kinds"]]:
        words.append(f"Not tried yet: {', '.join(missing)}.")
    return " ".join(words)


TORTURE_PARTS = {"torture-counts": counts, "torture-about": about}

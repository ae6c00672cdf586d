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
        distinct = found.get("distinct", 0)  # before it was counted
        few = f" (of {goal} wanted)" if distinct < goal else ""
        wrong = " | ".join(str(found[outcome]) for outcome in WRONG)
        ways = ", ".join(f"{count} {outcome}" for outcome, count in found["how"].items())
        rows.append(
            f"| {kind} | {found['tried']} | {distinct}{few} | {found['right']} | {wrong} | {ways} |"
        )
    header = "| what | tried | distinct | right | silent | traceback | unclear | how it ended |"
    return table(header, rows)


def about() -> str:
    """Whether anything is left, of which code, and how long it took."""
    found = record(RESULTS / "torture.json")
    left, whole = len(found["faults"]), found.get("whole")
    if whole is None:
        return "These counts are of several rounds."
    words = [
        f"One run of one command, seed {whole['seed']}, at revision `{whole['revision'][:7]}`: "
        f"{whole['minutes']:.0f} minutes, {whole['processor_minutes']:.0f} minutes of a processor."
    ]
    for kind, one in found["kinds"].items():
        if (one["revision"], one["seed"]) != (whole["revision"], whole["seed"]):
            words.append(
                f"The row *{kind}* was tried again, at revision `{one['revision'][:7]}` with seed "
                f"{one['seed']}."
            )
    words.append(
        f"Faults that are left: {left}, listed in the record." if left else "No fault is left."
    )
    if missing := [kind for kind in GOALS if kind not in found["kinds"]]:
        words.append(f"Not tried yet: {', '.join(missing)}.")
    return " ".join(words)


TORTURE_PARTS = {"torture-counts": counts, "torture-about": about}

"""What `torture.py` counts: trials and how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

RIGHT = ("refused", "mended", "unharmed", "equal")
"""Refused in one line; made again or taken from the copy before, which was said; harmless; the bits
of an undisturbed run."""
WRONG = ("silent", "traceback", "unclear")
"""A wrong result or wrong input taken without a word; a raw exception; anything else, such as two
lines, another exit code, or no end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One thing that was tried."""

    kind: str
    what: str
    """The command, the call, or what was done to which file."""
    outcome: str
    """One of `RIGHT` or `WRONG`."""
    said: str = ""
    """The last line of what came back."""


def summary(trials: Iterable[Trial]) -> dict[str, Any]:
    """Counts by kind, and every fault."""
    kinds: dict[str, Counter[str]] = {}
    different: dict[str, set[str]] = {}
    faults = []
    for trial in trials:
        kinds.setdefault(trial.kind, Counter())[trial.outcome] += 1
        different.setdefault(trial.kind, set()).add(trial.what)
        if trial.outcome in WRONG:
            faults.append(
                {
                    "kind": trial.kind,
                    "what": trial.what,
                    "outcome": trial.outcome,
                    "said": trial.said,
                }
            )
    figures = {
        kind: {**counted(counts), "distinct": len(different[kind])}
        for kind, counts in kinds.items()
    }
    return {"kinds": figures, "faults": faults}


def counted(counts: Counter[str]) -> dict[str, Any]:
    """The figures of a kind."""
    return {
        "tried": counts.total(),
        "right": sum(counts[outcome] for outcome in RIGHT),
        **{outcome: counts[outcome] for outcome in WRONG},
        "how": {outcome: counts[outcome] for outcome in RIGHT if counts[outcome]},
    }


def last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "")[:300]

"""The generated part about the museum of broken defences."""

from __future__ import annotations

import sys
from typing import Any

from records import RESULTS, ROOT, record, table

MUSEUM = RESULTS / "museum"
CLOSE = 0.02
"""So near to the classifier's own figure an exhibit has to be brought."""
CLASSIFIERS = {"robust": "trained adversarially", "clean": "trained on clean images"}
LIBRARIES = ("autoattack", "rand", "foolbox")


def museum() -> str:
    """What everyone says of each exhibit, one table for each classifier."""
    sys.path.insert(0, str(ROOT / "tests" / "museum"))
    from exhibits import EXHIBITS

    parts = []
    for kind, trained in CLASSIFIERS.items():
        found = {
            name: record(path)
            for name in EXHIBITS
            if (path := MUSEUM / f"{kind}-{name}.json").exists()
        }
        if "carso" not in found.get("bare", {}):
            continue
        own = found["bare"]["carso"]["said"]
        rows = [line(EXHIBITS[name], one, own) for name, one in found.items() if "carso" in one]
        header = (
            "| exhibit | what | papers | clean | carso | objections | AutoAttack | AutoAttack rand "
            "| foolbox PGD |"
        )
        parts.append(
            f"Around the classifier {trained}, which stands at {own:.3f} "
            f"({found['bare']['images']} images, eps = {found['bare']['eps']:g}):\n\n"
            + table(header, rows)
        )
    return "\n\n".join([*parts, summary(), LEGEND]) if parts else "Not measured yet."


def line(card: Any, found: dict[str, Any], own: float) -> str:
    """One exhibit."""
    ours = found["carso"]
    past = not card.honest and ours["said"] > own + CLOSE
    objections = ", ".join(ours["failed"]) or ("**none**" if past else "none")
    shown = [card.name, card.what, card.papers or "honest", f"{ours['clean']:.3f}"]
    shown += [f"{ours['said']:.3f}", objections]
    shown += [said(found.get(name), card.random or name != "rand") for name in LIBRARIES]
    return f"| {' | '.join(shown)} |"


def said(found: dict[str, Any] | None, applies: bool) -> str:
    """What a library says, with a mark where it warns."""
    if not applies:
        return "–"
    if found is None:
        return "not run"
    if found["said"] is None:
        return "refuses"
    return f"{found['said']:.3f}" + (" (warns)" if found.get("warned") else "")


def summary() -> str:
    """How many are caught, and how many honest ones are flagged."""
    sys.path.insert(0, str(ROOT / "tests" / "museum"))
    from exhibits import EXHIBITS

    shown = [record(path) for path in sorted(MUSEUM.glob("*.json"))]
    shown = [one for one in shown if "carso" in one]
    own = {one["classifier"]: one["carso"]["said"] for one in shown if one["exhibit"] == "bare"}
    broken = [one for one in shown if not EXHIBITS[one["exhibit"]].honest]
    honest = [one for one in shown if EXHIBITS[one["exhibit"]].honest]
    low = [one for one in broken if one["carso"]["said"] <= own[one["classifier"]] + CLOSE]
    flagged = [one for one in broken if one["carso"]["unreliable"] and one not in low]
    text = (
        f"Of {len(broken)} broken ones {len(low)} are brought down, {len(flagged)} more are called "
        f"unreliable, and {len(broken) - len(low) - len(flagged)} get past. Of {len(honest)} "
        f"honest ones {sum(one['carso']['unreliable'] for one in honest)} are objected to."
    )
    expected = sum(len(CLASSIFIERS) - one.robust_only for one in EXHIBITS.values())
    if len(shown) < expected:
        text += f" {expected - len(shown)} of {expected} rows are not measured yet."
    for name, title in (("autoattack", "AutoAttack standard"), ("foolbox", "foolbox's PGD")):
        asked = [one for one in broken if one.get(name, {}).get("said") is not None]
        if not asked:
            continue
        alone = {  # what the library leaves of the classifier by itself, where that is known
            one["classifier"]: one[name]["said"]
            for one in shown
            if one["exhibit"] == "bare" and one.get(name, {}).get("said") is not None
        }
        past = [
            one
            for one in asked
            if one[name]["said"] > {**own, **alone}[one["classifier"]] + CLOSE
            and not one[name].get("warned")
        ]
        text += (
            f" {title} was asked of {len(asked)}; {len(past)} stand more than two points above "
            "what it leaves of their classifier, without a warning."
        )
    return text


LEGEND = (
    'Right under attack, as each says it itself. "warns": the library\'s own checks, which look at '
    "randomness, zero gradients and the like, speak up. AutoAttack rand and foolbox's mean over 10 "
    "draws are for what is random. foolbox's PGD has 40 steps and no checks; it is there as what a "
    "user gets at once. `python scripts/museum.py` makes the records."
)
MUSEUM_PARTS = {"museum": museum}

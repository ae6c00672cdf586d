"""What ten times the budget takes from a record, for the documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hardening_parts import BASELINES, present
from records import RESULTS, record, table

REFUTATIONS = RESULTS / "refutations"


def is_of_now(path: Path, found: dict[str, Any]) -> bool:
    """Whether a refutation is of the record that is committed, not of one before it."""
    made = record(RESULTS / path.name)["provenance"]["revision"]
    return bool(found["of"]["revision"] == made)


def refutations() -> str:
    """What longer attacks broke of the images that a record left standing by least."""
    rows = []
    for path in sorted(REFUTATIONS.glob("*.json")):
        found = record(path)
        margins = found["before"]["worst_margin"]
        before, after = (found[when]["worst_right"] for when in ("before", "after"))
        count, draws = found["images"]["of"], found["draws"]
        worse = [min(pair) for pair in zip(before, after, strict=True)]
        broken = sum(now == 0 < was for was, now in zip(before, worse, strict=True))
        spent = found.get("gradients")
        times = f"{spent / found['gradients_of_record']:.1f}" if spent else "unknown"
        earlier = "" if is_of_now(path, found) else ", as it was before"
        rows.append(
            f"| `{path.name}`{earlier} | {len(margins)} of {count} | "
            f"{margins[0]:.3f} to {margins[-1]:.3f} | {times} | {broken} | "
            f"{sum(before) / draws:.1f} | {sum(worse) / draws:.1f} | "
            f"{(sum(worse) - sum(before)) / draws / count:+.4f} | {found['seed']} |"
        )
    head = (
        "| record | images attacked anew | their margins | gradients per image over the record's | "
        "broken on all draws | right before, mean of draws | right after, the worse of both | "
        "change of the record's worst case | seed |"
    )
    return table(head, rows)


def refuted() -> str:
    """What refutations took from each hardened defence, and which have not been asked."""
    taken, missing = [], []
    for name in present(dict.fromkeys(BASELINES.values())):
        path, title = REFUTATIONS / f"{name}.json", f"`{name.removesuffix('-adaptive')}`"
        found = record(path) if path.exists() else None
        if found and "taken" in found and is_of_now(path, found):
            taken.append(f"{title} {found['taken']:.4f}")
        else:
            missing.append(title)
    words = (
        "Ten times the gradients of a record, on the images that it left standing by least, take "
        f"from its worst case: {', '.join(taken)}."
    )
    return words + (f" Not refuted yet: {', '.join(missing)}." if missing else "")


REFUTATION_PARTS = {"refutations": refutations, "refuted": refuted}

"""Purifiers of other kinds beside the paper's, around one classifier, for `docs/results.md`."""

from __future__ import annotations

from typing import Any

from records import RESULTS, record, table

from carso.report.record_tables import difference, interval

GENERATORS = {
    "fashion-200-bare-adaptive": "the classifier alone",
    "fashion-200-adaptive": "vae, as the paper trains (the shipped `fashion`, on all images)",
    "fashion-unet-adaptive": "unet, as the paper trains",
    "fashion-flow-adaptive": "flow, as the paper trains",
    "fashion-unet-hardened-adaptive": "unet, hardened",
    "fashion-flow-hardened-adaptive": "flow, hardened",
}
"""The records by name, and what each is of."""
WORTH = ("1", "2", "8")


def generators() -> str:
    """Clean, worst case, and what the candidates are worth."""
    alone, *_ = GENERATORS
    first = record(RESULTS / f"{alone}.json")
    rows = []
    for name, what in GENERATORS.items():
        path = RESULTS / f"{name}.json"
        found = first if name == alone else record(path) if path.exists() else None
        cells = row(found, first) if found else ["not run", *[""] * 6]
        rows.append(f"| {what} | {' | '.join(cells)} |")
    head = (
        "| purifier | images | clean | worst case | minus the first line's | "
        "candidates differ, per pixel | labels of candidates differ | "
        "worst examples right with N = 1, 2, 8 |"
    )
    return table(head, rows)


def row(found: dict[str, Any], first: dict[str, Any]) -> list[str]:
    accuracy = found["accuracy"]
    cells = [
        str(found["data"]["count"]),
        f"{accuracy['clean']['value']:.3f}",
        interval(accuracy["worst"]),
        difference(found, first),
    ]
    figures = next(d for d in found["diagnostics"] if d["name"] == "diversity")["figures"]
    if not figures:
        return [*cells, *[""] * 3]
    worth = figures.get("by_samples", {})
    return [
        *cells,
        f"{figures['pixel_deviation']:.4f}",
        f"{figures['disagreeing']:.3f}",
        ", ".join(f"{worth[size]:.3f}" if size in worth else "not measured" for size in WORTH),
    ]


GENERATOR_PARTS = {"generators": generators}

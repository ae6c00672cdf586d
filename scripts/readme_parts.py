"""The generated parts of README: the numbers that matter, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from records import RESULTS, record

from carso.report.record_tables import interval
from carso.report.table_formats import as_markdown


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of the table."""

    record: str
    """Its name in docs/results."""
    what: str


LINES = (
    Line(record="fashion-bare-adaptive", what="a classifier trained against attacks"),
    Line(record="fashion-randaa-released", what="the paper's purifier around it"),
    Line(record="fashion-adaptive", what="the paper's purifier around it"),
    Line(record="fashion-anchored-unet-adaptive", what="a hardened U-Net beside it"),
    Line(record="fashion-retrofit-bare-standard", what="a classifier trained on clean images"),
    Line(record="fashion-retrofit-unet-adaptive", what="a hardened U-Net around that"),
)
"""At most six, from the top of the table to its end."""

BASELINES = (
    "fashion-retrofit-unet-baseline-adaptive",
    "fashion-retrofit-unet-baseline-by-time-adaptive",
)
"""The classifier of the last line, trained on against attacks."""

ATTACKERS = {
    "adaptive": "the adaptive suite",
    "standard": "AutoAttack standard",
    "randaa-released": "the published protocol",
}
"""Suites and attacks, as a stranger would call them."""

DATA_SETS = {"fashion-embedded": "Fashion-MNIST", "cifar10": "CIFAR-10"}


def headline() -> str:
    """A row for each of the lines."""
    header = (
        "",
        "what",
        "attacked by",
        "test images",
        "eps",
        "clean",
        "under attack",
        "diagnostics",
    )
    rows = []
    for number, line in enumerate(LINES, start=1):
        found = record(RESULTS / f"{line.record}.json")
        accuracy = found["accuracy"]
        rows.append(
            (
                str(number),
                line.what,
                ATTACKERS[found["suite"]["name"]],
                images(found),
                ball(found["threat"]),
                f"{accuracy['clean']['value']:.3f}",
                interval(accuracy["worst"]),
                "**UNRELIABLE**" if found["unreliable"] else "no objection",
            )
        )
    return as_markdown((header, rows))


def images(found: dict[str, Any]) -> str:
    """How many test images, of what."""
    return f"{found['data']['count']}, {DATA_SETS[found['data']['set']]}"


def ball(threat: dict[str, Any]) -> str:
    """The radius; the norm is said where it is not the usual one."""
    words = f"{threat['eps']:.3g}"
    return words if threat["norm"] == "Linf" else f"{words}, {threat['norm']}"


def beside() -> str:
    """The fair baselines of the last line: of as many passes, and of as much time."""
    passes, time = (record(RESULTS / f"{name}.json")["accuracy"] for name in BASELINES)
    return (
        "With as many gradient passes of adversarial training on its own weights (the best of "
        f"three rates), the classifier of row 5 reaches {reached(passes)} under the adaptive "
        f"suite; with as many steps as take the time of row 6's, {reached(time)}."
    )


def reached(accuracy: dict[str, Any]) -> str:
    """Without attack, and under it."""
    return f"{accuracy['clean']['value']:.3f} clean and {interval(accuracy['worst'])}"


README_PARTS = {"headline": headline, "headline-baseline": beside}

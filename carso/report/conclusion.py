"""What records say, in one sentence, and whether their numbers can be trusted. No praise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carso.evaluation.record import FEW
from carso.evaluation.statistics import paired_difference
from carso.report.record_tables import outcomes, radius, title

Record = dict[str, Any]

NAMED = 2
"""So many ties are named in a headline; more are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trust:
    """Whether a number can be trusted. It says nothing on whether the number is high."""

    kind: str
    """yes, few or no."""
    badge: str
    words: str


def trust(record: Record) -> Trust:
    if record["unreliable"]:
        return Trust(
            kind="no", badge="number not trusted",
            words="The worst case is only an upper bound: a better attack may leave less.",
        )  # fmt: skip
    if record["data"]["count"] < FEW:
        return Trust(
            kind="few", badge="too few images to tell",
            words=f"With fewer than {FEW} images the diagnostics can hardly object.",
        )  # fmt: skip
    return Trust(kind="yes", badge="number trusted", words="No diagnosis speaks against it.")


def groups(records: Sequence[Record]) -> list[list[int]]:
    """The positions of records of one data set under one threat: only those are compared."""
    found: dict[tuple[str, str], list[int]] = {}
    for position, record in enumerate(records):
        found.setdefault((record["data"].get("set", ""), radius(record)), []).append(position)
    return list(found.values())


def conclusions(records: Sequence[Record]) -> list[str]:
    """Sentences, the headline first: of one record its numbers, of several the highest and the
    lowest of each group, the largest group first."""
    if len(records) == 1:
        return [of_one(records[0])]
    if all(record["unreliable"] for record in records):
        return [
            f"None of these {len(records)} numbers is to be trusted: each is only an upper bound."
        ]
    largest_first = sorted(groups(records), key=len, reverse=True)
    clauses = [of_several([records[i] for i in group]) for group in largest_first]
    trusted = [record for record in records if not record["unreliable"]]
    if len(trusted) == 1:
        others = len(records) - 1
        rest = "The other number is" if others == 1 else f"The other {others} numbers are"
        return [of_one(trusted[0]), f"{rest} not to be trusted."]
    return [clause for clause in clauses if clause] or [
        f"These {len(records)} records leave nothing to compare: no two numbers to be trusted are "
        "of the same images under the same threat."
    ]


def of_one(record: Record) -> str:
    accuracy, count = record["accuracy"], record["data"]["count"]
    worst, clean = (f"{accuracy[key]['value']:.3f}" for key in ("worst", "clean"))
    images = f"{count} image" if count == 1 else f"{count} images"
    if record["unreliable"]:
        return (
            f"{title(record)}: the {worst} of {images} found right under attack within "
            f"eps = {radius(record)} is not to be trusted, it is only an upper bound."
        )
    return (
        f"{title(record)}: {worst} of {images} are labelled right under attack within "
        f"eps = {radius(record)}, {clean} without attack."
    )


def of_several(group: Sequence[Record]) -> str:
    """The highest and the lowest worst case among the trusted records of the same images.

    What was evaluated by several suites counts with its lowest number. Nothing where fewer than
    two are left to compare.
    """
    lowest = lowest_of_each(most_on_same_images([r for r in group if not r["unreliable"]]))
    if len(lowest) < 2:
        return ""
    ranked = sorted(lowest, key=worst, reverse=True)
    first, last = ranked[0], ranked[-1]
    tied = [other for other in ranked[1:] if not told_apart(first, other)]
    of_set = f" of {first['data']['set']}" if first["data"].get("set") else ""
    where = f"Of {first['data']['count']} images{of_set} attacked within eps = {radius(first)},"
    if len(tied) == len(ranked) - 1:
        return (
            f"{where} {named(first)} keeps the most right, {worst(first):.3f}, but these images "
            "tell none of the others apart from it."
        )
    most = f"{named(first)} keeps the most right, {worst(first):.3f}"
    if tied:
        names = " and ".join(map(named, tied))
        most += f", not told apart from {names if len(tied) <= NAMED else f'{len(tied)} others'}"
    return f"{where} {most}, and {named(last)} the fewest, {worst(last):.3f}."


def named(record: Record) -> str:
    """The title for the middle of a sentence, where commas of its own would mislead."""
    first, comma, rest = title(record).partition(", ")
    return f"{first} ({rest})" if comma and not record.get("title") else title(record)


def worst(record: Record) -> float:
    return float(record["accuracy"]["worst"]["value"])


def most_on_same_images(records: Sequence[Record]) -> list[Record]:
    """The largest set of records that are of the very same images."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["data"]["sha256"], []).append(record)
    return max(found.values(), key=len, default=[])


def lowest_of_each(records: Sequence[Record]) -> list[Record]:
    found: dict[str, Record] = {}
    for record in records:
        before = found.get(title(record))
        found[title(record)] = record if before is None else min(before, record, key=worst)
    return list(found.values())


def told_apart(first: Record, second: Record) -> bool:
    """Whether the interval of their paired difference is on one side of zero."""
    found = paired_difference(outcomes(first), outcomes(second))
    return found.low > 0 or found.high < 0

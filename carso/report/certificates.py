"""Records of `carso certify` as a table, a sentence and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carso.certification.bounds import linf_radius
from carso.evaluation.statistics import Proportion
from carso.report.table_formats import Row, Table

Record = dict[str, Any]

CAPTION = "Certified accuracy against the L2 radius"
STYLES, THICKEST = 6, 2
"""Lines that can be told apart, in style.css."""
WIDEST = 3
"""Columns of records; of more, each has a line instead."""


def is_certificate(record: Record) -> bool:
    """Whether a record is one of `carso certify`; those of `carso evaluate` have no kind."""
    return record.get("kind") == "certificate"


def certificate_title(record: Record) -> str:
    if record.get("title"):
        return str(record["title"])
    return f"{record['subject']['name']}, sigma = {record['smoothing']['sigma']:g}"


def certificate_table(records: Sequence[Record]) -> Table:
    """A column per record; how it was certified, then a line per radius, with the largest
    L-infinity ball inside it where all images have as many numbers. Many records have a line
    each."""
    radii = sorted({row["radius"] for record in records for row in record["accuracy"]})
    stated = [{row["radius"]: str(proportion(row)) for row in r["accuracy"]} for r in records]
    rows: list[Row] = [
        ("images", *(str(count(record)) for record in records)),
        ("draws per image", *(str(record["smoothing"]["draws"]) for record in records)),
        *lowered(records),
        ("each wrong at most", *(f"{record['smoothing']['alpha']:g}" for record in records)),
        ("abstained", *(str(record["abstained"]) for record in records)),
        *((radius_title(at, records), *(v.get(at, "") for v in stated)) for at in radii),
    ]
    header = ("", *(certificate_title(record) for record in records))
    if len(records) <= WIDEST:
        return header, rows
    first, *others = zip(header, *rows, strict=True)
    return tuple(first), [tuple(row) for row in others]


def lowered(records: Sequence[Record]) -> list[Row]:
    """The precision of the passes, a row that only those in bfloat16 call for."""
    known = [record["smoothing"].get("precision", "32-true") for record in records]
    return [("precision", *known)] if set(known) != {"32-true"} else []


def radius_title(at: float, records: Sequence[Record]) -> str:
    """The name of a line of the table."""
    sizes = {record["pixels"] for record in records}
    if at == 0 or len(sizes) > 1:
        return f"L2 radius {at:g}"
    return f"L2 radius {at:g} (Linf {linf_radius(at, sizes.pop()):.2g})"


def section(records: Sequence[Record]) -> dict[str, Any]:
    """What the template shows of certificates."""
    return {"table": certificate_table(records), "plot": certified_plot(records)}


def certificate_conclusion(records: Sequence[Record]) -> str:
    """One sentence: the certified accuracy within the smallest radius above zero that all state."""
    shared = set.intersection(*({row["radius"] for row in r["accuracy"]} for r in records))
    at = min((radius for radius in shared if radius > 0), default=0.0)
    best = max(records, key=lambda record: value_at(record, at))
    name, images, value = certificate_title(best), count(best), value_at(best, at)
    sure = f"(each certificate is wrong with probability at most {best['smoothing']['alpha']:g})"
    of_images = f"{value:.3f} of {images} {'image' if images == 1 else 'images'}"
    if len(records) == 1:
        verb = "is" if images == 1 else "are"
        return f"{name}: within L2 radius {at:g}, {of_images} {verb} certified right {sure}."
    return (
        f"Within L2 radius {at:g} the highest certified accuracy of these {len(records)} records "
        f"is {of_images}, of {name} {sure}."
    )


def value_at(record: Record, at: float) -> float:
    return next(float(row["value"]) for row in record["accuracy"] if row["radius"] == at)


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifiedCurve:
    """Certified accuracy as a falling staircase: a step at the radius of each image."""

    name: str
    images: int
    corners: list[tuple[float, float]]
    """Radius in [0, 1] of the plot's width, and accuracy."""
    style: int
    """Colour and dashes: one for each defence."""
    thickness: int
    """One for each sigma, from thin to thick: 1 where there is but one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifiedPlot:
    curves: list[CertifiedCurve]
    ticks: list[tuple[float, str]]
    """Where on the radius axis, in [0, 1] of the width, and what stands there."""
    alt: str


def certified_plot(records: Sequence[Record]) -> CertifiedPlot:
    every = [certified_radii(record) for record in records]
    names = list(dict.fromkeys(record["subject"]["name"] for record in records))
    sigmas = sorted({record["smoothing"]["sigma"] for record in records})
    widest = max((max(radii) for radii in every if radii), default=0.0) * 1.05 or 1.0
    curves = [
        CertifiedCurve(
            name=certificate_title(record),
            images=count(record),
            corners=[(at / widest, value) for at, value in staircase(radii, count(record), widest)],
            style=names.index(record["subject"]["name"]) % STYLES,
            thickness=thickness(sigmas, record["smoothing"]["sigma"]),
        )
        for record, radii in zip(records, every, strict=True)
    ]
    said = "; ".join(
        f"{certificate_title(record)}: "
        + ", ".join(f"{row['value']:.3f} at {row['radius']:g}" for row in record["accuracy"])
        for record in records
    )
    return CertifiedPlot(curves=curves, ticks=round_ticks(widest), alt=f"{CAPTION}. {said}")


def thickness(sigmas: Sequence[float], sigma: float) -> int:
    return 1 if len(sigmas) == 1 else min(sigmas.index(sigma), THICKEST)


def round_ticks(widest: float) -> list[tuple[float, str]]:
    """At most eight round numbers from 0 to the widest, and where they stand."""
    step = next(s for s in (0.05, 0.1, 0.25, 0.5, 1, 2, 5, widest) if 1 <= widest / s < 8)
    return [(i * step / widest, f"{i * step:g}") for i in range(int(widest / step) + 1)]


def certified_radii(record: Record) -> list[float]:
    """The radii of the images that are right and certain, from small to large."""
    images = record["images"]
    return sorted(
        radius
        for radius, chosen, label in zip(
            images["radius"], images["selected"], images["label"], strict=True
        )
        if chosen == label and radius > 0
    )


def staircase(radii: Sequence[float], images: int, widest: float) -> list[tuple[float, float]]:
    """The corners of the curve of certified accuracy, from radius 0 to the widest."""
    corners = [(0.0, len(radii) / images)]
    for done, at in enumerate(radii):
        corners += [(at, (len(radii) - done) / images), (at, (len(radii) - done - 1) / images)]
    return [*corners, (widest, 0.0)]


def count(record: Record) -> int:
    return len(record["images"]["label"])


def proportion(row: dict[str, float]) -> Proportion:
    return Proportion(value=row["value"], low=row["low"], high=row["high"])

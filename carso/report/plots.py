"""The curve, the strips and the histogram of the page as numbers; the template draws them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from carso.attacks.probe import KINDS
from carso.evaluation.statistics import percent

Record = dict[str, Any]

BINS = 24
"""About so many columns on either side of a histogram together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    across: float
    """Where, in [0, 1] of the width."""
    value: float
    eps: str
    times: str
    """Multiple of the threat's eps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Accuracy against eps. The points are evenly spaced: eps = 0.95 is far from all others."""

    points: list[Point]
    chance: float
    steps: int
    images: int
    """On how many it was measured; 0 where that is not recorded."""
    threat: float | None
    """Where the threat's eps lies, in [0, 1] of the width, if inside the curve."""
    worst: float | None
    """The worst case of the very images of the curve; None where these are not known."""


def curve(record: Record) -> Curve | None:
    curves = [d["figures"] for d in record["diagnostics"] if d["name"] == "curve"]
    figures: dict[str, Any] = curves[0] if curves else {}
    found, base = figures.get("points") or [], record["threat"]["eps"]
    if not found:
        return None
    points = [
        Point(
            across=(i + 0.5) / len(found),
            value=value,
            eps=f"{eps:.4g}",
            times=f"{eps / base:.3g}×" if eps else "",
        )
        for i, (eps, value) in enumerate(found)
    ]
    # The curve's radii are rounded to six decimals, so equality is too much to ask.
    at = [p.across for p, (eps, _) in zip(points, found, strict=True) if abs(eps - base) < 1e-6]
    return Curve(
        points=points,
        chance=figures["chance"],
        steps=figures["steps"],
        images=figures.get("images", 0),
        threat=at[0] if at else None,
        worst=worst_of_first(record, figures.get("images", 0)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TriesCurve:
    """Accuracy against the number of tries that an attacker gets, evenly spaced."""

    points: list[tuple[float, int, float]]
    """Where, in [0, 1] of the width; how many tries; the accuracy."""
    draws: int


def tries(record: Record) -> TriesCurve | None:
    found = record.get("tries")
    if not found:
        return None
    values = [share["value"] for share in found["accuracy"]]
    points = [((i + 0.5) / len(values), i + 1, value) for i, value in enumerate(values)]
    return TriesCurve(points=points, draws=found["draws"])


def worst_of_first(record: Record, images: int) -> float | None:
    """The share right under the worst attack, of the first so many images."""
    right = record["images"]["worst_right"][:images]
    return sum(right) / len(right) / int(record["suite"]["draws"]) if right else None


@dataclass(frozen=True, kw_only=True, slots=True)
class LineRun:
    """Steps in a row whose gradients were alike, and the shares of the useless ones."""

    steps: int
    seen: bool
    nan: float
    infinite: float
    zero: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """The gradients of one attack, from its first step to its last."""

    name: str
    why_not: str
    """Why there is nothing to show, if so."""
    runs: list[LineRun]
    shares: list[tuple[str, str, bool]]
    """Kind, share, and whether there are any."""
    spoiled: bool


def strips(record: Record) -> list[Strip]:
    found = []
    for attack in record["attacks"]:
        shares = [(kind, attack["gradients"][kind]) for kind in ("nan", "infinite", "zero")]
        if attack["outputs_not_finite"]:
            shares.append(("outputs not finite", attack["outputs_not_finite"]))
        why_not = ""
        if not attack["attacked"]:
            why_not = "attacked no image"
        elif not attack["passes"]["backward"]:
            why_not = "follows no gradients"
        found.append(
            Strip(
                name=attack["name"],
                why_not=why_not,
                runs=runs(attack["gradient_steps"]),
                shares=[
                    ("NaN" if kind == "nan" else kind, percent(value), value > 0)
                    for kind, value in shares
                ],
                spoiled=bool(attack["unreliable"]),
            )
        )
    return found


def runs(steps: dict[str, list[int]]) -> list[LineRun]:
    """Steps joined where nothing changes: mostly all of them."""
    columns = [
        (total > 0, *(count / max(1, total) for count in bad))
        for total, *bad in zip(*(steps[kind] for kind in KINDS), strict=True)
    ]
    return [
        LineRun(steps=len(list(same)), seen=seen, nan=nan, infinite=infinite, zero=zero)
        for (seen, nan, infinite, zero), same in groupby(columns)
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartColumn:
    """Images whose lead lies in a span, without attack and under the worst one."""

    low: float
    high: float
    clean: int
    worst: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    columns: list[ChartColumn]
    highest: int
    zero: float
    """Where no lead is, in [0, 1] of the width."""
    unknown: int
    """Margins that were not finite."""


def histogram(record: Record) -> Histogram | None:
    """The leads of the right class; zero is always an edge between columns."""
    every = [record["images"][key] for key in ("clean_margin", "worst_margin")]
    clean, worst = ([value for value in values if value is not None] for values in every)
    known = [*clean, *worst]
    if not known:
        return None
    width = step(max(0.0, *known) - min(0.0, *known))
    places = [Counter(math.floor(value / width) for value in values) for values in (clean, worst)]
    first, last = min(0, *places[0], *places[1]), max(0, *places[0], *places[1])
    columns = [
        ChartColumn(low=i * width, high=(i + 1) * width, clean=places[0][i], worst=places[1][i])
        for i in range(first, last + 1)
    ]
    return Histogram(
        columns=columns,
        highest=max(max(column.clean, column.worst) for column in columns),
        zero=-first / len(columns),
        unknown=sum(map(len, every)) - len(known),
    )


def step(span: float) -> float:
    """The width of a column: 1, 2 or 5 times a power of ten."""
    rough = span / BINS or 1.0
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))

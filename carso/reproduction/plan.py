"""What is trained and measured for the tables, read from `plan.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carso.errors import CarsoError

FILE = Path(__file__).with_name("plan.toml")
STAGES = ("classifier", "purifier", "hardening")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """A training."""

    scenario: str
    preset: str = ""
    """Of the scenario."""
    stages: tuple[str, ...] = STAGES
    """Which of the scenario's."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the scenario."""
    classifier: str = ""
    """The run whose classifier is taken over."""
    on: str = ""
    """The data set whose test images it is measured on, instead of its own."""
    most: int = 10_000
    """Test images that it is measured on at most."""
    bring: str = ""
    """The classifier's weights are the user's to bring, as a file of this name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """A row of most tables: a defence as in the paper, and the runs that other rows need."""

    name: str
    defence: str
    hardened: str = ""
    clean: str = ""
    """The same scenario around a classifier trained on clean images."""
    retrofit: str = ""
    """Hardened around that classifier."""
    weaker: tuple[str, ...] = ()
    """Around weaker robust classifiers, hardened ones among them."""
    tables: tuple[str, ...] = ()
    """The tables that it has a row in; none named: all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """A suite, or attacks of their own, on some test images."""

    images: int
    suite: str = ""
    attacks: tuple[str, ...] = ()
    eps: float | None = None
    within: str = ""
    """The measurement of more images whose record serves as well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """All that the tables of one scale rest on."""

    name: str
    what: str
    needs: str
    runs: Mapping[str, PlannedRun]
    benches: tuple[Bench, ...]
    measurements: Mapping[str, Measurement]


def scales() -> list[str]:
    return list(tomllib.loads(FILE.read_text(encoding="utf-8")))


def read_scale(name: str) -> Scale:
    """The scale called `name`."""
    found = tomllib.loads(FILE.read_text(encoding="utf-8"))
    if name not in found:
        raise CarsoError(f"there is no scale {name!r}; there are {', '.join(found)}")
    table = found[name]
    return Scale(
        name=name,
        what=table["what"],
        needs=table["needs"],
        runs={key: PlannedRun(**as_tuples(entry)) for key, entry in table["runs"].items()},
        benches=tuple(Bench(**as_tuples(entry)) for entry in table["benches"]),
        measurements={
            key: Measurement(**as_tuples(entry)) for key, entry in table["measurements"].items()
        },
    )


def as_tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}

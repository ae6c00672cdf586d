"""What is trained and measured for the tables, read from `plan.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from carso.errors import CarsoError
from carso.scenario.parser import from_table, merged, read
from carso.scenario.schema import Scenario
from carso.scenario.tables import as_table

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

    @property
    def attacked_by(self) -> str:
        """The suite's name in a record."""
        return ", ".join(self.attacks) or self.suite


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredDefence:
    """Who is attacked: a run's defence, as it is or changed."""

    run: str
    bare: bool = False
    """Its classifier alone."""
    aggregation: str = ""
    final: str = ""
    """The run whose classifier labels the candidates instead (the paper's ablation)."""

    @property
    def name(self) -> str:
        """The beginning of the name of its records."""
        words = [self.run, "bare" if self.bare else "", self.aggregation]
        return "-".join(word for word in (*words, self.final and f"then-{self.final}") if word)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRecord:
    """A measurement of a defence."""

    defence: MeasuredDefence
    measurement: str

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.defence.name}-{self.measurement}"

    @property
    def runs(self) -> tuple[str, ...]:
        """Whose weights it is a measurement of."""
        return (self.defence.run, self.defence.final) if self.defence.final else (self.defence.run,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """All that the tables of one scale rest on."""

    name: str
    what: str
    needs: str
    runs: Mapping[str, PlannedRun]
    benches: tuple[Bench, ...]
    measurements: Mapping[str, Measurement]
    known: dict[str, Scenario] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Scenarios that were asked for: each is read once."""

    def scenario(self, run: str) -> Scenario:
        """The scenario of a run, with the stages that it asks for."""
        if run not in self.known:
            self.known[run] = scenario_of(run, self.runs[run])
        return self.known[run]

    def measurement(self, wanted: PlannedRecord) -> Measurement:
        """What is asked of a record, on no more images than its run is measured on."""
        found, planned = self.measurements[wanted.measurement], self.runs[wanted.defence.run]
        return replace(found, images=min(found.images, planned.most))

    def larger(self, wanted: PlannedRecord) -> PlannedRecord | None:
        """The record of more images that would serve as well."""
        within = self.measurements[wanted.measurement].within
        return replace(wanted, measurement=within) if within else None


def scenario_of(name: str, planned: PlannedRun) -> Scenario:
    """The scenario of a run, changed as planned, with the stages that it asks for."""
    found = merged(as_table(read(planned.scenario, preset=planned.preset)), dict(planned.changes))
    scenario = from_table({**found, "name": name}, source=f"the run {name}")
    if "purifier" not in planned.stages:
        purifier = replace(scenario.purifier, attacks=None, training=None)
        scenario = replace(scenario, purifier=purifier)
    return scenario if "hardening" in planned.stages else replace(scenario, hardening=None)


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

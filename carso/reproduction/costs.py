"""What a job will probably take, from what earlier ones took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from carso.defence.shipped import folder_of, names
from carso.errors import CarsoError
from carso.reproduction.plan import PlannedRecord, Scale
from carso.reproduction.times import minutes_of, times_in
from carso.scenario.tables import as_table
from carso.storage.files import read_json

COMMITTED = Path(__file__).parents[2] / "docs" / "results"
"""The records of a checkout of this repository; an installed package has none."""

Kind = tuple[Any, ...]
"""Evaluations that take about as long for an image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownCosts:
    """What earlier evaluations and trainings took."""

    seconds_of_record: Mapping[str, float]
    """For an image, by the name of the record."""
    seconds_of_kind: Mapping[Kind, float]
    """For an image, in the mean of all records of a kind."""
    minutes_of_stage: Mapping[tuple[str, str], float]
    """By run and stage."""

    def training(self, run: str, stages: Iterable[str]) -> float | None:
        """The minutes that these stages of a run took before, if that is known of all."""
        found = [self.minutes_of_stage.get((run, stage)) for stage in stages]
        known = [minutes for minutes in found if minutes is not None]
        return sum(known) if len(known) == len(found) else None

    def evaluation(self, scale: Scale, wanted: PlannedRecord) -> float | None:
        """The minutes of a record, by the same one elsewhere, or by others of its kind."""
        seconds = self.seconds_of_record.get(wanted.name)
        if seconds is None:
            seconds = self.seconds_of_kind.get(kind_of_planned(scale, wanted))
        return None if seconds is None else seconds * scale.measurement(wanted).images / 60


def known_costs(folders: Iterable[Path]) -> KnownCosts:
    """What the records and times in `folders` say, and the weights that ship; of what stands
    twice, the first."""
    records: dict[str, float] = {}
    kinds: defaultdict[Kind, list[float]] = defaultdict(list)
    stages: dict[tuple[str, str], float] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            with suppress(CarsoError, KeyError, TypeError):  # no record, or of another shape
                record = read_json(path)
                seconds = record["provenance"]["seconds"] / record["data"]["count"]
                kinds[kind_of_record(record)].append(seconds)
                records.setdefault(path.stem, seconds)
        for path in sorted((folder / "times").glob("*.json")):
            with suppress(CarsoError):  # who needs it will say that it is damaged
                keep(stages, path.stem, times_in(path))
    for name in names():
        keep(stages, name, minutes_of(folder_of(name)))
    return KnownCosts(
        seconds_of_record=records,
        seconds_of_kind={kind: mean(seconds) for kind, seconds in kinds.items()},
        minutes_of_stage=stages,
    )


def keep(stages: dict[tuple[str, str], float], run: str, found: Mapping[str, Any]) -> None:
    """Add the minutes of a run's stages where none are known."""
    for stage, about in found.items():
        stages.setdefault((run, stage), float(about["minutes"]))


def kind_of_record(record: Mapping[str, Any]) -> Kind:
    """What decides how long an image takes, as a record has it."""
    subject = record["subject"]
    return kind(record["suite"]["name"], subject.get("samples"), record["scenario"])


def kind_of_planned(scale: Scale, wanted: PlannedRecord) -> Kind:
    """The same of a record that is planned."""
    scenario = scale.scenario(wanted.defence.run)
    used = scenario.defence if scenario.hardening is None else scenario.hardening
    samples = None if wanted.defence.bare else used.samples
    return kind(scale.measurement(wanted).attacked_by, samples, as_table(scenario))


def kind(suite: str, samples: int | None, scenario: Mapping[str, Any]) -> Kind:
    """A suite on a network, for images of one size, with so many candidates."""
    network = scenario["classifier"]
    return (suite, samples, scenario["data"]["set"], network.get("depth"), network.get("width"))

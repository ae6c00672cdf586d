"""Where the runs and records of a scale lie, and what of them is there. It only reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carso.data.loading import FOLDER_PREFIX
from carso.defence.on_disk import in_use
from carso.defence.shipped import folder_of, names
from carso.errors import CarsoError
from carso.evaluation.record import read as read_record
from carso.evaluation.suites import lacking
from carso.reproduction.plan import PlannedRecord, Scale
from carso.reproduction.times import minutes_of, times_in
from carso.threats.norms import DEFAULT

Record = dict[str, Any]
ITSELF = "itself"
"""Who answers where it is not the classifier of another run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultsFolder:
    """The results of a scale in `folder`."""

    scale: Scale
    folder: Path
    records: Path | None = None
    """Where the records are, if not in `folder`."""
    retrain: bool = False
    """Whether weights that ship with the package do not count."""
    seed: int = 0
    """Of the records."""

    @property
    def records_folder(self) -> Path:
        return self.folder / "records" if self.records is None else self.records

    def ships(self, run: str) -> bool:
        """Whether a run's weights come with the package."""
        return run in names() and not self.retrain

    def run_name(self, run: str) -> str:
        """What a run's defence is loaded by: a shipped name, or its folder."""
        return run if self.ships(run) else str(self.run_folder(run))

    def run_folder(self, run: str) -> Path:
        """Where a run is, or is to be trained."""
        return folder_of(run) if self.ships(run) else self.folder / "runs" / run

    def stages(self, run: str) -> tuple[str, ...]:
        """The stages that a run itself trains: a classifier that is taken over is not."""
        planned, scenario = self.scale.runs[run], self.scale.scenario(run)
        trained = {
            "classifier": not planned.classifier and not planned.bring,
            "purifier": scenario.purifier.training is not None,
            "hardening": scenario.hardening is not None,
        }
        return tuple(stage for stage, asked in trained.items() if asked)

    def stages_to_train(self, run: str) -> list[str]:
        """Those of a run's stages that are not finished."""
        folder = self.run_folder(run)
        ends = ("safetensors", "json")
        return [
            stage
            for stage in self.stages(run)
            if not all((folder / f"{stage}.{end}").is_file() for end in ends)
        ]

    def record_path(self, wanted: PlannedRecord) -> Path:
        """Where a record is, or is to be; that of more images serves where it is there alone."""
        own, larger = self.own_path(wanted), self.scale.larger(wanted)
        if larger is None or own.exists() or not self.own_path(larger).exists():
            return own
        return self.own_path(larger)

    def own_path(self, wanted: PlannedRecord) -> Path:
        """The file that is a record's own."""
        return self.records_folder / f"{wanted.name}.json"

    def record(self, wanted: PlannedRecord) -> Record | None:
        """The record of a measurement, or None where it is not there."""
        path = self.record_path(wanted)
        return self.checked(path, wanted) if path.exists() else None

    def outdated(self, wanted: PlannedRecord) -> bool:
        """Whether a record is there and would be made otherwise now: on more images, or with more
        attacks."""
        record = self.record(wanted)
        if record is None:
            return False
        fewer = record["data"]["count"] < self.scale.measurement(wanted).images
        return fewer or bool(lacking(record))

    def images(self, wanted: PlannedRecord) -> int:
        """On how many a record is made: as many as are planned, and no fewer than it has."""
        record = self.record(wanted)
        planned = self.scale.measurement(wanted).images
        return planned if record is None else max(planned, record["data"]["count"])

    def checked(self, path: Path, wanted: PlannedRecord) -> Record:
        """The record in a file, if it is of this measurement; tables say on how many images."""
        record = read_record(path)
        found, asked = found_in(record), self.asked(wanted, record)
        for key, value in asked.items():
            if found[key] != value:
                raise CarsoError(
                    f"{path} is a record of another evaluation: {key} is {found[key]}, wanted is "
                    f"{value}; move it away"
                )
        return record

    def asked(self, wanted: PlannedRecord, record: Record) -> dict[str, Any]:
        """What a record must say; where more than one answer is right, what `record` says."""
        defence, planned = wanted.defence, self.scale.runs[wanted.defence.run]
        settings, measurement = self.scale.scenario(defence.run), self.scale.measurement(wanted)
        data, found = planned.on or settings.data.set, found_in(record)
        # The classifier of another run may be called after that.
        others = (planned.classifier,) if defence.bare else ()
        asked = {
            "suite": measurement.attacked_by,
            "norm": settings.threat.norm,
            "eps": settings.threat.eps if measurement.eps is None else measurement.eps,
            "seed": self.seed,
            "kind": "classifier" if defence.bare else "defence",
            "split": "test",
            "data": data.removeprefix(FOLDER_PREFIX),
            "subject": found["subject"] if found["subject"] in others else defence.run,
        }
        if settings.data.fallback and found["data"] == settings.data.fallback:
            asked["data"] = settings.data.fallback
        if not defence.bare:
            own = in_use(settings, hardened=settings.hardening is not None)["aggregation"]
            asked["aggregation"] = defence.aggregation or own
        if found["answered by"] != ITSELF or not defence.final:  # older ablations do not say
            asked["answered by"] = defence.final or ITSELF
        return asked

    def time_path(self, run: str) -> Path:
        """Where the time of a training is kept, beside the records."""
        return self.records_folder / "times" / f"{run}.json"

    def times(self, run: str) -> dict[str, Record] | None:
        """By stage, how long the training of a run took, and with what; None if it is not known."""
        path = self.time_path(run)
        if path.exists():
            return times_in(path)
        return minutes_of(self.run_folder(run)) if self.ships(run) else None


def found_in(record: Record) -> dict[str, Any]:
    """What a record says of itself."""
    return {
        "suite": record["suite"]["name"],
        "norm": record["threat"].get("norm", DEFAULT),
        "eps": record["threat"]["eps"],
        "seed": record["seed"],
        "kind": record["subject"]["kind"],
        "split": record["data"].get("split"),
        "data": str(record["data"].get("set")).removeprefix(FOLDER_PREFIX),
        "subject": record["subject"]["name"],
        "aggregation": record["subject"].get("aggregation"),
        "answered by": record["subject"].get("answered_by") or ITSELF,
    }

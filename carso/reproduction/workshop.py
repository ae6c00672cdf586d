"""Where the runs and records of a scale are made, each once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from carso.data import DataNotFoundError
from carso.data.loading import FOLDER_PREFIX
from carso.defence.on_disk import folder_of, names, stored
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.evaluation.by_name import Images, evaluate_by_name
from carso.evaluation.record import read as read_record
from carso.report.progress import Bars
from carso.reproduction.plan import Measurement, PlannedRun, Scale
from carso.reproduction.times import minutes_of, times_in
from carso.scenario.parser import as_table, from_table, merged, read
from carso.scenario.schema import Scenario
from carso.storage.files import write_json
from carso.storage.provenance import provenance
from carso.training.train import load_data, train

Record = dict[str, Any]

MAX_BATCH = 1024
"""Candidates in memory at once."""


ENDS = ("", ".safetensors", ".pt", ".pth")
"""Of a classifier's file."""


class Missing(CarsoError):
    """Data or weights that are not here; the rows that need them say so."""


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
        words = [self.run, "bare" if self.bare else "", self.aggregation]
        return "-".join(word for word in (*words, self.final and f"then-{self.final}") if word)


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Makes runs and records in `folder`, or finds them there."""

    scale: Scale
    folder: Path
    device: torch.device
    bars: Bars
    data: Path | None = None
    download: bool = False
    weights: Path | None = None
    """A folder with the classifiers that the user brings, NAME.safetensors or NAME.pt."""
    records: Path | None = None
    """Where the records are, if not in `folder`."""
    retrain: bool = False
    make: bool = True
    """Whether to make what is not there; else it is missing."""
    asked: set[str] = field(default_factory=set)
    """The runs that were not there when they were asked for."""
    seed: int = 0
    processes: Processes = ALONE

    @property
    def kept(self) -> Path:
        """The folder of the records."""
        return self.folder / "records" if self.records is None else self.records

    def record(self, subject: MeasuredDefence, measurement: str) -> Record:
        """The record of a measurement."""
        planned, wanted = self.scale.runs[subject.run], self.wanted(subject, measurement)
        path = self.path(subject, measurement)
        if self.processes.broadcast(path.exists()):
            return self.checked(path, subject, wanted)
        self.asked.update(name for name in (subject.run, subject.final) if name)
        self.may_make(f"the record {path.name}")
        scenario, final = self.scenario(subject.run), None
        if subject.final:
            final = stored(folder_of(self.run(subject.final)), None, self.device).classifier
        try:
            return evaluate_by_name(
                self.run(subject.run),
                Images(
                    count=wanted.images,
                    on=planned.on,
                    folder=self.data,
                    download=self.download,
                ),
                bare=subject.bare,
                aggregation=subject.aggregation,
                final_classifier=final,
                final_name=subject.final,
                max_batch=MAX_BATCH,
                eps=wanted.eps,
                examples=None,
                device=self.device,
                counted=self.bars.announced,
                seed=self.seed,
                suite=wanted.suite,
                attacks=wanted.attacks,
                out=path,
                processes=self.processes,
            )
        except DataNotFoundError:
            raise Missing(f"the data {scenario.data.set} are not here") from None

    def wanted(self, subject: MeasuredDefence, measurement: str) -> Measurement:
        """What is asked of a record."""
        found, planned = self.scale.measurements[measurement], self.scale.runs[subject.run]
        return replace(found, images=min(found.images, planned.most))

    def path(self, subject: MeasuredDefence, measurement: str) -> Path:
        """Where a record is, or is to be; that of more images serves where it is there alone."""
        more = self.scale.measurements[measurement].within
        own, larger = (self.kept / f"{subject.name}-{name}.json" for name in (measurement, more))
        there = self.processes.broadcast(bool(more) and larger.exists() and not own.exists())
        return larger if there else own

    def checked(self, path: Path, subject: MeasuredDefence, wanted: Measurement) -> Record:
        """The record in a file, if it is of this measurement, on as many images or more."""
        record = read_record(path)
        settings = self.scenario(subject.run)
        asked = {
            "suite": ", ".join(wanted.attacks) or wanted.suite,
            "images": wanted.images,
            "eps": settings.threat.eps if wanted.eps is None else wanted.eps,
            "seed": self.seed,
            "kind": "classifier" if subject.bare else "defence",
            "split": "test",
            "data": (self.scale.runs[subject.run].on or settings.data.set).removeprefix(
                FOLDER_PREFIX
            ),
        }
        found = {
            "suite": record["suite"]["name"],
            "images": min(record["data"]["count"], wanted.images),
            "eps": record["threat"]["eps"],
            "seed": record["seed"],
            "kind": record["subject"]["kind"],
            "split": record["data"].get("split"),
            "data": str(record["data"].get("set")).removeprefix(FOLDER_PREFIX),
        }
        if settings.data.fallback and found["data"] == settings.data.fallback:
            asked["data"] = settings.data.fallback
        if subject.aggregation:
            asked["aggregation"] = subject.aggregation
            found["aggregation"] = record["subject"].get("aggregation")
        names = [subject.run]
        if subject.bare:  # which may be the classifier of another run, and be called after that
            names += [self.scale.runs[subject.run].classifier]
        found["subject"] = record["subject"]["name"]
        asked["subject"] = found["subject"] if found["subject"] in names else subject.run
        for key, value in asked.items():
            if found[key] != value:
                raise CarsoError(
                    f"{path} is a record of another evaluation: {key} is {found[key]}, wanted is "
                    f"{value}; move it away"
                )
        return record

    def may_make(self, what: str) -> None:
        if not self.make:
            raise Missing(f"{what} is not made yet")

    def run(self, name: str) -> str:
        """The shipped name or the folder of a run, trained if need be."""
        if name in names() and not self.retrain:
            return name
        self.asked.add(name)
        self.may_make(f"the run {name}")
        folder, planned = self.folder / "runs" / name, self.scale.runs[name]
        scenario = self.scenario(name)
        try:
            data = self.processes.first_then_others(
                lambda: load_data(scenario, self.data, download=self.download)
            )
        except DataNotFoundError:
            raise Missing(f"the data {scenario.data.set} are not here") from None
        self.bars.say(f"the run {name}, in {folder}")
        train(
            scenario,
            data,
            folder,
            device=self.device,
            display=self.bars,
            given=self.given(planned),
            processes=self.processes,
        )
        self.keep_time(name, folder)
        return str(folder)

    def scenario(self, name: str) -> Scenario:
        """The scenario of a run, with the stages that it asks for."""
        planned = self.scale.runs[name]
        found = merged(
            as_table(read(planned.scenario, preset=planned.preset)), dict(planned.changes)
        )
        scenario = from_table({**found, "name": name}, source=f"the run {name}")
        if "purifier" not in planned.stages:
            purifier = replace(scenario.purifier, attacks=None, training=None)
            scenario = replace(scenario, purifier=purifier)
        return scenario if "hardening" in planned.stages else replace(scenario, hardening=None)

    def given(self, planned: PlannedRun) -> Path | None:
        """The file of the classifier that a run takes over, if it does."""
        if planned.classifier:
            return folder_of(self.run(planned.classifier)) / "classifier.safetensors"
        if not planned.bring:
            return None
        for path in self.brought(planned.bring):
            if path.is_file():
                return path
        raise Missing(f"the classifier {planned.bring} is not here; --weights names its folder")

    def brought(self, name: str) -> list[Path]:
        """Where a classifier that the user brings may lie."""
        folder = self.weights
        return [folder / f"{name}{end}" for end in ENDS] if folder else []

    def check_needs(self, runs: Iterable[str], *, gpus: bool) -> None:
        """Say in one line all that these runs need and is not here, before anything long begins;
        with `gpus`, whether there is one."""
        if self.weights is not None and not self.weights.is_dir():
            raise CarsoError(f"--weights names a folder of classifiers, got {self.weights}")
        weights, data = [], []
        for name in runs:
            bring, scenario = self.scale.runs[name].bring, self.scenario(name)
            if bring and not any(path.is_file() for path in self.brought(bring)):
                weights.append(bring)
            try:
                if not self.download:
                    load_data(scenario, self.data)
            except DataNotFoundError:
                data.append(scenario.data.set)
        words = []
        if weights:
            words.append(
                f"the classifiers {', '.join(dict.fromkeys(weights))}, files of these names "
                f"({', '.join(ENDS[1:])}) in the folder that --weights names"
            )
        if data:
            words.append(f"the data {', '.join(dict.fromkeys(data))}, by --data or --download")
        if gpus and self.device.type == "cpu":
            words.append("GPUs (--device cpu does without, in weeks)")
        if words:
            raise Missing(f"the scale {self.scale.name} needs more: {'; '.join(words)}")

    def time_of(self, name: str) -> Path:
        """Where the time of a training is kept, beside the records."""
        return self.kept / "times" / f"{name}.json"

    def keep_time(self, name: str, folder: Path) -> None:
        """Write how long the training in `folder` took, once."""
        path, planned = self.time_of(name), self.scale.runs[name]
        if self.processes.broadcast(path.exists()):
            return
        found = minutes_of(folder)
        if planned.classifier and "classifier" not in found:
            taken = self.minutes(planned.classifier)
            found |= {stage: taken[stage] for stage in taken if stage == "classifier"}
        if self.processes.is_first:
            write_json(path, {"run": name, "stages": found, "provenance": provenance()})

    def minutes(self, name: str) -> dict[str, Record]:
        """By stage, how long the training of a run took, and with what."""
        path = self.time_of(name)
        if not self.processes.broadcast(path.exists()) and self.run(name) == name:
            return minutes_of(folder_of(name))  # a shipped one
        stages: dict[str, Record] = self.processes.broadcast(
            times_in(path) if self.processes.is_first else None
        )
        return stages

"""What jobs need that only the user can bring: data, published classifiers, GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from carso import data as data_sets
from carso.data import DataNotFoundError
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.machine.progress import Bars
from carso.reproduction.jobs import Job
from carso.reproduction.plan import Scale
from carso.training.train import load_data

ENDS = ("", ".safetensors", ".pt", ".pth")
"""Of a classifier's file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSettings:
    """With what jobs run, and where they find what the user brings."""

    device: torch.device
    bars: Bars
    data: Path | None = None
    download: bool = False
    weights: Path | None = None
    """A folder with the classifiers that the user brings, NAME.safetensors or NAME.pt."""
    processes: Processes = ALONE


class Missing(CarsoError):
    """Data or weights that are not here; the rows that need them say so."""


def brought(name: str, folder: Path | None) -> Path | None:
    """The file of a classifier that the user brings in `folder`, if it is there."""
    places = [folder / f"{name}{end}" for end in ENDS] if folder else []
    return next((path for path in places if path.is_file()), None)


def missing_weights(jobs: Iterable[Job], scale: Scale, folder: Path | None) -> list[str]:
    """The classifiers that trainings take over and that are not in `folder`."""
    named = (scale.runs[job.run].bring for job in jobs if job.record is None)
    return [name for name in dict.fromkeys(named) if name and brought(name, folder) is None]


def missing_data(jobs: Iterable[Job], scale: Scale, root: Path | None) -> list[str]:
    """The data sets that are not found."""
    missing: dict[str, bool] = {}
    for job in jobs:
        scenario, on = scale.scenario(job.run), scale.runs[job.run].on if job.record else ""
        name = on or scenario.data.set
        if name in missing:
            continue
        try:
            _ = data_sets.load(on, root) if on else load_data(scenario, root)
            missing[name] = False
        except DataNotFoundError:
            missing[name] = True
    return [name for name, lacks in missing.items() if lacks]


def check_needs(jobs: Iterable[Job], scale: Scale, settings: JobSettings, *, gpus: bool) -> None:
    """Say in one line all that jobs need and is not here, before anything long begins; with `gpus`,
    whether there is one."""
    if settings.weights is not None and not settings.weights.is_dir():
        raise CarsoError(f"--weights names a folder of classifiers, got {settings.weights}")
    ahead = [job for job in jobs if job.to_do]
    words = []
    if names := missing_weights(ahead, scale, settings.weights):
        words.append(
            f"the classifiers {', '.join(names)}, files of these names ({', '.join(ENDS[1:])}) in "
            "the folder that --weights names"
        )
    if names := [] if settings.download else missing_data(ahead, scale, settings.data):
        words.append(f"the data {', '.join(names)}, by --data or --download")
    if gpus and settings.device.type == "cpu":
        words.append("GPUs (--device cpu does without, in weeks)")
    if words:
        raise Missing(f"the scale {scale.name} needs more: {'; '.join(words)}")

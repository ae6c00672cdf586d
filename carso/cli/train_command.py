"""`carso train`: classifier, purifier, hardening, as a scenario says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carso.cli.before_work import check_machine, check_places, check_sigma, check_training
from carso.cli.options import (
    AnyAccuracyOption,
    CheckpointOption,
    DataOption,
    DeviceOption,
    DevicesOption,
    DownloadOption,
    NodesOption,
    OnOption,
    OversubscribeOption,
    PrecisionOption,
    PresetOption,
    QuietOption,
    RunOption,
    SeedOption,
    ThreadsOption,
    prepare,
)

if TYPE_CHECKING:
    import torch

    from carso.scenario.schema import Scenario


def train(
    scenario: Annotated[str, typer.Argument(help="A shipped name, or a TOML file of your own.")],
    run: RunOption = None,
    on: OnOption = "",
    data: DataOption = None,
    download: DownloadOption = False,
    classifier: Annotated[
        Path | None,
        typer.Option(help="Weights to defend (or .py, or a known name), not to train some."),
    ] = None,
    any_accuracy: AnyAccuracyOption = False,
    preset: PresetOption = "",
    sigma: Annotated[
        float | None, typer.Option(help="Of the noise, where the scenario trains on some.")
    ] = None,
    classifier_only: Annotated[
        bool, typer.Option("--classifier-only", help="End after the classifier (for --bare).")
    ] = False,
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    devices: DevicesOption = 1,
    nodes: NodesOption = 1,
    oversubscribe: OversubscribeOption = False,
    precision: PrecisionOption = "32-true",
    threads: ThreadsOption = 0,
    checkpoint_minutes: CheckpointOption = 5.0,
    quiet: QuietOption = False,
) -> None:
    """Train a scenario: classifier, purifier, hardening. Run again to go on."""
    from carso.classifiers.known_files import weight_file
    from carso.scenario import parser

    settings = parser.read(scenario, preset=preset)
    check_training(classifier and weight_file(classifier), run, data, on, precision)
    check_machine(device, threads)
    check_sigma(sigma)
    if sigma is not None:
        from carso.training.recipes import with_sigma  # which imports torch

        settings = with_sigma(settings, sigma)
    run_scenario(
        settings,
        run,
        data,
        download=download,
        classifier=classifier and weight_file(classifier),
        any_accuracy=any_accuracy,
        seed=seed,
        device=device,
        devices=devices,
        nodes=nodes,
        oversubscribe=oversubscribe,
        precision=precision,
        threads=threads,
        on=on,
        checkpoint_minutes=checkpoint_minutes,
        quiet=quiet,
        classifier_only=classifier_only,
    )


def run_scenario(
    settings: Scenario,
    run: Path | None,
    data: Path | None,
    *,
    download: bool,
    classifier: Path | None,
    any_accuracy: bool,
    seed: int | None,
    device: str,
    devices: int,
    nodes: int,
    oversubscribe: bool,
    precision: str,
    threads: int,
    on: str,
    checkpoint_minutes: float,
    quiet: bool,
    classifier_only: bool = False,
) -> None:
    """Train what `settings` say, and print where it went."""
    from dataclasses import replace

    folder = run or Path("runs") / (f"{settings.name}-on-{Path(on).name}" if on else settings.name)
    check_places(folders=[folder])
    from carso.distributed.launchers import check_launch, first_process, launch
    from carso.machine.progress import progress
    from carso.training.train import load_data
    from carso.training.train import train as train_all

    if seed is not None:
        settings = replace(settings, seed=seed)
    if on:
        settings = replace(settings, data=replace(settings.data, set=on, fallback=""))
    place = prepare(device, threads)
    size = 0
    if devices * nodes > 1 and first_process():  # a mistake is said before they start
        check_launch(place, devices, nodes, precision, oversubscribe=oversubscribe)
        size = load_data(settings, data, download=download).train.images.nbytes
    processes, place = launch(
        device=place,
        devices=devices,
        nodes=nodes,
        precision=precision,
        threads=threads,
        oversubscribe=oversubscribe,
        data_bytes=size,
    )
    images = processes.first_then_others(lambda: load_data(settings, data, download=download))
    if processes.is_first and not quiet:
        print(f"{settings.name}: {images.name} from {images.origin}, run in {folder}", flush=True)
        if processes.world_size > 1:
            where = running_on(place, devices)
            print(f"{processes.world_size} processes, {devices} on each machine: {where}")
    with progress(shown=processes.is_first and not quiet) as bars:
        train_all(
            settings,
            images,
            folder,
            device=place,
            display=bars,
            given=classifier,
            check_accuracy=not any_accuracy,
            processes=processes,
            checkpoint_minutes=checkpoint_minutes,
            classifier_only=classifier_only,
        )
    if not processes.is_first:
        return
    if classifier_only:
        print(f"done: carso certify {folder} --bare")
        print(f"      carso evaluate {folder} --bare")
        return
    again = f" --classifier {classifier}" if classifier and classifier.suffix == ".py" else ""
    print(f"done: carso predict {folder} IMAGE...{again}")
    print(f"      carso evaluate {folder} --suite adaptive{again}")


def running_on(place: torch.device, devices: int) -> str:
    """What the processes of a machine run on."""
    if place.type != "cpu":
        return place.type
    cores = os.cpu_count() or 1
    few = ", fewer than processes" if devices > cores else ""
    return f"CPU, {cores} core{'s' if cores > 1 else ''}{few}"

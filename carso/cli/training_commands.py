"""Train a defence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carso.cli.options import (
    AnyAccuracyOption,
    DataOption,
    DeviceOption,
    DevicesOption,
    DownloadOption,
    JsonOption,
    NodesOption,
    PrecisionOption,
    PresetOption,
    RunOption,
    SeedOption,
    ThreadsOption,
    prepare,
    print_table,
)
from carso.errors import CarsoError

if TYPE_CHECKING:
    import torch

    from carso.scenario.schema import Scenario


def scenarios(as_json: JsonOption = False) -> None:
    """List the shipped scenarios."""
    from carso.scenario import parser

    found = [parser.read(name) for name in parser.names()]
    if as_json:
        print(json.dumps([parser.as_table(scenario) for scenario in found], indent=1))
        return
    print_table(
        ("scenario", "eps", "what"),
        [(s.name, f"{s.threat.eps:.4g}", s.summary) for s in found],
    )


def train(
    scenario: Annotated[str, typer.Argument(help="A shipped name, or a TOML file of your own.")],
    run: RunOption = None,
    data: DataOption = None,
    download: DownloadOption = False,
    classifier: Annotated[
        Path | None,
        typer.Option(help="Weights to defend (or .py, or a known name), not to train some."),
    ] = None,
    any_accuracy: AnyAccuracyOption = False,
    preset: PresetOption = "",
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    devices: DevicesOption = 1,
    nodes: NodesOption = 1,
    precision: PrecisionOption = "32-true",
    threads: ThreadsOption = 0,
) -> None:
    """Train a scenario: classifier, purifier, hardening. Run again to go on."""
    from carso.classifiers.known_files import weight_file
    from carso.scenario import parser

    run_scenario(
        parser.read(scenario, preset=preset),
        run,
        data,
        download=download,
        classifier=classifier and weight_file(classifier),
        any_accuracy=any_accuracy,
        seed=seed,
        device=device,
        devices=devices,
        nodes=nodes,
        precision=precision,
        threads=threads,
    )


def harden(
    classifier: Annotated[
        Path,
        typer.Option(
            help="Weights of the scenario's network, a .py with classifier(), or a known name."
        ),
    ],
    scenario: Annotated[
        str, typer.Argument(help="Data, eps, purifier and [hardening]: a name, or a TOML file.")
    ] = "fashion-retrofit",
    layers: Annotated[
        str, typer.Option(help="Layers that the purifier reads, e.g. conv1,block2.conv.")
    ] = "",
    any_accuracy: AnyAccuracyOption = False,
    eps: Annotated[float | None, typer.Option(help="Instead of the scenario's own.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of the scenario's own.")] = None,
    preset: PresetOption = "",
    run: RunOption = None,
    data: DataOption = None,
    download: DownloadOption = False,
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    devices: DevicesOption = 1,
    nodes: NodesOption = 1,
    precision: PrecisionOption = "32-true",
    threads: ThreadsOption = 0,
) -> None:
    """Harden a classifier of your own, whose weights stay as they are. Run again to go on."""
    from dataclasses import replace

    from carso.classifiers.known_files import settled, weight_file
    from carso.scenario import parser
    from carso.threats.linf import Linf

    classifier = weight_file(classifier)
    if not classifier.is_file():
        raise CarsoError(f"--classifier: there is no file {classifier}")
    settings = parser.read(scenario, preset=preset)
    if settings.hardening is None:
        hint = "" if preset else "; the paper's have one in --preset hardened"
        raise CarsoError(f"scenario {settings.name} has no [hardening]{hint}")
    own = settings.hardening
    threat = settings.threat if eps is None else Linf(eps=eps)
    scale = threat.eps / settings.threat.eps
    names = tuple(name.strip() for name in layers.split(",") if name.strip())
    if classifier.suffix == ".py" and not names:
        raise CarsoError("--layers names the layers of your classifier that the purifier reads")
    network = settled(settings.classifier, classifier)
    settings = replace(
        settings,
        name=classifier.stem if classifier.suffix == ".py" else f"{settings.name}-hardened",
        classifier=replace(network, layers=names or network.layers),
        purifier=replace(settings.purifier, attacks=None, training=None),
        hardening=replace(
            own,
            epochs=own.epochs if epochs is None else epochs,
            eps=own.eps * scale,
            attack_step_size=min(1.0, own.attack_step_size * scale),
        ),
        threat=threat,
    )
    run_scenario(
        settings,
        run,
        data,
        download=download,
        classifier=classifier,
        any_accuracy=any_accuracy,
        seed=seed,
        device=device,
        devices=devices,
        nodes=nodes,
        precision=precision,
        threads=threads,
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
    precision: str,
    threads: int,
) -> None:
    """Train what `settings` say, and print where it went."""
    from dataclasses import replace

    from carso.distributed.launchers import first_process
    from carso.distributed.processes import launch
    from carso.report.progress import progress
    from carso.training.train import load_data
    from carso.training.train import train as train_all

    if seed is not None:
        settings = replace(settings, seed=seed)
    folder = run or Path("runs") / settings.name
    place = prepare(device, threads)
    if devices * nodes > 1 and first_process():  # a mistake is said before they start
        load_data(settings, data, download=download)
    processes, place = launch(
        device=place, devices=devices, nodes=nodes, precision=precision, threads=threads
    )
    images = processes.first_then_others(lambda: load_data(settings, data, download=download))
    if processes.is_first:
        print(f"{settings.name}: {images.name} from {images.origin}, run in {folder}", flush=True)
        if processes.world_size > 1:
            print(
                f"{processes.world_size} processes, {devices} on each machine: {on(place, devices)}"
            )
    with progress(shown=processes.is_first) as bars:
        train_all(
            settings,
            images,
            folder,
            device=place,
            display=bars,
            given=classifier,
            check_accuracy=not any_accuracy,
            processes=processes,
        )
    if not processes.is_first:
        return
    again = f" --classifier {classifier}" if classifier and classifier.suffix == ".py" else ""
    print(f"done: carso predict {folder} IMAGE...{again}")
    print(f"      carso evaluate {folder} --suite adaptive{again}")


def on(place: torch.device, devices: int) -> str:
    """What the processes of a machine run on."""
    if place.type != "cpu":
        return place.type
    cores = os.cpu_count() or 1
    few = ", fewer than processes" if devices > cores else ""
    return f"CPU, {cores} core{'s' if cores > 1 else ''}{few}"

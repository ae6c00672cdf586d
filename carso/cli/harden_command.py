"""`carso harden`: a defence around a classifier of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carso.cli.before_work import (
    check_against,
    check_machine,
    check_name,
    check_sigma,
    check_start,
    check_training,
)
from carso.cli.options import (
    AnyAccuracyOption,
    CheckpointOption,
    DataOption,
    DeviceOption,
    DevicesOption,
    DownloadOption,
    EpsOption,
    NodesOption,
    NormOption,
    OnOption,
    OversubscribeOption,
    PrecisionOption,
    PresetOption,
    QuietOption,
    RunOption,
    SeedOption,
    ThreadsOption,
    listed,
)
from carso.cli.train_command import run_scenario


def harden(
    classifier: Annotated[
        Path,
        typer.Option(
            help="Weights of the scenario's network, a .py with classifier(), or a known name."
        ),
    ],
    scenario: Annotated[
        str, typer.Argument(help="Data, eps, purifier and [hardening]: a name, or a TOML file.")
    ] = "fashion-retrofit-unet",
    layers: Annotated[
        str,
        typer.Option(help="Layers that the purifier reads (a,b,c), or auto."),
    ] = "",
    any_accuracy: AnyAccuracyOption = False,
    eps: EpsOption = None,
    norm: NormOption = "",
    epochs: Annotated[int | None, typer.Option(help="Instead of the scenario's own.")] = None,
    against: Annotated[str, typer.Option(help="attacks, or noise (for certificates).")] = "",
    sigma: Annotated[
        float | None, typer.Option(help="Deviation of that noise, on the [0, 1] pixel scale.")
    ] = None,
    start: Annotated[
        str,
        typer.Option(help="Begin from the purifier of this run, shipped defence or weight file."),
    ] = "",
    preset: PresetOption = "",
    run: RunOption = None,
    on: OnOption = "",
    data: DataOption = None,
    download: DownloadOption = False,
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
    """Harden a classifier of your own, whose weights stay as they are. Run again to go on."""
    from carso.classifiers.known_files import weight_file
    from carso.scenario import parser

    classifier, asked = weight_file(classifier), parser.read(scenario, preset=preset)
    check_training(classifier, run, data, on, precision)
    check_name("norm", norm)
    check_start(start)
    check_against(against)
    check_sigma(sigma)
    check_machine(device, threads)
    from carso.training.recipes import hardening_of_file

    settings = hardening_of_file(
        asked,
        classifier,
        layers=listed("--layers", layers),
        eps=eps,
        norm=norm,
        epochs=epochs,
        against=against,
        sigma=sigma,
        start=start,
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
        oversubscribe=oversubscribe,
        precision=precision,
        threads=threads,
        on=on,
        checkpoint_minutes=checkpoint_minutes,
        quiet=quiet,
    )

"""The command line's app, the options that commands share, and how they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carso import __version__
from carso.errors import CarsoError, reason
from carso.machine.limits import check_threads

if TYPE_CHECKING:  # torch takes a second to import, and --help does not need it
    import torch
    from torch import nn

    from carso.distributed.processes import Processes

app = typer.Typer(
    name="carso",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Folder that holds data sets (else CARSO_DATA)."),
]
ThreadsOption = Annotated[int, typer.Option(help="CPU threads; 0: torch's own choice.")]
DeviceOption = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, ...; auto: a GPU where there is one.")
]
DownloadOption = Annotated[bool, typer.Option(help="Download the data set if missing.")]
SeedOption = Annotated[int | None, typer.Option(help="Instead of the scenario's own.")]
DevicesOption = Annotated[int, typer.Option(help="Processes per machine, a device each.")]
OversubscribeOption = Annotated[
    bool,
    typer.Option("--oversubscribe", help="More processes than cores, devices or memory are meant."),
]
NodesOption = Annotated[int, typer.Option(help="Machines.")]
CheckpointOption = Annotated[
    float, typer.Option(help="Between two checkpoints within an epoch.", min=0.0)
]
EpsOption = Annotated[float | None, typer.Option(help="Instead of the scenario's own.")]
NormOption = Annotated[str, typer.Option(help="Linf or L2, with an --eps of that norm.")]
PrecisionOption = Annotated[str, typer.Option(help="32-true, or bf16-mixed.")]
PresetOption = Annotated[
    str, typer.Option(help="A preset of the scenario: a table of [presets] in its file.")
]
RunOption = Annotated[Path | None, typer.Option(help="Folder of the run; default runs/NAME.")]
OwnOption = Annotated[
    Path | None,
    typer.Option(
        "--classifier", help="The Python file that makes it, if it is your own, or a known one."
    ),
]
AnyAccuracyOption = Annotated[
    bool,
    typer.Option("--allow-any-accuracy", help="Defend a classifier even if it only guesses."),
]
UnhardenedOption = Annotated[
    bool, typer.Option("--unhardened", help="The paper's purifier of a run that is hardened too.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", help="Say nothing of the progress, only the result.")
]
OnOption = Annotated[str, typer.Option(help="A data set instead of the scenario's own.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.callback(invoke_without_command=True)
def carso(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Purify what an image classifier sees, and measure what that is worth."""
    if version:
        print(f"carso {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def prepare(device: str, threads: int) -> torch.device:
    """The device asked for, after a check that it is there."""
    check_threads(threads)
    import torch

    if threads:
        torch.set_num_threads(threads)
    gpus = torch.cuda.is_available()
    try:
        place = torch.device(("cuda" if gpus else "cpu") if device == "auto" else device)
        if place != torch.device("cuda") or not gpus:  # of many processes each has a GPU of its own
            torch.zeros(1, device=place).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = reason(error).partition(". ")[0][:120]
        raise CarsoError(
            f"--device is cpu, cuda, cuda:N or auto; {device!r} is not usable here: {why}"
        ) from None
    return place


def started(
    device: str,
    devices: int,
    nodes: int,
    threads: int,
    *,
    oversubscribe: bool,
    precision: str = "32-true",
) -> tuple[Processes, torch.device]:
    """The processes asked for, each on a device that is there; see `launch`."""
    from carso.distributed.launchers import launch

    return launch(
        device=prepare(device, threads),
        devices=devices,
        nodes=nodes,
        precision=precision,
        threads=threads,
        oversubscribe=oversubscribe,
    )


def listed(option: str, text: str) -> tuple[str, ...]:
    """The names that an option lists, with commas between them; none if it is not given."""
    names = tuple(name.strip() for name in text.split(","))
    if text and not all(names):
        raise CarsoError(f"{option} is a list of names with commas between them, got {text!r}")
    return names if text else ()


def own_classifier(path: Path | None) -> nn.Module | None:
    """The classifier that the user's Python file makes, if one is given."""
    from carso.classifiers.brought import load_classifier

    return None if path is None else load_classifier(path)


def print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Columns that line up, as plain text that can be copied."""
    from carso.report.table_formats import as_text

    print("\n".join(as_text((header, list(rows)))))

"""The command line: thin. Parse, call, print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carso.errors import CarsoError

if TYPE_CHECKING:  # torch takes a second to import, and --help does not need it
    import torch
    from rich.progress import Progress

app = typer.Typer(
    name="carso",
    help="Make an image classifier harder to fool, and prove how hard.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

DataOption = Annotated[
    Path | None, typer.Option("--data", help="Folder of data sets (else CARSO_DATA).")
]
ThreadsOption = Annotated[int, typer.Option(help="CPU threads; 0: torch's own choice.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]


@app.callback()
def carso() -> None:
    """Make an image classifier harder to fool, and prove how hard."""


@app.command()
def train(
    scenario: Annotated[str, typer.Argument(help="A shipped name, or a TOML file of your own.")],
    run: Annotated[Path | None, typer.Option(help="Folder of the run; default runs/NAME.")] = None,
    data: DataOption = None,
    download: Annotated[bool, typer.Option(help="Download the data set if missing.")] = False,
    preset: Annotated[str, typer.Option(help="A preset of the scenario, e.g. released.")] = "",
    seed: Annotated[int | None, typer.Option(help="Instead of the scenario's own.")] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 0,
) -> None:
    """Train a scenario: its classifier, then its purifier. Run again to go on."""
    import dataclasses

    from carso import scenario_file
    from carso.training.run import load_data, train_classifier

    settings = scenario_file.read(scenario, preset=preset)
    if seed is not None:
        settings = dataclasses.replace(settings, seed=seed)
    folder = run or Path("runs") / settings.name
    place = prepare(device, threads)
    images = load_data(settings, data, download=download)
    print(f"{settings.name}: {images.name} from {images.origin}, run in {folder}")
    with progress() as display:
        train_classifier(settings, images, folder, place, display)


def prepare(device: str, threads: int) -> torch.device:
    """The device asked for, after a check that it is there."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    try:
        place = torch.device(device)
        torch.zeros(1, device=place)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise CarsoError(f"device {device!r} is not usable here: {reason}") from None
    return place


@contextmanager
def progress() -> Iterator[Bars]:
    """Progress bars on the terminal, plain lines where there is none."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Remaining(),
    )
    with Progress(*columns, transient=True) as bars:
        yield Bars(bars)


class Bars:
    """Shows a training's epochs: a bar for the one that runs, a line for each that is done."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars

    def start(self, stage: str, epoch: int, epochs: int, steps: int) -> Callable[[], None]:
        task = self.bars.add_task(f"{stage} epoch {epoch + 1}/{epochs}", total=steps)
        self.task = task
        return lambda: self.bars.advance(task)

    def finish(self, stage: str, epoch: int, row: dict[str, float]) -> None:
        self.bars.remove_task(self.task)
        cells = "  ".join(f"{k} {v:.4g}" for k, v in row.items() if k != "epoch")
        self.bars.console.print(f"{stage} epoch {epoch + 1}: {cells}", highlight=False)


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    try:
        app()
    except CarsoError as error:
        print(f"carso: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

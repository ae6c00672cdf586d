"""The loop that every kind of training shares: epochs, checkpoints, a CSV of losses, resuming."""

from __future__ import annotations

import csv
import io
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.storage import files
from carso.training import checkpoint
from carso.training.checkpoint import Checkpoint

Row = dict[str, float]
"""What one epoch leaves in the log, by column."""

FIRST_STEPS = 10
"""How many losses at the very start are kept, so that a run can be recognised by repeating it.
RAdam moves nothing in its first five steps."""


class Stage(Protocol):
    """One training that `run` can drive."""

    name: str
    epochs: int
    identity: dict[str, Any]
    first_losses: list[float]
    processes: Processes

    @property
    def stopped(self) -> bool:
        """Whether more epochs would be in vain."""
        ...

    def steps(self) -> int:
        """Optimiser steps in an epoch."""
        ...

    def epoch(self, number: int, advance: Callable[[], None]) -> Row:
        """Train one epoch, with `advance()` after each step, and return its row."""
        ...

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: dict[str, Any]) -> None: ...


class Display(Protocol):
    """Whoever shows progress; `Quiet` shows none."""

    def start(self, stage: str, epoch: int, epochs: int, steps: int) -> Callable[[], None]:
        """An epoch begins: what is returned is called after each step."""
        ...

    def finish(self, stage: str, epoch: int, row: Row) -> None: ...


class Quiet:
    def start(self, stage: str, epoch: int, epochs: int, steps: int) -> Callable[[], None]:
        return lambda: None

    def finish(self, stage: str, epoch: int, row: Row) -> None:
        return None


def run(stage: Stage, folder: Path, display: Display) -> list[Row]:
    """Train `stage` to its last epoch, going on from the checkpoint in `folder` if there is one.

    Every process of the run reads the checkpoint; the first one writes.
    """
    stage.processes.barrier()  # nobody reads what another is about to write
    found = checkpoint.load(folder, stage.identity)
    history = found.history if found else []
    if found:
        if found.damaged and stage.processes.is_first:
            print(f"carso: {found.damaged}; going on from the one before it", file=sys.stderr)
        stage.load_state(found.state["stage"])
        stage.first_losses = found.state["first_losses"]
        if stage.processes.is_first:
            files.write_text(folder / "losses.csv", as_csv(history))  # its last row may be missing
    for number in range(len(history), stage.epochs):
        if stage.stopped:
            break
        history.append(epoch(stage, number, display))
        if stage.processes.is_first:
            keep(stage, folder, history)
        display.finish(stage.name, number, history[-1])
    stage.processes.barrier()  # nobody goes on before everything is written
    return history


def keep(stage: Stage, folder: Path, history: list[Row]) -> None:
    """Write the checkpoint after an epoch, and its row."""
    state = {"stage": stage.state(), "first_losses": stage.first_losses}
    checkpoint.save(folder, Checkpoint(identity=stage.identity, history=history, state=state))
    files.write_text(folder / "losses.csv", as_csv(history))
    to_tensorboard(folder, history[-1])


def train_in_memory(stage: Stage, display: Display) -> list[Row]:
    """The same without a folder: nothing is saved, nothing can be resumed."""
    history = []
    for number in range(stage.epochs):
        if stage.stopped:
            break
        history.append(epoch(stage, number, display))
        display.finish(stage.name, number, history[-1])
    return history


def epoch(stage: Stage, number: int, display: Display) -> Row:
    """One epoch and its row, with the time that it took."""
    advance = display.start(stage.name, number, stage.epochs, stage.steps())
    began = time.perf_counter()
    row = stage.epoch(number, advance)
    for column, value in row.items():
        if not math.isfinite(value):
            raise CarsoError(
                f"the {stage.name} diverged in epoch {number + 1}: {column} is {value}; "
                "a smaller learning rate may help"
            )
    seconds: float = stage.processes.broadcast(time.perf_counter() - began)
    return {"epoch": number + 1, **row, "seconds": seconds}


def as_csv(history: list[Row]) -> str:
    """The history with one line per epoch."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(history[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    return text.getvalue()


def to_tensorboard(folder: Path, row: Row) -> None:
    """The epoch's row as TensorBoard scalars, where TensorBoard is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return
    with SummaryWriter(str(folder / "tensorboard")) as writer:
        for column, value in row.items():
            writer.add_scalar(column, value, int(row["epoch"]))


def shuffled(
    count: int, batch_size: int, source: Generator, processes: Processes = ALONE
) -> Iterator[Tensor]:
    """The indices of an epoch, in random order, a batch at a time, the same in every process.

    A last batch of one image is left out: batch norm cannot train on it. So is one that has not an
    image for every process.
    """
    for indices in torch.split(torch.randperm(count, generator=source), batch_size):
        if len(indices) >= max(2, processes.world_size):
            yield indices


def batches_in(count: int, batch_size: int, processes: Processes = ALONE) -> int:
    """How many batches `shuffled` yields."""
    if batch_size < processes.world_size:
        raise CarsoError(
            f"batch_size = {batch_size} has not an image for each of the {processes.world_size} "
            "processes: give fewer --devices"
        )
    return count // batch_size + (count % batch_size >= max(2, processes.world_size))


class EnoughSteps(Exception):
    """Ends an epoch early."""


def first_losses(stage: Stage, count: int = FIRST_STEPS) -> list[float]:
    """The losses of the first `count` steps of a stage at its very start."""

    def advance() -> None:
        if len(stage.first_losses) >= count:
            raise EnoughSteps

    with suppress(EnoughSteps):
        stage.epoch(0, advance)
    return stage.first_losses[:count]

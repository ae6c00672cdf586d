"""The loop that every kind of training shares: epochs, checkpoints, a CSV of losses, resuming."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from carso.distributed.processes import Processes
from carso.errors import CarsoError, reason
from carso.storage import files
from carso.training import checkpoint
from carso.training.checkpoint import Checkpoint
from carso.training.epoch_cursor import EpochCursor

Row = dict[str, float]
"""What one epoch leaves in the log, by column."""

FIRST_STEPS = 10
"""How many losses at the very start are kept, so that a run can be recognised by repeating it.
RAdam moves nothing in its first five steps."""
CHECKPOINT_MINUTES = 5.0
"""Between two checkpoints within an epoch; there is one at its end in any case."""


class Stage(Protocol):
    """One training that `run` can drive."""

    name: str
    epochs: int
    identity: dict[str, Any]
    first_losses: list[float]
    processes: Processes
    cursor: EpochCursor

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

    def start(
        self, stage: str, epoch: int, epochs: int, steps: int, done: int = 0
    ) -> Callable[[], None]:
        """An epoch begins, or goes on after `done` steps: what is returned is called after each
        step."""
        ...

    def finish(self, stage: str, epoch: int, row: Row) -> None: ...


class Quiet:
    def start(
        self, stage: str, epoch: int, epochs: int, steps: int, done: int = 0
    ) -> Callable[[], None]:
        return lambda: None

    def finish(self, stage: str, epoch: int, row: Row) -> None:
        return None


def run(
    stage: Stage, folder: Path, display: Display, *, minutes: float = CHECKPOINT_MINUTES
) -> list[Row]:
    """Train `stage` to its last epoch, going on from the checkpoint in `folder` if there is one.

    There is a checkpoint after every epoch, and every so many `minutes` within it. Every process of
    the run reads the checkpoint; the first one writes.
    """
    stage.processes.barrier()  # nobody reads what another is about to write
    history = resume(stage, folder)
    written = time.monotonic()

    def now_and_then() -> None:
        nonlocal written
        if stage.processes.is_first and time.monotonic() - written >= 60 * minutes:
            keep(stage, folder, history, within=True)
            written = time.monotonic()

    for number in range(len(history), stage.epochs):
        if stage.stopped:
            break
        history.append(epoch(stage, number, display, now_and_then))
        if stage.processes.is_first:
            keep(stage, folder, history)
            files.write_text(folder / "losses.csv", as_csv(history))
            to_tensorboard(folder, history[-1])
            written = time.monotonic()
        display.finish(stage.name, number, history[-1])
    stage.processes.barrier()  # nobody goes on before everything is written
    return history


def resume(stage: Stage, folder: Path) -> list[Row]:
    """Put `stage` where the checkpoint in `folder` says, if there is one; the epochs so far."""
    found = checkpoint.load(folder, stage.identity)
    if not found:
        return []
    if stage.processes.is_first:
        if found.damaged:
            files.say_made_again(f"{found.damaged}; going on from the one before it")
            checkpoint.forget_damaged(folder)
            files.write_text(folder / "losses.csv", as_csv(found.history) if found.history else "")
        elif found.history:
            complete_csv(folder / "losses.csv", found.history)
    try:
        stage.load_state(found.state["stage"])
        stage.first_losses = found.state["first_losses"]
        if "epoch" in found.state:
            stage.cursor.load_state(found.state["epoch"])
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise CarsoError(
            f"the checkpoint in {folder} does not fit this training ({reason(error)}): delete it"
        ) from None
    return found.history


def complete_csv(path: Path, history: list[Row]) -> None:
    """Write the losses that a killed process had no time to: those of one epoch at most. Where
    more is missing or wrong, that is said."""
    wanted, before = as_csv(history), as_csv(history[:-1]) if history[1:] else ""
    found = path.read_bytes() if path.is_file() else before.encode()
    if found == wanted.encode():
        return
    if found != before.encode():
        files.say_made_again(f"{path} is not what this training wrote: it is written again")
    files.write_text(path, wanted)


def keep(stage: Stage, folder: Path, history: list[Row], *, within: bool = False) -> None:
    """Write the checkpoint after an epoch, or `within` the one that runs."""
    state = {"stage": stage.state(), "first_losses": stage.first_losses}
    if within:
        state["epoch"] = stage.cursor.state()
    kept = Checkpoint(identity=stage.identity, history=history, state=state)
    checkpoint.save(folder, kept, steps=stage.cursor.done if within else 0)


def train_in_memory(stage: Stage, display: Display) -> list[Row]:
    """The same without a folder: nothing is saved, nothing can be resumed."""
    history = []
    for number in range(stage.epochs):
        if stage.stopped:
            break
        history.append(epoch(stage, number, display))
        display.finish(stage.name, number, history[-1])
    return history


def epoch(
    stage: Stage, number: int, display: Display, after_step: Callable[[], None] = lambda: None
) -> Row:
    """One epoch, or what is left of it, and its row, with the time that all of it took."""
    cursor = stage.cursor
    done = cursor.done * cursor.repeats
    show = display.start(stage.name, number, stage.epochs, stage.steps(), done)
    began = time.perf_counter() - cursor.seconds

    def advance() -> None:
        after_step()
        show()

    row = stage.epoch(number, advance)
    cursor.clear()
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

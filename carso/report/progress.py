"""Progress on the terminal: a bar for what runs, a line for what is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as Remaining

TOLD = 10
"""Where bars cannot be seen, how often an epoch says how far it is."""


def duration(seconds: float) -> str:
    """As people say it: "2 h 05 min", "12 min" or "40 s"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


class Bars:
    """Shows trainings (as `carso.training.loop.Display`) and any other counted work."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.task: TaskID | None = None
        self.epochs = 0

    def counted(self, what: str, total: int) -> Callable[[int], None]:
        """A bar of its own; what is returned is called with how much was done."""
        self.clear()
        task = self.task = self.bars.add_task(what, total=total)
        return lambda done: self.bars.advance(task, done)

    def announced(self, what: str, total: int) -> Callable[[int], None]:
        """The same, with a plain line first where bars cannot be seen."""
        if not self.bars.console.is_terminal:
            self.say(what)
        return self.counted(what, total)

    def say(self, what: str) -> None:
        """A plain line."""
        self.clear()
        self.bars.console.print(what, highlight=False, soft_wrap=True)

    def start(
        self, stage: str, epoch: int, epochs: int, steps: int, done: int = 0
    ) -> Callable[[], None]:
        advance = self.counted(f"{stage} {epoch + 1}/{epochs}", steps)
        advance(done)
        began, before = time.perf_counter(), done
        self.epochs, silent = epochs, not self.bars.console.is_terminal

        def step() -> None:
            nonlocal done
            advance(1)
            done += 1
            if silent and done % max(1, steps // TOLD) == 0 < steps - done:
                each = (time.perf_counter() - began) / (done - before)
                here, whole = (steps - done) * each, ((epochs - epoch) * steps - done) * each
                self.bars.console.print(
                    f"{stage} {epoch + 1}/{epochs}: {done / steps:.0%}, {duration(here)} left in "
                    f"this epoch, {duration(whole)} in all",
                    highlight=False,
                    soft_wrap=True,
                )

        return step

    def finish(self, stage: str, epoch: int, row: dict[str, float]) -> None:
        cells = "  ".join(f"{key} {value:.4g}" for key, value in row.items() if key != "epoch")
        left = (self.epochs - epoch - 1) * row.get("seconds", 0.0)
        self.say(
            f"{stage} epoch {epoch + 1}: {cells}" + (f"  left {duration(left)}" if left else "")
        )

    def clear(self) -> None:
        if self.task is not None:
            self.bars.remove_task(self.task)
            self.task = None


@contextmanager
def progress(*, shown: bool = True) -> Iterator[Bars]:
    """Bars for the length of a `with` block, on standard error; no bars where that is no
    terminal, and nothing at all if not `shown`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    console = Console(stderr=True, quiet=not shown)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as b:
        yield Bars(b)

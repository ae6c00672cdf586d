"""Progress on the terminal: a bar for what runs, a line for what is done."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as Remaining

LINE_SECONDS = 60.0
"""Where bars cannot be seen, how often a line says how far it is."""


def duration(seconds: float) -> str:
    """As people say it: "2 h 05 min", "12 min" or "40 s"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


class Lines:
    """When the next line is due, and what it says of the time left."""

    def __init__(self, done: int = 0) -> None:
        """`done` was done before, in a time that is not known."""
        self.done = self.before = done
        self.began = self.said = time.perf_counter()

    def due(self, more: int) -> bool:
        """Note that `more` was done; whether it is time for a line."""
        self.done += more
        if time.perf_counter() - self.said < LINE_SECONDS:
            return False
        self.said = time.perf_counter()
        return True

    def left(self, total: int) -> str:
        """The time until `total` is done, in words."""
        each = (time.perf_counter() - self.began) / max(1, self.done - self.before)
        return duration((total - self.done) * each)


class Bars:
    """Shows trainings (as `carso.training.loop.Display`) and any other counted work."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.task: TaskID | None = None
        self.epochs = 0

    def counted(self, what: str, total: int) -> Callable[[int], None]:
        """A bar of its own, or a line a minute where bars cannot be seen; what is returned is
        called with how much was done."""
        advance, lines = self.bar(what, total), Lines()

        def step(more: int) -> None:
            advance(more)
            if self.silent and lines.due(more) and lines.done < total:
                self.line(f"{what}: {lines.done / total:.0%}, {lines.left(total)} left")

        return step

    def bar(self, what: str, total: int) -> Callable[[int], None]:
        self.clear()
        task = self.task = self.bars.add_task(what, total=total)
        return lambda done: self.bars.advance(task, done)

    @property
    def silent(self) -> bool:
        """Whether bars cannot be seen."""
        return not shows_bars(self.bars.console)

    def announced(self, what: str, total: int) -> Callable[[int], None]:
        """The same, with a plain line first where bars cannot be seen."""
        if self.silent:
            self.say(what)
        return self.counted(what, total)

    def say(self, what: str) -> None:
        """A plain line."""
        self.clear()
        self.line(what)

    def line(self, what: str) -> None:
        self.bars.console.print(what, highlight=False, soft_wrap=True)

    def start(
        self, stage: str, epoch: int, epochs: int, steps: int, done: int = 0
    ) -> Callable[[], None]:
        name = f"{stage} {epoch + 1}/{epochs}"
        advance, lines = self.bar(name, steps), Lines(done)
        advance(done)
        self.epochs = epochs

        def step() -> None:
            advance(1)
            if self.silent and lines.due(1) and lines.done < steps:
                here, whole = lines.left(steps), lines.left((epochs - epoch) * steps)
                share = f"{lines.done / steps:.0%}"
                self.line(f"{name}: {share}, {here} left in this epoch, {whole} in all")

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
    disable = not shows_bars(console)
    with Progress(*columns, console=console, transient=True, disable=disable) as bars:
        yield Bars(bars)


def by_default() -> AbstractContextManager[Bars]:
    """What a call from Python shows: bars in a terminal or a notebook, and nothing elsewhere."""
    return progress(shown=shows_bars(Console(stderr=True)))


def shows_bars(console: Console) -> bool:
    """Whether bars can be seen: in a terminal, or in a notebook that has what draws them."""
    drawn = console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal or drawn

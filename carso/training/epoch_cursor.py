"""Where an epoch stands: what a checkpoint in the midst of it must hold to go on bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Generator, Tensor

from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError


class EpochCursor:
    """The order of an epoch's images and the place in it, its random streams, its running sums.

    A stage has one, which it begins anew in each epoch and takes its batches from.
    """

    def __init__(self, count: int, batch_size: int, processes: Processes = ALONE) -> None:
        """For epochs of `count` images."""
        self.count, self.batch_size, self.processes = count, batch_size, processes
        self.streams: dict[str, Generator] = {}
        self.clear()

    def clear(self) -> None:
        """The next epoch begins at its start."""
        self.done = 0
        self.seen = 0
        self.seconds = 0.0
        self.totals: dict[str, Any] = {}
        self.saved_streams: dict[str, Tensor] = {}

    def begin(self, *, order: Generator, **streams: Generator) -> None:
        """Start an epoch, or go on within the one that was loaded. `order` gives the order of the
        images; these generators, which the epoch draws from, are part of where it stands."""
        self.streams = {"order": order, **streams}
        self.batches_of_epoch = list(shuffled(self.count, self.batch_size, order, self.processes))
        if self.saved_streams:
            for name, source in self.streams.items():
                source.set_state(self.saved_streams[name])
            self.saved_streams = {}
        else:
            self.clear()
        self.began = time.perf_counter() - self.seconds

    def batches(self, advance: Callable[[], None]) -> Iterator[Tensor]:
        """The indices of each batch that is left, with `advance()` after what is done with it."""
        for indices in self.batches_of_epoch[self.done :]:
            yield indices
            self.done += 1
            self.seen += len(indices)
            advance()

    def add(self, **sums: Any) -> None:
        """Add numbers or tensors to the epoch's running totals."""
        for name, value in sums.items():
            self.totals[name] = self.totals[name] + value if name in self.totals else value

    def elapsed(self) -> float:
        """Seconds since the epoch's first batch, without those between a kill and a resume."""
        return time.perf_counter() - self.began

    def state(self) -> dict[str, Any]:
        """What `load_state` needs, between two batches."""
        return {
            "done": self.done,
            "seen": self.seen,
            "seconds": self.elapsed(),
            "totals": self.totals,
            "streams": {name: source.get_state() for name, source in self.streams.items()},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.done, self.seen, self.seconds = state["done"], state["seen"], state["seconds"]
        self.totals, self.saved_streams = state["totals"], state["streams"]


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

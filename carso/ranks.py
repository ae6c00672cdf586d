"""The processes of a run: one, or many that share its work through Lightning Fabric.

Every process holds the whole model and sees every batch, but works on its own part of it. Random
draws are made for the whole batch and cut, losses are weighted by the part's size, gradients are
summed: what many processes compute is what one would have computed on the whole batch.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from subprocess import Popen
from threading import Thread
from typing import Any, TypeVar

import torch
import torch.distributed
from torch import Tensor, nn

from carso.errors import CarsoError
from carso.randomness import Share, shared

Made = TypeVar("Made")

PRECISIONS = ("32-true", "bf16-mixed")
PATIENCE = timedelta(days=7)
"""How long a process waits for another that is alive and has more to do; of one that has died the
connection breaks, or the launcher tells."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which of the run's processes this one is."""

    index: int = 0
    count: int = 1
    precision: str = "32-true"

    def autocast(self, device: torch.device) -> torch.autocast:
        """The precision in which passes of a training run; weights stay in float32."""
        low = self.precision == "bf16-mixed"
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=low)

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.index == 0

    def part(self, size: int) -> slice:
        """This process's part of a batch of `size`: every so many images one, so that each process
        gets its part of every kind of image in it."""
        return slice(self.index, size, self.count)

    @contextmanager
    def sharing(self, size: int) -> Iterator[slice]:
        """This process's part of a batch of `size`; random draws are cut from the batch's own."""
        part = self.part(size)
        if self.count == 1:
            yield part
            return
        with shared(Share(part, size)):
            yield part

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of the processes' tensors, in all of them."""
        if self.count > 1:
            with speaking():
                torch.distributed.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace the gradients by their sums over the processes, in one message."""
        if self.count == 1:
            return
        learning = [p for p in parameters if p.requires_grad]
        for parameter in learning:
            if parameter.grad is None:  # no image of this part reached it
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in learning if p.grad is not None]
        flat = self.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, values in zip(gradients, torch.split(flat, sizes), strict=True):
            gradient.copy_(values.view_as(gradient))

    def told(self, value: Any) -> Any:
        """The first process's value, in all of them."""
        if self.count == 1:
            return value
        values = [value if self.first else None]
        with speaking():
            torch.distributed.broadcast_object_list(values)
        return values[0]

    def in_turn(self, make: Callable[[], Made]) -> Made:
        """What `make` gives, the first process before the others: they find what it downloads."""
        if self.first:
            made = make()
            self.wait()
            return made
        self.wait()
        return make()

    def wait(self) -> None:
        """Until every process has come here."""
        if self.count > 1:
            with speaking():
                torch.distributed.barrier()


ALONE = Ranks()


class OtherEndedError(CarsoError):
    """A process of the run that this one works with is gone."""

    code = 3


@contextmanager
def speaking() -> Iterator[None]:
    """A process that cannot reach the others says why, and that nothing is lost."""
    try:
        yield
    except RuntimeError as error:
        reason = next(iter(str(error).splitlines()), "")
        reason = reason.rpartition("] ")[2].partition(". ")[0]  # without the place in gloo's source
        raise OtherEndedError(
            f"another process of this run has ended ({reason}); {AGAIN}"
        ) from None


AGAIN = "start the run again: it goes on from its last checkpoint"


def launch(
    *, device: torch.device, devices: int, nodes: int, precision: str = "32-true"
) -> tuple[Ranks, torch.device]:
    """Start the other processes, or find that torchrun or Slurm has, and join them; which process
    this one is, and its device."""
    check_launch(device, devices, nodes, precision)
    if devices * nodes == 1:
        return Ranks(precision=precision), device
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy
    from lightning_fabric.strategies.launchers import subprocess_script

    # Its own watch over the processes kills this one without a word; ours, below, says why.
    subprocess_script._launch_process_observer = lambda child_processes: None

    backend = "nccl" if device.type == "cuda" else "gloo"
    threads, parent = torch.get_num_threads(), os.getppid()
    try:
        fabric = Fabric(
            accelerator=device.type,
            devices=devices,
            num_nodes=nodes,
            strategy=DDPStrategy(process_group_backend=backend, timeout=PATIENCE),
        )
        fabric.launch()
    except (RuntimeError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise CarsoError(
            f"cannot start {devices} process(es) on {nodes} machine(s): {reason}"
        ) from None
    torch.set_num_threads(threads)  # Fabric has set its own number
    if fabric.global_rank > 0:
        Thread(target=watch_parent, args=(parent,), daemon=True).start()
    elif started := getattr(fabric.strategy.launcher, "procs", []):
        Thread(target=watch_children, args=(started,), daemon=True).start()
    return Ranks(fabric.global_rank, fabric.world_size, precision), fabric.device


def check_launch(device: torch.device, devices: int, nodes: int, precision: str) -> None:
    """Refuse what would hang, or start many runs in one folder."""
    if precision not in PRECISIONS:
        raise CarsoError(f"--precision is one of {', '.join(PRECISIONS)}, got {precision!r}")
    if devices < 1 or nodes < 1:
        raise CarsoError(f"--devices and --nodes are at least 1, got {devices} and {nodes}")
    if devices > 1 and device.index is not None:
        raise CarsoError(f"--devices {devices} takes the first {devices}: give --device cuda")
    started = max(from_environment(name) for name in ("WORLD_SIZE", "SLURM_NTASKS"))
    if started > 1 and devices * nodes == 1:
        raise CarsoError(
            f"{started} processes were started: say so with --devices (per machine) and --nodes"
        )
    if nodes > 1 and started == 1 and "MASTER_ADDR" not in os.environ:
        raise CarsoError(
            f"--nodes {nodes} needs a process on every machine: start it by torchrun or srun"
        )


def from_environment(name: str) -> int:
    """A number of processes that torchrun or Slurm has set; 1 where neither did."""
    text = os.environ.get(name, "1")
    if not text.isdigit():
        raise CarsoError(f"the environment's {name} is a number of processes, got {text!r}")
    return int(text)


def watch_parent(parent: int) -> None:
    """End this process within seconds of the one that started it, whatever it is busy with."""
    while os.getppid() == parent:
        time.sleep(5)
    leave("the first process of this run has ended")


def watch_children(processes: Sequence[Popen[bytes]]) -> None:
    """End this process within seconds of one that it started and that failed."""
    while not all(process.poll() == 0 for process in processes):
        codes = [process.poll() or 0 for process in processes]
        if any(codes):
            if min(codes) >= 0:  # not killed: it met a mistake, as this one may, which then says so
                time.sleep(5)
            leave("another process of this run has ended")
        time.sleep(0.5)


def leave(why: str) -> None:
    """End this process at once."""
    print(f"carso: {why}; {AGAIN}", file=sys.stderr, flush=True)
    os._exit(OtherEndedError.code)

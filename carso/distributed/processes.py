"""The processes of a run: one, or many that share its work through Lightning Fabric.

Every process holds the whole model and sees every batch, but works on its own part of it. Random
draws are made for the whole batch and cut, losses are weighted by the part's size, gradients are
summed: what many processes compute is what one would have computed on the whole batch.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
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

from carso.distributed.launchers import first_process
from carso.errors import CarsoError
from carso.randomness import Share, shared

Made = TypeVar("Made")

PRECISIONS = ("32-true", "bf16-mixed")
PATIENCE = timedelta(days=7)
"""How long a process waits for another that is alive and has more to do; of one that has died the
connection breaks, or the launcher tells."""


@dataclass(frozen=True, slots=True)
class Processes:
    """Which of the run's processes this one is."""

    rank: int = 0
    world_size: int = 1
    precision: str = "32-true"

    def autocast(self, device: torch.device) -> torch.autocast:
        """The precision in which passes of a training run; weights stay in float32."""
        low = self.precision == "bf16-mixed"
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=low)

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    def part(self, size: int) -> slice:
        """This process's part of a batch of `size`: every so many images one, so that each process
        gets its part of every kind of image in it."""
        return slice(self.rank, size, self.world_size)

    @contextmanager
    def sharing(self, size: int) -> Iterator[slice]:
        """This process's part of a batch of `size`; random draws are cut from the batch's own."""
        part = self.part(size)
        if self.world_size == 1:
            yield part
            return
        with shared(Share(part, size)):
            yield part

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """The sum of the processes' tensors, in all of them."""
        if self.world_size > 1:
            with collective():
                torch.distributed.all_reduce(tensor)
        return tensor

    def all_reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace the gradients by their sums over the processes, in one message."""
        if self.world_size == 1:
            return
        learning = [p for p in parameters if p.requires_grad]
        for parameter in learning:
            if parameter.grad is None:  # no image of this part reached it
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in learning if p.grad is not None]
        flat = self.all_reduce(torch.cat([gradient.flatten() for gradient in gradients]))
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, values in zip(gradients, torch.split(flat, sizes), strict=True):
            gradient.copy_(values.view_as(gradient))

    def broadcast(self, value: Any) -> Any:
        """The first process's value, in all of them. It travels as JSON: a pickle would run what
        it is sent."""
        if self.world_size == 1:
            return value
        written = json.dumps(value).encode() if self.is_first else b""
        size = torch.tensor([len(written)], device=communication_device())
        with collective():
            torch.distributed.broadcast(size, 0)
            text = torch.zeros(int(size), dtype=torch.uint8, device=communication_device())
            if self.is_first:
                text.copy_(torch.frombuffer(bytearray(written), dtype=torch.uint8))
            torch.distributed.broadcast(text, 0)
        return json.loads(text.cpu().numpy().tobytes())

    def first_then_others(self, make: Callable[[], Made]) -> Made:
        """What `make` gives, the first process before the others: they find what it downloads.
        A mistake that it meets is one of all."""
        if self.world_size == 1:
            return make()
        if self.is_first:
            try:
                made = make()
            except CarsoError as error:
                self.broadcast([type(error).__name__, str(error)])
                raise
            self.broadcast(None)
            return made
        if met := self.broadcast(None):
            kind, words = met
            raise next(known for known in kinds(CarsoError) if known.__name__ == kind)(words)
        try:
            return make()
        except CarsoError as error:
            error.alone = True
            raise

    def all_equal(self, value: Any) -> bool:
        """Whether all processes have the same value."""
        same = torch.tensor([float(self.broadcast(value) == value)], device=communication_device())
        return int(self.all_reduce(same)) == self.world_size

    def barrier(self) -> None:
        """Until every process has come here."""
        if self.world_size > 1:
            with collective():
                torch.distributed.barrier()


ALONE = Processes()


def kinds(of: type[CarsoError]) -> Iterator[type[CarsoError]]:
    """A kind of mistake and all that are special cases of it."""
    yield of
    for each in of.__subclasses__():
        yield from kinds(each)


def communication_device() -> torch.device:
    """Where tensors have to lie to be sent."""
    spoken = torch.distributed.is_initialized() and torch.distributed.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if spoken else torch.device("cpu")


class OtherEndedError(CarsoError):
    """A process of the run that this one works with is gone."""

    code = 3
    alone = True


@contextmanager
def collective() -> Iterator[None]:
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
    *,
    device: torch.device,
    devices: int,
    nodes: int,
    precision: str = "32-true",
    threads: int = 0,
) -> tuple[Processes, torch.device]:
    """Start the other processes, or find that torchrun or Slurm has, and join them; which process
    this one is, and its device. Without a number of `threads` they share the cores out."""
    check_launch(device, devices, nodes, precision)
    if devices * nodes == 1:
        return Processes(precision=precision), device
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy
    from lightning_fabric.strategies.launchers import subprocess_script

    # Its own watch over the processes kills this one without a word; ours says why.
    subprocess_script._launch_process_observer = watch_children
    if not first_process():
        watch(watch_parent, os.getppid())
    for library in ("lightning.fabric", "lightning_fabric"):  # what it would tell of each process
        logging.getLogger(library).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message="The `srun` command is available")
    backend = "nccl" if device.type == "cuda" else "gloo"
    most = torch.get_num_threads()
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
    torch.set_num_threads(threads or max(1, most // devices))
    return Processes(fabric.global_rank, fabric.world_size, precision), fabric.device


def check_launch(device: torch.device, devices: int, nodes: int, precision: str) -> None:
    """Refuse what would hang, or start many runs in one folder."""
    if precision not in PRECISIONS:
        raise CarsoError(f"--precision is one of {', '.join(PRECISIONS)}, got {precision!r}")
    if devices < 1 or nodes < 1:
        raise CarsoError(f"--devices and --nodes are at least 1, got {devices} and {nodes}")
    if devices > 1 and device.index is not None:
        raise CarsoError(
            f"--devices {devices} takes the first {devices}: give --device {device.type}"
        )
    srun = "SLURM_STEP_NUM_TASKS" in os.environ  # a batch script has SLURM_NTASKS without it
    if devices * nodes > 1 and "SLURM_NTASKS" in os.environ and not srun:
        raise CarsoError("in a Slurm job many processes are started by srun: srun carso ...")
    launchers = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
    started = max(from_environment(name) for name in launchers)
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


def watch(look: Callable[[Any], None], at: Any) -> None:
    """Look on while this process works, from before it joins the others: one may die by then."""
    Thread(target=look, args=(at,), daemon=True).start()


def watch_parent(parent: int) -> None:
    """End this process within seconds of the one that started it, whatever it is busy with."""
    while os.getppid() == parent:
        time.sleep(5)
    leave("the first process of this run has ended")


def watch_children(child_processes: Sequence[Popen[bytes]]) -> None:
    """End this process within seconds of one that it started and that failed."""
    watch(until_one_fails, child_processes)


def until_one_fails(processes: Sequence[Popen[bytes]]) -> None:
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

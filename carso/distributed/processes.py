"""The processes of a run: one, or many that share its work through Lightning Fabric.

Every process holds the whole model and sees every batch, but works on its own part of it. Random
draws are made for the whole batch and cut, losses are weighted by the part's size, gradients are
summed by Fabric's data parallelism: what many processes compute is what one would have computed on
the whole batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed
from torch import Tensor, nn

from carso.errors import CarsoError
from carso.randomness import Share, shared
from carso.storage.locks import exclusive

if TYPE_CHECKING:  # a process that is alone does not need it
    from lightning_fabric import Fabric

Made = TypeVar("Made")
Network = TypeVar("Network")


@dataclass(frozen=True, slots=True)
class Processes:
    """Which of the run's processes this one is."""

    rank: int = 0
    world_size: int = 1
    precision: str = "32-true"
    fabric: Fabric | None = field(default=None, repr=False, compare=False)
    """What joins many processes; one that is alone has none."""

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

    def data_parallel(self, module: Network, *methods: str) -> Network:
        """`module` for passes whose gradients are to be those of all processes: its forward, and
        what `methods` names. Other passes, such as an attack's, go through `module` itself.

        Under data parallelism (DDP) gradients travel while the others are still computed. Where
        there are several passes before `backward`, they must take the same parameters.
        """
        if self.fabric is None:
            return module
        wrapped = self.fabric.setup_module(cast(nn.Module, module), move_to_device=False)
        for method in methods:
            wrapped.mark_forward_method(method)
        return cast(Network, wrapped)

    def backward(self, loss: Tensor) -> None:
        """The gradients of the sum of the processes' losses, in all of them: of what went through
        `data_parallel`, which gives their mean."""
        try:
            (self.world_size * loss).backward()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if self.world_size == 1 or not broken_connection(error):
                raise
            raise other_ended(error) from None

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

    @contextmanager
    def exclusively(self, folder: Path, what: str) -> Iterator[None]:
        """Within it, `folder` belongs to the processes of this run; the first one holds the lock,
        and where it cannot have it, all stop."""
        with ExitStack() as stack:
            if self.is_first:
                lock = exclusive(folder, what)
                self.first_then_others(lambda: stack.enter_context(lock))
            else:
                self.first_then_others(lambda: None)
            yield

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


AGAIN = "start the run again: it goes on from its last checkpoint"


@contextmanager
def collective() -> Iterator[None]:
    """A process that cannot reach the others says why, and that nothing is lost."""
    try:
        yield
    except RuntimeError as error:
        raise other_ended(error) from None


def other_ended(error: RuntimeError) -> OtherEndedError:
    """What a broken connection means."""
    reason = next(iter(str(error).splitlines()), "")
    reason = reason.rpartition("] ")[2].partition(". ")[0]  # without the place in gloo's source
    return OtherEndedError(f"another process of this run has ended ({reason}); {AGAIN}")


def broken_connection(error: RuntimeError) -> bool:
    """Whether an error in the midst of a computation is one of what joins the processes: torch has
    a type for NCCL's; gloo's name their place in its source."""
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error).lower()

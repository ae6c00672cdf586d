"""One seed, split into independent generators by name.

Every random draw of the package comes from a `torch.Generator` made here: the order of the
training images, the training itself, the defence's noise and the attacks never share a stream,
and a training epoch has a stream of its own, so that a resumed run draws what the uninterrupted
one would have drawn.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor


def generator(seed: int, *path: str | int, device: torch.device | str = "cpu") -> Generator:
    """The generator of one named stream, e.g. `generator(0, "purifier", "epoch", 3)`."""
    digest = hashlib.sha256(repr((seed, *path)).encode()).digest()
    return Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True, slots=True)
class Share:
    """Some images of a batch of `total`: those that this process has, or those that matter."""

    part: slice | Tensor
    """Which of them; as a tensor, their numbers."""
    total: int

    def __len__(self) -> int:
        return len(self.numbers())

    def numbers(self) -> Tensor:
        """The places of these images in the batch."""
        return torch.arange(self.total)[self.part]


class Turn:
    """A lock that threads take to use a generator whose state is put back; a copy has its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()


SHARE: ContextVar[Share | None] = ContextVar("share", default=None)


@contextmanager
def shared(share: Share) -> Iterator[None]:
    """Within it, noise for a share of a batch is cut from the noise of the whole batch, so that
    each image gets the noise that it would get in one process."""
    token = SHARE.set(share)
    try:
        yield
    finally:
        SHARE.reset(token)


@contextmanager
def only(images: Tensor, total: int) -> Iterator[None]:
    """Within it, noise is drawn for some `images`, by their numbers, of a batch of `total`, which
    may be a share itself: each gets what it gets when the whole batch is drawn for."""
    images, outer = images.cpu(), SHARE.get()
    if outer is not None:
        images, total = outer.numbers()[images], outer.total
    with shared(Share(images, total)):
        yield


class GivenNoise:
    """Noise that comes as a tensor (B, D) instead of from a generator: each draw takes the next of
    its columns. Without a tensor it only counts them, and gives zeros."""

    def __init__(self, noise: Tensor | None = None) -> None:
        self.noise, self.taken = noise, 0

    def take(self, shape: tuple[int, ...]) -> Tensor:
        start, self.taken = self.taken, self.taken + math.prod(shape[1:])
        if self.noise is None:
            return torch.zeros(shape)
        return self.noise[:, start : self.taken].reshape(shape)


GIVEN: ContextVar[GivenNoise | None] = ContextVar("given", default=None)


@contextmanager
def given_noise(noise: Tensor | None = None) -> Iterator[GivenNoise]:
    """Within it every draw is cut from `noise`, image by image, and no generator is asked."""
    found = GivenNoise(noise)
    token = GIVEN.set(found)
    try:
        yield found
    finally:
        GIVEN.reset(token)


def drawn(draw: Callable[..., Tensor], shape: tuple[int, ...], source: Generator) -> Tensor:
    """Noise of `shape`, image by image along its first side, from `source`."""
    given = GIVEN.get()
    if given is not None:
        return given.take(shape)
    settings: dict[str, Any] = {
        "generator": source,
        "device": source.device,
        "dtype": torch.float32,
    }
    share = SHARE.get()
    if share is None:
        return draw(shape, **settings)
    copies, rest = divmod(shape[0], len(share))  # a loss may put a batch through more than once
    if rest:
        raise ValueError(f"{shape[0]} draws are no multiple of the {len(share)} images of a share")
    whole = draw((copies * share.total, *shape[1:]), **settings)
    return whole.view(copies, share.total, *shape[1:])[:, share.part].flatten(0, 1)


def normal(shape: tuple[int, ...], like: Tensor, source: Generator) -> Tensor:
    """Standard normal noise drawn where `source` lives, of the device and dtype of `like`."""
    return drawn(torch.randn, shape, source).to(device=like.device, dtype=like.dtype)


def uniform(like: Tensor, source: Generator) -> Tensor:
    """Noise uniform in [-1, 1] of the shape, device and dtype of `like`."""
    noise = 2 * drawn(torch.rand, tuple(like.shape), source) - 1
    return noise.to(device=like.device, dtype=like.dtype)


@contextmanager
def global_generators_kept() -> Iterator[None]:
    """Within it torch's global generators, those of every GPU too, may be seeded and drawn from;
    after it they are as they were. Torch does so by itself, but on a machine with several GPUs it
    warns unless they are counted for it."""
    found = torch.accelerator.current_accelerator()
    kind = "cuda" if found is None else found.type
    devices = range(torch.get_device_module(kind).device_count())
    with torch.random.fork_rng(devices, device_type=kind):
        yield


@contextmanager
def seeded(seed: int, *path: str | int) -> Iterator[None]:
    """Let torch's own initialisers draw from a named stream, and restore theirs afterwards."""
    with global_generators_kept():
        torch.manual_seed(generator(seed, *path).initial_seed())
        yield

"""One seed, split into independent generators by name.

Every random draw of the package comes from a `torch.Generator` made here: the order of the
training images, the training itself, the defence's noise and the attacks never share a stream,
and a training epoch has a stream of its own, so that a resumed run draws what the uninterrupted
one would have drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor


def generator(seed: int, *path: str | int, device: torch.device | str = "cpu") -> Generator:
    """The generator of one named stream, e.g. `generator(0, "purifier", "epoch", 3)`."""
    digest = hashlib.sha256(repr((seed, *path)).encode()).digest()
    return Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def normal(shape: tuple[int, ...], like: Tensor, source: Generator) -> Tensor:
    """Standard normal noise drawn where `source` lives, of the device and dtype of `like`."""
    noise = torch.randn(shape, generator=source, device=source.device, dtype=torch.float32)
    return noise.to(device=like.device, dtype=like.dtype)


def uniform(like: Tensor, source: Generator) -> Tensor:
    """Noise uniform in [-1, 1] of the shape, device and dtype of `like`."""
    noise = torch.rand(like.shape, generator=source, device=source.device, dtype=torch.float32)
    return (2 * noise - 1).to(device=like.device, dtype=like.dtype)


@contextmanager
def seeded(seed: int, *path: str | int) -> Iterator[None]:
    """Let torch's own initialisers draw from a named stream, and restore theirs afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(generator(seed, *path).initial_seed())
        yield

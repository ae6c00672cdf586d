"""Calls of `pyautoattack`, whose attacks draw from torch's global generator and seed it.

Every call runs inside `library_calls`, which gives the library a seed of ours and restores the
generator afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

from carso.attacks.attack import Model
from carso.randomness import global_generators_kept

NORMS = ("Linf", "L2")
"""The norms in which the library's attacks are run: those of our own threats."""
LOGGER = logging.getLogger("auto-attack")


class Warnings(logging.Handler):
    """Keeps what the library warns of, each message once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self.found:
            self.found.append(text)


@contextmanager
def library_calls(generator: Generator | None = None) -> Iterator[Warnings]:
    """Seed torch's global generator for the library, restore it, and collect its warnings."""
    heard = Warnings()
    propagate, level = LOGGER.propagate, LOGGER.level
    LOGGER.addHandler(heard)
    LOGGER.propagate = False
    LOGGER.setLevel(logging.WARNING)
    try:
        with global_generators_kept():
            if generator is not None:
                torch.manual_seed(seed_from(generator))
            yield heard
    finally:
        LOGGER.removeHandler(heard)
        LOGGER.propagate = propagate
        LOGGER.setLevel(level)


def seed_from(generator: Generator) -> int:
    """A seed for a library, drawn from `generator`."""
    return int(torch.randint(2**31, (1,), generator=generator, device=generator.device))


def classes_of(model: Model, images: Tensor) -> int:
    with torch.no_grad():
        return int(model(images[:1]).shape[1])


CLASSES_NEEDED = {"ce": 2, "dlr": 3, "dlr-targeted": 4}
"""How many classes a loss compares."""

"""Calls of `pyautoattack`, whose attacks draw from torch's global generator and seed it.

Every call runs inside `library_calls`, which gives the library a seed of ours and restores the
generator afterwards. It also restores the trace function: AutoAttack's look for dynamic defences
sets one of its own and then none, which would end the work of a debugger or of a coverage tool.
"""

from __future__ import annotations

import logging
import sys
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
    """Seed torch's global generator for the library, restore it and the trace function, and collect
    its warnings."""
    heard, trace = Warnings(), sys.gettrace()
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
        if sys.gettrace() is not trace:
            sys.settrace(trace)
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

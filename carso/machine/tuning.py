"""What is fastest on this machine, found out by `carso doctor --tune` and kept in the user's cache.

Results do not depend on it beyond the rounding of floats; records say what was in use.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from carso.errors import CarsoError
from carso.storage import files

FORMATS = {"channels-last": torch.channels_last, "contiguous": torch.contiguous_format}
WORTH = 0.95
"""An alternative is taken if it needs less than this share of the time."""

Action = Callable[[], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """How passes are run."""

    memory_format: str = "channels-last"
    """Of the classifier's weights."""
    precision: str = "float32"
    """Of the attacks inside hardening, where a scenario leaves it open ("tuned")."""
    compiled: bool = False
    """Whether the parts of a loaded purifier are compiled."""
    threads: int = 0
    """Where a command leaves it open; 0: torch's own choice."""
    ratios: dict[str, float] = field(default_factory=dict)
    """Time of each alternative over that of what stands above as the default."""

    def same(self) -> bool:
        """Whether nothing but the defaults was chosen."""
        return replace(self, ratios={}) == Tuning()


def place() -> Path:
    return files.cache() / "tuning.json"


def machine() -> dict[str, Any]:
    """What a tuning is good for."""
    return {
        "host": platform.node(),
        "torch": torch.__version__,
        "processor": platform.machine(),
        "cores": os.cpu_count(),
    }


UNTUNED: ContextVar[bool] = ContextVar("untuned", default=False)


@contextmanager
def untuned() -> Iterator[None]:
    """Within it, the defaults hold: what a measurement compares with."""
    token = UNTUNED.set(True)
    try:
        yield
    finally:
        UNTUNED.reset(token)


def current() -> Tuning:
    """The tuning of this machine, or the defaults where it was never tuned."""
    return Tuning() if UNTUNED.get() else kept()


@cache
def kept() -> Tuning:
    """What was found in the user's cache."""
    try:
        found = files.read_json(place())
        tuning = Tuning(**found["tuning"])
    except (OSError, CarsoError, KeyError, TypeError):
        return Tuning()
    fits = found.get("machine") == machine() and tuning.memory_format in FORMATS
    return tuning if fits else Tuning()


def keep(tuning: Tuning) -> Path:
    """Remember a tuning for later commands."""
    files.write_json(place(), {"machine": machine(), "tuning": asdict(tuning)})
    kept.cache_clear()
    return place()


def laid_out(module: nn.Module, memory_format: str) -> nn.Module:
    """The module with its weights in a memory format."""
    return module.to(memory_format=FORMATS[memory_format])  # type: ignore[call-overload, no-any-return]


def compile_parts(module: nn.Module) -> None:
    """Compile each part of a module, in place, when it is first called."""
    for part in module.children():
        part.compile()


def ratio(plain: Action, other: Action, *, turns: int) -> float:
    """The time of `other` over that of `plain`, in turns: the median of the ratios."""
    for action in (plain, other):
        action()  # warm
    return statistics.median(seconds(other) / seconds(plain) for _ in range(turns))


def seconds(action: Action) -> float:
    """How long `action` takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def chosen(ratios: dict[str, float]) -> Tuning:
    """What the measured ratios recommend."""
    threads = 1 if ratios.get("one thread", 1.0) < WORTH else 0
    return Tuning(
        memory_format="contiguous" if ratios["contiguous"] < WORTH else "channels-last",
        precision="bfloat16" if ratios["bfloat16"] < WORTH else "float32",
        compiled=ratios.get("compiled purifier", 1.0) < WORTH,
        threads=threads,
        ratios=ratios,
    )

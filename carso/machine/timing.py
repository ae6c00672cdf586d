"""How long things take, one beside the other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

Action = Callable[[], object]

WORTH = 0.95
"""An alternative is worth taking if it needs less than this share of the time."""


def seconds(action: Action) -> float:
    """How long `action` takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def ratio(plain: Action, other: Action, *, turns: int) -> float:
    """The time of `other` over that of `plain`, in turns: the median of the ratios."""
    for action in (plain, other):
        action()  # warm
    return statistics.median(seconds(other) / seconds(plain) for _ in range(turns))

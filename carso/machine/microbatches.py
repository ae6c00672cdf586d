"""Large batches in slices, where that is faster."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MICROBATCH = 256
"""Images. On a CPU the activations of more of them leave the cache, and each image takes longer."""


def in_microbatches(function: Callable[..., Tensor], *batches: Tensor) -> Tensor:
    """`function(*batches)` for a function that treats every image apart; in slices on a CPU."""
    if torch.compiler.is_exporting():  # any number of images goes through the graph
        return function(*batches)
    if len(batches[0]) <= MICROBATCH or batches[0].device.type != "cpu":
        return function(*batches)
    parts = zip(*(torch.split(batch, MICROBATCH) for batch in batches), strict=True)
    return torch.cat([function(*part) for part in parts])

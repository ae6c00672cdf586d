"""How an activation of a classifier enters the U-Net."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carso.errors import CarsoError
from carso.purifiers.unet.network import Size


class MapEntry(nn.Module):
    """Maps (B, C, h, w), or tokens (B, T, C) that are one, enter by a 1x1 convolution.

    Of tokens, a class token before the map is no part of it: `leading` is 1 where there is one.
    """

    def __init__(self, shape: tuple[int, ...], width: int, *, grid: Size, leading: int = 0) -> None:
        super().__init__()
        self.grid, self.leading = grid, leading
        channels = shape[0] if len(shape) == 3 else shape[1]
        self.project = nn.Conv2d(channels, width, 1)

    def forward(self, activation: Tensor, size: Size) -> Tensor:
        """(B, width, *size), resized where the activation has another resolution."""
        entered: Tensor = self.project(self.as_map(activation))
        if entered.shape[2:] != torch.Size(size):
            entered = F.interpolate(entered, size=size, mode="bilinear", align_corners=False)
        return entered

    def as_map(self, activation: Tensor) -> Tensor:
        """The activation as (B, C, h, w)."""
        if activation.ndim == 4:
            return activation
        height, width = self.grid_of(activation)
        tokens = activation[:, self.leading :].transpose(1, 2)  # (B, C, T)
        return tokens.unflatten(2, (height, width))  # type: ignore[no-any-return, no-untyped-call]

    def grid_of(self, activation: Tensor) -> Size:
        """The resolution of an activation; tokens of another number are taken for a square."""
        if activation.ndim == 4:
            return activation.shape[2], activation.shape[3]
        count = activation.shape[1] - self.leading
        grid = self.grid if count == math.prod(self.grid) else square(count)
        if grid is None:
            raise CarsoError(f"{count} tokens are no square, so their place is not known")
        return grid


class VectorEntry(nn.Module):
    """Vectors (B, F), and the mean of tokens that are no map, fill the coarsest level evenly."""

    def __init__(self, shape: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.project = nn.Linear(shape[-1], width)

    def forward(self, activation: Tensor, size: Size) -> Tensor:
        """(B, width, *size)."""
        vector = activation.mean(dim=1) if activation.ndim == 3 else activation
        return self.project(vector)[:, :, None, None].expand(-1, -1, *size)  # type: ignore[no-any-return]


def token_grid(count: int, sizes: Sequence[Size]) -> tuple[Size, int] | None:
    """The resolution of `count` tokens and how many lead it: none, or a class token.

    They fit one of the `sizes` that the levels have, or are a square; None where they are neither.
    """
    for leading in (0, 1):
        for size in sizes:
            if math.prod(size) == count - leading:
                return size, leading
        if found := square(count - leading):
            return found, leading
    return None


def square(count: int) -> Size | None:
    side = math.isqrt(count)
    return (side, side) if side and side * side == count else None


def nearest_level(grid: Size, sizes: Sequence[Size]) -> int:
    """The level whose resolution is nearest to `grid`, as a ratio of pixels."""
    pixels = math.log(math.prod(grid))
    apart = [abs(math.log(math.prod(size)) - pixels) for size in sizes]
    return apart.index(min(apart))

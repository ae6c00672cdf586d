"""A U-Net that starts from features at every level, rather than from an image.

Level 0 has the image's own resolution; each next one has half of it, rounded up. No layer knows a
size, so one set of weights serves images of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

Size = tuple[int, int]
"""Height and width."""
Norm = Callable[[int], nn.Module]
"""What makes a normalisation of so many channels."""


def level_sizes(size: Size, levels: int) -> list[Size]:
    """The resolution of each level, from `size` down."""
    sizes = [size]
    for _ in range(levels - 1):
        height, width = sizes[-1]
        sizes.append(((height + 1) // 2, (width + 1) // 2))
    return sizes


class UNet(nn.Module):
    """Features at every level to one image: down with what enters on the way, up with skips."""

    def __init__(
        self,
        channels: int,
        *,
        widths: Sequence[int],
        blocks: Sequence[int],
        up_blocks: Sequence[int] = (),
        norm: Norm = nn.BatchNorm2d,
        skips: bool = True,
    ) -> None:
        """`widths` are the channels of each level, `blocks` its residual blocks on the way down,
        `up_blocks` those of all but the coarsest on the way up; as many where none are given.
        Without `skips` the way up knows the coarsest level alone."""
        super().__init__()
        self.skips = skips
        stack = partial(residuals, norm=norm)
        pairs = list(pairwise(widths))
        self.encoders = nn.ModuleList(map(stack, widths, blocks))
        # A kernel of 3 with a stride of 2 and padding gives half the size, rounded up.
        self.downs = nn.ModuleList(
            nn.Conv2d(fine, coarse, 3, stride=2, padding=1) for fine, coarse in pairs
        )
        self.ups = nn.ModuleList(nn.Conv2d(coarse, fine, 1) for fine, coarse in pairs)
        self.decoders = nn.ModuleList(map(stack, widths[:-1], up_blocks or blocks))
        self.last = nn.Sequential(
            norm(widths[0]), nn.SiLU(), nn.Conv2d(widths[0], channels, 3, padding=1)
        )

    def forward(self, entries: Sequence[Tensor]) -> Tensor:
        """`entries` are features (B, width, h, w) of each level, the finest first; the result is
        an image (B, C, H, W) before any sigmoid."""
        return self.up(self.down(entries))

    def down(self, entries: Sequence[Tensor]) -> list[Tensor]:
        """The features of every level on the way down, the finest first."""
        found: list[Tensor] = []
        x = entries[0]
        for level, encoder in enumerate(self.encoders):
            if level:
                x = self.downs[level - 1](x) + entries[level]
            x = encoder(x)
            found.append(x)
        return found

    def up(self, found: Sequence[Tensor]) -> Tensor:
        """The image before any sigmoid, from what `down` gave."""
        x = found[-1]
        for level in reversed(range(len(self.decoders))):
            # The 1x1 convolution comes before the resizing, where it has less to do.
            x = F.interpolate(self.ups[level](x), size=found[level].shape[2:], mode="nearest")
            x = self.decoders[level](x + found[level] if self.skips else x)
        return self.last(x)  # type: ignore[no-any-return]


class Residual(nn.Module):
    """x plus a correction: twice a norm, SiLU and a 3x3 convolution."""

    def __init__(self, width: int, *, norm: Norm = nn.BatchNorm2d) -> None:
        super().__init__()
        self.correction = nn.Sequential(
            norm(width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            norm(width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.correction(x)  # type: ignore[no-any-return]


def residuals(width: int, blocks: int, *, norm: Norm) -> nn.Sequential:
    """`blocks` residual blocks in a row."""
    return nn.Sequential(*(Residual(width, norm=norm) for _ in range(blocks)))

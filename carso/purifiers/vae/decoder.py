"""(z, c) to image: a linear layer and five transposed convolutions (the paper's decoder tables).

Children are numbered as in the authors' published files: 0 the linear layer, 1 to 4 the doubling
stages, 5 the last transposed convolution.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from carso.purifiers.vae.conditioning import SLOPE, Concatenate

DOUBLINGS = 4


class Decoder(nn.Sequential):
    """Images of `image_shape` in [0, 1] from a latent code and a condition."""

    def __init__(
        self, image_shape: tuple[int, int, int], *, latent: int, condition: int, width: int = 256
    ) -> None:
        channels, height, width_pixels = image_shape
        vertical, horizontal = Side(height), Side(width_pixels)
        start = (width, vertical.sizes[0], horizontal.sizes[0])
        widths = (width, width, width // 2, width // 4, width // 8)
        self.image_shape = image_shape
        super().__init__(
            nn.Sequential(
                Concatenate(),
                nn.Linear(latent + condition, start[0] * start[1] * start[2]),
                nn.LeakyReLU(SLOPE),
                nn.Unflatten(1, start),
            ),
            *(
                nn.Sequential(
                    nn.ConvTranspose2d(
                        widths[i],
                        widths[i + 1],
                        3,
                        stride=2,
                        padding=1,
                        output_padding=(vertical.extra[i], horizontal.extra[i]),
                        bias=False,
                    ),
                    nn.BatchNorm2d(widths[i + 1]),
                    nn.LeakyReLU(SLOPE),
                )
                for i in range(DOUBLINGS)
            ),
            nn.ConvTranspose2d(
                widths[-1], channels, (vertical.kernel, horizontal.kernel), padding=1
            ),
            nn.Sigmoid(),
        )

    def forward(self, latent: Tensor, condition: Tensor) -> Tensor:  # type: ignore[override]
        return torch.sigmoid(self.logits(latent, condition))  # (B, C, H, W) in [0, 1]

    def logits(self, latent: Tensor, condition: Tensor) -> Tensor:
        """The images before the sigmoid, from which the loss is computed without rounding."""
        x: Tensor = self[0]([latent, condition])
        for module in list(self)[1:-1]:
            x = module(x)
        return x


class Side:
    """How one side of the image grows to its size through the doublings.

    Read backwards from the end, each doubling gives 2s - 1 or, with output padding, 2s pixels.
    Where that would start below 3 pixels, one pixel too many is grown and cut by a last kernel
    of 2 instead of 3, if that helps: it is how the paper reaches 32 from 3, while 64 comes from 4.
    """

    def __init__(self, size: int) -> None:
        self.kernel, (self.sizes, self.extra) = 3, growth(size)
        if self.sizes[0] < 3 and growth(size + 1)[0][0] >= 3:
            self.kernel, (self.sizes, self.extra) = 2, growth(size + 1)


def growth(size: int) -> tuple[list[int], list[int]]:
    """The sizes before each doubling, and the output padding of each, that end in `size`."""
    sizes: list[int] = []
    extra: list[int] = []
    for _ in range(DOUBLINGS):
        extra.insert(0, 1 - size % 2)
        size = (size + 1) // 2
        sizes.insert(0, size)
    return sizes, extra

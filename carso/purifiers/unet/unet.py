"""The U-Net purifier: candidates from the classifier's activations, by convolutions alone.

Each layer of the representation enters at the level of its own resolution, noise enters at every
level, and a sigmoid gives the image. What an image shows at a place is rebuilt from what the
classifier saw there, so that little is lost on the way, and no layer depends on the image's size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from carso.purifiers.base import PurifierLoss
from carso.purifiers.reconstruction import reconstruction_cost
from carso.purifiers.unet.network import UNet
from carso.purifiers.unet.reader import ActivationReader


class UNetPurifier(ActivationReader):
    """One pass of the network from activations and noise to an image."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        *,
        layers: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        widths: Sequence[int] = (16, 32, 64, 96),
        blocks: Sequence[int] = (1, 2, 2, 2),
        up_blocks: Sequence[int] = (),
        noise: int = 4,
        skips: bool = True,
    ) -> None:
        """`widths` are the channels of each level, `blocks` the residual blocks of each on the way
        down, `up_blocks` of all but the coarsest on the way up (as many where none are given),
        `noise` its channels of noise; with none, all candidates of an image are the same. `skips`
        join the way up to the way down at each level."""
        super().__init__(image_shape, layers=layers, shapes=shapes, widths=widths, blocks=blocks)
        self.noise_channels = noise
        noises = [nn.Conv2d(noise, width, 1, bias=False) for width in self.widths if noise]
        for project in noises:
            nn.init.normal_(project.weight, std=0.1)  # small: noise is no substitute for sight
        self.noises = nn.ModuleList(noises)
        self.network = UNet(
            self.channels, widths=self.widths, blocks=blocks, up_blocks=up_blocks, skips=skips
        )
        # On a CPU a step of training is a fifth faster with its channels last.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def noise_size(self, entries: Sequence[Tensor]) -> int:
        """The noise of all levels."""
        return self.noise_channels * sum(math.prod(entry.shape[2:]) for entry in entries)

    def decode(self, entries: Sequence[Tensor], noise: Tensor) -> Tensor:
        """Candidates (B, C, H, W) before the sigmoid, from features and a row of noise each."""
        return self.network(self.with_noise(entries, noise))  # type: ignore[no-any-return]

    def with_noise(self, entries: Sequence[Tensor], noise: Tensor) -> Sequence[Tensor]:
        """The features of each level, and the part of the row of noise that belongs there."""
        if not self.noise_channels:
            return entries
        noisy, start = [], 0
        for entry, project in zip(entries, self.noises, strict=True):
            size = entry.shape[2:]
            end = start + self.noise_channels * math.prod(size)
            level = noise[:, start:end].reshape(noise.shape[0], self.noise_channels, *size)
            noisy.append(entry + project(level))
            start = end
        return noisy

    @property
    def summary_size(self) -> int:
        """How many numbers a summary has."""
        return self.widths[-1]

    def summary(self, activations: Sequence[Tensor], generator: Generator) -> Tensor:
        """What the coarsest level holds of each image, (B, F): nothing is painted for it."""
        return self.reached(activations, generator)[-1].float().mean(dim=(2, 3))

    def with_summary(
        self, activations: Sequence[Tensor], generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """`pixel_logits` and `summary` of the same candidates, from one pass."""
        found = self.reached(activations, generator)
        return self.network.up(found).float(), found[-1].float().mean(dim=(2, 3))

    def reached(self, activations: Sequence[Tensor], generator: Generator) -> list[Tensor]:
        """The features of every level on the way down, with the noise of one candidate."""
        entries = self.enter(activations)
        return self.network.down(self.with_noise(entries, self.draw(entries, 1, generator)[0]))

    def loss(
        self,
        images: Tensor,
        clean: Tensor,
        activations: Sequence[Tensor],
        generator: Generator,
        *,
        beta: float,
        free_bits: float,
    ) -> PurifierLoss:
        """The reconstruction of the clean images; there is no prior, and so no other term."""
        cost = reconstruction_cost(self.pixel_logits(activations, generator), clean).sum()
        return PurifierLoss(total=cost, terms={"reconstruction": cost})

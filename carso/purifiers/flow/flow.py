"""The flow purifier: from noise to the clean image in a few steps, each of which sees the
activations (flow matching, Lipman et al. 2023, along straight lines).

On its way an image is z_t = (1 - t) z_0 + t x, with z_0 normal noise and x the clean image scaled
to [-1, 1]. The network sees z_t, t and the activations and says which x they come from. What it
says passes a sigmoid, so it is an image. It is trained by the binary cross-entropy, whose minimum
is the mean of x given z_t; the velocity of the flow is thus (that image - z_t) / (1 - t). From a
time t = k / K, Euler's step of 1 / K goes the (K - k)th part of the way to that image. The last one
goes all of it: the candidate is the sigmoid of the network's last word, in [0, 1] without any
clipping, and `pixel_logits` is that word itself.
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
from carso.randomness import uniform

FREQUENCIES = (1, 2, 4, 8)
"""Of the features of time, in half turns."""
GROUPS = 8
"""Channels are normalised in at most so many groups."""


class FlowPurifier(ActivationReader):
    """A U-Net as the velocity of a flow; see the top of this file."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        *,
        layers: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        widths: Sequence[int] = (16, 32, 64, 96),
        blocks: Sequence[int] = (1, 2, 2, 2),
        steps: int = 4,
    ) -> None:
        """`widths` and `blocks` are those of the U-Net, `steps` are Euler's at inference."""
        super().__init__(image_shape, layers=layers, shapes=shapes, widths=widths, blocks=blocks)
        self.steps = steps
        self.state = nn.Conv2d(self.channels, self.widths[0], 3, padding=1)
        self.times = nn.ModuleList(nn.Linear(2 * len(FREQUENCIES), width) for width in self.widths)
        # Not by batches: features of one time must not be normalised by statistics of others.
        self.network = UNet(self.channels, widths=self.widths, blocks=blocks, norm=group_norm)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def noise_size(self, entries: Sequence[Tensor]) -> int:
        """An image of noise."""
        return self.channels * math.prod(entries[0].shape[2:])

    def decode(self, entries: Sequence[Tensor], noise: Tensor) -> Tensor:
        """Candidates (B, C, H, W) before the sigmoid, where all steps from `noise` lead."""
        z = self.noise_image(entries, noise)
        for step in range(self.steps - 1):
            time = noise.new_full((noise.shape[0],), step / self.steps)
            aim = 2 * torch.sigmoid(self.clean_logits(entries, z, time)) - 1
            z = z + (aim - z) / (self.steps - step)
        time = noise.new_full((noise.shape[0],), (self.steps - 1) / self.steps)
        return self.clean_logits(entries, z, time)

    def noise_image(self, entries: Sequence[Tensor], noise: Tensor) -> Tensor:
        """Rows of noise as images (B, C, H, W)."""
        size = entries[0].shape[2:]
        return noise[:, : self.noise_size(entries)].reshape(noise.shape[0], self.channels, *size)

    def clean_logits(self, entries: Sequence[Tensor], z: Tensor, time: Tensor) -> Tensor:
        """The clean image before the sigmoid, as far as `z` (B, C, H, W) at `time` (B,) and the
        features tell."""
        turns = math.pi * time[:, None] * time.new_tensor(FREQUENCIES)  # (B, 4)
        features = torch.cat([turns.sin(), turns.cos()], dim=1)  # (B, 8)
        timed = [
            entry + project(features)[:, :, None, None]
            for entry, project in zip(entries, self.times, strict=True)
        ]
        timed[0] = timed[0] + self.state(z)
        return self.network(timed)  # type: ignore[no-any-return]

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
        """The cross-entropy of the clean images from a random point of their way each; there is no
        prior, and so no other term."""
        entries = self.enter(activations)
        noise = self.noise_image(entries, self.draw(entries, 1, generator)[0])
        time = (uniform(noise[:, 0, 0, 0], generator) + 1) / 2  # (B,) in [0, 1)
        share = time.view(-1, 1, 1, 1)
        z = (1 - share) * noise + share * (2 * clean - 1)
        cost = reconstruction_cost(self.clean_logits(entries, z, time).float(), clean).sum()
        return PurifierLoss(total=cost, terms={"reconstruction": cost})


def group_norm(width: int) -> nn.Module:
    """A norm of `width` channels of one image, in groups of equal size."""
    return nn.GroupNorm(math.gcd(GROUPS, width), width)
